"""The index file of a full segment, made from what the disk has of it.

Contract.  As of ``io_jobs.py``: a ``SealJob`` is made by ``Store`` on the loop and executed by any
thread; what it found is handed back on the loop.

Invariants.  What an index file says was read from the file, every CRC and the chain checked, never
from memory: sealing also finds what the disk did not keep.

Theory.  A node seals as fast as it writes.  So the plain segment, nearly every one, is read in
windows by code that holds neither the interpreter's lock nor an object per entry
(``core.SegmentIndexer``); whatever is not plain is left to the scan that recovery has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.block_index import file_codec
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.cold.index_repair import ColdIndexJob
from multiraft.storage.errors import IndexTooLarge
from multiraft.storage.filesystem import Buffer, Filesystem
from multiraft.storage.index_file import write_index_file
from multiraft.storage.io_jobs import read_exactly
from multiraft.storage.journal.journal import Segment, SegmentHeader
from multiraft.storage.journal.segment_index import SegmentIndex
from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.storage.log_table import LogTable
from multiraft.storage.removable_segments import GroupContents, PackedGroups, SegmentContents

#: A segment is read in windows of so much, with a pause after each: some 0.2 ms.  A larger entry
#: makes a larger window.
WINDOW_BYTES = 512 << 10


def index_job(filesystem: Filesystem, segment: Segment | ColdSegment,
              table: LogTable) -> IndexJob:
    """Return a job that writes the index file of a segment of a node's ``table``.  O(groups *
    ranges) for a cold one."""
    if isinstance(segment, Segment):
        return SealJob(filesystem, segment)
    known = table.indexed.find(segment.start)
    assert known is not None, f"no record is answered from {segment.index_path}"
    settled = frozenset(each for each in known.unreadable if not table.stands(each))
    return ColdIndexJob(filesystem, segment, known.header.identity, {
        group: ranges for group, log in table.logs.items()
        if (ranges := log.records.ranges_of(known))}, settled)


class SealJob:
    """Read a sealed segment once more and put its index beside it.

    ``damage`` or ``too_large`` says why not.  An index file that was there is replaced."""

    __slots__ = ("segment", "damage", "too_large", "contents", "_filesystem")

    unreadable = ()  # records: damage anywhere is ``damage``

    def __init__(self, filesystem: Filesystem, segment: Segment):
        self.segment = segment
        self.damage = ""
        self.too_large: IndexTooLarge | None = None  # a start scans the segment instead
        self.contents: SegmentContents | None = None  # of a segment that is not damaged
        self._filesystem = filesystem

    def execute(self, pause: Callable[[], None] | None = None) -> None:
        """Verify the segment and write its index file, on any thread; if the segment is damaged or
        its index exceeds a limit of index files, set ``damage`` or ``too_large`` and write nothing.

        ``pause`` is called about every 0.2 ms of work, None = never.  Raises ``OSError``.  Do
        nothing if the file is gone because nothing needs the segment."""
        try:
            buffers = self._packed(pause) or self._scanned(pause)
        except IndexTooLarge as error:
            self.too_large = error
            return
        except FileNotFoundError:
            if not self.segment.is_removed:
                raise
            return  # its index file was damaged, and nothing needs it any longer
        if buffers is not None:
            write_index_file(self._filesystem, self.segment, buffers)

    def _packed(self, pause: Callable[[], None] | None) -> list[bytes] | None:
        """Return the buffers of the index file if the segment is plain and intact, without the
        interpreter's lock; None = the segment has to be scanned.  Raises ``IndexTooLarge``."""
        segment = self.segment
        indexer, at, last_crc = core.SegmentIndexer(), layout.SEGMENT_HEADER_BYTES, segment.seed
        with closing(self._filesystem.open(segment.path)) as file:
            identity = self._identity(file.read(layout.SEGMENT_HEADER_BYTES, 0))
            if identity is None:
                return None
            window, length = WINDOW_BYTES, segment.end - segment.start
            while at < length:
                data = file.read(min(window, length - at), at)
                taken = indexer.take(data, 0, last_crc, segment.start + at)
                if taken.reason not in ("end", "torn") or not data:
                    return None
                if not taken.stopped_at:  # not even one entry
                    if window >= length - at:
                        return None
                    window *= 2
                at, last_crc = at + taken.stopped_at, taken.last_crc
                if pause is not None:
                    pause()
        if at != length:
            return None
        try:
            packed = indexer.pack(identity.crc(), segment.start)
        except OverflowError:
            return None  # the scan says which number it is
        if pause is not None:
            pause()
        bounds = SegmentIndex(segment.start, segment.seed, segment.end, last_crc,
                              indexer.first_durable, indexer.highest_durable)
        self.contents = SegmentContents.of(bounds)._replace(groups=PackedGroups(
            {group: GroupContents(incarnation, last, first, first) for group, (
                incarnation, first, last) in file_codec.packed_indexes(packed).items()}))
        return file_codec.encode_packed(packed, bounds, identity)

    def _identity(self, head: Buffer) -> FileIdentity | None:
        """Return what an index file says of its segment, whose first bytes are ``head``; None if
        they are damaged."""
        header = SegmentHeader.parse(head)
        if header is None or header.seed != self.segment.seed:
            return None
        return FileIdentity(header.cluster, header.node, self.segment.start, header.seed)

    def _scanned(self, pause: Callable[[], None] | None) -> list[bytes] | None:
        """Return the buffers of the index file of a segment that is not plain, by a scan; None = it
        is damaged, and ``damage`` says how.  Raises ``IndexTooLarge``."""
        segment = self.segment
        data = self._read(segment.end - segment.start, pause)
        identity = self._identity(data)
        if identity is None:
            self.damage = "its header is damaged"
            return None
        found = scan_segment(data, segment.start, segment.seed, None, pause=pause)
        if found.damaged_ranges or found.index.end != segment.end:
            self.damage = f"unreadable at {found.damaged_ranges or found.index.end}"
            return None
        self.contents = SegmentContents.of(found.index)
        return file_codec.encode(found.index, identity.cluster, identity.node, pause)

    def _read(self, length: int, pause: Callable[[], None] | None) -> Buffer:
        """Read the segment's bytes, in pieces if there is a ``pause``: to copy 64 MiB occupies a
        processor for some 30 ms, which an append of another node may need."""
        if pause is None:
            return read_exactly(self._filesystem, self.segment.path, 0, length)
        data, position = memoryview(core.unset_memory(length)), 0
        with closing(self._filesystem.open(self.segment.path)) as file:
            while position < length:
                piece = file.read(min(WINDOW_BYTES, length - position), position)
                if not piece:
                    break
                data[position:position + len(piece)] = piece
                position += len(piece)
                pause()
        return data[:position]


IndexJob = SealJob | ColdIndexJob
