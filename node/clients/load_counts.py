"""Counters of bytes and records of the partitions led here, between two publications of loads.

Contract. ``appended`` and ``read`` run on the loop once per batch and per answered partition; each
is a dictionary lookup and a few additions. ``take`` returns all counts and starts at zero, in O(1).
A partition without traffic has no row and costs nothing.

Invariants. At most ``partitions_max`` partitions have a row of their own between two ``take``s. The
traffic of others is counted in the sums of their groups and as ``left_out``. The number of groups
is bounded by the pool.
"""

from __future__ import annotations

from typing import NamedTuple

#: Positions in a partition's row.
GROUP, BYTES_IN, RECORDS_IN, APPENDS, BYTES_OUT, RECORDS_OUT, READS = range(7)


class Counted(NamedTuple):
    """Counts since the last ``take``. ``partitions``: incarnation -> row (positions above).
    ``groups``: group -> [bytes in, bytes out] of all its partitions. ``left_out``: batches and
    replies without a row."""

    partitions: dict[int, list[int]]
    groups: dict[int, list[int]]
    left_out: int


class LoadCounts:
    """Counts of bytes and records of the partitions led on one node, since the last ``take``."""

    __slots__ = ("_partitions_max", "_partitions", "_groups", "_left_out")

    def __init__(self, partitions_max: int):
        self._partitions_max = partitions_max
        self._begin()

    def _begin(self) -> None:
        self._partitions: dict[int, list[int]] = {}
        self._groups: dict[int, list[int]] = {}
        self._left_out = 0

    def appended(self, group: int, partition: int, records: int, size: int) -> None:
        """Count a proposed batch of ``records`` records and ``size`` bytes for its group, and for
        ``partition`` unless the table is full."""
        self._group(group)[0] += size
        row = self._row(group, partition)
        if row is not None:
            row[BYTES_IN] += size
            row[RECORDS_IN] += records
            row[APPENDS] += 1

    def read(self, group: int, partition: int, records: int, size: int) -> None:
        """Count ``records`` records and ``size`` bytes of a fetch reply for the group, and for
        ``partition`` unless the table is full."""
        self._group(group)[1] += size
        row = self._row(group, partition)
        if row is not None:
            row[BYTES_OUT] += size
            row[RECORDS_OUT] += records
            row[READS] += 1

    def take(self) -> Counted:
        """Return all counts since the last call, and start at zero."""
        counted = Counted(self._partitions, self._groups, self._left_out)
        self._begin()
        return counted

    def _group(self, group: int) -> list[int]:
        row = self._groups.get(group)
        if row is None:
            row = self._groups[group] = [0, 0]
        return row

    def _row(self, group: int, partition: int) -> list[int] | None:
        row = self._partitions.get(partition)
        if row is None:
            if len(self._partitions) >= self._partitions_max:
                self._left_out += 1
                return None
            row = self._partitions[partition] = [group, 0, 0, 0, 0, 0, 0]
        row[GROUP] = group
        return row
