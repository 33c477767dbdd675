"""Writing of one cold segment: copies of records, in steps of bounded work.

Contract.  Made on the loop with all that it needs.  ``step`` blocks, on any thread, one step after
the other; between two of them the caller may wait as long as it likes.  A step that lacked file
descriptors is repeated by the next call.  After the last step
``written`` names the segment and ``contents`` has its records.  ``abandon`` ends a job early, and
removes what it wrote.

    step                                                 after a crash behind it
    ---------------------------------------------------  ------------------------------------------
    records are read from their sources and verified     nothing of it is on disk
    blocks are reserved, records are written             an unfinished file, removed at start
    the file is synced, read from the disk and checked   the same
    the index file is written, under its name            an index file without segment: removed
    the file is renamed, the directory synced            a cold segment that no checkpoint names:
                                                         removed at start
    (caller) a checkpoint names it                       it is read

Invariants.  Each record is verified before it is copied, by its checksums and by group,
incarnation, index and term.  One that cannot be read is left out and named in ``damaged``; its
source keeps it.  Of a source that was removed meanwhile nothing is needed.

Theory.  The sources are read in the order of their bytes and written in the order of groups and
partitions: both are sequential.  Between the two all records are in memory, which bounds the size
of a cold segment.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from typing import NamedTuple, Protocol

from multiraft import core
from multiraft.codec import layout
from multiraft.errors import CorruptBatch, CorruptEntry
from multiraft.storage.atomic_file import replace_file
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import ColdContents, IndexRanges
from multiraft.storage.cold.cold_segment import (
    HEADER_BYTES,
    ColdHeader,
    ColdName,
    cold_index_path,
    cold_path,
)
from multiraft.storage.cold.contents import ContentsBuilder
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import File, Filesystem
from multiraft.storage.record_store import TermRuns, term_in
from multiraft.storage.strays import UNFINISHED
from multiraft.types import Entry, EntryKind

#: Bytes that one step reads or writes, apart from a larger entry: some milliseconds of a disk.
STEP_BYTES = 1 << 20
#: Bytes between two wanted records that are read through: a second read costs about as much.
GAP_BYTES_MAX = 64 << 10
#: Bytes of records that the system reads from a source before they are asked for: each step opens
#: the file anew, so that it would wait for the disk again.
AHEAD_BYTES = 4 << 20
#: A sync covers so much: the last one of a whole file would delay appends to the same disk.
SYNC_BYTES = 8 << 20

#: Payload bytes of a cold segment: all of its records are in memory while it is written.
COLD_SEGMENT_BYTES_MAX = 64 << 20
#: Records of a cold segment: some 500 bytes of objects each, so about 32 MiB.
COLD_SEGMENT_RECORDS_MAX = 1 << 16

_ALIGN = layout.ENTRY_ALIGNMENT - 1

_by_place = attrgetter("group", "partition", "index")


class SourceFile(Protocol):
    """File that records are copied from: a sealed segment, or a cold one."""

    path: str
    start: int
    is_removed: bool


class Compaction(Protocol):
    """Compaction by key of one partition: what is copied instead of its batches."""

    group: int
    partition: int

    def is_dropped(self, index: int) -> bool:
        """Return True if no record of the batch with that log index survives."""

    def compacted(self, entry: Entry) -> Entry | None:
        """Return the entry with the records that survive; None = none does.  Raises
        ``CorruptBatch`` for a batch that is not the one that was examined."""


class WantedRecord(NamedTuple):
    """A record to copy, and where its entry stands."""

    position: int
    size: int  # framed
    group: int
    incarnation: int
    index: int  # type: ignore[assignment]
    term: int


class WantedRun(NamedTuple):
    """Records of one group to copy from one file, as columns ascending by index."""

    group: int
    incarnation: int
    indexes: Sequence[int]
    positions: Sequence[int]
    sizes: Sequence[int]  # framed
    terms: TermRuns


class CopySource(NamedTuple):
    """A file, and the records in it that are to be copied."""

    file: SourceFile
    runs: Sequence[WantedRun]

    def records(self) -> list[WantedRecord]:
        """Return the records, ascending by position.  O(records log records)."""
        return sorted(
            WantedRecord(position, size, run.group, run.incarnation, index,
                         term_in(run.terms, index))
            for run in self.runs
            for index, position, size in zip(run.indexes, run.positions, run.sizes, strict=True))


class DamagedRecord(NamedTuple):
    """A record that could not be copied."""

    group: int
    index: int  # type: ignore[assignment]
    position: int
    size: int  # framed
    why: str


class _Span(NamedTuple):
    """Records of a source that one read covers."""

    source: SourceFile
    wanted: list[WantedRecord]  # ascending by position

    @property
    def begin(self) -> int:
        """Position of the first record."""
        return self.wanted[0].position

    @property
    def length(self) -> int:
        """Bytes from there to the end of the last record."""
        last = self.wanted[-1]
        return last.position + last.size - self.begin


class _Phase(enum.Enum):
    READ = enum.auto()
    CREATE = enum.auto()
    WRITE = enum.auto()
    VERIFY = enum.auto()
    VERIFY_HEADER = enum.auto()
    INDEX = enum.auto()
    RENAME = enum.auto()
    SYNC = enum.auto()
    DONE = enum.auto()


class CopyJob:
    """Copy of records into a new cold segment."""

    def __init__(self, filesystem: Filesystem, directory: str, header: ColdHeader,
                 sources: Sequence[CopySource],
                 ranges: Mapping[int, IndexRanges] | None = None,
                 compaction: Compaction | None = None):
        """``directory``: of cold segments; ``header``: of the new one; ``ranges``: as of
        ``ColdContents.take_ranges``; ``compaction``: of the batches of a partition, None = all are
        copied as they are."""
        self.header = header
        self.compaction = compaction
        self.sources = tuple(sources)
        self.ranges = ranges or {}
        self.bytes = 0  # read and written so far
        self.bytes_to_copy = sum(sum(run.sizes) for source in sources for run in source.runs)
        self.damaged: list[DamagedRecord] = []
        self.written: ColdName | None = None  # None as well if no record was left to copy
        self.contents: ColdContents | None = None
        self._filesystem = filesystem
        self._directory = directory
        self._path = cold_path(directory, header.number)
        self._phase = _Phase.READ
        self._reads = self._spans()
        self._span: _Span | None = None  # that is being read
        self._upcoming: deque[_Span] = deque()  # behind it
        self._upcoming_bytes = 0
        self._read_ahead_of: SourceFile | None = None
        self._read_ahead_to = 0  # begin of its last span that the system was asked to read
        self._entries: list[Entry] = []
        self._copied = 0  # entries that are written
        self._builder = ContentsBuilder()
        self._file: File | None = None
        self._length = self._checked = HEADER_BYTES
        self._window = STEP_BYTES
        self._unsynced = 0
        self._last_crc = self._checked_crc = header.seed

    @property
    def bytes_copied(self) -> int:
        """Bytes of records in the new segment so far, of ``bytes_to_copy``."""
        return self._length - HEADER_BYTES

    @property
    def is_done(self) -> bool:
        """True after the last step."""
        return self._phase is _Phase.DONE

    def step(self) -> None:
        """Do the next step, if any is left.  Block; ``bytes`` grows by what was read or written.

        Raise ``CorruptFile`` if the disk does not return what was written, ``OSError`` if it fails
        or is full: the caller abandons the job then."""
        steps = {_Phase.READ: self._read, _Phase.CREATE: self._create, _Phase.WRITE: self._write,
                 _Phase.VERIFY: self._verify, _Phase.VERIFY_HEADER: self._verify_header,
                 _Phase.INDEX: self._write_index, _Phase.RENAME: self._rename,
                 _Phase.SYNC: self._sync, _Phase.DONE: lambda: 0}
        self.bytes += steps[self._phase]()

    def abandon(self) -> None:
        """End the job, and remove the files that it wrote.  Block.  Raises ``OSError``; a start
        removes what remains."""
        self._phase = _Phase.DONE
        self._close()
        self.written = self.contents = None
        for path in (self._path + UNFINISHED, self._path,
                     cold_index_path(self._directory, self.header.number)):
            if self._filesystem.exists(path):
                self._filesystem.remove(path)
        self._filesystem.sync_directory(self._directory)

    # ---- reading -------------------------------------------------------------------------------

    def _spans(self) -> Iterator[_Span]:
        """Yield the records that one read covers each, in the order of the sources."""
        for source in self.sources:
            span: list[WantedRecord] = []
            end = 0
            for each in source.records():
                if span and (each.position - end > GAP_BYTES_MAX
                             or each.position + each.size - span[0].position > STEP_BYTES):
                    yield _Span(source.file, span)
                    span = []
                span.append(each)
                end = each.position + each.size
            if span:
                yield _Span(source.file, span)

    def _take_span(self) -> _Span | None:
        """Return the next span, and keep those behind it known that are to be read ahead."""
        while self._upcoming_bytes < AHEAD_BYTES and (found := next(self._reads, None)):
            self._upcoming.append(found)
            self._upcoming_bytes += found.length
        if not self._upcoming:
            return None
        span = self._upcoming.popleft()
        self._upcoming_bytes -= span.length
        return span

    def _read_ahead(self, file: File, span: _Span) -> None:
        """Have the system read the spans behind ``span`` in the same source."""
        if self._read_ahead_of is not span.source:
            self._read_ahead_of, self._read_ahead_to = span.source, span.begin
        for each in self._upcoming:
            if each.source is not span.source:
                break
            if each.begin > self._read_ahead_to:
                file.read_ahead(each.length, each.begin - span.source.start)
                self._read_ahead_to = each.begin

    def _read(self) -> int:
        """Read and verify the records of the next span."""
        if self._span is None:
            self._span = self._take_span()
        span = self._span
        if span is None:
            self._entries.sort(key=_by_place)
            self._phase = _Phase.CREATE if self._entries else _Phase.DONE
            return 0
        source, wanted, begin, length = span.source, span.wanted, span.begin, span.length
        try:
            with closing(self._filesystem.open(source.path)) as file:
                self._read_ahead(file, span)
                data = memoryview(file.read(length, begin - source.start))
        except FileNotFoundError:
            if not source.is_removed:
                raise
            data, length = memoryview(b""), 0
        if source.is_removed:  # its file may be gone, or cut off while its blocks are freed
            wanted = []
        self._span = None
        # A few records would keep the whole buffer in memory that they were read into.
        is_dense = 2 * sum(each.size for each in wanted) >= length
        for each in wanted:
            piece = data[each.position - begin:each.position - begin + each.size]
            self._take(each, piece if is_dense else memoryview(bytes(piece)))
        return length

    def _take(self, wanted: WantedRecord, data: memoryview) -> None:
        try:
            entries = core.parse_entries(data)
        except CorruptEntry as error:
            self.damaged.append(DamagedRecord(wanted.group, wanted.index, wanted.position,
                                              wanted.size, str(error)))
            return
        entry = entries[0] if len(entries) == 1 else None
        # A misdirected write has valid checksums: only its identity tells.
        if entry is None or (entry.kind, entry.group, entry.incarnation, entry.index,
                             entry.term) != (EntryKind.DATA, *wanted[2:]):
            why = f"{entry or len(entries)} is in its place"
            self.damaged.append(DamagedRecord(wanted.group, wanted.index, wanted.position,
                                              wanted.size, why))
            return
        compaction = self.compaction
        if compaction is None or (entry.group, entry.partition) != (compaction.group,
                                                                    compaction.partition):
            self._entries.append(entry)
            return
        try:
            kept = compaction.compacted(entry)
        except CorruptBatch as error:
            self.damaged.append(DamagedRecord(wanted.group, wanted.index, wanted.position,
                                              wanted.size, str(error)))
            return
        if kept is not None:
            self._entries.append(kept)

    # ---- writing -------------------------------------------------------------------------------

    def _create(self) -> int:
        """Create the file with its header and all blocks that it will need, so that a full disk is
        met here."""
        path = self._path + UNFINISHED
        self._close()
        if self._filesystem.exists(path):
            self._filesystem.remove(path)
        self._file = self._filesystem.create(path)
        self._file.preallocate(HEADER_BYTES + sum(
            _framed_bytes(entry) for entry in self._entries))
        count = self._file.write([self.header.pack()], 0, False)
        self._phase = _Phase.WRITE
        return count

    def _write(self) -> int:
        """Write the next records, and sync what was written since the last sync if it is much."""
        file, end, size = self._file, self._copied, 0
        assert file is not None
        while end < len(self._entries) and (
                not size or size + _framed_bytes(self._entries[end]) <= STEP_BYTES):
            size += _framed_bytes(self._entries[end])
            end += 1
        chunk = self._entries[self._copied:end]
        buffers, starts, total, last_crc = core.frame_entries(chunk, self._last_crc, 0)
        is_last = end == len(self._entries)
        is_synced = is_last or self._unsynced + total >= SYNC_BYTES
        file.write(buffers, self._length, is_synced)
        for entry, start in zip(chunk, starts, strict=True):
            assert entry.batch is not None
            added = self._builder.add(
                entry.group, entry.incarnation, entry.term, entry.index, self._length + start,
                _framed_bytes(entry), entry.partition, entry.base_offset, entry.batch)
            assert added, f"{entry} does not follow the records before"
        self._copied, self._last_crc = end, last_crc
        self._length += total
        self._unsynced = 0 if is_synced else self._unsynced + total
        if is_last:
            self._entries = []
            self._phase = _Phase.VERIFY
        return total

    def _verify(self) -> int:
        """Read the next bytes from the disk and check them, before the sources may go."""
        path, rest = self._path + UNFINISHED, self._length - self._checked
        data = self._filesystem.read_disk(path, min(self._window, rest), self._checked)
        checked = core.check_entries(data, 0, self._checked_crc)
        if not checked.count and self._window < rest:
            self._window *= 2  # for a larger entry
            return len(data)
        self._window = STEP_BYTES
        self._checked += checked.stopped_at
        self._checked_crc = checked.last_crc
        if checked.damaged or not checked.count:
            raise CorruptFile(path, f"byte {self._checked} is not what was written")
        if self._checked == self._length:
            self._phase = _Phase.VERIFY_HEADER
        return len(data)

    def _verify_header(self) -> int:
        path = self._path + UNFINISHED
        head = self._filesystem.read_disk(path, HEADER_BYTES, 0)
        if bytes(head) != self.header.pack():
            raise CorruptFile(path, "its header is not what was written")
        self._phase = _Phase.INDEX
        return len(head)

    def _write_index(self) -> int:
        """Write the index file, durably, under its name."""
        self._close()
        self.contents = self._builder.finish(self.header, self._length, self._last_crc)
        self.contents.take_ranges(self.ranges, {each.group for each in self.damaged})
        buffers = cold_index.encode(self.contents)
        name = cold_index_path(self._directory, self.header.number).rpartition("/")[2]
        replace_file(self._filesystem, self._directory, name, buffers)
        self._phase = _Phase.RENAME
        return sum(map(len, buffers))

    def _rename(self) -> int:
        self._filesystem.rename(self._path + UNFINISHED, self._path)
        self._phase = _Phase.SYNC
        return 0

    def _sync(self) -> int:
        """Make the name of the segment durable."""
        self._filesystem.sync_directory(self._directory)
        self.written = ColdName(self.header.number, self._length, self.header.seed,
                                self.header.copied_from, self.header.generation)
        self._phase = _Phase.DONE
        return 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _framed_bytes(entry: Entry) -> int:
    return layout.ENTRY_HEADER_BYTES + len(entry.payload) + _ALIGN & ~_ALIGN
