"""The first start: which groups exist and which nodes hold them, as a pure function of the config.

Contract.  Every node of a new cluster computes the same plan from the same ``[cluster]`` table, so
no node has to be asked first.  The metadata group's first leader proposes the plan as the first
command; from then on Raft memberships and metadata are the authority and this is never asked again.
"""

from __future__ import annotations

from node.config import NodeConfig
from node.errors import BadConfig
from node.metadata import Bootstrap, MetadataState, NodeRecord, plan_bootstrap
from placement import PlacementError
from placement.topology import WEIGHT_DEFAULT


def plan_of(config: NodeConfig) -> Bootstrap:
    """The first command of a new cluster.  Raises ``BadConfig``."""
    nodes = [NodeRecord(member.id, 0, 0, str(member.client_address), str(member.peer_address),
                        member.rack, max(1, round(member.weight * WEIGHT_DEFAULT)))
             for member in config.members]
    hash_seed = int.from_bytes(config.cluster_id[:8], "big") >> 1
    try:
        return plan_bootstrap(config.cluster_id, nodes, config.groups, config.replication_factor,
                              hash_seed)
    except PlacementError as error:
        raise BadConfig(f"the cluster cannot be placed: {error}") from error


def bootstrapped(plan: Bootstrap) -> MetadataState:
    """The metadata as they are right after the plan was applied."""
    state = MetadataState()
    result = state.apply(1, plan)
    assert result.error is None, result.error
    return state
