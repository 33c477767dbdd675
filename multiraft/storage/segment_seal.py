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
from multiraft.storage.filesystem import Buffer, File, Filesystem
from multiraft.storage.index import GroupIndex, PartitionIndex
from multiraft.storage.index_file import write_index_file
from multiraft.storage.io_jobs import read_exactly
from multiraft.storage.journal.journal import Segment, SegmentHeader
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.types import HardState

#: A segment is read in windows of so much, with a pause after each: some 0.2 ms.  A larger entry
#: makes a larger window.
WINDOW_BYTES = 512 << 10


class SealJob:
    """Read a sealed segment once more and put its index beside it.  ``damage`` says why not."""

    __slots__ = ("segment", "damage", "_filesystem")

    def __init__(self, filesystem: Filesystem, segment: Segment):
        self.segment = segment
        self.damage = ""
        self._filesystem = filesystem

    def execute(self, pause: Callable[[], None] | None = None) -> None:
        """Verify the segment and write its index file, on any thread; if the segment is damaged,
        set ``damage`` and write nothing.

        ``pause`` is called about every 0.2 ms of work, None = never.  Raises ``OSError``."""
        index = self._indexed(pause) or self._scanned(pause)
        if index is not None:
            write_index_file(self._filesystem, self.segment, index)

    def _indexed(self, pause: Callable[[], None] | None) -> SegmentIndex | None:
        """Return the segment's index if the segment is plain and intact, without the interpreter's
        lock; None = it has to be scanned."""
        segment = self.segment
        indexer, at, last_crc = core.SegmentIndexer(), layout.SEGMENT_HEADER_BYTES, segment.seed
        with closing(self._filesystem.open(segment.path)) as file:
            if not self._begins(file):
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
        return SegmentIndex(segment.start, segment.seed, segment.end, last_crc,
                            indexer.first_durable, indexer.highest_durable,
                            {run[0]: _run(*run) for run in indexer.runs()})

    def _begins(self, file: File) -> bool:
        header = SegmentHeader.parse(file.read(layout.SEGMENT_HEADER_BYTES, 0))
        return header is not None and header.seed == self.segment.seed

    def _scanned(self, pause: Callable[[], None] | None) -> SegmentIndex | None:
        """Return the index of a segment that is not plain, by a scan; None = it is damaged, and
        ``damage`` says how."""
        segment = self.segment
        data = self._read(segment.end - segment.start, pause)
        header = SegmentHeader.parse(data)
        if header is None or header.seed != segment.seed:
            self.damage = "its header is damaged"
            return None
        found = scan_segment(data, segment.start, segment.seed, None, pause=pause)
        if found.damaged_ranges or found.index.end != segment.end:
            self.damage = f"unreadable at {found.damaged_ranges or found.index.end}"
            return None
        return found.index

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


def _run(group: int, incarnation: int, index: list | None, partitions: list[list],
         hard_state: tuple[int, int] | None) -> SegmentRun:
    unpacked = [PartitionIndex.unpack(fields, group) for fields in partitions]
    return SegmentRun(group, incarnation,
                    index=GroupIndex.unpack(index) if index is not None else None,
                    partitions={known.partition: known for known in unpacked},
                    hard_state=HardState(*hard_state) if hard_state is not None else None)
