"""Observations of the cluster: groups as reported by their leaders, nodes as reported by
themselves.

Contract.  Plain values, gathered by the observer and evaluated by the scheduler, ``replica_change``
and ``safety``.  A group or node without an answer is missing: nothing is decided about it, and its
move reports that it waits for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multiraft.wire.plans import DRAINING, MAINTENANCE, ProbedGroup, ProbedMember

UP = "up"

#: States of a node that receives neither replicas nor leaders -> their words in a reason.
_EXCLUDED = {DRAINING: "is draining", MAINTENANCE: "is in maintenance"}


class SeenNode(NamedTuple):
    """A node.  ``state``: up, down or unknown, by the metadata leader's leases; ``desired_state``:
    the state that an operator set.  Disk and latency are reported by the node itself: ``disk_used``
    bytes are in its data directory, of ``disk_total`` that it could hold; 0 until the node has
    reported."""

    id: int
    state: str
    desired_state: str
    disk_used: int = 0
    disk_total: int = 0
    disk_full: bool = False
    damaged: int = 0  # quarantined replicas of voters
    commit_ms: int = -1

    @property
    def disk_permille(self) -> int:
        """Fill level of the node's disk, in thousandths; 0 = not known."""
        return self.disk_used * 1000 // self.disk_total if self.disk_total else 0


class SeenPartition(NamedTuple):
    """The group and epoch of a partition in the metadata; ``switch_epoch`` 0 = no switch is
    decided.  ``is_compacted``: its records are compacted by key, so that it stays."""

    group: int
    epoch: int
    switch_epoch: int
    switch_group: int
    is_compacted: bool = False


class ClusterView(NamedTuple):
    """A view of the cluster at one moment.

    ``groups``: only those of moves that are under way or about to start, and of these only those
    whose leader answered; ``leaders``: group -> its leader, for the same groups; ``unreachable``:
    groups whose leader is not known or did not answer, with the reason.  ``partitions``: those that
    were looked up, None = deleted.  ``without_quorum``: groups without a majority of voters that
    are up. ``replication_factor``: the cluster's.
    """

    nodes: dict[int, SeenNode]
    groups: dict[int, ProbedGroup]
    leaders: dict[int, int]
    unreachable: dict[int, str]
    partitions: dict[int, SeenPartition | None]
    without_quorum: tuple[int, ...]
    waited_ms: dict[int, int]
    stalled_ms: dict[int, int]
    replication_factor: int

    def is_up(self, node: int) -> bool:
        """Return True if the node is up."""
        found = self.nodes.get(node)
        return found is not None and found.state == UP

    def is_draining(self, node: int) -> bool:
        """Return True if the operator wants the node to be empty."""
        found = self.nodes.get(node)
        return found is not None and found.desired_state == DRAINING

    def exclusion(self, nodes: Iterable[int]) -> str:
        """Return the reason why one of these nodes receives neither replicas nor leaders, and the
        remedy; empty when all may receive them."""
        for node in nodes:
            found = self.nodes.get(node)
            if found is not None and found.desired_state in _EXCLUDED:
                return (f"node {node} {_EXCLUDED[found.desired_state]} and gets nothing until "
                        f"`multiraft node undrain {node}`")
        return ""


def member_of(group: ProbedGroup, node: int) -> ProbedMember | None:
    """Return the report on ``node`` by the group's leader; None for the leader itself and for other
    nodes."""
    return next((member for member in group.members if member.node == node), None)
