"""Page cache of a simulated node: whether a power loss takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.oracle.model import is_majority

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort


def survives_power_loss(env: NodeEnv, cluster: ClusterPort) -> bool:
    """True if the node keeps its page cache when it loses power (relaxed durability).

    Nodes lose unsynced records one at a time.  A node loses none while another node is down,
    damaged or being replaced, since that node's copies and vote do not count.  A node that is a
    majority by itself never loses any: members change, so a group may have one voter.
    """
    if not env.parameters.spares_power:
        return False
    if not cluster.replacements.is_done or not all(
            other.is_up and other.is_whole for other in cluster.nodes.values()
            if other.node != env.node):
        return True
    replicas = [replica for group in env.state_checker.groups.values()
                if (replica := group.replicas.get(env.node)) is not None]
    return any(is_majority(configuration, [env.node]) for replica in replicas
               for configuration in (replica.configuration(), replica.group.configuration()))
