"""How long appends took lately, from a histogram that only ever counts up.

Contract.  ``recent_ms`` is called now and then while a plan is under way, and returns how long one
append in a hundred took at least, over the last ``WINDOW_MS`` or so that it was called in; -1 when
there were too few appends to say, or it was not called for a while.  O(buckets).
"""

from __future__ import annotations

from node.histogram import Histogram

#: Appends are judged over this time, in milliseconds: long enough for an election to be forgotten.
WINDOW_MS = 5_000
#: Fewer appends say nothing about one in a hundred.
COUNT_MIN = 100


class RecentLatency:
    """See the module's docstring."""

    def __init__(self, histogram: Histogram):
        self._histogram = histogram
        self._before = histogram.copy()
        self._began_ms: int | None = None
        self._last_ms = -1

    def recent_ms(self, now_ms: int) -> int:
        """One append in a hundred took at least so long, as far as powers of two can tell."""
        if self._began_ms is None or now_ms - self._began_ms >= 2 * WINDOW_MS:
            self._begin(now_ms)  # nobody asked meanwhile: what was then says nothing about now
            self._last_ms = -1
        elif now_ms - self._began_ms >= WINDOW_MS:
            self._last_ms = self._judge()
            self._begin(now_ms)
        return self._last_ms

    def _begin(self, now_ms: int) -> None:
        self._before, self._began_ms = self._histogram.copy(), now_ms

    def _judge(self) -> int:
        counts = [now - before for now, before in
                  zip(self._histogram.counts, self._before.counts, strict=True)]
        total = sum(counts)
        if total < COUNT_MIN:
            return -1
        above = 0
        for bits in reversed(range(len(counts))):
            above += counts[bits]
            if above * 100 >= total:
                return (1 << bits) // 2 // 1000
        return -1
