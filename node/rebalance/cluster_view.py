"""What is observed of the cluster: groups as their leaders see them, nodes as they see themselves.

Contract.  Plain values, gathered by the driver and judged by ``decide``, ``replicas`` and
``safety``.  What nobody answered for is missing: nothing is decided about it, and the move says
that it waits for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multiraft.wire.plans import DRAINING, MAINTENANCE, LookedGroup, LookedMember

UP = "up"

#: What an operator wants of a node that is to get neither replicas nor leaders, in words.
_SPARED = {DRAINING: "is draining", MAINTENANCE: "is in maintenance"}


class SeenNode(NamedTuple):
    """A node.  ``state``: up, down or unknown, as the metadata leader's leases say; ``intent``:
    what the operator wants of it.  Disk and latency are its own word: ``disk_used`` bytes are in
    its data directory, of ``disk_total`` that could be, 0 while it gave none."""

    id: int
    state: str
    intent: str
    disk_used: int = 0
    disk_total: int = 0
    disk_full: bool = False
    damaged: int = 0  # replicas that are quarantined and vote
    commit_ms: int = -1

    @property
    def disk_permille(self) -> int:
        """How full its disk is, in thousandths; 0 = not known."""
        return self.disk_used * 1000 // self.disk_total if self.disk_total else 0


class SeenPartition(NamedTuple):
    """Where a partition is, as the metadata say; ``switch_epoch`` 0 = none is decided."""

    group: int
    epoch: int
    switch_epoch: int
    switch_group: int


class World(NamedTuple):
    """Everything at one moment.  ``groups``: only those of moves under way or about to start, and
    of these only those whose leader answered; ``leaders``: group -> its leader, of all of those;
    ``unreachable``: groups whose leader is not known or did not answer, and why.  ``partitions``:
    those that were looked at, None = there is none any more.  ``bare``: groups whose voters that
    are up are no majority.  ``replication_factor``: the cluster's."""

    nodes: dict[int, SeenNode]
    groups: dict[int, LookedGroup]
    leaders: dict[int, int]
    unreachable: dict[int, str]
    partitions: dict[int, SeenPartition | None]
    bare: tuple[int, ...]
    waited_ms: dict[int, int]
    still_ms: dict[int, int]
    replication_factor: int

    def is_up(self, node: int) -> bool:
        """Whether a node is heard of."""
        found = self.nodes.get(node)
        return found is not None and found.state == UP

    def is_draining(self, node: int) -> bool:
        """Whether the operator wants a node to be empty."""
        found = self.nodes.get(node)
        return found is not None and found.intent == DRAINING

    def spared(self, nodes: Iterable[int]) -> str:
        """Why one of these is to get neither replicas nor leaders, and the way out; empty when all
        may."""
        for node in nodes:
            found = self.nodes.get(node)
            if found is not None and found.intent in _SPARED:
                return (f"node {node} {_SPARED[found.intent]} and gets nothing until `multiraft "
                        f"node undrain {node}`")
        return ""


def member_of(group: LookedGroup, node: int) -> LookedMember | None:
    """A member other than the leader."""
    return next((member for member in group.members if member.node == node), None)
