"""Skew of a node's wall clock against the clocks of the other nodes that it hears.

Contract.  ``ClockSkew`` receives offsets: the clock of another node minus the own one.  It forgets
them when the support of that node ends.  ``compare`` computes the skew and decides if the own clock
is *far*.  A node whose clock is far must not delete records by their age.

Invariants.  The result of a comparison stands until the next one, also while no other clock is
known: a node that was cut off with a wrong clock must not trust that clock again.  Before the first
comparison the clock is not far.

Theory.  The skew is the distance from the median of all clocks, the own one included, because a
minority of wrong clocks does not move a median by much (Marzullo and Owicki 1983).  With an even
number of clocks there are two middle ones, and the larger of the two distances counts.  So of two
clocks that differ by more than the limit both are far: nothing tells which one is wrong.  One clock
alone has nothing to be compared with.
"""

from __future__ import annotations

#: Largest skew, in milliseconds, of a clock that may decide over the age of records.  Clocks that
#: are kept by NTP differ by some milliseconds, and the delay of messages adds half a lease.  A
#: minute is far above both, and small beside the shortest useful retention.
CLOCK_SKEW_MAX_MS = 60_000
#: Skew at which a clock that was far is no longer far.  It is lower than the limit, so that a clock
#: at the limit is not reported again with each message.
CLOCK_SKEW_CLEARED_MS = 50_000


class ClockSkew:
    """Offsets of the clocks of other nodes, at most one per node, and the last comparison."""

    __slots__ = ("skew_ms", "is_far", "_offsets_ms")

    def __init__(self) -> None:
        #: Own clock minus the median at the last comparison; None = there was none.
        self.skew_ms: int | None = None
        #: True if the own clock must not decide over the age of records.
        self.is_far = False
        #: node -> its clock minus the own one
        self._offsets_ms: dict[int, int] = {}

    def hear(self, node: int, offset_ms: int) -> None:
        """Record that the clock of ``node`` is ``offset_ms`` ahead of the own one."""
        self._offsets_ms[node] = offset_ms

    def drop(self, node: int) -> None:
        """Forget the clock of ``node``.  No-op if it is not known."""
        self._offsets_ms.pop(node, None)

    def compare(self) -> None:
        """Compare the own clock with the median of the known ones.  No-op while no other clock is
        known.  O(nodes log nodes)."""
        if not self._offsets_ms:
            return
        offsets_ms = sorted((0, *self._offsets_ms.values()))
        middle = len(offsets_ms) // 2
        median_ms = max(offsets_ms[middle], offsets_ms[-1 - middle], key=abs)
        self.skew_ms = -median_ms
        limit_ms = CLOCK_SKEW_CLEARED_MS if self.is_far else CLOCK_SKEW_MAX_MS
        self.is_far = abs(median_ms) > limit_ms

    def reset(self) -> None:
        """Forget all clocks and the last comparison: the cluster has no other node any longer."""
        self._offsets_ms.clear()
        self.skew_ms = None
        self.is_far = False
