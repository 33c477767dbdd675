"""Blocking I/O jobs, described on the loop and executed by a thread.

Contract.  ``Store`` makes a job on the loop.  The job holds all it needs and touches no memory of
the store while ``execute`` runs; its result is given back to the store on the loop.  One thread
executes ``StagedWrite`` and ``CreateSegmentJob`` in the order in which they were made; any thread
executes the others.

Invariants.  No data that fails a check leaves a read job: the job raises ``CorruptRange``, which
names the entry.  A failing disk raises its ``OSError``, and the node stops.  A segment that was
removed since the job was made is neither: the job raises ``SegmentRemoved``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.errors import CorruptBatch, CorruptEntry
from multiraft.storage.block_index.blocks import BLOCK_BYTES
from multiraft.storage.block_index.partition_rows import batches_behind
from multiraft.storage.block_index.rows import SparseIndex
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.cold.contents import UnreadableRecord
from multiraft.storage.errors import (
    BlockNotCached,
    CorruptIndex,
    CorruptIndexedSegment,
    CorruptRange,
    RecordsNotCopied,
    SegmentRemoved,
)
from multiraft.storage.filesystem import Buffer, File, Filesystem
from multiraft.storage.index import IndexedBatch
from multiraft.storage.indexed_segments import BlockReader
from multiraft.storage.journal.journal import Journal, Part, Segment, SegmentHeader
from multiraft.storage.record_store import TermRuns, Unreadable, term_in
from multiraft.types import Entry, EntryKind


class WritePart(NamedTuple):
    """One gathered write, to be synced before the next part begins."""

    file: File
    buffers: list[Buffer]
    position: int  # in the file


class StagedWrite:
    """One round's append.  ``execute`` it, or, when ``native_ready``, write and sync ``parts`` one
    after the other in order; then ``Store.finish``."""

    __slots__ = ("sequence", "end", "on_durable", "records_only", "synced", "_filesystem",
                 "_journal", "_parts")

    def __init__(self, sequence: int, filesystem: Filesystem, journal: Journal, parts: list[Part],
                 on_durable: Callable[[], None] | None = None, records_only: bool = False):
        self.sequence = sequence
        self.records_only = records_only  # nothing but data: its sync may wait if that was agreed
        self.synced = True  # whether its sync did not wait
        self.on_durable = on_durable  # called when records of no round are durable
        self.end = parts[-1].end if parts else journal.position  # journal position after the round
        self._filesystem = filesystem
        self._journal = journal
        self._parts = parts

    @property
    def native_ready(self) -> bool:
        """Return True if every file exists, so that a native writer can take ``parts``.  False in
        the round that starts a segment which was not prepared."""
        for part in self._parts:
            if part.segment.file is None:
                return False
        return True

    def create_files(self, preallocate: bool = True) -> None:
        """Create every file of this round that does not exist, so that it is ``native_ready``.
        ``preallocate``: with all its blocks; False when the disk is short of them.  Block, on the
        disk thread."""
        for part in self._parts:
            self._create(part.segment, preallocate)

    def _create(self, segment: Segment, preallocate: bool = True) -> None:
        if segment.file is None:
            segment.create(self._filesystem, self._journal.header_of(segment), preallocate)

    @property
    def parts(self) -> list[WritePart]:
        """Return the writes of this round, in order: one, or more when a segment was rolled
        over."""
        return [WritePart(part.segment.file, part.buffers,  # type: ignore[arg-type]
                          part.position) for part in self._parts]  # None before create_files

    @property
    def bytes(self) -> int:
        return sum(len(buffer) for part in self._parts for buffer in part.buffers)

    def execute(self) -> None:
        """Write every part, synced before the next one begins, and create files that are missing.
        Block, on the disk thread.  Raises ``OSError``."""
        for part in self._parts:
            segment = part.segment
            self._create(segment)
            assert segment.file is not None
            # One part at a time: the next segment's first entry says that all of this one is
            # durable.  An error is not retried; it leaves through the disk thread, and the node
            # stops: what a failed fsync left on the disk is unknown.
            segment.file.write(part.buffers, part.position, True)


class CreateSegmentJob:
    """Create the next segment's file ahead."""

    __slots__ = ("_filesystem", "_segment", "_header")

    def __init__(self, filesystem: Filesystem, segment: Segment, header: SegmentHeader):
        self._filesystem = filesystem
        self._segment = segment
        self._header = header

    def execute(self) -> None:
        self._segment.create(self._filesystem, self._header)


class SpanEntry(NamedTuple):
    """One entry inside a span."""

    index: int  # type: ignore[assignment]
    term: int
    at: int  # byte of the span
    size: int  # framed


class Span(NamedTuple):
    """One read of one file."""

    segment: Segment | ColdSegment
    position: int
    length: int
    wanted: list[SpanEntry]

    @property
    def path(self) -> str:
        return self.segment.path


def spans_of(segment_of: Callable[[int], Segment | ColdSegment],
             places: Sequence[tuple[int, int, int, int]], gap_bytes_max: int) -> list[Span]:
    """Return the reads that fetch entries at ``places``: (index, term, journal position, size),
    ascending by index.  ``segment_of`` tells the segment of a journal position.

    Adjacent entries of one segment share a read, with gaps of up to ``gap_bytes_max`` between them.
    O(entries)."""
    spans: list[Span] = []
    segment: Segment | ColdSegment | None = None
    wanted: list[SpanEntry] = []
    end, start = -1, 0
    for index, term, position, size in places:
        # A repaired entry is elsewhere than the entries before and behind it.
        if segment is None or not (0 <= position - end <= gap_bytes_max
                                   and position < segment.start + segment.capacity):
            if segment is not None:
                spans.append(Span(segment, start - segment.start, end - start, wanted))
            segment, start, wanted = segment_of(position), position, []
        wanted.append(SpanEntry(index, term, position - start, size))
        end = position + size
    if segment is not None:
        spans.append(Span(segment, start - segment.start, end - start, wanted))
    return spans


class ReadJob:
    """Read of a group's entries that are no longer in memory, returned together with those behind
    them that are."""

    __slots__ = ("group", "incarnation", "spans", "cached_entries", "missing_index", "_filesystem")

    def __init__(self, group: int, incarnation: int, spans: list[Span], filesystem: Filesystem,
                 cached_entries: tuple[Entry, ...] = (), missing_index: int = 0):
        self.group = group
        self.incarnation = incarnation
        self.spans = spans
        self.cached_entries = cached_entries
        self.missing_index = missing_index  # of the range, known to be damaged; 0 = none
        self._filesystem = filesystem

    @property
    def bytes(self) -> int:
        """Bytes to read from files: entries, and the gaps that are read with them."""
        return sum(span.length for span in self.spans)

    @property
    def count(self) -> int:
        """Entries that are read from files."""
        return sum(len(span.wanted) for span in self.spans)

    def execute(self) -> tuple[Entry, ...]:
        """Read the entries, verify them and return them with those that are in memory.  Block, on
        any thread.  Raises ``CorruptRange`` naming the first damaged entry, ``SegmentRemoved`` if
        nothing needed an entry any longer."""
        self._check_known()
        with closing(self._files()) as files:
            return self._parsed([file.read(span.length, span.position) for span, file in files])

    def run_from_page_cache(self) -> tuple[Entry, ...] | None:
        """Read as ``execute`` does, on the loop and without waiting; None when the page cache does
        not have all of the bytes. Raise as ``execute``."""
        self._check_known()
        read = []
        with closing(self._files()) as files:
            for span, file in files:
                data = file.read_resident(span.length, span.position)
                if data is None:
                    return None
                read.append(data)
        return self._parsed(read)

    def _files(self) -> Generator[tuple[Span, File], None, None]:
        """Yield each span with its file, opened once for spans in a row.  Entries of one group have
        those of all others between them, so that one read has many spans."""
        path, file = "", None
        try:
            for span in self.spans:
                if file is None or span.path != path:
                    if file is not None:
                        file.close()
                    path, file = span.path, self._open(span)
                yield span, file
        finally:
            if file is not None:
                file.close()

    def _open(self, span: Span) -> File:
        try:
            return self._filesystem.open(span.path)
        except FileNotFoundError as error:
            if not span.segment.is_removed:
                raise
            raise SegmentRemoved(self.group, span.wanted[0].index, span.path) from error

    def _check_known(self) -> None:
        if self.missing_index:
            raise CorruptRange(self.group, self.missing_index, "known to be damaged")

    def _parsed(self, read: Sequence[Buffer]) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for span, buffer in zip(self.spans, read, strict=True):
            data = memoryview(buffer)
            begin = span.segment.start + span.position
            for index, term, at, size in span.wanted:
                try:
                    entry = self._parse(index, term, data[at:at + size], begin + at, size)
                except CorruptRange as error:
                    if not span.segment.is_removed:
                        raise
                    # Its file is cut off while its blocks are freed.
                    raise SegmentRemoved(self.group, index, span.path) from error
                entries.append(entry)
        entries += self.cached_entries
        return tuple(entries)

    def _parse(self, index: int, term: int, data: memoryview, position: int, size: int) -> Entry:
        try:
            found = core.parse_entries(data)
        except CorruptEntry as error:
            raise CorruptRange(self.group, index, str(error), position, size) from error
        if len(found) != 1:
            raise CorruptRange(self.group, index, f"{len(found)} entries in its place", position,
                               size)
        entry = found[0]
        # A misdirected write has a valid checksum: only its identity tells, down to the term, as it
        # may have been of an entry that was truncated since.
        if (entry.group, entry.incarnation, entry.index, entry.term) != (
                self.group, self.incarnation, index, term):
            raise CorruptRange(self.group, index, f"{entry!r} is in its place", position, size)
        return entry


class RecordsJob:
    """Read of a group's batches in a range of indexes, for a member that copies its records."""

    __slots__ = ("first", "through", "lacking", "_reads")

    def __init__(self, reads: list[ReadJob], first: int, through: int,
                 lacking: tuple[tuple[int, int], ...]):
        self.first = first
        #: Index up to which the answer has all records from ``first`` on, but for those in
        #: ``lacking``: ranges, (first, last), of indexes that are missing or uncopied here.
        self.through = through
        self.lacking = lacking
        self._reads = reads

    @property
    def bytes(self) -> int:
        """Bytes to read from files."""
        return sum(read.bytes for read in self._reads)

    def execute(self) -> tuple[Entry, ...]:
        """Read the batches, verify them and return them, ascending by index.  Block, on any thread.
        Raises ``CorruptRange`` naming the first damaged entry, ``SegmentRemoved`` if a record is
        not needed any longer."""
        return tuple([entry for read in self._reads for entry in read.execute()
                      if entry.kind == EntryKind.DATA])


class FetchJob:
    """Read of a partition's batches that are no longer in memory."""

    __slots__ = ("next_offset", "_read")

    def __init__(self, read: ReadJob, next_offset: int):
        self.next_offset = next_offset  # after the last record of the batches
        self._read = read

    @property
    def group(self) -> int:
        return self._read.group

    @property
    def bytes(self) -> int:
        return self._read.bytes

    def execute(self) -> list[Buffer]:
        """Read the batches, verify them and return them. Block, on any thread. Raises
        ``CorruptRange`` for a damaged one, and ``SegmentRemoved`` if the partition's log start has
        passed one since the job was made: the caller fetches anew."""
        return _batches(self._read.execute())

    def run_from_page_cache(self) -> list[Buffer] | None:
        """Return the batches, verified, without waiting; None when the page cache does not have all
        of them. Raise as ``execute``."""
        entries = self._read.run_from_page_cache()
        return None if entries is None else _batches(entries)


def _batches(entries: tuple[Entry, ...]) -> list[Buffer]:
    assert all(entry.kind == EntryKind.DATA for entry in entries), "a fetch reads data only"
    return [entry.payload for entry in entries]


class RowFetchJob:
    """Read of a partition's batches whose places are in blocks of index files that are not in
    memory: it reads the blocks first.

    ``next_offset`` is set by ``execute``: before, it is the offset that was asked for."""

    __slots__ = ("group", "partition", "next_offset", "bytes", "_incarnation", "_rows", "_reader",
                 "_terms", "_unreadable", "_below_offset", "_bytes_max", "_gap_bytes_max",
                 "_behind", "_holes_below", "_slot_base")

    def __init__(self, group: int, incarnation: int, partition: int, rows: SparseIndex,
                 reader: BlockReader, terms: TermRuns, unreadable: Unreadable, offset: int,
                 below_offset: int, bytes_max: int, gap_bytes_max: int, behind: int,
                 holes_below: int = 0, slot_base: int = 0):
        """``rows``: from the part on that may hold ``offset``; ``behind``: base offset of the last
        batch with a slot that begins at ``offset`` or before, below zero = none, and none with a
        slot is between it and ``below_offset``; ``holes_below``: as of ``select_batches``;
        ``slot_base``: where the next batch with a slot begins, 0 = there is none; the others as of
        ``Store.fetch``."""
        self.group = group
        self.partition = partition
        self.next_offset = offset
        #: An estimate: batches of the mean size of their segments' entries.
        self.bytes = min(bytes_max, sum(row.count * reader.segments[row.file].entry_bytes_mean
                                        for row in rows))
        self._bytes_max = bytes_max
        self._incarnation = incarnation
        self._rows = rows
        self._reader = reader
        self._terms = terms
        self._unreadable = unreadable
        self._below_offset = below_offset
        self._gap_bytes_max = gap_bytes_max
        self._behind = behind
        self._holes_below = holes_below
        self._slot_base = slot_base

    def execute(self) -> list[Buffer]:
        """Return the batches as ``FetchJob.execute`` does; none if no batch holds the offset.
        Raises as well: ``CorruptIndexedSegment`` if an index file is damaged and its segment too,
        ``RecordsNotCopied`` if the batch of the offset may be uncopied."""
        try:
            chosen = self._chosen()
        except CorruptIndex as error:
            damaged = next(at.segment for at in self._reader.segments.values()
                           if at.path == error.path)
            raise CorruptIndexedSegment(damaged.start, damaged.end, str(error)) from error
        if isinstance(chosen, int):
            if not self._unreadable.is_missing(chosen):
                raise RecordsNotCopied(self.group, self.partition, self.next_offset, chosen)
            for each in self._found_unreadable():
                if each.index == chosen:
                    raise CorruptRange(self.group, chosen, "unreadable in a cold segment",
                                       each.position, each.size)
            raise CorruptRange(self.group, chosen, "known to be damaged")
        if not chosen and 0 < self._slot_base <= min(self._holes_below, self._below_offset):
            self.next_offset = self._slot_base  # compaction dropped all batches before it
        segments = self._reader.segments
        places, starts = [], {}
        for _, end, index, place in chosen:
            assert place is not None
            segment = segments[place.file].segment
            starts[segment.start + place.position] = segment
            places.append((index, term_in(self._terms, index), segment.start + place.position,
                           place.size))
            self.next_offset = end
        spans = spans_of(starts.__getitem__, places, self._gap_bytes_max)
        read = ReadJob(self.group, self._incarnation, spans, self._reader.filesystem)
        return _batches(read.execute())

    def run_from_page_cache(self) -> None:
        """Return None: a block was not in the page cache when the job was made."""

    def _chosen(self) -> list[IndexedBatch] | int:
        chosen = self._selected()
        found = self._found_unreadable()
        if found:  # the batches were chosen by guessed ends
            self._unreadable = self._unreadable.with_missing([each.index for each in found])
            chosen = self._selected()
        return chosen

    def _found_unreadable(self) -> list[UnreadableRecord]:
        """Return the records that the reader could not read, of those that may be in the range.
        Others have a copy, which has a slot, or end before the range."""
        key = self.group, self._incarnation, self.partition
        return [each for each in self._reader.unreadable if each[:3] == key
                and self._behind < each.base_offset < self._below_offset]

    def _selected(self) -> list[IndexedBatch] | int:
        found = (IndexedBatch(row.base_offset, row.end, row.index, row.place)
                 for row in batches_behind(self._rows, self.next_offset, self._reader.blocks))
        return select_batches(found, self.next_offset, self._below_offset, self._bytes_max,
                              self._unreadable, _size_in_file, self._holes_below)


def _size_in_file(batch: IndexedBatch) -> int:
    assert batch.place is not None
    return batch.place.size


def select_batches(found: Iterator[IndexedBatch], offset: int, below_offset: int, bytes_max: int,
                   unreadable: Unreadable, size_of: Callable[[IndexedBatch], int],
                   holes_below: int = 0) -> list[IndexedBatch] | int:
    """Return the batches of a fetch: from the one that holds ``offset`` on, with all records below
    ``below_offset``, as many as fit into ``bytes_max``, and at least one.  If compaction dropped
    it, which it does below ``holes_below`` alone, begin with the next one.

    Stop before a record that is missing, or at a place below ``below_offset`` where a hole or an
    uncopied record may be, behind the last batch too.  If no batch is before it, return its index.
    ``BlockNotCached`` ends the batches too, except before the first.  O(result log missing)."""
    chosen: list[IndexedBatch] = []
    total, before, at = 0, 0, offset
    while True:
        try:
            batch = next(found, None)
        except BlockNotCached:
            if not chosen:
                raise
            return chosen
        # A hole, or a missing record of which no row tells, counts where offsets do not continue.
        last = batch.index if batch is not None else sys.maxsize
        if (batch is None or batch.base_offset > at) and at < below_offset and (
                lost := unreadable.first_in(before + 1, last)):
            return chosen or lost
        if batch is None or batch.end > below_offset:
            return chosen
        if unreadable.is_missing(batch.index):  # its end is a guess
            return chosen or batch.index
        if not chosen and batch.base_offset > max(offset, holes_below):
            return []
        total += size_of(batch) - layout.ENTRY_HEADER_BYTES
        if chosen and total > bytes_max:
            return chosen
        chosen.append(batch)
        before, at = batch.index, batch.end


class RowRecordsJob:
    """Read of a group's batches in a range of indexes for which the index file of one segment
    answers, for a member that copies its records.

    ``through`` and ``lacking`` are set by ``execute``, and otherwise as those of ``RecordsJob``."""

    __slots__ = ("group", "first", "through", "lacking", "bytes", "_incarnation", "_last", "_lost",
                 "_known", "_terms", "_reader", "_number", "_bytes_max", "_gap_bytes_max")

    def __init__(self, group: int, incarnation: int, first: int, last: int,
                 lost: Sequence[tuple[int, int]],
                 known: Mapping[int, tuple[int, int, Segment | ColdSegment]],
                 terms: TermRuns, reader: BlockReader, number: int, bytes_max: int,
                 gap_bytes_max: int):
        """``lost``: ranges of indexes of which no record can be read; ``known``: journal position,
        size and segment of records in first..last whose places are in memory, by index;
        ``number``: of the segment."""
        self.group = group
        self.first = first
        self.through = first - 1
        self.lacking: tuple[tuple[int, int], ...] = ()
        segment = reader.segments[number].segment
        self.bytes = min(bytes_max, segment.end - segment.start)  # an estimate
        self._incarnation = incarnation
        self._last = last
        self._lost = lost
        self._known = known
        self._terms = terms
        self._reader = reader
        self._number = number
        self._bytes_max = bytes_max
        self._gap_bytes_max = gap_bytes_max

    def execute(self) -> tuple[Entry, ...]:
        """Read the whole index file, then the batches as ``RecordsJob.execute`` does.  Raises
        ``CorruptIndexedSegment`` as well, if the index file is damaged and its segment too."""
        segment = self._reader.segments[self._number].segment
        try:
            run = self._reader.whole(self._number)[self.group]
        except CorruptIndex as error:
            raise CorruptIndexedSegment(segment.start, segment.end, str(error)) from error
        through = min(self._last, run.last_within(self.first, self._bytes_max))
        wanted = [index for batches in run.partitions.values()
                  for index in batches.indexes_below(through + 1, self.first)]
        wanted += [index for index in self._known if index <= through]
        unreadable = [each for low, high in self._lost
                      for each in range(low, min(high, through) + 1)]
        places, segments = [], {}
        needed = _first_needed(self._terms)
        for index in sorted({*wanted}.difference(unreadable)):
            if index < needed:
                continue
            if index in self._known:
                position, size, at = self._known[index]
            else:
                place = run.place(index)
                assert place is not None, f"batch {index} is no entry"
                (position, size), at = place, segment
            segments[position] = at
            places.append((index, term_in(self._terms, index), position, size))
        read = ReadJob(self.group, self._incarnation, spans_of(
            segments.__getitem__, places, self._gap_bytes_max), self._reader.filesystem)
        found = read.execute()
        self.through = through
        self.lacking = tuple([(low, min(high, through)) for low, high in self._lost
                              if low <= through])
        return found


def _first_needed(terms: TermRuns) -> int:
    """Return the index with which the records of a group begin; one behind all = there are none.
    An index file may name batches below it, whose terms are not known any longer."""
    return terms[0][0] if terms else 1 << 64


class RowCopyJob:
    """Read, for a peer, of entries that an index file names: records, or entries of other kinds."""

    __slots__ = ("group", "absent", "_incarnation", "_indexes", "_terms", "_reader", "_number",
                 "_bytes_max")

    def __init__(self, group: int, incarnation: int, indexes: Sequence[int], terms: TermRuns,
                 reader: BlockReader, number: int, bytes_max: int):
        self.group = group
        self.absent: list[int] = []  # of the indexes, those that the file shows to be no records
        self._incarnation = incarnation
        self._indexes = indexes
        self._terms = terms
        self._reader = reader
        self._number = number
        self._bytes_max = bytes_max

    def execute(self) -> tuple[Entry, ...]:
        """Read the whole index file, then as many entries as fit, at least one, and return them.
        Block, on any thread.  Raises as ``RowFetchJob.execute``; damage of an entry behind the
        first is left to a later read."""
        segment = self._reader.segments[self._number].segment
        try:
            run = self._reader.whole(self._number).get(self.group)
        except CorruptIndex as error:
            raise CorruptIndexedSegment(segment.start, segment.end, str(error)) from error
        found: list[Entry] = []
        total, needed = 0, _first_needed(self._terms)
        for index in self._indexes:
            place = run.place(index) if run is not None else None
            if place is None and run is not None and run.has_records_only:
                self.absent.append(index)
            if index < needed or place is None:
                continue
            position, size = place
            total += size
            if found and total > self._bytes_max:
                continue
            spans = spans_of({position: segment}.__getitem__,
                             [(index, term_in(self._terms, index), position, size)], 0)
            try:
                found += ReadJob(self.group, self._incarnation, spans,
                                 self._reader.filesystem).execute()
            except CorruptRange:
                if not found:
                    raise
                break
        return tuple(found)


class BlockJob:
    """Read of one block of an index file, for a look-up that raised ``BlockNotCached``."""

    __slots__ = ("number", "block", "rows", "reader")

    bytes = BLOCK_BYTES  # to read

    def __init__(self, reader: BlockReader, number: int, block: int):
        self.number = number
        self.block = block
        self.rows: bytes | None = None  # None = the segment is removed
        self.reader = reader

    def execute(self) -> None:
        """Read the block and set ``rows``.  Block, on any thread.  Raise ``CorruptIndexedSegment``
        if the index file is damaged and its segment too, ``OSError``."""
        try:
            self.rows = self.reader.blocks(self.number, self.block)
        except SegmentRemoved:
            self.rows = None
        except CorruptIndex as error:
            segment = self.reader.segments[self.number].segment
            raise CorruptIndexedSegment(segment.start, segment.end, str(error)) from error


class VerifyJob:
    """Check both copies of an entry that a client reported as damaged: the file's and memory's."""

    __slots__ = ("_read", "_index", "_payload")

    def __init__(self, read: ReadJob | RowFetchJob, index: int, payload: Buffer | None):
        self._read = read
        self._index = index
        self._payload = payload  # of the copy that is served from memory, if there is one

    @property
    def bytes(self) -> int:
        return self._read.bytes

    def execute(self) -> None:
        """Check the entry on disk and the batch in memory.  Block, on any thread.  Raises
        ``CorruptRange`` when one is damaged, ``SegmentRemoved`` when it is not needed any longer.
        """
        self._read.execute()
        if self._payload is not None:
            try:
                core.verify_batch(self._payload)
            except CorruptBatch as error:
                raise CorruptRange(self._read.group, self._index,
                                   f"the copy in memory: {error}") from error


def read_exactly(filesystem: Filesystem, path: str, position: int, length: int) -> bytes:
    """Read ``length`` bytes of a file from ``position`` on, fewer when it ends before."""
    file = filesystem.open(path)
    try:
        return file.read(length, position)
    finally:
        file.close()


class Fetch(NamedTuple):
    """Whole batches from the one that holds the offset on.  Exactly one of ``buffers`` and ``job``
    says where they are; both empty = nothing readable yet."""

    buffers: list[Buffer]
    job: FetchJob | RowFetchJob | None  # cold: execute it on a thread, it returns the buffers
    next_offset: int  # after the last record of the batches; of a ``RowFetchJob``, the offset
    #: Of the batches, rounded up to the journal's alignment; of a ``RowFetchJob``, an estimate.
    bytes: int

    @property
    def read_to(self) -> int:
        """Offset after the last record of the batches, known once the job was executed."""
        return self.next_offset if self.job is None else self.job.next_offset
