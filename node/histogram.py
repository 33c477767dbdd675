"""Histograms of durations by powers of two, cheap enough for a hot path.

Contract. ``observe`` is two additions and a bit length, without search or lock; one thread calls
it. ``buckets`` converts the counts into Prometheus's cumulative buckets.

Theory. A duration of n bits in microseconds is below 2^n microseconds, which is the bucket's bound.
It is exact, because durations are whole microseconds, rounded down.
"""

from __future__ import annotations

#: Finest bound in ``buckets``, 2^6 = 64 microseconds: below the sync of the fastest disk.
BITS_MIN = 6
#: Coarsest bound, 2^24 microseconds = 17 seconds: above every timeout within a node.
BITS_MAX = 24
#: Bits of the longest duration that a monotonic clock measures.
_BITS = 64


class Histogram:
    """The counts of durations, and their sum."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (_BITS + 1)
        self.total_us = 0

    def observe(self, micros: int) -> None:
        """Count one duration in microseconds."""
        self.counts[micros.bit_length()] += 1
        self.total_us += micros

    def copy(self) -> Histogram:
        """Return a copy of the present counts."""
        copied = Histogram()
        copied.counts, copied.total_us = list(self.counts), self.total_us
        return copied

    def buckets(self) -> list[tuple[str, int]]:
        """Return (upper bound in seconds as text, number of durations below it), cumulative,
        ``+Inf`` last."""
        below = sum(self.counts[:BITS_MIN])
        rows = []
        for bits in range(BITS_MIN, BITS_MAX + 1):
            below += self.counts[bits]
            rows.append((repr((1 << bits) / 1_000_000), below))
        return [*rows, ("+Inf", sum(self.counts))]
