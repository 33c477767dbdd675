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
from collections.abc import Mapping
from typing import NamedTuple

from multiraft.storage.cold.copy_job import WantedRun
from multiraft.storage.errors import CorruptFile, SegmentRemoved
from multiraft.storage.index import UNKNOWN_POSITION, PartitionIndex
from multiraft.storage.indexed_segments import BlockReader, IndexedSegment
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.record_store import TermRuns


class LiveBounds(NamedTuple):
    """Bounds of the live records of one group, as the loop knew them at one moment."""

    incarnation: int
    terms: TermRuns
    log_starts: Mapping[int, int]  # by partition, of those that exist
    in_memory: frozenset[int]  # indexes whose places are in memory


class SurveyJob:
    """Read of the index file of one segment."""

    def __init__(self, indexed: IndexedSegment, reader: BlockReader):
        """``reader``: of this segment's blocks."""
        self.indexed = indexed
        self.is_readable = False
        self.bounds: dict[int, LiveBounds] = {}  # by group
        self.runs: list[WantedRun] = []
        #: Partitions of a group that have live records there, all with places in memory.
        self.held: dict[int, list[int]] = {}
        self._reader = reader
        self._index: SegmentIndex | None = None

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
            self._index = self._reader.whole(self.indexed.number)
        except (CorruptFile, SegmentRemoved):
            return  # the scrub reports the segment, or it is gone
        self.is_readable = True

    def partitions(self) -> dict[int, list[int]]:
        """Return the partitions of each group in the segment.  O(partitions)."""
        runs = self._index.runs if self._index is not None else {}
        return {group: [*run.partitions] for group, run in runs.items()}

    def select(self) -> None:
        """Set ``runs`` to the records that live by the bounds.  Block.  O(batches)."""
        index, self._index = self._index, None
        for group, bounds in self.bounds.items():
            run = index.runs.get(group) if index is not None else None
            if run is not None and run.index is not None and (
                    run.incarnation == bounds.incarnation):
                self._select(run, bounds)

    def _select(self, run: SegmentRun, bounds: LiveBounds) -> None:
        entries = run.index
        assert entries is not None
        first = entries.first_index
        positions, sizes = entries.columns(first, entries.last_index)
        found: list[int] = []
        for partition, batches in run.partitions.items():
            log_start = bounds.log_starts.get(partition)
            if log_start is None:
                continue
            live = _live_indexes(batches, log_start)
            wanted = [index for index in live if index not in bounds.in_memory
                      and positions[index - first] != UNKNOWN_POSITION]
            found += wanted
            if live and not wanted:
                self.held.setdefault(run.group, []).append(partition)
        if found:
            found.sort()
            self.runs.append(WantedRun(
                run.group, run.incarnation, array("Q", found),
                array("Q", [positions[index - first] for index in found]),
                array("I", [sizes[index - first] for index in found]), bounds.terms))


def _live_indexes(batches: PartitionIndex, log_start: int) -> array[int]:
    """Return the indexes of the batches that end behind a log start.  O(result)."""
    slot = max(0, batches.find(log_start))
    if slot < len(batches) and batches.batch(slot)[1] <= log_start:
        slot += 1
    if slot >= len(batches):
        return array("Q")
    return batches.indexes_below(1 << 64, batches.batch(slot)[2])
