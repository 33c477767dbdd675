"""Scan of one segment: find its intact entries, also across damaged places.

Contract.  ``scan_segment`` reads a segment's bytes in journal order and never raises for what it
finds; each place without an intact entry that follows its predecessor becomes a ``DamagedRange``.
If a range is a torn tail or corruption is decided in ``recovery.py``, which sees all segments.

Theory.  An entry counts when its checksum matches and its ``prev_crc`` is that of the entry before
it.  Behind a damaged range the scan continues at the next bytes that are an intact entry with a
plausible durable watermark.  An entry right behind an unreadable place, without the group's next
entry behind it, is kept as a copy: its REPAIR record may have been in that place, and as an entry
it would truncate all entries with higher indexes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.errors import CorruptEntry
from multiraft.raft.replica_records import parse_reincarnation, parse_tombstone
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import UNKNOWN_POSITION, Copy
from multiraft.storage.journal.freed_payload import freed
from multiraft.storage.journal.segment_index import (
    RANGE_STRUCT,
    REPAIR_STRUCT,
    Applied,
    SegmentIndex,
    SegmentRun,
    void_copies,
)
from multiraft.types import (
    LAST_INDEXED_KIND,
    BatchInfo,
    Entry,
    EntryKind,
    HardState,
    Payload,
)

_HEADER_BYTES = layout.ENTRY_HEADER_BYTES
_ALIGN = layout.ENTRY_ALIGNMENT - 1
_ZEROS = bytes(1 << 20)
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_NEVER = 1 << 64  # above every index
_DATA, _HARD_STATE = EntryKind.DATA, EntryKind.HARD_STATE
#: Bytes that are scanned between two pauses: well below a millisecond, also when they are small
#: entries.
_PIECE_BYTES = 128 << 10
#: Kinds of entries that have an index and mean nothing else here.
_FOLLOWING = frozenset(kind for kind in EntryKind if kind <= LAST_INDEXED_KIND)

#: What takes the place of a batch's fields when its bytes are damaged: its group is quarantined,
#: this only keeps its place.
_UNREADABLE_BATCH = BatchInfo(1, -1, -1, -1, -1, 0)

#: Reason of a range that is no damage: an intact entry of a kind that this program does not know.
#: ``index`` is the kind then.
LATER_FORMAT = "later format"


class DamagedRange(NamedTuple):
    """Range of a segment without an intact entry that follows the one before it."""

    position: int  # journal position
    reason: str  # of core.Scan, "payload" (an intact header over a damaged batch), LATER_FORMAT
    group: int  # of a damaged payload; -1 = unknown
    index: int  # type: ignore[assignment]  # 0 = it was truncated since
    end: int = 0  # journal position behind it; 0 = unknown
    copy_group: int = -1  # the group when the payload is that of a copy, perhaps all there is of
    # of its entry: no log's own entry unless one of that index follows


@dataclass(slots=True)
class SegmentScan:
    """Entries and damaged ranges of one segment."""

    index: SegmentIndex
    damaged_ranges: list[DamagedRange]
    has_stray_bytes: bool = False  # bytes other than zeros stand behind the last entry


def scan_segment(data: Buffer, start: int, seed: int | None, applied: Applied | None,
                 known_to: int = 0, pause: Callable[[], None] | None = None) -> SegmentScan:
    """Return every intact entry of a segment, in order, across damaged places.  O(bytes).

    ``data``: the file's bytes up to the last one of interest; ``seed``: None when the segment's own
    header is damaged, the chain then starts with the first entry that is found; ``applied``: per
    group, the index above which entries are collected for the partition states, None = collect
    nothing; it goes back to 0 where a tombstone stands behind ``known_to``, the checkpoint's
    journal position; ``pause`` is called every ``_PIECE_BYTES``, to let other threads run: a scan
    does not release the interpreter's lock by itself.
    """
    scanner = _Scanner(data, start, applied, known_to)
    at = layout.SEGMENT_HEADER_BYTES
    if seed is None:
        at = scanner.resume(at)
        scanner.skip(DamagedRange(start, "segment header", -1, 0, start + max(at, 0)))
        if at < 0:
            at = layout.SEGMENT_HEADER_BYTES
            return scanner.finish(at, 0, 0)
        prev_crc = scanner.prev_crc_at(at)
    else:
        prev_crc = seed
    while True:
        scan = core.scan_entries(data, at, prev_crc, True, at + _PIECE_BYTES if pause else -1)
        scanner.take(scan.entries)
        stopped = scan.stopped_at
        if pause is not None and scan.reason == "limit":
            pause()
            at, prev_crc = stopped, scan.last_crc
            continue
        if scan.reason == "format":
            kind = scanner.later_kind(stopped, scan.last_crc)
            if kind >= 0:
                scanner.skip(DamagedRange(start + stopped, LATER_FORMAT, -1, kind))
                return scanner.finish(stopped, seed or 0, scan.last_crc)
        # An intact entry that does not follow the one before it was not written here.
        at = scanner.resume(stopped + layout.ENTRY_ALIGNMENT * (scan.reason == "chain"))
        if at < 0:
            return scanner.finish(stopped, seed or 0, scan.last_crc)
        scanner.skip(DamagedRange(start + stopped, scan.reason, -1, 0, start + at))
        prev_crc = scanner.prev_crc_at(at)


class _Scanner:
    """Collector of one segment's entries and damaged ranges."""

    def __init__(self, data: Buffer, start: int, applied: Applied | None, known_to: int):
        self._known_to = known_to
        self._data = data
        self._view = memoryview(data)
        self._start = start
        self._applied = applied
        self._runs: dict[int, SegmentRun] = {}
        self._hard_states: dict[int, core.ScannedEntry] = {}  # the last of each group's life
        self._damaged_ranges: list[DamagedRange] = []
        self._first_durable = -1
        self._durable = 0  # of the last entry: watermarks never fall along a journal
        self._repair: core.ScannedEntry | None = None  # its copy comes next
        self._damage_end = -1  # where the last unreadable place ends
        #: What stood right behind one, of a group: perhaps a copy whose REPAIR record was in it.
        self._suspected_copies: dict[int, core.ScannedEntry] = {}

    def take(self, entries: list[core.ScannedEntry]) -> None:
        """Add entries in journal order.  Nearly all are the next of their group, or its hard state:
        those are handled in this loop, because a start has millions of them."""
        runs, start = self._runs, self._start
        if entries and self._first_durable < 0:
            self._first_durable = entries[0].durable
        highest = self._durable
        for found in entries:
            (at, length, kind, group, incarnation, term, index, partition, base_offset, durable,
             intact) = found
            if durable > highest:
                highest = self._durable = durable
            run = runs.get(group)
            if run is None or run.incarnation != incarnation:
                run = self._run(found)
                if run is None:
                    continue
            if kind is _HARD_STATE:
                run.removed = False
                self._hard_states[group] = found
                continue
            if (not intact or kind not in _FOLLOWING or self._repair is not None
                or at == self._damage_end or group in self._suspected_copies or run.broken_reason
                or run.index is None
                or not run.index.append_next(index, term, start + at, (length + _ALIGN) & ~_ALIGN)):
                self._add(run, found)
                continue
            run.removed = False
            wanted = (self._applied is not None
                      and index > self._applied.get((group, incarnation), 0))
            if kind == _DATA:
                batch = core.batch_info(self._view[at + _HEADER_BYTES:at + length])
                run.note_batch(partition, base_offset, index, batch)
                if wanted:
                    run.unapplied_entries.append(Entry(kind, group, incarnation, term, index,
                                                  partition, base_offset,
                                                  freed(length - _HEADER_BYTES), batch))
            elif wanted:
                payload = self._data[at + _HEADER_BYTES:at + length]
                run.unapplied_entries.append(Entry(kind, group, incarnation, term, index, partition,
                                              base_offset, payload))

    def _run(self, found: core.ScannedEntry) -> SegmentRun | None:
        """Return the run of the entry's group and incarnation, created if necessary; None for an
        entry of an earlier incarnation.  A later incarnation replaces the run: of the earlier one
        only void copies remain."""
        run = self._runs.get(found.group)
        if run is None or found.incarnation > run.incarnation:
            copies = void_copies(run.copies) if run is not None else []
            run = self._runs[found.group] = SegmentRun(
                found.group, found.incarnation, copies=copies
            )
            self._hard_states.pop(found.group, None)
            self._suspected_copies.pop(found.group, None)
            self._void_damaged_copies(found.group)
        return run if run.incarnation == found.incarnation else None

    def _add(self, run: SegmentRun, found: core.ScannedEntry) -> None:
        kind = found.kind
        if found.group in self._suspected_copies:
            self._decide(run, self._suspected_copies.pop(found.group), found)
        if kind == EntryKind.TOMBSTONE or kind == EntryKind.REINCARNATION:
            self._take_lifecycle_record(run, found)
            return
        if kind <= LAST_INDEXED_KIND:
            run.removed = False
            repair, self._repair = self._repair, None
            if repair is not None and _is_copy(repair, found):
                damaged = REPAIR_STRUCT.unpack_from(self._data, repair.at + _HEADER_BYTES)
                if found.payload_intact:
                    run.copies.pop()
                self._take_copy(run, found, *damaged)
                return
            if (found.at == self._damage_end
                    and (run.index is None or found.index <= run.last_index)):
                self._suspected_copies[found.group] = found
                return
            self._append(run, found)
        elif kind == EntryKind.SUFFIX_DROP:
            run.truncate(found.index)
            self._void_damaged_copies(found.group, found.index)
            if found.length > _HEADER_BYTES:
                run.head_recovery_truncate_position = self._start + found.at
        elif kind == EntryKind.REPAIR:
            self._repair = found
            damaged = REPAIR_STRUCT.unpack_from(self._data, found.at + _HEADER_BYTES)
            run.copies += void_copies([Copy(found.index, found.term, 0, 0, *damaged)])
        elif kind == EntryKind.LIFT:
            run.cleared_position = self._start + found.at
            run.cleared_ranges = tuple(RANGE_STRUCT.iter_unpack(
                self._view[found.at + _HEADER_BYTES:found.at + found.length]))

    def _applied_of(self, found: core.ScannedEntry) -> int:
        """Return the index above which the partition states need entries of ``found``'s group;
        above every index if nothing is collected."""
        if self._applied is None:
            return _NEVER
        return self._applied.get((found.group, found.incarnation), 0)

    def _append(self, run: SegmentRun, found: core.ScannedEntry) -> None:
        """Add an entry to its run.  If its payload is damaged, also add a damaged range and mark
        the entry as missing."""
        position, size = self._start + found.at, (found.length + _ALIGN) & ~_ALIGN
        applied = self._applied_of(found)
        run.add(self._entry(found, found.index > applied), position, size, applied)
        if not found.payload_intact:
            self._damaged_ranges.append(DamagedRange(position, "payload", found.group,
                                                     found.index, position + size))
            if run.last_index == found.index:
                run.missing[found.index] = position

    def _take_copy(self, run: SegmentRun, found: core.ScannedEntry, damaged: int,
                   damaged_size: int) -> None:
        position, size = self._start + found.at, (found.length + _ALIGN) & ~_ALIGN
        if not found.payload_intact:
            # The log may have no other trace of this entry, so the range names the copy's group.
            self._damaged_ranges.append(DamagedRange(position, "payload", -1, found.index,
                                                     position + size, found.group))
            return
        entry = self._entry(found, found.index > self._applied_of(found))
        run.copies.append(Copy.of(entry, position, size, damaged, damaged_size))
        run.copy_entries[entry.index] = entry

    def _void_damaged_copies(self, group: int, first_removed: int = 0) -> None:
        """Set the index of a group's damaged copies from ``first_removed`` on to 0, because their
        entries were truncated; ``void_copies`` does so for intact ones."""
        self._damaged_ranges = [each._replace(index=0) if each.copy_group == group
                        and each.index >= first_removed else each for each in self._damaged_ranges]

    def _decide(self, run: SegmentRun, suspect: core.ScannedEntry,
                following: core.ScannedEntry | None) -> None:
        """Take a suspected copy, an entry right behind an unreadable place, as the log's next entry
        if ``following`` is the one after it.

        Otherwise take it as a copy, because its REPAIR record may have been in that place.  As an
        entry it would truncate all behind its index, while a copy of an entry that the log has
        already changes nothing."""
        if (following is None or following.kind > LAST_INDEXED_KIND or self._repair is not None
                or following.index != suspect.index + 1):
            return self._take_copy(run, suspect, UNKNOWN_POSITION, 0)
        self._append(run, suspect)

    def _take_lifecycle_record(self, run: SegmentRun, found: core.ScannedEntry) -> None:
        """Apply a tombstone, or the record of a forced recovery, to the run; a malformed record
        breaks the run."""
        position = self._start + found.at
        payload = self._data[found.at + _HEADER_BYTES:found.at + found.length]
        try:
            if found.kind == EntryKind.TOMBSTONE:
                self._hard_states.pop(found.group, None)
                run.apply_tombstone(parse_tombstone(found.term, found.index, payload), position)
                self._void_damaged_copies(found.group)
                if self._applied is not None and position >= self._known_to:
                    self._applied.pop((found.group, found.incarnation), None)
            else:
                run.forced_recovery = parse_reincarnation(payload)
                run.forced_recovery_at = (position, found.index)
                run.forced_recovery_term = found.term
        except CorruptEntry as error:
            run.broken_reason = str(error)

    def _vote(self, found: core.ScannedEntry) -> int:
        if found.length != _HEADER_BYTES + _U32.size:
            return 0
        return _U32.unpack_from(self._data, found.at + _HEADER_BYTES)[0]

    def _entry(self, found: core.ScannedEntry, wanted: bool) -> Entry:
        """Return the entry in the form that partition states need: of a batch only its fields and
        length, of others the payload if ``wanted``.  So the segment's bytes can be freed."""
        payload: Payload = b""
        batch: BatchInfo | None = None
        view = self._view[found.at + _HEADER_BYTES:found.at + found.length]
        if found.kind == EntryKind.DATA:
            payload = freed(len(view))
            batch = core.batch_info(view) if found.payload_intact else _UNREADABLE_BATCH
        elif wanted:
            payload = bytes(view)
        return Entry(found.kind, found.group, found.incarnation, found.term, found.index,
                     found.partition, found.base_offset, payload, batch)

    def skip(self, damaged: DamagedRange) -> None:
        self._damaged_ranges.append(damaged)
        self._damage_end = damaged.end - self._start

    def resume(self, at: int) -> int:
        """Return the position in the data, from ``at`` on, of the next entry that may have been
        written there; -1 = none.

        Bytes that look like an entry may be a record's content, of a segment file that was
        published to a topic.  Durable watermarks never fall along a journal and never exceed their
        own position.  So an entry that was not written at its position rarely has a watermark in
        that range."""
        if len(self._data) - at < _HEADER_BYTES or _all_zeros(self._data, at):
            return -1
        while True:
            at = core.find_entry(self._data, at)
            if at < 0:
                return -1
            length = _U32.unpack_from(self._data, at + layout.ENTRY_LENGTH_AT)[0]
            durable = _U64.unpack_from(self._data, at + layout.ENTRY_DURABLE_AT)[0]
            if self._durable <= durable <= self._start + at:
                if at + length <= len(self._data):
                    return at
                self._durable = durable  # the batch is torn off; what its header says still holds
            at += layout.ENTRY_ALIGNMENT

    def later_kind(self, at: int, prev_crc: int) -> int:
        """Return the kind of an entry that is intact, follows the one before it and is of a kind
        that only a later version has; -1 = the bytes are no such entry."""
        length = _U32.unpack_from(self._data, at + layout.ENTRY_LENGTH_AT)[0]
        if not _HEADER_BYTES <= length <= len(self._data) - at:
            return -1
        if self.prev_crc_at(at) != prev_crc:
            return -1
        crc = core.crc32c(self._view[at:at + layout.ENTRY_CRC_AT])
        crc = core.crc32c(self._view[at + layout.ENTRY_PREV_CRC_AT:at + length], crc)
        if crc != _U32.unpack_from(self._data, at + layout.ENTRY_CRC_AT)[0]:
            return -1
        return self._data[at + layout.ENTRY_KIND_AT]

    def prev_crc_at(self, at: int) -> int:
        return _U32.unpack_from(self._data, at + layout.ENTRY_PREV_CRC_AT)[0]

    def finish(self, at: int, seed: int, last_crc: int) -> SegmentScan:
        for group, suspect in self._suspected_copies.items():
            self._decide(self._runs[group], suspect, None)
        for group, found in self._hard_states.items():
            self._runs[group].hard_state = HardState(found.term, self._vote(found))
        index = SegmentIndex(self._start, seed, self._start + at, last_crc, self._first_durable,
                             self._durable, self._runs)
        self._damaged_ranges.sort()
        return SegmentScan(index, self._damaged_ranges, not _all_zeros(self._data, at))


def _is_copy(repair: core.ScannedEntry, found: core.ScannedEntry) -> bool:
    return ((repair.group, repair.incarnation, repair.term, repair.index)
            == (found.group, found.incarnation, found.term, found.index))


def _all_zeros(data: Buffer, at: int) -> bool:
    while at < len(data):
        piece = data[at:at + len(_ZEROS)]
        if piece != _ZEROS and any(piece):
            return False
        at += len(piece)
    return True
