"""Batches of a run while a start waits to join it: one buffer for each column of all partitions.

Contract.  ``PackedBatches`` is made of the indexes of a run's partitions and gives equal ones back,
in the same order, as often as it is asked.

Theory.  The index of a partition is some 600 bytes of small objects: 6 MB for the part of a segment
with 10,000 partitions.  Python does not return the memory of small objects to the operating system
while objects that stay lie between them, in the same MiB.  The columns of a whole run are large, so
theirs is returned.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import final

from multiraft.storage.index import PartitionIndex

#: Bytes of a number in a column.
_BYTES = 8


@final
class PackedBatches:
    """Batches of one run, of each partition one after the other."""

    __slots__ = ("_group", "_partitions", "_ends", "_counts", "_columns", "_gaps")

    def __init__(self, group: int, partitions: Iterable[PartitionIndex]):
        self._group = group
        self._partitions = array("Q")
        self._ends = array("q")  # offset after the last record of each
        self._counts = array("Q")  # batches of each
        self._gaps: dict[int, list[list[int]]] = {}  # partition -> its gaps, if it has some
        columns: list[list[bytes]] = [[], [], []]
        for each in partitions:
            partition, end_offset, *packed, gaps = each.pack()
            self._partitions.append(partition)
            self._ends.append(end_offset)
            self._counts.append(len(each))
            for column, part in zip(columns, packed, strict=True):
                column.append(part)
            if gaps:
                self._gaps[partition] = gaps
        self._columns = [b"".join(column) for column in columns]

    def unpack(self) -> Iterator[PartitionIndex]:
        """Yield the index of each partition.  O(batches)."""
        begin = 0
        for partition, end_offset, count in zip(self._partitions, self._ends, self._counts):
            end = begin + count * _BYTES
            yield PartitionIndex.unpack(
                [partition, end_offset, *[column[begin:end] for column in self._columns],
                 self._gaps.get(partition, ())], self._group)
            begin = end
