"""Token buckets that limit catch-up traffic to replicas that are being moved.

Contract.  ``replication`` asks ``RecoveryThrottle`` before it sends committed entries to a learner
of a group that is being moved, and reports the bytes sent.  All else is unlimited: voters, learners
that are not being moved, and uncommitted entries.  Time comes from the caller.  One rate limits the
sum that this node sends, and another one the stream to each receiving node.  With rate 0 nothing is
sent until the next ``set``.

Theory.  A bucket may be overdrawn by one piece, so that an entry of any size gets through and later
ones wait.  The burst must outlast the time between two calls for a stream, or the rate is never
reached: 0.2 s and more where processors are busy.  The stream's window, not the burst, bounds the
bytes in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: A bucket holds at most the bytes of BURST_MS, and yields nothing below those of LEAST_MS, or
#: below LEAST_BYTES_MAX (the default ``catch_up_append_bytes``) if that is less.  Saving for
#: several pieces would occupy the receiver's disk for as long as all of them take, and appends
#: would wait for it.
BURST_MS = 500
LEAST_MS = 50
LEAST_BYTES_MAX = 256 << 10


class ThrottleRates(NamedTuple):
    """Rates in bytes per second: ``out`` for everything that this node sends, ``into`` for each
    stream (group, receiving node).  A stream that is not in ``into`` is not limited."""

    out: int
    into: Mapping[tuple[int, int], int]


class Bucket:
    """Bytes that may be sent, refilled at ``rate`` bytes per second."""

    __slots__ = ("rate", "_micro", "_at_ms")

    def __init__(self, rate: int, now_ms: int):
        self.rate = rate
        self._micro = 0  # thousandths of bytes, so that rates below 1,000 bytes per second work
        self._at_ms = now_ms

    def available(self, now_ms: int) -> int:
        """Return the bytes that may be sent now; below 1 = none.

        Nothing is returned below the least amount: a caller that is woken by every event would
        otherwise send entry by entry."""
        self._micro = min(self._micro + self.rate * (now_ms - self._at_ms), self.rate * BURST_MS)
        self._at_ms = now_ms
        return self._micro // 1000 if self._micro >= self._least() else 0

    def consume(self, size: int) -> None:
        """Subtract ``size`` bytes that were sent; the balance may become negative."""
        self._micro -= size * 1000

    def due_ms(self) -> int | None:
        """Return the time when the least amount is available; None = never at this rate."""
        if not self.rate:
            return None
        lacking = self._least() - self._micro
        return self._at_ms + max(1, -(-lacking // self.rate))

    def _least(self) -> int:
        return min(self.rate * LEAST_MS, LEAST_BYTES_MAX * 1000)


class RecoveryThrottle:
    """Rates of all catch-up streams of one node."""

    __slots__ = ("_out", "_into", "sent")

    def __init__(self) -> None:
        self._out: Bucket | None = None
        self._into: dict[tuple[int, int], Bucket] = {}
        self.sent = 0  # bytes sent since the start

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups with a limited stream."""
        return tuple(dict.fromkeys(group for group, _ in self._into))

    def set(self, rates: ThrottleRates, now_ms: int) -> None:
        """Replace the rates; streams without one are unlimited from now on.  The balances of the
        others are kept."""
        self._out = self._rated(self._out, rates.out, now_ms) if rates.into else None
        self._into = {stream: self._rated(self._into.get(stream), rate, now_ms)
                      for stream, rate in rates.into.items()}

    @staticmethod
    def _rated(bucket: Bucket | None, rate: int, now_ms: int) -> Bucket:
        if bucket is None:
            return Bucket(rate, now_ms)
        bucket.available(now_ms)
        bucket.rate = rate
        return bucket

    def is_throttled(self, group: int, node: int) -> bool:
        """True if the stream of ``group`` to ``node`` is limited.  O(1)."""
        return (group, node) in self._into

    def available(self, group: int, node: int, now_ms: int) -> int:
        """Return the bytes that may be sent now on a limited stream; below 1 = none."""
        assert self._out is not None
        return min(self._out.available(now_ms), self._into[group, node].available(now_ms))

    def consume(self, group: int, node: int, size: int) -> None:
        """Subtract ``size`` bytes that went out on a limited stream."""
        assert self._out is not None
        self._out.consume(size)
        self._into[group, node].consume(size)
        self.sent += size

    def due_ms(self, group: int, node: int) -> int | None:
        """Return the time of the next call of ``available`` that can yield bytes; None = not before
        the next ``set``."""
        assert self._out is not None
        due = [self._out.due_ms(), self._into[group, node].due_ms()]
        return None if None in due else max(each for each in due if each is not None)
