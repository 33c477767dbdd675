"""Reconstruction of one group's log from its parts of the journal's segments.

Contract.  ``rebuild`` hands over the group's runs in journal order (``take_run``), then everything
that is known of damage (``find_missing``, ``restore_missing``), then the states to fill
(``replay``).  Nothing here reads or writes the disk.

Invariants.  Only records behind the log's beginning count: the place where its snapshot was
installed, or of the tombstone of an earlier replica.  A broken log gets no entries until it is
truncated below the break.  A copy counts at any place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import cast

from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum
from multiraft.storage.block_index.file_codec import FileHeader, RunSummary
from multiraft.storage.checkpoint import GroupRecord
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.damage.journal_damage import JournalDamage
from multiraft.storage.damage.place import Place, PlaceRange
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex
from multiraft.storage.indexed_segments import IndexedSegments
from multiraft.storage.journal.journal import Journal, Segment
from multiraft.storage.journal.segment_index import SegmentRun
from multiraft.storage.record_store import UNKNOWN_TERM, TermRuns, term_in, with_term
from multiraft.storage.recovery.cold_ranges import ColdPart, choose
from multiraft.storage.recovery.lost_truncations import (
    conflicts_with,
    mark_maybe_truncated,
    newest_copies,
)
from multiraft.storage.recovery.report import Damage
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.stored_log import StoredLog
from multiraft.storage.uncopied_ranges import InstalledRange, UncopiedRanges, damage_value
from multiraft.storage.unneeded_indexes import UnneededIndexes
from multiraft.types import Entry, EntryKind

#: A journal position behind every entry.
_BEHIND_ALL = 1 << 64


class GroupRebuild:
    """One group's log while the journal's segments are joined to it."""

    __slots__ = ("log", "broken_reason", "_journal", "_applied", "_known_to",
                 "_damage", "_unapplied_entries", "_pending_copies", "_first_positions",
                 "_unreadable", "_record", "_removed", "_lost", "_read_to", "_removed_indexes",
                 "_pending_installed", "_copied", "_lost_copies", "_unexplained", "_files",
                 "_file_copies", "_early_entries")

    def __init__(self, log: StoredLog, journal: Journal, applied: Mapping[tuple[int, int], int],
                 known_to: int, damage: list[Damage], record: GroupRecord | None,
                 removed: RemovedRanges, lost: Sequence[tuple[int, int]]):
        """``applied``: (group, incarnation) -> index that the checkpoint has applied; ``known_to``:
        journal offset up to which the checkpoint knows the group, 0 = not at all; ``damage``:
        takes findings that an operator must see; ``record``: of the group in the checkpoint, None =
        none; ``removed``: the removed part of the journal; ``lost``: ranges of the journal whose
        entries may have been of any group."""
        self.log = log
        self.broken_reason = ""  # why later entries cannot follow
        #: Damage, unless a truncation follows: entries of an earlier term than the one before them.
        self._early_entries: Damage | None = None
        self._journal = journal
        self._applied = applied
        self._known_to = known_to
        self._damage = damage
        self._unapplied_entries: list[Entry] = []
        #: Copies of what the log did not have, or not yet.
        self._pending_copies: list[tuple[Copy, Entry | None]] = []
        #: Index -> journal offset where it first stood, of entries that are read from their copies.
        self._first_positions: dict[int, int] = {}
        self._unreadable: set[int] = set()  # known entries whose bytes are damaged
        self._record = record
        self._removed = removed
        self._lost = lost
        self._read_to = -1  # journal position of the last entry that was read; -1 = none was
        #: Ranges of indexes, first and last, that the journal does not have, because their entries
        #: stood in removed segments, or a snapshot stands for them; ascending.
        self._removed_indexes: list[tuple[int, int]] = []
        #: Installed ranges whose place in the journal is still to come.
        self._pending_installed = [*log.installed]
        self._copied: dict[int, Copy] = {}  # the last copy of each index of an installed range
        #: Index -> journal position of its damage, of missing records in installed ranges.
        self._lost_copies: dict[int, int] = {}
        #: Damaged ranges of the journal that may have held copies of any index.
        self._unexplained: Sequence[tuple[int, int]] = ()
        #: Parts of the first segments, whose records index files answer, in journal order.
        self._files: list[tuple[Segment, RunSummary]] = []
        self._file_copies: dict[int, Copy] = {}  # index -> newest copy of one of these records

    @property
    def _applied_index(self) -> int:
        return self._applied.get((self.log.group, self.log.incarnation), 0)

    def is_replica_of(self, record: GroupRecord) -> bool:
        """Return True if the checkpoint's record is of the present replica, not of a removed one or
        of an earlier incarnation."""
        return (self.log.incarnation == record.incarnation
                and self.log.tombstone_position == record.tombstone_position)

    def take_run(self, segment: Segment, run: SegmentRun) -> None:
        """Join the group's part of the next segment, of the log's incarnation, to the log."""
        log = self.log
        if segment.end <= log.tombstone_position:
            return  # of an earlier replica
        self._take_lifecycle_records(segment, run)
        if run.hard_state is not None:
            log.merge_hard_state(run.hard_state)
        if segment.start < log.snapshot_position and not log.installed:
            return  # an installed snapshot replaces these entries
        self._pass_installed(segment.start)
        if self._pending_installed:
            self._join_entries(segment, run, self._pending_installed[0].first)
            return
        damage = log.damage
        if run.cleared_position:
            damage.clear(run.cleared_position, places(self._journal, run.cleared_ranges))
        if run.head_recovery_truncate_position > damage.cleared_position:
            damage.require_head_recovery("it truncated entries that it may have acknowledged")
        self._join_entries(segment, run)

    def _join_entries(self, segment: Segment, run: SegmentRun, end: int = 0) -> None:
        """Join the entries and copies of a run to the log; those from the index ``end`` on, unless
        that is 0, are not the log's, because a snapshot was installed behind them.  The run keeps
        no batches that the log has."""
        log = self.log
        run.unpack()
        if run.truncated_from:
            if run.truncated_from <= log.index.last_index + 1:
                self.broken_reason, self._early_entries = "", None
            self._truncate(run.truncated_from)
        if end and run.last_index >= end:
            run.truncate(end)
        if (run.index is not None and run.last_index >= run.index.first_index
                and not self.broken_reason):
            self._extend(segment, run)
        if run.index is not None:
            self._read_to = run.index.position(run.last_index)
        elif run.in_file is not None and run.last_index >= log.index.first_index:
            self._take_file(segment, cast("RunSummary", run.in_file))
        for copy in run.copies:
            self._take_copy(copy, run.copy_entries.get(copy.index))
        if run.broken_reason:
            self._note_broken(segment, run.broken_reason)

    def _take_file(self, segment: Segment, summary: RunSummary) -> None:
        """Leave the records of a segment to its index file; the log is joined behind them."""
        entries = summary.entries
        assert entries is not None and not self.log.index, "entries were joined before"
        self._files.append((segment, summary))
        self.log.index = GroupIndex(entries.last_index + 1, entries.run_terms[-1])
        self._read_to = segment.start
        pending, self._pending_copies = self._pending_copies, []
        for copy, entry in pending:  # of records in segments before this one, which are gone
            self._take_copy(copy, entry)

    def _take_lifecycle_records(self, segment: Segment, run: SegmentRun) -> None:
        """Apply the tombstone and the forced recovery of a segment's run to the log, as far as the
        checkpoint does not contain them; note if the replica is removed."""
        log = self.log
        if run.tombstone is not None:
            self._unapplied_entries, self._pending_copies, self._first_positions = [], [], {}
            self._unreadable, self._removed_indexes = set(), []
            self._pending_installed = [each for each in self._pending_installed
                                       if each.position > run.tombstone_position]
            self._copied, self._lost_copies = {}, {}
            self._files, self._file_copies = [], {}
            if run.tombstone_position > log.tombstone_position:
                log.apply_tombstone(run.tombstone, run.tombstone_position,
                                    self._journal.place_at(run.tombstone_position))
                self.broken_reason = ""
        forced = run.forced_recovery
        if (forced is not None and forced.incarnation > log.group_incarnation
                and run.forced_recovery_at[0] >= self._known_to):
            log.apply_forced_recovery(forced, run.forced_recovery_at[1], run.forced_recovery_term)
        exists = run.first_index or run.hard_state is not None or forced is not None
        if exists and segment.start >= log.snapshot_position:  # else a snapshot was installed since
            log.removed = run.removed

    def _truncate(self, first_removed: int) -> None:
        self.log.truncate(first_removed)
        self._pending_copies = [item for item in self._pending_copies
                                if item[0].index < first_removed]
        self._first_positions = {index: at for index, at in self._first_positions.items()
                                 if index < first_removed}
        self._unreadable = {index for index in self._unreadable if index < first_removed}
        self._removed_indexes = [(first, min(last, first_removed - 1))
                                 for first, last in self._removed_indexes if first < first_removed]
        while self._unapplied_entries and self._unapplied_entries[-1].index >= first_removed:
            self._unapplied_entries.pop()

    def _clip(self, run: SegmentRun) -> bool:
        """Remove the run's entries below the log's beginning, which neither consensus nor a reader
        needs.  Return False if none remains that was found.  Then the log has the lost ones at
        most, because entries above were truncated before these were written."""
        log, index = self.log, run.index
        assert index is not None
        first = log.index.first_index
        if index.first_index >= first:
            return True
        # The terms of lost entries are guesses, so the run begins with an entry that was found.
        while first <= index.last_index and index.position(first) == UNKNOWN_POSITION:
            first += 1
        if index.last_index < first:
            self._truncate(log.index.first_index)
            log.append_lost(first)
            return False
        index.compact(first)
        for batches in run.partitions.values():
            batches.remove_below(1 << 62, first)
        return True

    def _pass_removed(self, position: int, first: int) -> None:
        """Continue the log behind removed segments, before its entry ``first``, which stands at a
        journal position.  Do nothing where none was removed since the last entry that was read.

        Removed segments had entries below the checkpoint's Raft start only, and no records.  So
        indexes between are not lost, unless damaged bytes stood there as well.  They may also have
        had truncations: entries at the log's end whose terms are not the checkpoint's go.
        O(terms + indexes between)."""
        record, log = self._record, self.log
        if (record is None or not self.is_replica_of(record)
                or not self._removed.is_within(self._read_to, position)):
            return
        superseded = self._first_superseded(record)
        if superseded <= log.index.last_index:
            # Copies may have been written behind the removed segments.
            kept = [item for item in self._pending_copies if item[0].index >= superseded and (
                item[0].index >= record.first_index
                or item[0].term == term_in(record.record_terms, item[0].index))]
            self._truncate(superseded)
            self._pending_copies += kept
        begin, end = log.index.last_index + 1, min(first, record.first_index)
        if begin >= end:
            return
        self._append_of_record(record, begin, end)
        if any(lost < position and max(lost, lost_end) >= self._read_to
               for lost, lost_end in self._lost):
            # Of known terms: their copies are recognised by them, and the log continues behind.
            for index in range(begin, end):
                if term_in(record.record_terms, index) == UNKNOWN_TERM:
                    log.damage.lose_term(index)
                else:
                    log.damage.lose(index, None)
            return
        self._removed_indexes.append((begin, end - 1))
        between = [item for item in self._pending_copies if begin <= item[0].index < end]
        self._pending_copies = [item for item in self._pending_copies if item not in between]
        for copy, entry in between:
            self._take_copy(copy, entry)

    def _pass_installed(self, position: int) -> None:
        """Continue the log behind the snapshots that were installed at a journal position or
        before.  Its own entries end before their ranges, of which there are only copies.  O(terms +
        indexes in the ranges)."""
        while self._pending_installed and self._pending_installed[0].position <= position:
            at, log = self._pending_installed.pop(0), self.log
            self._truncate(at.first)
            self.broken_reason = ""
            assert self._record is not None
            self._pass_removed(at.position, at.first)
            first = log.index.last_index + 1
            if first < at.first:  # they existed, and are lost
                self._append_of_record(self._record, first, at.first)
                for index in range(first, at.first):
                    log.damage.lose(index, None)
                first = at.first
            self._append_of_record(self._record, first, at.last + 1)
            if first <= at.last:
                self._removed_indexes.append((first, at.last))

    def _append_of_record(self, record: GroupRecord, begin: int, end: int) -> None:
        """Append placeholders for the indexes from ``begin`` up to ``end`` (exclusive), with the
        terms of the checkpoint's record.  O(terms + indexes)."""
        starts = [start for start, _ in record.record_terms if begin < start < end]
        for start, following in zip([begin, *starts], [*starts, end]):
            self.log.index.append_placeholders(following, term_in(record.record_terms, start))

    def _installed_range(self, index: int) -> InstalledRange | None:
        """Return the range with an index that a snapshot stands for; None = it is an entry of the
        log."""
        return next((each for each in self.log.installed if each.first <= index <= each.last), None)

    def lose_copy(self, index: int, position: int) -> bool:
        """Note that the copy of a record at a journal position is damaged, so that the record
        becomes missing unless there is a later copy or another place.  Return False if the index is
        in no installed range: the damage may be of an entry of the Raft log."""
        known = self._copied.get(index)
        if known is None or known.position < position:
            self._lost_copies[index] = position
        return self._installed_range(index) is not None

    def _first_superseded(self, record: GroupRecord) -> int:
        """Return the first of the entries at the log's end that are not of the checkpoint's terms,
        so that they were truncated; the last index + 1 = none.  O(terms)."""
        index = self.log.index
        first_superseded = index.last_index + 1
        if index.last_index >= record.first_index:
            return first_superseded  # no removed segment had an entry there
        for first, _, true, found in reversed(_terms_side_by_side(
                record.record_terms, index.term_runs(), first_superseded)):
            if true == found:
                break
            first_superseded = first
        return max(first_superseded, index.first_index)

    def _is_removed(self, index: int) -> bool:
        at = bisect_right(self._removed_indexes, (index, 1 << 64)) - 1
        return at >= 0 and index <= self._removed_indexes[at][1]

    @property
    def _terms(self) -> TermRuns:
        return self._record.record_terms if self._record is not None else ()

    def raise_raft_start(self, record: GroupRecord, states: PartitionStates,
                         indexed: IndexedSegments, headers: Mapping[int, FileHeader],
                         cold: Sequence[ColdPart] = ()) -> frozenset[int]:
        """Raise the Raft start to that of the checkpoint's record; entries below it become records
        as far as ``states``, the checkpoint's, say that they are needed.  ``headers``: of index
        files, by start of the segment; those that answer are added to ``indexed``; ``cold``: parts
        of cold segments.  Return the numbers of the cold segments of which no more is needed.

        The terms of the record are the true ones: an entry of another term was truncated, and the
        record of that is lost.  O(terms + entries below the Raft start + rows)."""
        log, first_index = self.log, record.first_index
        terms: list[tuple[int, int]] = list(record.record_terms)
        joined = log.index.first_index
        log.records.unneeded = UnneededIndexes(record.unneeded)
        log.records.uncopied = UncopiedRanges(record.uncopied)
        if first_index > joined:
            self._raise_raft_start(record, states, terms)
        chosen = choose(log, record, self._files, cold)
        if chosen.files or chosen.cold:
            files = [(indexed.add(segment, headers[segment.start]), summary)
                     for segment, summary in chosen.files]
            log.restore_files(files, [(indexed.add(each.segment, each.header), each.run)
                                      for each in chosen.cold], terms, states, indexed)
        for _, summary in self._files:
            summary.drop_partitions()  # the next group's rows take their memory
        for _, copy in sorted(self._file_copies.items()):
            log.restore_copy(copy, states)
            if term_in(terms, copy.index) == UNKNOWN_TERM:
                terms[:] = with_term(terms, copy.index, copy.term, log.raft_start)
        if self._file_copies:  # one may be the first record: those behind it are in cold segments
            log.records.set_terms(terms, log.raft_start)
        self._lose_removed(record)
        return chosen.answered

    def _lose_removed(self, record: GroupRecord) -> None:
        """Count entries as missing that may be records, of which the last copy is damaged and the
        segment is gone.  O(damaged copies)."""
        records, needed = self.log.records, record.record_terms[:1]
        for index in self._lost_copies:
            if (needed and needed[0][0] <= index < record.first_index
                    and self._installed_range(index) is None and index not in records
                    and records.in_file(index) is None and index not in records.unneeded):
                records.lose_hole(index)

    def _raise_raft_start(self, record: GroupRecord, states: PartitionStates,
                          terms: list[tuple[int, int]]) -> None:
        """Raise the Raft start, and set those of the ``terms`` that are not known."""
        log, first_index = self.log, record.first_index
        for begin, last, true, found in _terms_side_by_side(terms, log.index.term_runs(),
                                                            first_index):
            first = max(begin, log.index.first_index)
            for index in range(first, last + 1) if true != found else ():
                if self._is_removed(index):
                    continue
                if true != UNKNOWN_TERM:
                    log.discard_superseded(index)
                elif index not in log.missing:
                    terms[:] = with_term(terms, index, found, first_index)
        for index in [index for index in log.missing if index < first_index]:
            # Its true term tells that it was not truncated.
            if (log.damage.is_maybe_truncated(index) and index not in self._unreadable
                    and log.index.position(index) != UNKNOWN_POSITION
                    and term_in(terms, index) == log.index.term(index)):
                log.damage.repair(index)
        log.compact(first_index, states, (), terms, record.prev_term)
        if log.installed:
            self._take_copied(record, states, terms)

    def _take_copied(self, record: GroupRecord, states: PartitionStates, terms: TermRuns) -> None:
        """Add the copies of indexes in installed ranges to the records, and what the checkpoint
        says is missing of these.  ``terms``: of all indexes below the Raft start.

        Damage of unknown owner may have held any copies: the range is uncopied again, unless the
        checkpoint's start met the same damage.  O(copies log copies + records + installed ranges *
        damage log damage)."""
        log = self.log
        records, needed = log.records, record.record_terms[0][0]
        installed = []
        for each in log.installed:
            found = damage_value(at for at in self._unexplained if at[1] > each.position)
            if found not in (0, each.known_damage):
                records.uncopied.add(max(each.first, needed), each.last)
            # Also where damage is gone: copies that can be read there again count from now on, and
            # no others of them are written, so the same damage may take them away later.
            installed.append(each._replace(known_damage=found))
        log.installed = tuple(installed)
        copied = []
        for index, copy in sorted(self._copied.items()):
            if term_in(terms, index) == UNKNOWN_TERM:
                terms = with_term(terms, index, copy.term, record.first_index)
            if term_in(terms, index) == copy.term:
                copied.append(copy)
        log.take_copies(copied, states)
        for index, position in self._lost_copies.items():
            if self._installed_range(index) is None:
                continue
            known = self._copied.get(index)
            if known is None and index not in records.unneeded:
                records.lose_hole(index)
            elif known is None:
                continue
            elif known.position == position and index in records:
                records.lose(index)
        records.set_terms(terms, record.first_index)

    def _extend(self, segment: Segment, run: SegmentRun) -> None:
        log, index = self.log, run.index
        assert index is not None
        if not self._clip(run):
            return None
        first_term = index.term(index.first_index)
        self._pass_removed(index.position(index.first_index), index.first_index)
        first_removed = log.index.first_conflict(index.first_index, first_term)
        if first_removed < log.index.first_index or first_term < log.index.prev_term:
            why = (f"index {index.first_index}, term {first_term} where the log begins with index "
                   f"{log.index.first_index}")
            if log.index:
                return self._note_broken(segment, why)
            # The Raft start rose behind their truncation, which is still to come.
            self._early_entries = self._damage_of(segment, why)
            self.broken_reason = why
            return None
        if first_removed > log.index.last_index:  # what lies between is lost, and may have copies
            first_removed = index.first_index
        # If there are entries to truncate, the record of that is lost.
        self._truncate(first_removed)
        if first_term == log.index.last_term:
            log.append_lost_of_last_term(index.first_index)
        else:
            log.append_lost(index.first_index)
        log.index.extend(index)
        for at, position in run.missing.items():
            if at < index.first_index:
                continue
            if at in run.term_unknown:
                log.damage.lose_term(at)
            else:
                log.damage.lose(at, self._place_at(position))
                self._unreadable.add(at)
        log.take_batches(run.partitions)
        self._unapplied_entries.extend(run.unapplied_entries)

    def trim(self, states: PartitionStates) -> None:
        """Remove the records that entries behind the checkpoint have removed, and the indexes of
        deleted partitions; the entries stay in their segments.  O(partitions + removed)."""
        deleted = [each for each in self.log.partitions if states.is_deleted(each)]
        self.log.trim(states, {*deleted, *states.take_shortened()})

    def _take_copy(self, copy: Copy, entry: Entry | None) -> None:
        log = self.log
        if copy.index < log.index.first_index:
            # Truncated since, below everything that is needed, or of a record in an index file.
            if self._files and copy.count and copy.term == term_in(self._terms, copy.index):
                self._file_copies[copy.index] = copy
            return
        if self._installed_range(copy.index) is not None:
            self._copied[copy.index] = copy
            return
        if log.index.holds(copy.index, copy.term):
            self._first_positions.setdefault(copy.index, log.index.position(copy.index))
        if not log.repair(copy):
            if not self._is_removed(copy.index):  # else of an entry that was truncated
                self._pending_copies.append((copy, entry))
            return
        self._unreadable.discard(copy.index)
        if entry is None or entry.index <= self._applied_index:
            return
        unapplied_entries = self._unapplied_entries
        slot = bisect_left(unapplied_entries, entry.index, key=attrgetter("index"))
        known = slot < len(unapplied_entries) and unapplied_entries[slot].index == entry.index
        unapplied_entries[slot:slot + known] = [entry]

    def find_missing(self, journal_damage: JournalDamage,
                     unexplained: list[tuple[int, list[PlaceRange]]],
                     whole: Sequence[tuple[int, int]]) -> None:
        """Mark the entries of a log that are missing or perhaps truncated, now that the whole
        journal was joined; then read those that a copy has from that copy.

        A copy that contradicts the log requires head recovery.  The log is truncated before a lost
        entry of unknown term that is not applied.  ``unexplained``: damaged ranges, as
        ``mark_maybe_truncated`` takes them; ``whole``: the ranges that are not explained entirely
        and may have held copies of any index."""
        log = self.log
        applied = self._applied_index
        self._unexplained = whole
        self._pass_installed(_BEHIND_ALL)
        self._pass_removed(_BEHIND_ALL, applied + 1)
        if log.index.last_index < applied:
            log.append_lost(applied + 1)
        pending, self._pending_copies = newest_copies(self._pending_copies), []
        if pending and log.index.last_index < pending[-1][0].index and not self.broken_reason:
            # Its end was damaged: the copies tell where the log ends.
            log.append_lost(pending[-1][0].index + 1)
        mark_maybe_truncated(log, self._journal, journal_damage, unexplained, applied,
                             {copy.index: copy for copy, _ in pending}, self._first_positions)
        for copy, entry in pending:
            if conflicts_with(log, copy):  # truncated before the copy, and the record is lost
                log.damage.require_head_recovery(
                    f"the copy of entry {copy.index} contradicts the log")
                log.damage.suspect(copy.index, log.place_of(copy.index, self._journal))
            elif copy.index in log.missing:
                self._take_copy(copy, entry)
        self._truncate_unknown(applied)

    def _truncate_unknown(self, applied: int) -> None:
        """Truncate the log before its first lost entry of unknown term behind the ``applied``
        index, and note the log as broken.  Do nothing without such an entry: applied ones are known
        to have existed."""
        unknown = min((index for index in self.log.damage.terms_unknown() if index > applied),
                      default=0)
        if unknown:
            self.broken_reason = f"entry {unknown} is lost, and its term is unknown"
            self._truncate(unknown)

    def restore_missing(self, record: GroupRecord) -> None:
        """Mark entries as missing again that the checkpoint's record names, because an index file
        does not tell.  Entries with a copy in the journal, or truncated since, stay as they are."""
        log = self.log
        for index, position in record.missing if self.is_replica_of(record) else ():
            if is_cold(position):
                continue  # of a record in a cold segment, which is read later
            if self._installed_range(index) is not None:
                known = self._copied.get(index)
                if known is None or known.position == position:
                    self._lost_copies[index] = position
                continue
            in_log = log.index.first_index <= index <= log.index.last_index
            if in_log and log.index.position(index) in (position, UNKNOWN_POSITION):
                place = self._place_at(position)
                log.damage.lose(index, place)
                self._unreadable.add(index)
                if record.needs_head_recovery:
                    log.damage.suspect(index, place)

    def _place_at(self, position: int) -> Place | None:
        return self._journal.place_at(position) if position != UNKNOWN_POSITION else None

    def _note_broken(self, segment: Segment, why: str) -> None:
        self._damage.append(self._damage_of(segment, why))
        self.broken_reason = why

    def _damage_of(self, segment: Segment, why: str) -> Damage:
        log = self.log
        return Damage("log", segment.path, segment.start, log.group, log.index.last_index + 1, why)

    def report_early_entries(self) -> None:
        """Report entries that cannot follow the log's beginning, if no truncation followed them."""
        if self._early_entries is not None:
            self._damage.append(self._early_entries)

    def find_configurations(self) -> None:
        """Add the configurations of membership entries above the applied state to the log: an entry
        in the log counts (thesis 4.1).  An invalid one quarantines the replica permanently."""
        log = self.log
        for entry in self._unapplied_entries:
            if (entry.kind == EntryKind.MEMBERSHIP
                    and log.configurations[-1][0] < entry.index <= log.index.last_index):
                why = joint_quorum.fault(entry.payload)
                if why:
                    return log.damage.quarantine_permanently(f"entry {entry.index}: {why}")
                log.configurations.append((entry.index, joint_quorum.decode(entry.payload)))

    def replay(self, states: PartitionStates) -> str:
        """Append unapplied entries to the partition states; stop before a missing entry, until that
        is repaired.  Return why an entry does not fit, or the states do not reach the log's end;
        empty = neither."""
        log = self.log
        # An applied entry may be missing too, as perhaps truncated: then its successors may be.
        if min(log.missing, default=states.last_index + 1) <= states.last_index:
            return ""
        first_missing = min(
            (index for index in log.missing if index > states.last_index), default=0
        )
        for entry in self._unapplied_entries:
            if 0 < first_missing <= entry.index:
                return ""
            why = states.check_entry(entry)
            if why:
                return why
            states.append(entry)
        if states.last_index != log.index.last_index and states.last_index + 1 != first_missing:
            return (f"applied state and entries reach index {states.last_index}, the log "
                    f"{log.index.last_index}")
        return ""


def _terms_side_by_side(true: TermRuns, found: TermRuns,
                        end: int) -> list[tuple[int, int, int, int]]:
    """Return (first index, last index, term of ``true``, term of ``found``) for the ranges of equal
    terms below index ``end``.  O(runs log runs)."""
    starts = sorted({start for start, _ in [*true, *found] if start < end})
    return [(start, following - 1, term_in(true, start), term_in(found, start))
            for start, following in zip(starts, [*starts[1:], end])]


def places(journal: Journal, ranges: Iterable[tuple[int, int]]) -> tuple[PlaceRange, ...]:
    """Return the places of ranges of journal offsets.  O(n log n)."""
    return tuple([journal.range_at(begin, end) for begin, end in ranges])
