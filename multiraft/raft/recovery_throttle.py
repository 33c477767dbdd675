"""How fast replicas that are being moved may catch up: token buckets per node and direction.

Contract.  ``RecoveryThrottle`` is asked before committed entries go to a learner of a group that is
being moved (``replication``), and told what went.  Everything else is not paced: voters, learners
that nobody moves, entries that are not committed yet.  Time is the caller's.
    A rate applies to what this node sends to all of them together, and another to each receiving
node.  Rate 0 = nothing goes until the next ``set``.

Theory.  A bucket may go into debt by one piece, so an entry of any size gets through; it pays by
waiting.  The burst has to outlast the time between two looks at a stream, or the rate is never
reached: 0.2 s and more where processors are busy.  What is on the way at once is bounded by the
stream's window, not by the burst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: A bucket holds what comes in so many milliseconds, and gives nothing below what comes in so many,
#: or below a piece (``catch_up_append_bytes`` as it is by default) where that is less: saving for
#: several makes the receiver's disk busy for as long as all of them take, and appends wait for it.
BURST_MS = 500
LEAST_MS = 50
LEAST_BYTES_MAX = 256 << 10


class Limits(NamedTuple):
    """``out``: bytes per second that this node sends; ``into``: group and receiving node -> bytes
    per second of that stream.  A stream that is not named is not paced."""

    out: int
    into: Mapping[tuple[int, int], int]


class Bucket:
    """Bytes that may go, refilled at ``rate`` bytes per second."""

    __slots__ = ("rate", "_micro", "_at_ms")

    def __init__(self, rate: int, now_ms: int):
        self.rate = rate
        self._micro = 0  # thousandths of bytes: rates below 1,000 a second count as well
        self._at_ms = now_ms

    def room(self, now_ms: int) -> int:
        """Bytes that may go now; below 1 = none.  None below the least: whoever looks whenever
        something happens would send what has come in since, entry by entry."""
        self._micro = min(self._micro + self.rate * (now_ms - self._at_ms), self.rate * BURST_MS)
        self._at_ms = now_ms
        return self._micro // 1000 if self._micro >= self._least() else 0

    def take(self, size: int) -> None:
        """``size`` bytes went; more than there was room for is a debt."""
        self._micro -= size * 1000

    def due_ms(self) -> int | None:
        """When the least may go again; None = never at this rate."""
        if not self.rate:
            return None
        lacking = self._least() - self._micro
        return self._at_ms + max(1, -(-lacking // self.rate))

    def _least(self) -> int:
        return min(self.rate * LEAST_MS, LEAST_BYTES_MAX * 1000)


class RecoveryThrottle:
    """All streams of one node."""

    __slots__ = ("_out", "_into", "sent")

    def __init__(self) -> None:
        self._out: Bucket | None = None
        self._into: dict[tuple[int, int], Bucket] = {}
        self.sent = 0  # bytes, since the start

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups with a stream that is paced."""
        return tuple(dict.fromkeys(group for group, _ in self._into))

    def set(self, limits: Limits, now_ms: int) -> None:
        """From now on these rates.  What a bucket holds or owes is kept."""
        self._out = self._rated(self._out, limits.out, now_ms) if limits.into else None
        self._into = {stream: self._rated(self._into.get(stream), rate, now_ms)
                      for stream, rate in limits.into.items()}

    @staticmethod
    def _rated(bucket: Bucket | None, rate: int, now_ms: int) -> Bucket:
        if bucket is None:
            return Bucket(rate, now_ms)
        bucket.room(now_ms)
        bucket.rate = rate
        return bucket

    def is_paced(self, group: int, node: int) -> bool:
        """Whether a stream has a rate.  O(1)."""
        return (group, node) in self._into

    def room(self, group: int, node: int, now_ms: int) -> int:
        """Bytes that may go to a paced stream now; below 1 = none."""
        assert self._out is not None
        return min(self._out.room(now_ms), self._into[group, node].room(now_ms))

    def took(self, group: int, node: int, size: int) -> None:
        """``size`` bytes went."""
        assert self._out is not None
        self._out.take(size)
        self._into[group, node].take(size)
        self.sent += size

    def due_ms(self, group: int, node: int) -> int | None:
        """When to look again; None = at the next ``set``."""
        assert self._out is not None
        due = [self._out.due_ms(), self._into[group, node].due_ms()]
        return None if None in due else max(each for each in due if each is not None)
