"""Segments whose records are answered from their index files, and the blocks of these files.

Contract.  ``IndexedSegments`` is owned by the loop: ``blocks`` answers from memory or the page
cache, without waiting, and raises ``BlockNotCached`` for any other block, damaged ones included.
``BlockReader`` is for one job on any thread: it reads the block, and where the index file is
damaged, missing or of another segment, makes the block anew from the segment, which has the same
bytes.  It raises ``CorruptFile`` only if the segment is damaged as well.  A cold segment may have
records whose payload alone is damaged: in blocks made anew, the end of such a batch is a guess, one
record behind its base, and ``unreadable`` has them.  Who uses such a block counts them as missing
first: a read inside of such a batch finds no batch.  Sealed segments of the journal and cold
segments are in the same table.

Invariant.  The number of a segment is in rows as long as the segment is in the table, so a number
is used again only when no row has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from typing import final

from multiraft.storage.block_index import file_codec
from multiraft.storage.block_index.block_cache import BlockCache
from multiraft.storage.block_index.blocks import BLOCK_BYTES, FileIdentity, open_block
from multiraft.storage.block_index.file_codec import FileHeader, RunSummary
from multiraft.storage.block_index.rows import Row
from multiraft.storage.cold import cold_index, contents
from multiraft.storage.cold.cold_index import ColdIndexHeader, ColdRunSummary
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.cold.contents import FoundContents, UnreadableRecord
from multiraft.storage.errors import (
    BlockNotCached,
    CorruptFile,
    CorruptIndex,
    MissingIndex,
    SegmentRemoved,
    UnknownFormat,
)
from multiraft.storage.file_runs import FileRun, runs_of_cold, runs_of_segment
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.journal.journal import Segment, index_path
from multiraft.storage.journal.segment_index import SegmentIndex
from multiraft.storage.journal.segment_scan import scan_segment

#: Blocks of index files in memory, of all groups: those of some 1,000 partitions that are read from
#: disk at the same time.
BLOCK_CACHE_BYTES_MAX = 4 << 20


@final
class IndexedSegment:
    """A sealed segment, or a cold one, and its index file."""

    __slots__ = ("number", "segment", "header", "rows", "batches", "is_changing", "unreadable")

    def __init__(self, number: int, segment: Segment | ColdSegment,
                 header: FileHeader | ColdIndexHeader):
        self.number = number  # in rows
        self.segment = segment
        self.header = header
        self.rows = 0  # that partitions have of it
        self.batches = 0  # in these rows, about
        self.is_changing = False  # the records of a group begin to be answered from it
        #: Records that the last try to write the index file anew could not read.
        self.unreadable: tuple[UnreadableRecord, ...] = ()

    @property
    def path(self) -> str:
        """Path of the index file."""
        segment = self.segment
        return segment.index_path if isinstance(segment, ColdSegment) else index_path(segment)

    @property
    def entry_bytes_mean(self) -> int:
        """Mean size of an entry in the segment, framed."""
        segment = self.segment
        return (segment.end - segment.start) // max(1, self.header.entries)

    def open_block(self, block: int, data: bytes | bytearray) -> bytes:
        """Return the rows of a block with these bytes.  Raises ``CorruptIndex``."""
        header = self.header
        return open_block(self.path, header.identity, block, header.kind_of(block), data)


@final
class IndexedSegments:
    """All segments whose records are answered from index files."""

    def __init__(self, filesystem: Filesystem, cache_bytes_max: int = BLOCK_CACHE_BYTES_MAX):
        self.cache = BlockCache(cache_bytes_max)
        #: Segments whose index file has to be written anew; threads append to it.
        self.damaged: deque[Segment | ColdSegment] = deque()
        self._filesystem = filesystem
        self._by_number: dict[int, IndexedSegment] = {}
        self._by_start: dict[int, IndexedSegment] = {}
        self._free: list[int] = []  # numbers below the highest one that no segment has

    def __len__(self) -> int:
        return len(self._by_start)

    def add(self, segment: Segment | ColdSegment,
            header: FileHeader | ColdIndexHeader) -> IndexedSegment:
        """Add a segment, and return it with its number; return the known one if it is here.
        O(1)."""
        known = self._by_start.get(segment.start)
        if known is None:
            number = self._free.pop() if self._free else len(self._by_number)
            known = IndexedSegment(number, segment, header)
            self._by_number[number] = self._by_start[segment.start] = known
        return known

    def find(self, start: int) -> IndexedSegment | None:
        """Return the segment that begins at a journal position, or at a cold place; None = it is
        not here.  O(1)."""
        return self._by_start.get(start)

    def with_number(self, number: int) -> IndexedSegment:
        """Return the segment that rows call ``number``.  O(1)."""
        return self._by_number[number]

    def remove(self, start: int) -> None:
        """Remove a segment of which no partition has rows; do nothing if it is not here.
        O(blocks in memory)."""
        known = self._by_start.get(start)
        if known is None:
            return
        assert not known.rows, f"{known.rows} rows of {known.path}"
        del self._by_start[start], self._by_number[known.number]
        self._free.append(known.number)
        self.cache.forget(known.number)

    def add_rows(self, file: int, count: int, batches: int) -> None:
        """Count rows of a segment that a partition has from now on, and about how many batches they
        have.  O(1)."""
        at = self._by_number[file]
        at.rows += count
        at.batches += batches

    def drop_row(self, row: Row) -> int:
        """Count a row that a partition no longer has, and return the estimated bytes of its
        batches.  O(1)."""
        at = self._by_number[row.file]
        at.rows -= 1
        at.batches -= row.count
        return row.count * at.entry_bytes_mean

    def blocks(self, number: int, block: int) -> bytes:
        """Return the rows of a block, from memory or the page cache.  Raises ``BlockNotCached``
        also for a block that cannot be read, or is damaged: ``BlockReader`` says so, or makes it
        anew."""
        try:
            return self.cache.rows(number, block)
        except BlockNotCached:
            at = self._by_number[number]
            try:
                with closing(self._filesystem.open(at.path)) as file:
                    data = file.read_resident(BLOCK_BYTES, block * BLOCK_BYTES)
                if data is None:
                    raise
                rows = at.open_block(block, data)
            except (OSError, CorruptFile) as error:  # a job meets it again
                raise BlockNotCached(number, block) from error
        self.cache.add(number, block, rows)
        return rows

    def take(self, reader: BlockReader, number: int, block: int, rows: bytes | None) -> None:
        """Take a block that a reader has read; not if the number is another segment's by now.
        O(1)."""
        if rows is not None and self._by_number.get(number) is reader.segments[number]:
            self.cache.add(number, block, rows)

    def reader(self, group: int, numbers: Mapping[int, object] | set[int]) -> BlockReader:
        """Return a reader of the blocks of these segments, for a job of a group.  O(numbers)."""
        return BlockReader(self._filesystem, group, {each: self._by_number[each]
                                                     for each in numbers}, self.damaged)

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        assert len(self._by_number) == len(self._by_start)
        assert all(at.number == number for number, at in self._by_number.items())
        assert not self._by_number.keys() & {*self._free}


@final
class BlockReader:
    """Blocks of some index files, read by one job on any thread."""

    def __init__(self, filesystem: Filesystem, group: int,
                 segments: Mapping[int, IndexedSegment],
                 damaged: deque[Segment | ColdSegment]):
        self.filesystem = filesystem
        self.segments = segments
        self.read: dict[tuple[int, int], bytes] = {}  # (number, block) -> rows
        #: Of the segments whose blocks were made anew.
        self.unreadable: list[UnreadableRecord] = []
        self._group = group
        self._damaged = damaged
        self._remade: dict[int, bytes] = {}  # by number, whole index files

    def blocks(self, number: int, block: int) -> bytes:
        """Return the rows of a block.  Block.  Raise ``SegmentRemoved`` if the segment is not
        needed any longer, ``CorruptFile`` if index file and segment are damaged, ``OSError``."""
        rows = self.read.get((number, block))
        if rows is None:
            rows = self.read[number, block] = self._rows(self.segments[number], block)
        return rows

    def _rows(self, at: IndexedSegment, block: int) -> bytes:
        try:
            with closing(self.filesystem.open(at.path)) as file:
                return at.open_block(block, file.read(BLOCK_BYTES, block * BLOCK_BYTES))
        except (FileNotFoundError, CorruptFile):
            data = self._remake(at)
            begin = block * BLOCK_BYTES
            return at.open_block(block, data[begin:begin + BLOCK_BYTES])

    def _remake(self, at: IndexedSegment) -> bytes:
        """Return the bytes of the index file, made from its segment once more."""
        data = self._remade.get(at.number)
        if data is None:
            segment, identity = at.segment, at.header.identity
            if isinstance(segment, ColdSegment):
                found = scanned_cold(self.filesystem, segment, identity, self._group)
                self.unreadable += found.unreadable_records()
                data = b"".join(cold_index.encode(found.contents))
            else:
                index = scanned(self.filesystem, segment, self._group)
                data = b"".join(file_codec.encode(index, identity.cluster, identity.node))
            self._remade[at.number] = data
            self._damaged.append(at.segment)
        return data

    def whole(self, number: int) -> dict[int, FileRun]:
        """Return all that the index file of a segment has, by group.  Raise as ``blocks``."""
        at = self.segments[number]
        try:
            return _whole(at, read_index_file(self.filesystem, at))
        except CorruptFile:
            return _whole(at, self._remake(at))


def _whole(at: IndexedSegment, data: bytes | bytearray) -> dict[int, FileRun]:
    """Return the groups in the bytes of a segment's index file.  Raises ``CorruptFile``."""
    try:
        if isinstance(at.header, ColdIndexHeader):
            found = cold_index.decode(at.path, data)
            found.index_header.require(at.path, at.header.identity)
            return runs_of_cold(found)
        file_codec.parse_header(at.path, data).require(at.path, at.header.identity)
        return runs_of_segment(file_codec.decode(at.path, data))
    except UnknownFormat as error:  # its version was this program's when its header was read
        raise CorruptIndex(at.path, f"its version has changed ({error})") from error


def scanned(filesystem: Filesystem, segment: Segment, group: int = -1) -> SegmentIndex:
    """Return the index of an intact segment by a scan.  Block.  Raise ``CorruptIndex`` if the
    segment is damaged, ``SegmentRemoved`` if it was removed, ``OSError``."""
    try:
        with closing(filesystem.open(segment.path)) as file:
            data = file.read(segment.end - segment.start, 0)
    except FileNotFoundError as error:
        if not segment.is_removed:
            raise
        raise SegmentRemoved(group, 0, segment.path) from error
    if segment.is_removed:  # the file may be cut off while its blocks are freed
        raise SegmentRemoved(group, 0, segment.path)
    found = scan_segment(data, segment.start, segment.seed, None)
    if found.damaged_ranges or found.index.end != segment.end:
        raise CorruptIndex(index_path(segment), "and its segment is damaged as well")
    return found.index


def scanned_cold(filesystem: Filesystem, segment: ColdSegment, identity: FileIdentity,
                 group: int = -1) -> FoundContents:
    """Return the contents of a cold segment by a scan.  Block.  A record whose payload is damaged
    is among them, and among the unreadable ones.  Raise ``CorruptIndex`` if others are lost,
    ``SegmentRemoved`` if the segment was removed, ``OSError``."""
    name = segment.name
    try:
        with closing(filesystem.open(segment.path)) as file:
            data = file.read(name.length, 0)
    except FileNotFoundError as error:
        if not segment.is_removed:
            raise
        raise SegmentRemoved(group, 0, segment.path) from error
    if segment.is_removed:
        raise SegmentRemoved(group, 0, segment.path)
    found = contents.scan(data, name.header(identity.cluster, identity.node), name.length)
    if found.lost:
        raise CorruptIndex(segment.index_path, "and its cold segment is damaged as well")
    return found


def read_index_file(filesystem: Filesystem, at: IndexedSegment) -> bytes | bytearray:
    """Return the bytes of a segment's index file.  Block.  Raises ``MissingIndex``, ``OSError``."""
    try:
        with closing(filesystem.open(at.path)) as file:
            return file.read(file.size(), 0)
    except FileNotFoundError as error:
        raise MissingIndex(at.path) from error


def read_summary(filesystem: Filesystem, segment: Segment,
                 identity: FileIdentity) -> tuple[FileHeader, list[RunSummary]]:
    """Return header and summary of a segment's index file.  Block.  Raise ``CorruptFile`` or
    ``UnknownFormat`` if the file is damaged, missing, of another segment or of another version,
    ``OSError``."""
    path = index_path(segment)
    try:
        file = filesystem.open(path)
    except FileNotFoundError as error:
        raise MissingIndex(path) from error
    with closing(file):
        header = file_codec.parse_header(path, file.read(BLOCK_BYTES, 0))
        header.require(path, identity)
        if file.size() != header.file_bytes:
            raise CorruptIndex(path, f"it has {file.size()} bytes of {header.file_bytes}")
        data = file.read(header.summary_bytes, header.summary_position)
    return header, file_codec.decode_summary(path, header, data)


def read_cold_summary(filesystem: Filesystem, segment: ColdSegment, identity: FileIdentity,
                      ) -> tuple[ColdIndexHeader, list[ColdRunSummary]]:
    """Return header and summary of a cold segment's index file, as ``read_summary``.  Raise
    ``CorruptFile`` as well if the cold segment has fewer bytes than it had."""
    path, name = segment.index_path, segment.name
    try:
        file = filesystem.open(path)
    except FileNotFoundError as error:
        raise MissingIndex(path) from error
    with closing(file):
        header = cold_index.parse_header(path, file.read(BLOCK_BYTES, 0))
        header.require(path, identity)
        if header.header != name.header(identity.cluster, identity.node) or (
                header.length != name.length):
            raise CorruptIndex(path, "it is of another cold segment")
        if file.size() != header.file_bytes:
            raise CorruptIndex(path, f"it has {file.size()} bytes of {header.file_bytes}")
        data = file.read(header.summary_bytes, header.summary_position)
    if not filesystem.exists(segment.path) or filesystem.size(segment.path) < name.length:
        raise CorruptFile(segment.path, f"it does not have {name.length} bytes")
    return header, cold_index.decode_summary(path, header, data)
