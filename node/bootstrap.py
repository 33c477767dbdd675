"""The bootstrap of a new cluster: its groups and the nodes that hold them, as a pure function of
the configuration.

Contract. Every node of a new cluster computes the same allocation from the same ``[cluster]``
table, without asking another node. ``node init`` keeps the table in the data directory: later edits
of the file do not change the allocation. The first leader of the metadata group proposes it as the
first command; from then on Raft configurations and metadata are authoritative.
"""

from __future__ import annotations

from node.config import Member, NodeConfig
from node.errors import BadConfig
from node.metadata.state_machine import Bootstrap, MetadataState, NodeRecord, plan_bootstrap
from node.peers.registry import Facts, of_new_cluster
from placement import PlacementError
from placement.topology import WEIGHT_DEFAULT


def record_of(member: Member, incarnation: int = 0, boot_epoch: int = 0, version: str = "",
              started_ms: int = 0) -> NodeRecord:
    """Return the metadata's record of a node in the configuration; the other arguments describe its
    present start, 0 = not known."""
    return NodeRecord(member.id, incarnation, boot_epoch, str(member.client_address),
                      str(member.peer_address), member.rack,
                      max(1, round(member.weight * WEIGHT_DEFAULT)), version, started_ms)


def initial_facts(config: NodeConfig) -> Facts:
    """Return the facts of a node of a new cluster before its first contact with another node."""
    return of_new_cluster(config.cluster_id, config.groups, config.replication_factor,
                          tuple(map(record_of, config.members)))


def plan_of(facts: Facts) -> Bootstrap | None:
    """Return the first command of a new cluster; None for a node that joined one. Raises
    ``BadConfig`` if the nodes cannot hold the replicas."""
    if not facts.initial:
        return None
    hash_seed = int.from_bytes(facts.cluster[:8], "big") >> 1
    try:
        return plan_bootstrap(facts.cluster, facts.initial, facts.groups,
                              facts.replication_factor, hash_seed)
    except PlacementError as error:
        raise BadConfig(f"the cluster cannot be placed: {error}") from error


def bootstrapped(plan: Bootstrap) -> MetadataState:
    """Return the metadata right after the bootstrap ``plan`` was applied as the first command."""
    state = MetadataState()
    result = state.apply(1, plan)
    assert result.error is None, result.error
    return state


def edited(config: NodeConfig, facts: Facts) -> list[str]:
    """Return the differences between the configuration file and the cluster, as texts. Nodes that
    joined, moved or were removed since the table was read make no difference: it says how the
    cluster began. O(nodes)."""
    differences = []
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


def _place(node: NodeRecord) -> str:
    return (f"{node.client_address}, {node.peer_address}, rack {node.rack!r}, weight "
            f"{node.weight / WEIGHT_DEFAULT:g}")
