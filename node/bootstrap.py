"""The bootstrap of a new cluster: its groups, the nodes that hold them, and its defaults of topics,
as a pure function of the configuration.

Contract. Every node of a new cluster computes the same allocation from the same tables
``[cluster]`` and ``[topic_defaults]``, without asking another node. ``node init`` keeps them in the
data directory: later edits of the file do not change the allocation. The first leader of the
metadata group proposes it as the first command; from then on Raft configurations and metadata are
authoritative.
"""

from __future__ import annotations

from node import topic_defaults
from node.config import KafkaConfig, Member, NodeConfig
from node.errors import BadConfig
from node.metadata.settings_table import CLUSTER
from node.metadata.state_machine import Bootstrap, MetadataState, NodeRecord, plan_bootstrap
from node.peers.registry import Facts, of_new_cluster
from placement import PlacementError
from placement.topology import WEIGHT_DEFAULT

NO_KAFKA = KafkaConfig()


def record_of(member: Member, incarnation: int = 0, boot_epoch: int = 0, version: str = "",
              started_ms: int = 0, kafka: KafkaConfig = NO_KAFKA) -> NodeRecord:
    """Return the metadata's record of a node in the configuration; the other arguments describe its
    present start, 0 = not known. The address for Kafka's clients is not part of [cluster]: others
    know it once the node has registered."""
    return NodeRecord(member.id, incarnation, boot_epoch, str(member.client_address),
                      str(member.peer_address), member.rack,
                      max(1, round(member.weight * WEIGHT_DEFAULT)), version, started_ms,
                      str(kafka.advertised() or ""))


def initial_facts(config: NodeConfig) -> Facts:
    """Return the facts of a node of a new cluster before its first contact with another node."""
    return of_new_cluster(config.cluster_id, config.groups, config.replication_factor,
                          tuple(map(record_of, config.members)), config.topic_defaults)


def plan_of(facts: Facts) -> Bootstrap | None:
    """Return the first command of a new cluster; None for a node that joined one. Raises
    ``BadConfig`` if the nodes cannot hold the replicas."""
    if not facts.initial:
        return None
    hash_seed = int.from_bytes(facts.cluster[:8], "big") >> 1
    try:
        return plan_bootstrap(facts.cluster, facts.initial, facts.groups,
                              facts.replication_factor, hash_seed, facts.topic_defaults)
    except PlacementError as error:
        raise BadConfig(f"the cluster cannot be placed: {error}") from error


def bootstrapped(plan: Bootstrap) -> MetadataState:
    """Return the metadata right after the bootstrap ``plan`` was applied as the first command."""
    state = MetadataState()
    result = state.apply(1, plan)
    assert result.error is None, result.error
    return state


def edited(config: NodeConfig, facts: Facts, state: MetadataState) -> list[str]:
    """Return the differences between the configuration file and the cluster, as texts; ``state``:
    the metadata as far as this node has them. Nodes that joined, moved or were removed since the
    tables were read make no difference, nor do settings that were altered: they say how the cluster
    began. O(nodes)."""
    differences = _edited_defaults(config.topic_defaults, facts, state)
    if config.groups and config.groups != facts.groups:
        differences.append(f"groups: {config.groups} in the file, {facts.groups} in the cluster")
    if config.replication_factor not in (0, facts.replication_factor):
        differences.append(f"replication_factor: {config.replication_factor} in the file, "
                           f"{facts.replication_factor} in the cluster")
    initial = {node.id: node for node in facts.initial}
    for member in map(record_of, config.members):
        known = facts.nodes.get(member.id)
        began = initial.get(member.id)
        if member.id == config.node.id or (began and _place(member) == _place(began)):
            continue
        if known is None:
            differences.append(f"node {member.id} is in the file, not in the cluster")
        elif _place(member) != _place(known):
            differences.append(f"node {member.id} is {_place(member)} in the file, "
                               f"{_place(known)} in the cluster")
    named = {member.id for member in config.members}
    differences += [f"node {node} is in the cluster, not in the file" for node in initial
                    if named and node not in named and node in facts.nodes]
    return differences


def _edited_defaults(in_file: topic_defaults.Pairs, facts: Facts, state: MetadataState
                     ) -> list[str]:
    known = state.settings.of(CLUSTER).pairs if state.cluster_id else facts.topic_defaults
    if not in_file or in_file in (facts.topic_defaults, known):
        return []
    if not state.cluster_id and not facts.initial:
        return []  # a node that has just joined does not know the settings of the cluster
    return [f"{topic_defaults.TABLE}: {topic_defaults.shown(in_file)} in the file, "
            f"{topic_defaults.shown(known)} in the cluster; `multiraft cluster settings` changes "
            f"them"]


def _place(node: NodeRecord) -> str:
    return (f"{node.client_address}, {node.peer_address}, rack {node.rack!r}, weight "
            f"{node.weight / WEIGHT_DEFAULT:g}")
