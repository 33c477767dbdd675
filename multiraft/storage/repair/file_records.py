"""Records of one segment that its index file answers, decoded whole while its damage is examined.

Contract.  A value; ``ScrubJob`` reads it on its thread, ``LocalRepair`` looks records up in it on
the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from multiraft.storage.file_runs import FileRun
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.record_store import EntryPlace
from multiraft.storage.stored_log import StoredLog


@final
class FileRecords:
    """The index of a segment, and whose records are in it alone."""

    __slots__ = ("_segment", "_runs")

    def __init__(self, segment: IndexedSegment, runs: Mapping[int, FileRun]):
        self._segment = segment
        self._runs = runs

    def within(self, log: StoredLog, begin: int, end: int) -> Iterator[tuple[int, EntryPlace]]:
        """Yield index and place of the log's records that begin in [begin, end) of the journal and
        whose places are in this index file alone.  O(batches of the group in the segment)."""
        at = self._segment.segment
        run = self._runs.get(log.group)
        if run is None or not at.start < end or not begin < at.end:
            return
        for partition, batches in run.partitions.items():
            known = log.partitions.get(partition)
            if known is None or known.rows is None:
                continue
            for slot in range(len(batches)):
                _, batch_end, index = batches.batch(slot)
                place = run.place(index)
                if (place is not None and begin <= place[0] < end
                        and batch_end > known.rows.log_start
                        and log.records.in_file(index) is self._segment):
                    yield index, EntryPlace(log.records.term(index), *place)

    def locate(self, log: StoredLog, index: int) -> EntryPlace | None:
        """Return where an entry of the log is, if its place is in this index file alone, else None.
        O(log n)."""
        run = self._runs.get(log.group)
        place = run.place(index) if run is not None else None
        if place is None or log.records.in_file(index) is not self._segment:
            return None
        return EntryPlace(log.records.term(index), *place)
