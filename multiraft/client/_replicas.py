"""Choice of the replica that a reader fetches from: the preferred one, or one that works.

Contract.  ``choose`` returns a node whose address is known, or 0.  A node that failed, lags behind
or served a damaged batch is avoided for ``AVOID_MS``, as long as there is another.

Theory.  Every replica serves committed records only; replicas differ in how soon they have the
newest.  The leader is the fallback of the nearest replica, and the other replicas are the fallback
of the leader, so that reading continues during an election.
"""

from __future__ import annotations

from multiraft.client._metadata import MetadataCache

LEADER_FIRST = "leader"
NEAREST_FIRST = "nearest"
PREFERENCES = (LEADER_FIRST, NEAREST_FIRST)

#: Time for which a replica that failed or lags behind is avoided: an election takes less, and a
#: replica that is catching up may take more.
AVOID_MS = 2_000


class Replicas:
    """Replicas of one partition that its reader avoids, and the choice among the others."""

    __slots__ = ("_avoided",)

    def __init__(self) -> None:
        self._avoided: dict[int, int] = {}  # node -> until when

    def avoid(self, node: int, now_ms: int) -> None:
        """Avoid ``node``, which did not serve a query, for ``AVOID_MS``."""
        self._avoided[node] = now_ms + AVOID_MS

    def choose(self, metadata: MetadataCache, incarnation: int, leader: int, prefer: str,
               rack: str, now_ms: int) -> int:
        """Return the node to ask next: the preferred one that is not avoided, or the one avoided
        longest ago.  0 = none is known.  ``leader`` 0 = unknown.  O(replicas)."""
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
        # All of them are avoided: take the one that failed the longest time ago.
        return min(order, key=self._avoided.__getitem__, default=0)


def _turned(nodes: list[int], by: int) -> list[int]:
    """Return the nodes rotated by ``by``, so that partitions spread over equal nodes."""
    at = by % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]
