"""Journal: one append-only stream of entries in segment files, shared by all groups of a node.

Contract.  ``place`` runs on the loop and touches memory only: it gives entries their positions and
frames them.  The thread that executes the parts creates and writes the files, in order, each part
synced before the next begins.  ``advance_durable`` advances the durable position.

Invariants.  synced <= durable <= position; the first two differ only while records wait for
their sync (``durability = relaxed``).  A position is the segment's start plus a byte of its file; a
segment's successor starts at start + capacity, so the rest of a segment that could not hold the
next entry is a gap without bytes.  Every entry carries the position known durable when it was
framed, its durable watermark; since parts are synced one by one, the first entry of a segment
carries the end of the one before it, which proves to recovery that nothing is missing between two
files.  Watermarks never fall along a journal.

Theory.  An entry's ``prev_crc`` chains it to the one before it in its file, seeded by a number
that differs for every segment and boot.  Bytes that a torn write left behind can thus join the
chain only if recovery left them there, and recovery cuts them off durably before anything is
appended.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.cold.cold_files import ColdSegments
from multiraft.storage.cold.cold_segment import (
    AS_APPENDED,
    ColdHeader,
    ColdSegment,
    is_cold,
    seed_of,
)
from multiraft.storage.config import StorageConfig
from multiraft.storage.damage.place import Place, PlaceRange
from multiraft.storage.errors import EntryTooLarge, UnknownFormat, WrongIdentity
from multiraft.storage.filesystem import Buffer, File, Filesystem
from multiraft.storage.removed_ranges import REMOVED_RANGES_MAX, RemovedRanges
from multiraft.storage.strays import INDEX_SUFFIX, SEGMENT_SUFFIX
from multiraft.types import Entry

_HEADER = struct.Struct("<8sIIQ16sII12sI")
_CRC_AT = layout.SEGMENT_CRC_AT
assert _HEADER.size == layout.SEGMENT_HEADER_BYTES

_ALIGN = layout.ENTRY_ALIGNMENT - 1
#: The mean size of so many writes, the latest most, says whether zeros ahead are worth their while.
_WRITES_REMEMBERED = 16
#: Part of ``zero_ahead_bytes`` by which the zeros of one node end behind those of the node with the
#: id before.  Multiples of the golden ratio, modulo 1, keep away from each other however many there
#: are (Knuth, The Art of Computer Programming 3, section 6.4, theorem S).
_PHASE_PER_NODE = 0.6180339887
_BLOCK_BYTES = 4096  # zeros end at a boundary of the file system's blocks
_ENTRY_HEADER_BYTES = layout.ENTRY_HEADER_BYTES


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a segment."""

    version: int
    journal: int
    start: int
    cluster: bytes
    node: int
    seed: int

    def pack(self) -> bytes:
        data = _HEADER.pack(layout.SEGMENT_MAGIC, self.version, self.journal, self.start,
                            self.cluster, self.node, self.seed, bytes(12), 0)
        return data[:_CRC_AT] + struct.pack("<I", core.crc32c(data[:_CRC_AT]))

    @classmethod
    def parse(cls, data: Buffer) -> SegmentHeader | None:
        """Return the header in ``data``, of any version; None when its bytes are cut off or
        damaged.  ``require`` checks the version."""
        if len(data) < _HEADER.size:
            return None
        magic, version, journal, start, cluster, node, seed, _, crc = _HEADER.unpack_from(data)
        if magic != layout.SEGMENT_MAGIC or core.crc32c(memoryview(data)[:_CRC_AT]) != crc:
            return None
        return cls(version, journal, start, cluster, node, seed)

    def require(self, own: SegmentHeader, path: str) -> None:
        """Raise ``UnknownFormat`` if the version differs from that of ``own``, and
        ``WrongIdentity`` if the cluster or the node does. ``path``: the file that the error
        names."""
        if self.version != own.version:
            raise UnknownFormat(path, self.version, own.version)
        if self.cluster != own.cluster:
            raise WrongIdentity(path, "cluster", self.cluster.hex(), own.cluster.hex())
        if self.node != own.node:
            raise WrongIdentity(path, "node", self.node, own.node)


class Segment:
    """One file of the journal.  ``file`` is open only while it is written."""

    __slots__ = ("path", "start", "capacity", "seed", "end", "zeroed", "file", "is_allocated",
                 "is_removed")

    def __init__(self, path: str, start: int, capacity: int, seed: int):
        self.path = path
        self.start = start
        self.capacity = capacity  # the next segment starts at start + capacity
        self.seed = seed
        self.end = start + layout.SEGMENT_HEADER_BYTES  # journal position after the last entry
        self.zeroed = 0  # bytes of the file that are written or zero-filled
        self.file: File | None = None
        self.is_allocated = False  # all blocks that it will need are its own, as far as is known
        self.is_removed = False  # nothing needs it, and its file may go at any time

    def create(self, filesystem: Filesystem, header: SegmentHeader,
               preallocate: bool = True) -> None:
        """Create the file durably, with its header and, if ``preallocate``, all blocks that it will
        need; do nothing if it is open.  When it fails, it leaves no file.  Raises ``OSError``.

        The name is durable before the first entry is written, so a segment with entries cannot
        vanish.  What a crash in here leaves is a file without entries, which recovery removes."""
        if self.file is not None:
            return
        file = filesystem.create(self.path)
        try:
            if preallocate:
                file.preallocate(self.capacity)
            file.write([header.pack()], 0, True)
        except OSError:
            # Removed, so that the same name can be created again when the disk has space again.
            file.close()
            filesystem.remove(self.path)
            raise
        filesystem.sync_directory(self.path.rpartition("/")[0])
        self.file, self.is_allocated = file, preallocate

    def unallocated_bytes(self) -> int:
        """Return the bytes of blocks that the file still lacks, because it was created on a full
        disk or by another process; 0 while it is not open. Raise ``OSError`` if the file's state
        cannot be read."""
        if self.is_allocated or self.file is None:
            return 0
        missing = max(0, self.capacity - self.file.allocated())
        self.is_allocated = not missing
        return missing

    def preallocate(self) -> None:
        """Allocate the blocks that the file lacks, if it is open.  Raises ``OSError``; part of them
        may be allocated then."""
        if not self.is_allocated and self.file is not None:
            self.file.preallocate(self.capacity)
            self.is_allocated = True


class Part(NamedTuple):
    """Bytes that one round adds to one segment."""

    segment: Segment
    buffers: list[Buffer]
    position: int  # in the file
    end: int  # journal position after it


class Placed(NamedTuple):
    """Entries with their places: parallel lists, and the framed buffers they are in."""

    parts: list[Part]
    positions: list[int]
    sizes: list[int]  # header, payload and padding
    framed: list[tuple[list[Buffer], int]]  # three buffers from this slot on are the entry


class Journal:
    """All segments of one journal, the last one being written."""

    def __init__(self, filesystem: Filesystem, directory: str, header: SegmentHeader,
                 seeds: Sequence[int], config: StorageConfig):
        """Open nothing; ``resume`` does.

        ``header``: template of new segments' headers; ``seeds``: numbers that differ for every boot
        of the node, from which the checksum chains of new segments begin."""
        self.filesystem = filesystem
        self.directory = directory
        self.segments: list[Segment] = []
        #: What is not in ``segments`` any longer.  Its ``journal_start`` counts while there are no
        #: segments.
        self.removed = RemovedRanges()
        self.leftovers: list[Segment] = []  # removed, but their files may still exist
        self.cold = ColdSegments("")  # recovery sets those of the node
        self.position = 0  # after the last staged entry
        self.durable = 0  # everything before it is written, as durably as the node promises
        self.fsynced = 0  # everything before it is on disk: what entries say
        #: Everything before it is on disk before anything that is placed later is written.
        self.submitted = 0
        self._starts: list[int] = []
        self._header = header
        self._seeds = tuple(seeds)
        self._config = config
        self._entry_bytes_max = (config.entry_bytes_max + _ALIGN) & ~_ALIGN
        self._active: Segment | None = None
        self._limit = 0  # journal position where the active segment is full
        self._next: Segment | None = None
        self._next_start = 0
        self._last_crc = 0
        self._zeros = memoryview(bytes(config.zero_ahead_bytes))
        self._zeros_phase = _zeros_phase(header.node, config.zero_ahead_bytes)
        self._write_bytes_mean = 0  # of the last writes
        self._closing: list[Segment] = []  # rolled over; sealed once durable

    # ---- after recovery -------------------------------------------------------------------------

    def resume(self, segments: list[Segment], position: int, last_crc: int, next_start: int,
               file: File | None) -> None:
        """Continue behind the last entry that recovery found, with ``last_crc`` as that entry's
        checksum.  ``file`` is the last segment's, None to start a new segment at ``next_start``."""
        self.segments = list(segments)
        self._starts = [segment.start for segment in segments]
        self.position = self.durable = self.fsynced = position
        self._last_crc = last_crc
        self._next_start = next_start
        if file is not None:
            self._active = segments[-1]
            self._active.file = file
            self._active.zeroed = position - self._active.start
            self._next_start = self._limit = self._active.start + self._active.capacity

    # ---- staging --------------------------------------------------------------------------------

    def place(self, entries: list[Entry]) -> Placed:
        """Give ``entries`` their positions behind the last staged one, frame them and return both,
        in memory only.  Start new segments where one is full.

        O(entries).  Raises ``EntryTooLarge`` before anything changed."""
        sizes = [(_ENTRY_HEADER_BYTES + len(entry.payload) + _ALIGN) & ~_ALIGN for entry in entries]
        total = sum(sizes)
        if total > self._entry_bytes_max and max(sizes) > self._entry_bytes_max:
            raise EntryTooLarge(self._config.entry_bytes_max, max(sizes))
        placed = Placed([], [], sizes, [])
        if entries and self.position + total <= self._limit:
            self._frame(entries, placed)
            return placed
        at = 0
        while at < len(entries):
            count = self._fitting(sizes, at)
            if count == 0:
                self._roll()
                continue
            self._frame(entries[at:at + count], placed)
            at += count
        return placed

    def place_in_one_segment(self, entries: list[Entry]) -> Placed:
        """Place entries that explain each other, as ``place`` does, but all in one segment."""
        total = sum((_ENTRY_HEADER_BYTES + len(entry.payload) + _ALIGN) & ~_ALIGN
                    for entry in entries)
        # A scan knows one segment and takes what follows a REPAIR record for its copy.
        if (self._active is None
                or total > self._active.start + self._active.capacity - self.position):
            self._roll()
        return self.place(entries)

    def place_pairs(self, entries: list[Entry]) -> Placed:
        """Place entries of which each two explain each other, as ``place`` does, but the two of a
        pair in one segment.  O(entries).  Raises ``EntryTooLarge`` before anything changed."""
        sizes = [(_ENTRY_HEADER_BYTES + len(entry.payload) + _ALIGN) & ~_ALIGN for entry in entries]
        if entries and max(sizes) > self._entry_bytes_max:
            raise EntryTooLarge(self._config.entry_bytes_max, max(sizes))
        placed, at = Placed([], [], sizes, []), 0
        while at < len(entries):
            count = self._fitting(sizes, at) & ~1
            if count == 0:
                self._roll()
                continue
            self._frame(entries[at:at + count], placed)
            at += count
        return placed

    def _fitting(self, sizes: list[int], at: int) -> int:
        """Return how many of the entries from ``at`` on fit into the active segment."""
        free = self._limit - self.position
        count = 0
        while at + count < len(sizes) and sizes[at + count] <= free:
            free -= sizes[at + count]
            count += 1
        return count

    def _frame(self, entries: list[Entry], placed: Placed) -> None:
        """Frame entries that fit into the active segment, and append them to ``placed`` as one
        part."""
        # The watermark is what recovery believes (recovery.py): it must be durable when these bytes
        # reach the disk, and with ``submitted`` it is, because the write up to there ends before.
        framed = core.frame_entries(entries, self._last_crc, max(self.fsynced, self.submitted))
        buffers, starts, total, self._last_crc = framed
        segment, position = self._active, self.position
        assert segment is not None
        slot = 0
        for start in starts:
            placed.positions.append(position + start)
            placed.framed.append((buffers, slot))
            slot += 3
        self.position = segment.end = position + total
        self._write_bytes_mean += (total - self._write_bytes_mean) // _WRITES_REMEMBERED
        # Writes into bytes that exist already leave the file's size alone, so their fdatasync needs
        # no commit of the file system's own journal.
        if segment.end - segment.start > segment.zeroed:
            buffers = self._zero_ahead(buffers, total)
        placed.parts.append(Part(segment, buffers, position - segment.start, self.position))

    def _zero_ahead(self, buffers: list[Buffer], total: int) -> list[Buffer]:
        """Return the buffers of a write that grows the file, with zeros behind them when it and
        most writes before it are small.  A large write would write the same place a second time.

        The zeros end at a multiple of ``zero_ahead_bytes`` plus the node's own phase."""
        segment, size = self._active, len(self._zeros)
        assert segment is not None
        end = segment.end - segment.start
        free = 0
        if size and max(total, self._write_bytes_mean) <= self._config.zero_ahead_round_bytes_max:
            free = min(segment.capacity - end, size - (end - self._zeros_phase) % size)
        segment.zeroed = end + free
        return [*buffers, self._zeros[:free]] if free else buffers

    def start_segment(self) -> int:
        """Start a new segment for all entries placed from now on, unless the active one is empty,
        and return its start position.

        A segment without entries does not exist after a crash, so the caller must record that
        position for recovery elsewhere."""
        if self._active is None or self.position > self._active.start + _HEADER.size:
            self._roll()
        assert self._active is not None
        return self._active.start

    # ---- segments -------------------------------------------------------------------------------

    def removed_ranges(self) -> RemovedRanges:
        """Return the removed ranges, as a checkpoint captured now has to name them.  O(ranges)."""
        start = self.segments[0].start if self.segments else self.position
        return RemovedRanges(start, self.removed.from_on(start))

    def remove(self, segment: Segment, begin: int) -> bool:
        """Take a sealed segment out of the journal.  Its file becomes a leftover.

        ``begin``: where the entries before it end.  Return False, and change nothing, if there are
        too many removed ranges for another one.  O(segments + ranges)."""
        at = bisect_right(self._starts, segment.start) - 1
        assert self.segments[at] is segment and segment is not self._active, f"{segment.path}"
        removed = self.removed.with_segment(begin, segment.end,
                                            self._starts[at - 1] if at else None,
                                            self._starts[at + 1])
        if len(removed.ranges) > max(REMOVED_RANGES_MAX, len(self.removed.ranges)):
            return False
        self.removed, segment.is_removed = removed, True
        del self.segments[at], self._starts[at]
        self.leftovers.append(segment)
        return True

    def sealed_from(self, start: int, count_max: int) -> list[Segment]:
        """Return segments that are not written any longer, in order, at most so many, from the
        first one on that begins at or behind ``start``; not the last one, which tells where the
        journal continues.  O(log n + count)."""
        at = bisect_left(self._starts, start)
        end = min(at + count_max, len(self.segments) - 1)
        return [each for each in self.segments[at:end] if each.file is None]

    def end_before(self, segment: Segment) -> int:
        """Return the position after the last entry before a segment, which is the durable watermark
        of its first entry; 0 = it is the first.  O(log n)."""
        at = bisect_right(self._starts, segment.start) - 1
        if not at:
            return 0
        before = self.segments[at - 1]
        return self.removed.end_behind(before.start, before.end, segment.start)

    def unallocated_bytes(self) -> int:
        """Return the bytes of blocks that the active segment lacks; the next one gets all of its
        own when it is created. Raise ``OSError`` if the file's state cannot be read."""
        return self._active.unallocated_bytes() if self._active is not None else 0

    def preallocate(self) -> None:
        """Allocate the blocks that the active segment lacks; do nothing without one.  Raises
        ``OSError``; part of them may be allocated then."""
        if self._active is not None:
            self._active.preallocate()

    def _roll(self) -> None:
        """Make the next segment active, in memory: the one that was created ahead, or a new one
        without a file.  The full one is closed once it is durable."""
        if self._active is not None:
            self._closing.append(self._active)
            self.submitted = self._active.end  # parts are synced one by one
        segment = self._next or self._new_segment()
        self._next = None
        self._active = segment
        self._next_start = self._limit = segment.start + segment.capacity
        self._last_crc = segment.seed
        self.position = segment.end
        segment.zeroed = layout.SEGMENT_HEADER_BYTES
        self.segments.append(segment)
        self._starts.append(segment.start)

    def _new_segment(self) -> Segment:
        start = self._next_start
        capacity = self.capacity_at(start)
        seed = core.crc32c(struct.pack(f"<{len(self._seeds) + 1}Q", *self._seeds, start))
        return Segment(segment_path(self.directory, start), start, capacity, seed)

    def capacity_at(self, start: int) -> int:
        """Return the capacity of a segment that begins at ``start``: each is twice as large as the
        one before, up to a limit, whether those before it still exist or not."""
        doublings = (start // self._config.first_segment_bytes + 1).bit_length() - 1
        return min(self._config.first_segment_bytes << doublings, self._config.segment_bytes_max)

    def header_of(self, segment: Segment) -> SegmentHeader:
        return self._header._replace(start=segment.start, seed=segment.seed)

    def cold_header(self, number: int) -> ColdHeader:
        """Return the header of a new cold segment, with copies of what stands before now."""
        return ColdHeader(AS_APPENDED, number, self._header.cluster, self._header.node,
                          seed_of(self._seeds, number), self.position)

    def file_of(self, position: int) -> Segment | ColdSegment:
        """Return the segment that holds a journal position, or the cold one of a place.
        O(log n)."""
        return self.cold.segment_of(position) if is_cold(position) else self.segment_of(position)

    def segment_of(self, position: int) -> Segment:
        """Return the segment that holds a journal position.  O(log n)."""
        at = bisect_right(self._starts, position) - 1
        assert at >= 0 and position < self.segments[at].end, f"{position} is in no segment"
        return self.segments[at]

    def place_at(self, offset: int) -> Place:
        """Return the file and byte of a journal offset; behind the active segment, in the file that
        comes next.  O(log n)."""
        slot = bisect_right(self._starts, offset)
        start = self._starts[slot - 1] if slot else 0
        if offset >= self._next_start:
            start = self._next_start
        return Place(start, offset - start)

    @property
    def end_place(self) -> Place:
        """Place behind the last staged entry.  O(log n)."""
        return self.place_at(self.position)

    def range_at(self, begin: int, end: int) -> PlaceRange:
        """Return the places of a range of journal offsets.  O(log n)."""
        return self.place_at(begin), self.place_at(end)

    @property
    def next_is_due(self) -> bool:
        """Return True if the active segment is half full and the next one has no file.  O(1)."""
        active = self._active
        return (active is not None and self._next is None
                and self.position - active.start >= active.capacity // 2)

    def prepare_next(self) -> Segment | None:
        """Return the segment whose file is to be created ahead, once for each segment; None = not
        due."""
        if not self.next_is_due:
            return None
        self._next = self._new_segment()
        return self._next

    def advance_durable(self, position: int, fsynced: bool = True) -> list[Segment]:
        """Advance the durable position; close and return the segments that are full and durable
        now.

        ``fsynced``: False if the bytes are written and their sync waits; then the last segment of
        them stays open for it."""
        assert self.durable <= position <= self.position, f"{position} of {self.position}"
        self.durable = position
        if fsynced:  # else the bytes are written and count, but recovery may not rely on them
            self.fsynced = position
        if not self._closing:
            return self._closing
        sealed = [segment for segment in self._closing if segment.end <= self.fsynced]
        if sealed:
            self._closing = [segment for segment in self._closing if segment.end > self.fsynced]
            for segment in sealed:
                assert segment.file is not None
                segment.file.close()
                segment.file = None
        return sealed

    def close(self) -> None:
        """Close the files that are open for writing."""
        for segment in [*self._closing, self._active, self._next]:
            if segment is not None and segment.file is not None:
                segment.file.close()
                segment.file = None


def _zeros_phase(node: int, zero_ahead_bytes: int) -> int:
    """Return the bytes, below ``zero_ahead_bytes``, behind whose multiples the zeros of a node end.

    Nodes whose logs grow alike would write their zeros at the same append, and a majority that has
    no zeros to write could not answer for the others."""
    phase = int(node * _PHASE_PER_NODE % 1 * zero_ahead_bytes)
    return phase - phase % _BLOCK_BYTES


def segment_path(directory: str, start: int) -> str:
    """Return the path of the segment that begins at ``start``; names sort as their positions do."""
    return f"{directory}/{start:020d}{SEGMENT_SUFFIX}"


def index_path(segment: Segment) -> str:
    """Return the path of a segment's index file."""
    return segment.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
