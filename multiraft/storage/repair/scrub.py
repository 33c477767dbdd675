"""Scrub: read journal, cold segments and checkpoints in the background, to find damage early.

Contract.  ``Scrubber.next_job`` gives one piece after the other, ``done`` takes it back and names
the entries that turned out to be damaged; after the last piece it begins again.  Plans run on any
thread, one at a time, and reading and checking hold no interpreter.

Theory.  The chain of entry checksums and each batch's own cover every byte that was ever given to
the journal (docs/storage-format.md), so reading them is proof; of the disk, because it is the disk
that is read: the page cache may have an intact copy of bytes whose sector is damaged
(docs/decisions/0046).  Bytes to which no index points (truncated suffixes, damaged entries that
have a copy) are skipped.  A damaged checkpoint is replaced while all that it contains is in memory.
Cold segments come behind the journal, as their places do.  Damage there concerns their records
alone.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.atomic_file import is_whole
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.cold.cold_segment import HEADER_BYTES as COLD_HEADER_BYTES
from multiraft.storage.cold.cold_segment import ColdSegment, is_cold, number_of
from multiraft.storage.errors import (
    CorruptFile,
    CorruptIndex,
    CorruptIndexedSegment,
    CorruptJournalRange,
    CorruptRange,
    SegmentRemoved,
)
from multiraft.storage.filesystem import Buffer, Filesystem
from multiraft.storage.indexed_segments import BlockReader
from multiraft.storage.journal.journal import Segment, SegmentHeader
from multiraft.storage.repair.file_records import FileRecords
from multiraft.storage.store import Store

#: Read and checked at a time: a write waits for so much of the disk at most.
PIECE_BYTES = 256 << 10
#: A piece that holds the beginning of an entry only is read again with this length.
LARGE_PIECE_BYTES = layout.ENTRY_BYTES_MAX + layout.ENTRY_ALIGNMENT

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class SuspectRange(NamedTuple):
    """A place of the journal or of a cold segment that is not what was written there."""

    begin: int  # journal position, or place
    end: int
    why: str


class ScrubJob:
    """Check of one piece of the journal or of a cold segment. ``suspects``, ``end`` and ``bytes``
    are set once it was executed."""

    __slots__ = ("segment", "position", "limit", "prev_crc", "durable", "end", "bytes",
                 "suspects", "resumed", "entries", "records", "index_damage", "_filesystem",
                 "_reader", "_is_cut_off")

    def __init__(self, filesystem: Filesystem, segment: Segment | ColdSegment, position: int,
                 limit: int, prev_crc: int | None, durable: int, resumed: int,
                 reader: BlockReader | None = None):
        """``reader``: of the segment's index file, if records are in that alone."""
        self.segment = segment
        self.position = position  # journal position where it begins
        self.limit = limit  # journal position where the segment's durable entries end
        self.prev_crc = prev_crc  # None = what the first entry says: the place before is damaged
        self.durable = durable  # watermark of the last entry before it: they never fall
        self.end = position  # where the next piece begins
        self.bytes = 0
        self.suspects: list[SuspectRange] = []
        #: Journal position from which on the entries, linked to each other, stand behind a damaged
        #: place: by the journal alone they may be what a misdirected write left there.  0 = they
        #: are in their segment's chain, or one of them was in its place.
        self.resumed = resumed
        self.entries: list[tuple[int, int, int]] = []  # those: journal position, group, index
        #: Of the index file, if the piece has anything suspect.
        self.records: FileRecords | None = None
        self.index_damage = ""  # why neither that file nor the segment tells its records
        self._filesystem = filesystem
        self._reader = reader
        self._is_cut_off = False  # the file ends before the piece does

    def execute(self) -> None:
        """Read the piece from the disk and check it; set ``suspects``, ``end`` and ``bytes``.
        Block, on any thread.  Raises ``OSError``.  Of a segment that was removed meanwhile nothing
        is suspect."""
        try:
            self._read_and_check()
            if self._reader is not None and (self.suspects or self.entries or self.resumed):
                self._read_index(self._reader)
        except (FileNotFoundError, SegmentRemoved):
            if not self.segment.is_removed:
                raise
            self.end, self.suspects, self.entries = self.limit, [], []

    def _read_index(self, reader: BlockReader) -> None:
        """Read the whole index file.  One that is damaged as well tells nothing."""
        (number, segment), = reader.segments.items()
        try:
            self.records = FileRecords(segment, reader.whole(number))
        except CorruptIndex as error:
            self.index_damage = str(error)

    def _read_and_check(self) -> None:
        if self.position == self.segment.start + layout.SEGMENT_HEADER_BYTES:
            self._check_header()
        for length in (PIECE_BYTES, LARGE_PIECE_BYTES):
            data = self._filesystem.read_disk(self.segment.path,
                                              min(length, self.limit - self.position),
                                              self.position - self.segment.start)
            self.bytes += len(data)
            self._is_cut_off = len(data) < min(length, self.limit - self.position)
            if self._check(data, len(data) < length):
                return
        self._skip(data)

    def _check_header(self) -> None:
        """Check the segment's header on disk, and add a suspect if it is damaged: without it the
        next start does not know where the chain of checksums begins.  Of a cold segment, the
        checkpoint knows."""
        if isinstance(self.segment, ColdSegment):
            return
        start = self.segment.start
        data = self._filesystem.read_disk(self.segment.path, layout.SEGMENT_HEADER_BYTES, 0)
        self.bytes += len(data)
        header = SegmentHeader.parse(data)
        if header is None or (header.start, header.seed) != (start, self.segment.seed):
            self.suspects.append(SuspectRange(start, self.position, "segment header"))

    def _check(self, data: Buffer, is_last: bool) -> bool:
        """Check the entries in ``data``, note damaged ones as suspects and set where the next piece
        begins.  ``is_last``: the piece reaches the segment's end.

        Return False if ``data`` has no complete intact entry at its beginning."""
        prev_crc = self.prev_crc
        if prev_crc is None and len(data) >= layout.ENTRY_HEADER_BYTES:
            prev_crc = _U32.unpack_from(data, layout.ENTRY_PREV_CRC_AT)[0]
        checked = core.check_entries(data, 0, prev_crc or 0)
        for at, length in checked.damaged:
            begin = self.position + at
            self.suspects.append(SuspectRange(begin, begin + length, "payload"))
        if not checked.count:
            return False
        if self.resumed:
            assert prev_crc is not None
            self.entries = self._entries(data, prev_crc)
        self.end = min(self.position + checked.stopped_at, self.limit)
        self.prev_crc = checked.last_crc
        self.durable = max(self.durable, checked.last_durable)
        if is_last and self.end < self.limit:
            self._suspect(data, checked.stopped_at, checked.reason)
        return True

    def _entries(self, data: Buffer, prev_crc: int) -> list[tuple[int, int, int]]:
        """Return (journal position, group, index) of the entries in ``data`` that are chained to
        each other.  They are parsed in several steps, because each one holds the interpreter's
        lock."""
        found, at, reason = [], 0, "limit"
        while reason == "limit":
            scan = core.scan_entries(data, at, prev_crc, False, at + PIECE_BYTES)
            found += [(self.position + entry.at, entry.group, entry.index)
                      for entry in scan.entries]
            at, prev_crc, reason = scan.stopped_at, scan.last_crc, scan.reason
        return found

    def _skip(self, data: Buffer) -> None:
        """Add the damaged first entry of the piece as a suspect; the next piece begins with the
        next credible entry."""
        self._suspect(data, 0, "entry")

    def _suspect(self, data: Buffer, at: int, why: str) -> None:
        """Add the bytes from ``at`` up to the next credible entry as a suspect; the next piece
        begins with that entry.

        An entry is credible if it can have been written at its place (as in ``segment_scan``); what
        a misdirected write left is not."""
        found = core.find_entry(data, at + layout.ENTRY_ALIGNMENT)
        while found >= 0:
            watermark = _U64.unpack_from(data, found + layout.ENTRY_DURABLE_AT)[0]
            if self.durable <= watermark <= self.position + found:
                break
            found = core.find_entry(data, found + layout.ENTRY_ALIGNMENT)
        resumed = self.position + found if found >= 0 else min(self.position + len(data),
                                                               self.limit)
        if found < 0 and self._is_cut_off:
            resumed = self.limit
        self.suspects.append(SuspectRange(self.position + at, resumed, why))
        self.end, self.prev_crc = resumed, None


class ScrubCheckpointsJob:
    """Check of all checkpoints on disk. ``damaged`` and ``bytes`` are set once it was executed."""

    __slots__ = ("bytes", "damaged", "_directory", "_filesystem")

    def __init__(self, filesystem: Filesystem, directory: str):
        self.bytes = 0
        self.damaged: list[str] = []
        self._directory = directory
        self._filesystem = filesystem

    def execute(self) -> None:
        """Read every checkpoint from the disk and put the paths of damaged ones into ``damaged``.
        Block, on any thread.  Raises ``OSError``."""
        for name in checkpoint_names(self._filesystem, self._directory):
            path = f"{self._directory}/{name}"
            try:
                size = self._filesystem.size(path)
                data = self._filesystem.read_disk(path, size, 0)
            except FileNotFoundError:
                continue  # a newer one was written meanwhile
            self.bytes += len(data)
            if not is_whole(data):
                self.damaged.append(path)


class Scrubber:
    """Maker of the jobs that verify a store's checkpoints and journal, pass after pass."""

    def __init__(self, store: Store, position: int = 0):
        self.position = position  # journal position up to which this pass has come
        self.bytes = 0  # read since the start
        self.passes = 0  # completed since the start
        self._store = store
        self._prev_crc: int | None = None
        self._durable = 0  # watermark of the last entry
        self._resumed = 0  # see ``ScrubJob.resumed``
        self._has_checkpoints = True  # still to be read in this pass

    def restart(self) -> None:
        """Begin the pass again with the checkpoints and the journal's first piece.  Not while a job
        is being executed."""
        self.position = self._durable = 0
        self._prev_crc, self._has_checkpoints = None, True

    @property
    def scrubbed(self) -> int:
        """Distance of this pass from the journal's present start, in bytes, cold segments behind
        it; includes what an earlier process read in this pass."""
        journal = self._store.table.journal
        if is_cold(self.position):
            return self.total - sum(each.end - max(each.start, min(self.position, each.end))
                                    for each in journal.cold)
        return max(0, self.position - journal.segments[0].start) if journal.segments else 0

    @property
    def total(self) -> int:
        """Durable bytes of the journal, from its present start, and of the cold segments.
        O(cold segments)."""
        journal = self._store.table.journal
        return journal.cold.bytes + journal.durable - (
            journal.segments[0].start if journal.segments else journal.durable
        )

    def next_job(self) -> ScrubJob | ScrubCheckpointsJob | None:
        """Return the next piece to read; None once at the end of each pass, and while there is
        nothing to read.  Each pass begins with the checkpoints."""
        if self._has_checkpoints:
            self._has_checkpoints = False
            return ScrubCheckpointsJob(self._store.table.filesystem, self._store.directory)
        journal = self._store.table.journal
        for segment in journal.segments:
            limit = min(segment.end, journal.durable)
            if limit <= max(self.position, segment.start + layout.SEGMENT_HEADER_BYTES):
                continue
            if self.position <= segment.start:
                self.position = segment.start + layout.SEGMENT_HEADER_BYTES
                # Without a seed, of a rotten header, no first entry is in its chain.
                self._prev_crc, self._resumed = segment.seed or None, 0
            if self._prev_crc is None:
                self._resumed = self.position
            return ScrubJob(self._store.table.filesystem, segment, self.position, limit,
                            self._prev_crc, self._durable, self._resumed,
                            self._reader(segment))
        cold = self._next_cold()
        if cold is not None:
            return ScrubJob(self._store.table.filesystem, cold, self.position, cold.end,
                            self._prev_crc, 0, 0, self._reader(cold))
        self.passes += self.position > 0
        self.position = self._durable = 0
        self._has_checkpoints = True
        return None

    def _reader(self, segment: Segment | ColdSegment) -> BlockReader | None:
        """Return a reader of a segment's index file, if records are in that alone."""
        indexed = self._store.table.indexed.find(segment.start)
        return (self._store.table.indexed.reader(-1, {indexed.number})
                if indexed is not None else None)

    def _next_cold(self) -> ColdSegment | None:
        """Return the cold segment that the pass continues in, and set its position there; None =
        there is none behind it."""
        segments = self._store.table.journal.cold
        cold = segments.behind(number_of(self.position) if is_cold(self.position) else 0)
        if cold is not None and self.position >= cold.end:
            cold = segments.behind(cold.name.number + 1)
        if cold is not None and self.position <= cold.start:
            self.position, self._prev_crc = cold.start + COLD_HEADER_BYTES, cold.name.seed
        return cold

    def done(self, job: ScrubJob | ScrubCheckpointsJob) -> list[CorruptRange | CorruptFile]:
        """Take an executed job, advance the pass, and return the errors to report as damage.

        These are ``CorruptRange`` for entries of logs, ``CorruptJournalRange`` for ranges to which
        no log points, ``CorruptIndexedSegment`` for a damaged segment whose index file is damaged
        as well, and ``CorruptFile`` for checkpoints.  O(1), O(entries of the node) when there
        is damage."""
        self.bytes += job.bytes
        if isinstance(job, ScrubCheckpointsJob):
            return [CorruptFile(path, "found by the scrub") for path in job.damaged]
        if job.segment.is_removed:
            self.position, self._prev_crc, self._resumed = job.limit, None, 0
            return []  # no replica needs what was damaged there
        self.position = max(job.end, job.position + 1)
        self._prev_crc = job.prev_crc
        self._durable = job.durable
        self._store.repair.examined = job.records
        lost = [CorruptIndexedSegment(job.segment.start, job.segment.end, job.index_damage)
                ] if job.index_damage and job.suspects else []
        return [*lost, *self._overwritten(job),
                *(error for suspect in job.suspects for error in self._errors(suspect))]

    def _overwritten(self, job: ScrubJob) -> list[CorruptRange]:
        """Return an error for each log entry that was overwritten by entries which the piece found
        behind damage.  Empty while these may continue, or may stand where they were written.

        No index names the position of such an entry, so it was not written there.  Its watermark
        may be right all the same: all entries of one write have the same.  One entry at its indexed
        position vouches for all that are chained to it.  If they begin inside an entry, they also
        overwrote bytes that no index names."""
        if not job.resumed:
            return []
        repair = self._store.repair
        if any(repair.is_at(*entry) for entry in job.entries):
            self._resumed = 0
            return []
        end = job.suspects[-1].begin if job.prev_crc is None else job.end
        if job.prev_crc is not None and end < job.limit or end == job.resumed:
            return []  # the run of such entries continues, or there are none
        if repair.is_inside(job.resumed):
            return self._errors(SuspectRange(job.resumed, end, "overwritten"))
        return self._owned(job.resumed, end, "overwritten")

    def _owned(self, begin: int, end: int, why: str) -> list[CorruptRange]:
        repair = self._store.repair
        places = {owner: repair.place_of(*owner) for owner in repair.owners(begin, end)}
        return [CorruptRange(group, index, f"found by the scrub: {why}",
                             *(place[1:] if place is not None else ()))
                for (group, index), place in places.items()]

    def _errors(self, suspect: SuspectRange) -> list[CorruptRange]:
        begin, end, why = suspect
        errors = self._owned(begin, end, why)
        if is_cold(begin):
            return errors  # nothing but records was there
        if why == "payload" or self._store.repair.is_damage_cleared(begin, end):
            return errors
        return [*errors,
                CorruptJournalRange(self._begin(suspect), end, f"found by the scrub: {why}")]

    def _begin(self, suspect: SuspectRange) -> int:
        """Return the journal position at which the next start will see the damaged range begin.
        Without a segment's first entry, that is the end of the segment before.  O(segments)."""
        journal = self._store.table.journal
        for segment in journal.segments:
            if segment.start + layout.SEGMENT_HEADER_BYTES == suspect.begin:
                return journal.end_before(segment) or suspect.begin
        return suspect.begin
