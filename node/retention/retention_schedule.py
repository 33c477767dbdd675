"""Partitions that are due at a time, in buckets.

Contract.  ``put`` schedules a partition, in place of the time it had; ``take`` yields the
partitions that are due and forgets them.  Both cost O(1) per partition, and nothing for partitions
that are not due.  A partition comes at its time or up to one bucket later, never earlier.

Theory.  Each partition has one number, its bucket; a bucket is a packed array.  A partition that
was scheduled anew stays in its earlier array, where its number says that it no longer counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush


class RetentionSchedule:
    """Times of partitions, at most one each; some 120 bytes of memory per partition."""

    __slots__ = ("_bucket_ms", "_bucket_of", "_buckets", "_numbers")

    def __init__(self, bucket_ms: int):
        self._bucket_ms = bucket_ms
        self._bucket_of: dict[int, int] = {}
        self._buckets: dict[int, array[int]] = {}
        self._numbers: list[int] = []  # heap of the buckets' numbers

    def __len__(self) -> int:
        return len(self._bucket_of)

    def __contains__(self, partition: int) -> bool:
        return partition in self._bucket_of

    def put(self, partition: int, due_ms: int) -> None:
        """Schedule a partition for ``due_ms``, in place of an earlier or later time."""
        number = -(-due_ms // self._bucket_ms)
        if self._bucket_of.get(partition) == number:
            return
        self._bucket_of[partition] = number
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._numbers, number)
        bucket.append(partition)

    def put_no_later(self, partition: int, due_ms: int) -> None:
        """Schedule a partition for ``due_ms``, unless it is scheduled for an earlier time."""
        if -(-due_ms // self._bucket_ms) < self._bucket_of.get(partition, due_ms + 1):
            self.put(partition, due_ms)

    def forget(self, partition: int) -> None:
        """Remove a partition.  No-op if it is not scheduled."""
        self._bucket_of.pop(partition, None)

    def take(self, now_ms: int) -> Iterator[int]:
        """Yield the partitions that are due at ``now_ms``, and remove each.  A partition that is
        scheduled meanwhile is not yielded again, except if it is due already."""
        last = now_ms // self._bucket_ms
        while self._numbers and self._numbers[0] <= last:
            number = heappop(self._numbers)
            for partition in self._buckets.pop(number):
                if self._bucket_of.get(partition) == number:
                    del self._bucket_of[partition]
                    yield partition

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        assert sorted(self._numbers) == sorted(self._buckets)
        for partition, number in self._bucket_of.items():
            assert partition in self._buckets[number], f"partition {partition} of bucket {number}"
