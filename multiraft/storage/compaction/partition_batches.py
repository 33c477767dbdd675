"""Batches of one partition up to an offset, read from the files of a store in either direction.

Contract.  Made on the loop with all that it needs; iterated on any thread, which blocks.  Each
batch comes once, from its place in memory if it has one, verified by its checksums and by group,
incarnation, index and term.  The rows and the blocks of index files are read part by part, so
memory does not grow with the number of batches.

Raises ``CorruptRange`` for a damaged batch, ``CorruptFile`` for an index file that is damaged as
its segment is, ``SegmentRemoved`` if the partition's log start passed a batch meanwhile, and
``OSError``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from multiraft.storage.block_index.lookup import batches_from
from multiraft.storage.block_index.rows import ROW_BYTES, SparseIndex
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.indexed_segments import BlockReader
from multiraft.storage.io_jobs import ReadJob, spans_of
from multiraft.storage.journal.journal import Segment
from multiraft.storage.record_store import TermRuns, term_in
from multiraft.types import Payload

#: Bytes of batches that are in memory at the same time, apart from a larger batch.
CHUNK_BYTES = 1 << 20
#: Batches with places in memory that are one part.
SLOTS_PER_PART = 1 << 10
#: Bytes between two batches that one read covers.
GAP_BYTES_MAX = 64 << 10

_by_offset = attrgetter("base_offset")


class PlacedBatch(NamedTuple):
    """A batch and where its entry stands."""

    base_offset: int
    end: int  # offset after its last record
    index: int  # type: ignore[assignment]
    position: int  # of the journal, or the place in a cold segment
    size: int  # framed


class SlotColumns(NamedTuple):
    """Batches of a partition with places in memory, and the records of their group there."""

    bases: array[int]
    indexes: array[int]
    ends: Mapping[int, int]  # of batches behind which offsets do not continue, by base offset
    end_offset: int  # behind the last one
    record_indexes: array[int]
    positions: array[int]
    sizes: array[int]

    def batches(self, begin: int, end: int) -> Iterator[PlacedBatch]:
        """Yield the batches of some slots.  O(slots log n)."""
        for slot in range(begin, min(end, len(self.bases))):
            base, index = self.bases[slot], self.indexes[slot]
            last = self.bases[slot + 1] if slot + 1 < len(self.bases) else self.end_offset
            at = bisect_left(self.record_indexes, index)
            yield PlacedBatch(base, self.ends.get(base, last), index, self.positions[at],
                              self.sizes[at])


class PartitionFiles(NamedTuple):
    """Places of the batches of a partition, as a reader takes them from the loop at one moment."""

    group: int
    incarnation: int
    partition: int
    log_start: int
    terms: TermRuns
    rows: SparseIndex  # of index files
    slots: SlotColumns
    segments: Sequence[Segment | ColdSegment]  # that have them, ascending by ``start``
    reader: BlockReader  # of the blocks of ``rows``


class PartitionBatches:
    """Reader of the batches of a partition that end at an offset or below."""

    def __init__(self, filesystem: Filesystem, files: PartitionFiles, up_to: int):
        self.files = files
        self.bytes = 0  # read so far
        self._filesystem = filesystem
        self._up_to = up_to
        self._starts = [each.start for each in files.segments]
        self._bases = files.slots.bases

    # ---- places --------------------------------------------------------------------------------

    def first_end(self, begin: int, count: int) -> int:
        """Return an offset at which a batch begins, so that at most about ``count`` batches begin
        between ``begin`` and it, and one at least; ``up_to`` if there are not more.  O(rows)."""
        ends = [row.first for row in self.files.rows if row.first > begin]
        counts = [row.count for row in self.files.rows if row.first > begin]
        seen = 0
        for at, end in enumerate(ends):
            seen += counts[at - 1] if at else 0
            slots = bisect_left(self._bases, end) - bisect_left(self._bases, begin)
            if seen + slots > count and end > begin:
                return min(end, self._up_to)
        slot = bisect_left(self._bases, begin) + max(1, count - seen)
        return min(self._up_to, self._bases[slot] if slot < len(self._bases) else self._up_to)

    @property
    def _floor(self) -> int:
        rows = self.files.rows
        return rows[0].first if rows else 0

    def _parts(self) -> list[tuple[int, int]]:
        """Return the parts, ascending: the number of a row, -1 = none, and the slot at which those
        begin whose base offset is not below the row's."""
        found = [(-1, slot) for slot in range(0, bisect_left(self._bases, self._floor)
                                              if self.files.rows else len(self._bases),
                                              SLOTS_PER_PART)]
        found += [(at, bisect_left(self._bases, row.first))
                  for at, row in enumerate(self.files.rows) if row.first < self._up_to]
        return found

    def _placed(self, parts: Sequence[tuple[int, int]], at: int) -> list[PlacedBatch]:
        """Return the batches of one part, ascending by offset."""
        row, begin = parts[at]
        end = parts[at + 1][1] if at + 1 < len(parts) else len(self._bases)
        found = {each.index: each for each in self._in_file(row)} if row >= 0 else {}
        # What is in memory is newer: a copy, or what is about to be let go.
        found.update({each.index: each for each in self.files.slots.batches(begin, end)})
        return sorted([each for each in found.values() if each.end <= self._up_to
                       and each.end > self.files.log_start], key=_by_offset)

    def _in_file(self, row: int) -> Iterator[PlacedBatch]:
        """Yield the batches of a row.  Block."""
        part = SparseIndex(self.files.rows.data[row * ROW_BYTES:(row + 1) * ROW_BYTES])
        segments = self.files.reader.segments
        for batch in batches_from(part, part[0].first, self.files.reader.blocks):
            start = segments[batch.place.file].segment.start
            yield PlacedBatch(batch.base_offset, batch.end, batch.index,
                              start + batch.place.position, batch.place.size)
        self.files.reader.read.clear()  # blocks are not needed again

    # ---- contents ------------------------------------------------------------------------------

    def newest_first(self) -> Iterator[tuple[PlacedBatch, Payload]]:
        """Yield each batch and its bytes in descending order.  Block."""
        parts = self._parts()
        for at in reversed(range(len(parts))):
            yield from self._read([*reversed(self._placed(parts, at))])

    def oldest_first(self) -> Iterator[tuple[PlacedBatch, Payload]]:
        """Yield each batch and its bytes in ascending order.  Block."""
        parts = self._parts()
        for at in range(len(parts)):
            yield from self._read(self._placed(parts, at))

    def _read(self, placed: Sequence[PlacedBatch]) -> Iterator[tuple[PlacedBatch, Payload]]:
        chunk: list[PlacedBatch] = []
        size = 0
        for each in placed:
            if chunk and size + each.size > CHUNK_BYTES:
                yield from self._read_chunk(chunk)
                chunk, size = [], 0
            chunk.append(each)
            size += each.size
        if chunk:
            yield from self._read_chunk(chunk)

    def _read_chunk(self, chunk: Sequence[PlacedBatch]) -> Iterator[tuple[PlacedBatch, Payload]]:
        files = self.files
        ascending = sorted(chunk, key=_by_offset)
        job = ReadJob(files.group, files.incarnation, spans_of(self._segment_of, [
            (each.index, term_in(files.terms, each.index), each.position, each.size)
            for each in ascending], GAP_BYTES_MAX), self._filesystem)
        self.bytes += job.bytes
        payloads = {entry.index: entry.payload for entry in job.execute()}
        for each in chunk:
            yield each, payloads[each.index]

    def start_of(self, position: int) -> int:
        """Return where the segment with a batch begins.  O(log segments)."""
        return self._segment_of(position).start

    def _segment_of(self, position: int) -> Segment | ColdSegment:
        return self.files.segments[bisect_right(self._starts, position) - 1]
