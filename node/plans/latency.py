"""How long appends took lately, from a histogram that only ever counts up.

Contract.  ``recent_ms`` is called now and then and returns the bound below which 99 of 100 appends
of the last ``WINDOW_MS`` or so were, -1 when there were too few to say.  O(buckets).
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
        """99 of 100 appends took less than this, as far as powers of two can tell."""
        if self._began_ms is None:
            self._began_ms = now_ms
        if now_ms - self._began_ms >= WINDOW_MS:
            self._last_ms = self._judge()
            self._before, self._began_ms = self._histogram.copy(), now_ms
        return self._last_ms

    def _judge(self) -> int:
        counts = [now - before for now, before in
                  zip(self._histogram.counts, self._before.counts, strict=True)]
        total = sum(counts)
        if total < COUNT_MIN:
            return -1
        below = 0
        for bits, count in enumerate(counts):
            below += count
            if below * 100 >= total * 99:
                return (1 << bits) // 1000
        return -1
