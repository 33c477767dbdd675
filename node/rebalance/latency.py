"""Recent append latency, computed from a cumulative histogram.

Contract.  Call ``recent_ms`` periodically while a plan is under way.  It returns the time that the
slowest one in a hundred appends took at least, over about the last ``WINDOW_MS``; -1 when there
were too few appends, or when it was not called for a while.  O(buckets).
"""

from __future__ import annotations

from node.histogram import Histogram

#: Window of the measurement, in milliseconds: long enough to outlast an election.
WINDOW_MS = 5_000
#: Least number of appends that a statement about one in a hundred needs.
COUNT_MIN = 100


class RecentLatency:
    """Append latency over a sliding window.  The histogram only counts up, so the window is a
    difference of two copies."""

    def __init__(self, histogram: Histogram):
        self._histogram = histogram
        self._before = histogram.copy()
        self._began_ms: int | None = None
        self._last_ms = -1

    def recent_ms(self, now_ms: int) -> int:
        """Return the 99th percentile of the last complete window in milliseconds, rounded down to a
        power of two.

        -1 = too few appends, or the last call was long ago."""
        if self._began_ms is None or now_ms - self._began_ms >= 2 * WINDOW_MS:
            # the last call is too long ago: its counts say nothing about the present
            self._begin(now_ms)
            self._last_ms = -1
        elif now_ms - self._began_ms >= WINDOW_MS:
            self._last_ms = self._percentile_ms()
            self._begin(now_ms)
        return self._last_ms

    def _begin(self, now_ms: int) -> None:
        self._before, self._began_ms = self._histogram.copy(), now_ms

    def _percentile_ms(self) -> int:
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
