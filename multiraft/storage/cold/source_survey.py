"""Survey of a segment whose records are answered from its index file: which of them are live.

Contract.  ``read`` and ``select`` block, on any thread; the loop adds the ``bounds`` of each group
between the two (``Cleaner.take_bounds``).  Afterwards ``runs`` has the live records of the groups
that have bounds, without those whose places are in memory.  ``is_readable`` is False if the segment
was removed meanwhile, or cannot be read: nothing is known of it then.

Invariant.  Log starts only rise.  So what is not live by the bounds is not live later, and each
record of a later moment is among the records found here, or has its place in memory.

Theory.  Memory has a row for each part of a block, and neither positions nor sizes.  The index file
of a segment is a twentieth of batches of 1 KiB, and less of larger ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from multiraft.storage.cold.copy_job import Compaction, WantedRun
from multiraft.storage.errors import CorruptFile, SegmentRemoved
from multiraft.storage.file_runs import FileRun
from multiraft.storage.index import PartitionIndex
from multiraft.storage.indexed_segments import BlockReader, IndexedSegment
from multiraft.storage.record_store import NO_RECORDS, RecordTotals, TermRuns


class LiveBounds(NamedTuple):
    """Bounds of the live records of one group, as the loop knew them at one moment."""

    incarnation: int
    terms: TermRuns
    log_starts: Mapping[int, int]  # by partition, of those that exist
    in_memory: frozenset[int]  # indexes whose places are in memory
    ranges: Sequence[tuple[int, int]]  # of indexes for which the index file answers, ascending
    compaction: Compaction | None = None  # by which batches of a partition are dropped


class SurveyJob:
    """Read of the index file of one segment."""

    def __init__(self, indexed: IndexedSegment, reader: BlockReader,
                 compaction: Compaction | None = None):
        """``reader``: of this segment's blocks; ``compaction``: by which batches of a partition are
        not live, whose group alone is surveyed then."""
        self.indexed = indexed
        self.compaction = compaction
        self.is_readable = False
        self.bounds: dict[int, LiveBounds] = {}  # by group
        self.runs: list[WantedRun] = []
        #: Partitions of a group that have no live record there without a place in memory.
        self.held: dict[int, list[int]] = {}
        #: Records that would be live without the compaction, and whose places are in the file.
        self.dropped = NO_RECORDS
        self._reader = reader
        self._runs: Mapping[int, FileRun] = {}

    @property
    def start(self) -> int:
        """Journal position at which the segment begins."""
        return self.indexed.segment.start

    @property
    def bytes(self) -> int:
        """Bytes that ``read`` reads of an intact index file."""
        return self.indexed.header.file_bytes

    @property
    def live_bytes(self) -> int:
        """Framed bytes of the records in ``runs``.  O(records)."""
        return sum(sum(run.sizes) for run in self.runs)

    @property
    def records(self) -> int:
        """Number of the records in ``runs``."""
        return sum(len(run.indexes) for run in self.runs)

    def read(self) -> None:
        """Read the whole index file, or scan the segment if that is damaged.  Block.  Raises
        ``OSError``."""
        try:
            runs = self._reader.whole(self.indexed.number)
        except (CorruptFile, SegmentRemoved):
            return  # the scrub reports the segment, or it is gone
        if self._reader.unreadable:
            return  # a batch whose end is a guess may live although it seems to end too early
        self._runs, self.is_readable = runs, True

    def partitions(self) -> dict[int, list[int]]:
        """Return the partitions of each group in the segment.  O(partitions)."""
        return {group: [*run.partitions] for group, run in self._runs.items()}

    def select(self) -> None:
        """Set ``runs`` to the records that live by the bounds.  Block.  O(batches)."""
        runs, self._runs = self._runs, {}
        for group, bounds in self.bounds.items():
            run = runs.get(group)
            if run is not None and run.incarnation == bounds.incarnation:
                self._select(group, run, bounds)

    def _select(self, group: int, run: FileRun, bounds: LiveBounds) -> None:
        found: list[tuple[int, int, int]] = []
        for partition, batches in run.partitions.items():
            log_start = bounds.log_starts.get(partition)
            live: Iterable[int] = (_live_indexes(batches, log_start, bounds.ranges)
                                   if log_start is not None else ())
            dropping = bounds.compaction
            if dropping is not None and dropping.partition == partition:
                live = self._without_dropped([*live], run, bounds, dropping)
            wanted = [(index, *place) for index in live if index not in bounds.in_memory
                      and (place := run.place(index)) is not None]
            found += wanted
            if not wanted:
                self.held.setdefault(group, []).append(partition)
        if found:
            found.sort()
            self.runs.append(WantedRun(
                group, run.incarnation, array("Q", [each[0] for each in found]),
                array("Q", [each[1] for each in found]),
                array("I", [each[2] for each in found]), bounds.terms))


    def _without_dropped(self, live: Sequence[int], run: FileRun, bounds: LiveBounds,
                         compaction: Compaction) -> list[int]:
        """Return the live indexes of batches that a compaction keeps, and count the others."""
        gone = [index for index in live if compaction.is_dropped(index)]
        sizes = [place[1] for index in gone if index not in bounds.in_memory
                 and (place := run.place(index)) is not None]
        self.dropped = RecordTotals(self.dropped.count + len(sizes),
                                    self.dropped.bytes + sum(sizes))
        left = {*gone}
        return [index for index in live if index not in left]


def _live_indexes(batches: PartitionIndex, log_start: int,
                  ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield the indexes in ``ranges`` of the batches that end behind a log start.  O(result)."""
    slot = max(0, batches.find(log_start))
    if slot < len(batches) and batches.batch(slot)[1] <= log_start:
        slot += 1
    if slot < len(batches):
        begin = batches.batch(slot)[2]
        for first, last in ranges:
            yield from batches.indexes_below(last + 1, max(first, begin))
