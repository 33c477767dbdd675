"""Records of one segment that its index file answers, decoded whole while its damage is examined.

Contract.  A value; ``ScrubJob`` reads it on its thread, ``LocalRepair`` looks records up in it on
the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from multiraft.storage.index import UNKNOWN_POSITION
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.journal.segment_index import SegmentIndex
from multiraft.storage.record_store import EntryPlace
from multiraft.storage.stored_log import StoredLog


@final
class FileRecords:
    """The index of a segment, and whose records are in it alone."""

    __slots__ = ("_segment", "_index")

    def __init__(self, segment: IndexedSegment, index: SegmentIndex):
        self._segment = segment
        self._index = index

    def within(self, log: StoredLog, begin: int, end: int) -> Iterator[tuple[int, EntryPlace]]:
        """Yield index and place of the log's records that begin in [begin, end) of the journal and
        whose places are in this index file alone.  O(batches of the group in the segment)."""
        at = self._segment.segment
        run = self._index.runs.get(log.group)
        if run is None or run.index is None or not at.start < end or not begin < at.end:
            return
        for partition, batches in run.partitions.items():
            known = log.partitions.get(partition)
            if known is None or known.rows is None:
                continue
            for slot in range(len(batches)):
                _, batch_end, index = batches.batch(slot)
                position = run.index.position(index)
                if (begin <= position < end and batch_end > known.rows.log_start
                        and log.records.in_file(index) is self._segment):
                    yield index, EntryPlace(log.records.term(index), position,
                                            run.index.size(index))

    def locate(self, log: StoredLog, index: int) -> EntryPlace | None:
        """Return where an entry of the log is, if its place is in this index file alone, else None.
        O(log n)."""
        run = self._index.runs.get(log.group)
        if run is None or run.index is None or log.records.in_file(index) is not self._segment:
            return None
        position = run.index.position(index)
        if position == UNKNOWN_POSITION:
            return None
        return EntryPlace(log.records.term(index), position, run.index.size(index))
