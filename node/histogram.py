"""Durations counted by powers of two: what a latency histogram costs on a hot path.

Contract.  ``observe`` is two additions and a bit length, no search and no lock; it is called on one
thread.  ``buckets`` turns the counts into Prometheus's cumulative ones, for whoever asks.

Theory.  A duration of n bits of microseconds is below 2^n microseconds, and that is the bucket's
bound: exact, because durations are whole microseconds, cut and never rounded up.
"""

from __future__ import annotations

#: The finest bound that is shown, 2^6 = 64 microseconds: below the fastest disk's sync.
BITS_MIN = 6
#: The coarsest, 2^24 microseconds = 17 seconds: above every limit of a node's own.
BITS_MAX = 24
#: No monotonic clock measures more.
_BITS = 64


class Histogram:
    """Counts of durations, and their sum."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (_BITS + 1)
        self.total_us = 0

    def observe(self, micros: int) -> None:
        """One duration."""
        self.counts[micros.bit_length()] += 1
        self.total_us += micros

    def copy(self) -> Histogram:
        """As it is now."""
        copied = Histogram()
        copied.counts, copied.total_us = list(self.counts), self.total_us
        return copied

    def buckets(self) -> list[tuple[str, int]]:
        """(upper bound in seconds as text, durations below it), cumulative, ``+Inf`` last."""
        below = sum(self.counts[:BITS_MIN])
        rows = []
        for bits in range(BITS_MIN, BITS_MAX + 1):
            below += self.counts[bits]
            rows.append((repr((1 << bits) / 1_000_000), below))
        return [*rows, ("+Inf", sum(self.counts))]
