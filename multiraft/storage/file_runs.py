"""Records of one group in a whole index file, of a segment or of a cold one.

Contract.  Values.  ``place`` answers by index; positions are those of reads, of the journal or in a
cold segment.  Entries of a segment are dense, and of other kinds too; a cold segment has records
alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Protocol, final

from multiraft.storage.cold.cold_index import ColdContents, ColdRun
from multiraft.storage.cold.cold_segment import place_in
from multiraft.storage.index import UNKNOWN_POSITION, GroupIndex, PartitionIndex
from multiraft.storage.journal.segment_index import SegmentIndex


class FileRun(Protocol):
    """A group's part of an index file."""

    #: An index without an entry in the file has no record in the segment.
    has_records_only: bool

    @property
    def incarnation(self) -> int:
        """Incarnation of the group."""

    @property
    def partitions(self) -> Mapping[int, PartitionIndex]:
        """Batches of each partition."""

    def place(self, index: int) -> tuple[int, int] | None:
        """Return position and framed size of an entry; None = the file does not have it."""

    def last_within(self, first: int, bytes_max: int) -> int:
        """Return the highest index such that the entries from ``first`` to it take at most
        ``bytes_max``, at least ``first``."""


@final
class SegmentFileRun:
    """A group's part of the index file of a segment."""

    __slots__ = ("incarnation", "partitions", "_entries")

    has_records_only = False

    def __init__(self, incarnation: int, partitions: Mapping[int, PartitionIndex],
                 entries: GroupIndex):
        self.incarnation = incarnation
        self.partitions = partitions
        self._entries = entries

    def place(self, index: int) -> tuple[int, int] | None:
        entries = self._entries
        if not entries.first_index <= index <= entries.last_index:
            return None
        position = entries.position(index)
        return (position, entries.size(index)) if position != UNKNOWN_POSITION else None

    def last_within(self, first: int, bytes_max: int) -> int:
        return self._entries.last_within(first, bytes_max)


@final
class ColdFileRun:
    """A group's part of the index file of a cold segment."""

    __slots__ = ("incarnation", "partitions", "_number", "_run")

    has_records_only = True

    def __init__(self, number: int, run: ColdRun):
        """``number``: of the cold segment."""
        self.incarnation = run.incarnation
        self.partitions = run.partitions
        self._number = number
        self._run = run

    def place(self, index: int) -> tuple[int, int] | None:
        run = self._run
        slot = bisect_left(run.indexes, index)
        if slot == len(run.indexes) or run.indexes[slot] != index:
            return None
        return place_in(self._number, run.bytes[slot]), run.sizes[slot]

    def last_within(self, first: int, bytes_max: int) -> int:
        run = self._run
        slot = bisect_left(run.indexes, first)
        for at, total in enumerate(accumulate(run.sizes[slot:]), slot):
            if total > bytes_max and at > slot:
                return run.indexes[at] - 1
        return 1 << 64


def runs_of_segment(index: SegmentIndex) -> dict[int, FileRun]:
    """Return the groups that have entries in a segment.  O(groups)."""
    return {group: SegmentFileRun(run.incarnation, run.partitions, run.index)
            for group, run in index.runs.items() if run.index is not None}


def runs_of_cold(contents: ColdContents) -> dict[int, FileRun]:
    """Return the groups that have records in a cold segment.  O(groups)."""
    return {group: ColdFileRun(contents.header.number, run)
            for group, run in contents.runs.items()}
