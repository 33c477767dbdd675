"""What was appended to and read from the partitions led here, counted until somebody takes it.

Contract.  ``appended`` and ``read`` are called once per batch and per answered partition, on the
loop, and are a look into a map and a few additions.  ``take`` hands everything over and begins
anew, O(1).  What nobody appended to or read from is nowhere in here: an idle partition costs
nothing.

Invariants.  At most ``partitions_max`` partitions are told apart between two ``take``s; what others
do is in the sums of their groups, and counted as left out.  Groups are bounded by the pool.
"""

from __future__ import annotations

from typing import NamedTuple

#: Places of a partition's row.
GROUP, BYTES_IN, RECORDS_IN, APPENDS, BYTES_OUT, RECORDS_OUT, READS = range(7)


class Counted(NamedTuple):
    """``partitions``: incarnation -> row (see above).  ``groups``: group -> [bytes in, bytes out],
    of all its partitions.  ``left_out``: batches and answers that belong to no row."""

    partitions: dict[int, list[int]]
    groups: dict[int, list[int]]
    left_out: int


class LoadCounts:
    """See the module's docstring."""

    __slots__ = ("_partitions_max", "_partitions", "_groups", "_left_out")

    def __init__(self, partitions_max: int):
        self._partitions_max = partitions_max
        self._begin()

    def _begin(self) -> None:
        self._partitions: dict[int, list[int]] = {}
        self._groups: dict[int, list[int]] = {}
        self._left_out = 0

    def appended(self, group: int, partition: int, records: int, size: int) -> None:
        """A batch of ``size`` bytes was proposed."""
        self._group(group)[0] += size
        row = self._row(group, partition)
        if row is not None:
            row[BYTES_IN] += size
            row[RECORDS_IN] += records
            row[APPENDS] += 1

    def read(self, group: int, partition: int, records: int, size: int) -> None:
        """``size`` bytes were answered to a fetch."""
        self._group(group)[1] += size
        row = self._row(group, partition)
        if row is not None:
            row[BYTES_OUT] += size
            row[RECORDS_OUT] += records
            row[READS] += 1

    def take(self) -> Counted:
        """All that was counted since the last time."""
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
