"""Which replica of a partition to read from: the preferred one, or one that works.

Contract.  ``choose`` names a node whose address is known, or 0.  A node that failed, is behind or
served a damaged batch is avoided for a while, as long as there is another.

Theory.  Every replica serves nothing but what is committed; they differ in how soon they have the
newest.  The leader is the fallback of the nearest replica and the other replicas are the fallback
of the leader: reading goes on while a leader is elected.
"""

from __future__ import annotations

from multiraft.client._metadata import MetadataCache

LEADER_FIRST = "leader"
NEAREST_FIRST = "nearest"
PREFERENCES = (LEADER_FIRST, NEAREST_FIRST)

#: A replica that failed or was behind is left alone for this long: an election takes less, and a
#: replica that is catching up may take more.
AVOID_MS = 2_000


class Replicas:
    """One partition's replicas, as its reader has found them."""

    __slots__ = ("_avoided",)

    def __init__(self) -> None:
        self._avoided: dict[int, int] = {}  # node -> until when

    def avoid(self, node: int, now_ms: int) -> None:
        """``node`` did not serve what was asked."""
        self._avoided[node] = now_ms + AVOID_MS

    def choose(self, metadata: MetadataCache, incarnation: int, leader: int, prefer: str,
               rack: str, now_ms: int) -> int:
        """The node to ask next; 0 = none is known.  ``leader`` 0 = unknown.  O(replicas)."""
        if prefer == LEADER_FIRST and leader and not self._avoided:
            return leader
        if self._avoided:
            self._avoided = {node: until for node, until in self._avoided.items()
                             if until > now_ms}
        others = [node for node in metadata.replicas(incarnation)
                  if node != leader and node in metadata.nodes]
        order = [leader, *_turned(others, incarnation)] if leader else _turned(others, incarnation)
        if prefer == NEAREST_FIRST:
            order.sort(key=lambda node: metadata.racks.get(node) != rack)
        for node in order:
            if node not in self._avoided:
                return node
        # All of them failed: whoever did so the longest time ago.
        return min(order, key=self._avoided.__getitem__, default=0)


def _turned(nodes: list[int], by: int) -> list[int]:
    """The same nodes, begun elsewhere for each partition: load spreads over equals."""
    at = by % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]
