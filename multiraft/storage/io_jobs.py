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

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import NamedTuple

from multiraft import core
from multiraft.errors import CorruptBatch, CorruptEntry
from multiraft.storage.errors import CorruptRange, SegmentRemoved
from multiraft.storage.filesystem import Buffer, File, Filesystem
from multiraft.storage.journal.journal import Journal, Part, Segment, SegmentHeader
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

    segment: Segment
    position: int
    length: int
    wanted: list[SpanEntry]

    @property
    def path(self) -> str:
        return self.segment.path


def spans_of(journal: Journal, places: Sequence[tuple[int, int, int, int]],
               gap_bytes_max: int) -> list[Span]:
    """Return the reads that fetch entries at ``places``: (index, term, journal position, size),
    ascending by index.

    Adjacent entries of one segment share a read, with gaps of up to ``gap_bytes_max`` between them.
    O(entries)."""
    spans: list[Span] = []
    segment: Segment | None = None
    wanted: list[SpanEntry] = []
    end, start = -1, 0
    for index, term, position, size in places:
        # A repaired entry is elsewhere than the entries before and behind it.
        if segment is None or not (0 <= position - end <= gap_bytes_max
                                   and position < segment.start + segment.capacity):
            if segment is not None:
                spans.append(Span(segment, start - segment.start, end - start, wanted))
            segment, start, wanted = journal.segment_of(position), position, []
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
            for index, term, at, size in span.wanted:
                entries.append(self._parse(index, term, data[at:at + size]))
        entries += self.cached_entries
        return tuple(entries)

    def _parse(self, index: int, term: int, data: memoryview) -> Entry:
        try:
            found = core.parse_entries(data)
        except CorruptEntry as error:
            raise CorruptRange(self.group, index, str(error)) from error
        if len(found) != 1:
            raise CorruptRange(self.group, index, f"{len(found)} entries in its place")
        entry = found[0]
        # A misdirected write has a valid checksum: only its identity tells, down to the term, as it
        # may have been of an entry that was truncated since.
        if (entry.group, entry.incarnation, entry.index, entry.term) != (
                self.group, self.incarnation, index, term):
            raise CorruptRange(self.group, index, f"{entry!r} is in its place")
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

    __slots__ = ("_read",)

    def __init__(self, read: ReadJob):
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


class VerifyJob:
    """Check both copies of an entry that a client reported as damaged: the file's and memory's."""

    __slots__ = ("_read", "_index", "_payload")

    def __init__(self, read: ReadJob, index: int, payload: Buffer | None):
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
    job: FetchJob | None  # cold: execute it on a thread, it returns the buffers
    next_offset: int  # after the last record of the batches
    bytes: int  # of the batches, rounded up to the journal's alignment
