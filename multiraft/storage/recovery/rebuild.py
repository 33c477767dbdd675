"""Reconstruction of a starting node's groups from its checkpoint and its segments.

Contract.  ``rebuild`` takes the data that ``recovery`` read, sound or damaged, in journal order,
and fills the result: each group's log and tail, and the groups that damage still concerns.  It
neither reads nor writes the disk.

Invariants.  Segments are joined in journal order.  Only records behind a log's beginning count: the
place where its snapshot was installed, or of the tombstone of an earlier replica.  A broken log
gets no entries until it is truncated below the break.  A copy counts at any place.

Theory.  A truncation and a copy are records like others, so each of them may be lost alone.
Entries behind a lost truncation contradict those that it removed (``lost_truncations.py``), and a
lost entry may have a copy further on.  So a log is judged when the whole journal was read, and
damage last, because repairs and truncations may have made it irrelevant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.damage.place import Place, PlaceRange
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex
from multiraft.storage.journal.journal import Journal, Segment
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.recovery.lost_truncations import (
    conflicts_with,
    is_obsolete_copy,
    mark_maybe_truncated,
    newest_copies,
)
from multiraft.storage.recovery.report import Damage, RecoveryProgress, RecoveryReport
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry, EntryKind

FoundSegment = tuple[Segment, SegmentIndex]
FoundDamage = tuple[DamagedRange, Damage]


def rebuild(found: list[FoundSegment], damage: list[FoundDamage], checkpoint: Checkpoint,
            applied: Mapping[tuple[int, int], int], result: RecoveryReport,
            progress: RecoveryProgress, journal: Journal) -> None:
    """Fill ``result`` with the logs, partition states and damage of a checkpoint and the journal's
    segments.  O(groups + segments * groups in them + entries that are not applied + damage *
    groups).

    ``damage``: what reading the segments found; ``applied``: (group, incarnation) -> index that the
    checkpoint has applied; ``journal``: with these segments."""
    rebuilding = _Rebuilding(checkpoint, applied, result, journal)
    rebuilding.report_damage(rebuilding.join(found, damage))
    rebuilding.restore_states(progress)


@dataclass(slots=True)
class _GroupRebuild:
    """One group while the segments are joined."""

    log: StoredLog
    unapplied_entries: list[Entry] = field(default_factory=list)
    #: Copies of what the log did not have, or not yet.
    pending_copies: list[tuple[Copy, Entry | None]] = field(default_factory=list)
    #: Index -> journal offset where it first stood, of entries that are read from their copies.
    first_positions: dict[int, int] = field(default_factory=dict)
    broken_reason: str = ""  # why later entries cannot follow
    is_from_tombstone: bool = False  # the checkpoint's states are those of a removed replica

    def end_replica(self) -> None:
        """Forget what was noted for a replica that a tombstone has removed."""
        self.unapplied_entries = []
        self.pending_copies = []
        self.first_positions = {}

    def truncate(self, first_removed: int) -> None:
        self.log.truncate(first_removed)
        self.pending_copies = [item for item in self.pending_copies
                               if item[0].index < first_removed]
        self.first_positions = {index: at for index, at in self.first_positions.items()
                                if index < first_removed}
        while self.unapplied_entries and self.unapplied_entries[-1].index >= first_removed:
            self.unapplied_entries.pop()


class _Rebuilding:
    def __init__(self, checkpoint: Checkpoint, applied: Mapping[tuple[int, int], int],
                 result: RecoveryReport, journal: Journal):
        self._checkpoint = checkpoint
        self._applied = applied
        self._result = result
        self._journal = journal
        self._journal_damage = result.journal_damage
        self._groups: dict[int, _GroupRebuild] = {}

    def join(self, found: list[FoundSegment], damage: list[FoundDamage]) -> list[FoundDamage]:
        """Start with the checkpoint's groups, add every segment's runs in journal order, and mark
        the missing entries of each log. Return ``damage`` without that of obsolete copies."""
        for record in self._checkpoint.records.values():
            self._groups[record.group] = _GroupRebuild(self._log_of(record))
        for segment, index in found:
            for run in index.runs.values():
                self._join_run(segment, run)
        self._result.logs = {group: each.log for group, each in self._groups.items()}
        indexes = [index for _, index in found]
        damage = [(at, each) for at, each in damage if at.copy_group < 0
                  or not is_obsolete_copy(self._result.logs[at.copy_group], at, indexes)]
        unexplained = [
            (begin.journal_offset, parts)
            for begin, parts in self._journal_damage.unexplained_ranges(
                self._range_of(at) for at, _ in damage if at.group < 0)
        ]
        for state in self._groups.values():
            self._find_missing(state, unexplained)
        for record in self._checkpoint.records.values():
            self._restore_missing(record)
        end = self._journal.end_place
        self._journal_damage.was_cleared_before = any(
            state.log.damage.clears_damage_before(end) for state in self._groups.values())
        return damage

    def _log_of(self, record: GroupRecord) -> StoredLog:
        """Return a group's log as a checkpoint has it, without entries, which the segments have."""
        log = StoredLog(record.group, record.incarnation, record.configuration)
        # A replica that was created behind records that were not synced yet: a crash may have taken
        # them, and then others stand in their places, the replica's own among them.
        known_to = self._checkpoint.position
        cleared = [(begin, min(end, known_to)) for begin, end in record.cleared_ranges
                   if begin <= known_to]
        log.hard_state, log.commit = record.hard_state, record.commit
        log.index = GroupIndex(record.first_index, record.prev_term)
        log.snapshot_position = record.snapshot_position
        log.damage.restore(record.quarantined, record.needs_head_recovery,
                           record.permanently_quarantined, record.cleared_position,
                           self._places(cleared))
        log.configurations = [(record.configuration_index, record.configuration)]
        log.vote_barrier_index, log.vote_barrier_term = (
            record.vote_barrier_index,
            record.vote_barrier_term,
        )
        log.removed = record.removed
        log.tombstone_position = record.tombstone_position
        log.group_incarnation = record.group_incarnation
        return log

    def _range_of(self, damaged: DamagedRange) -> PlaceRange:
        return self._journal.range_at(damaged.position, max(damaged.position, damaged.end))

    def _applied_of(self, log: StoredLog) -> int:
        return self._applied.get((log.group, log.incarnation), 0)

    def _find_missing(self, state: _GroupRebuild,
                      unexplained: list[tuple[int, list[PlaceRange]]]) -> None:
        """Mark the entries of a log that are missing or perhaps truncated, now that the whole
        journal was joined; then read those that a copy has from that copy.

        A copy that contradicts the log requires head recovery.  The log is truncated before a lost
        entry of unknown term that is not applied.  ``unexplained``: damaged ranges, as
        ``mark_maybe_truncated`` takes them."""
        log = state.log
        applied = self._applied_of(log)
        if log.index.last_index < applied:
            log.append_lost(applied + 1)
        pending, state.pending_copies = newest_copies(state.pending_copies), []
        if pending and log.index.last_index < pending[-1][0].index and not state.broken_reason:
            # Its end was damaged: the copies tell where the log ends.
            log.append_lost(pending[-1][0].index + 1)
        mark_maybe_truncated(log, self._journal, self._journal_damage, unexplained, applied,
                             {copy.index: copy for copy, _ in pending}, state.first_positions)
        for copy, entry in pending:
            if conflicts_with(log, copy):  # truncated before the copy, and the record is lost
                log.damage.require_head_recovery(
                    f"the copy of entry {copy.index} contradicts the log")
                log.damage.suspect(copy.index, log.place_of(copy.index, self._journal))
            elif copy.index in log.missing:
                self._take_copy(state, copy, entry)
        self._truncate_unknown(state, applied)

    def _truncate_unknown(self, state: _GroupRebuild, applied: int) -> None:
        """Truncate the log before its first lost entry of unknown term behind the ``applied``
        index, and note the log as broken.  Do nothing without such an entry: applied ones are known
        to have existed."""
        unknown = min((index for index in state.log.damage.terms_unknown() if index > applied),
                      default=0)
        if unknown:
            state.broken_reason = f"entry {unknown} is lost, and its term is unknown"
            state.truncate(unknown)

    def _join_run(self, segment: Segment, run: SegmentRun) -> None:
        state = self._groups.get(run.group)
        # Of any incarnation: a damaged place with a copy concerns no other group.
        for copy in run.copies:
            if copy.damaged_position:
                self._journal_damage.explain(*self._journal.range_at(
                    copy.damaged_position, copy.damaged_position + copy.damaged_size))
        if state is not None and run.incarnation < state.log.incarnation:
            return
        if state is None or run.incarnation > state.log.incarnation:
            state = self._groups[run.group] = _GroupRebuild(StoredLog(run.group, run.incarnation))
        log = state.log
        if segment.end <= log.tombstone_position:
            return  # of an earlier replica
        self._join_lifecycle_records(segment, state, run)
        if run.hard_state is not None:
            log.merge_hard_state(run.hard_state)
        if segment.start < log.snapshot_position:
            return  # an installed snapshot replaces these entries
        damage = log.damage
        if run.cleared_position:
            damage.clear(run.cleared_position, self._places(run.cleared_ranges))
        if run.head_recovery_truncate_position > damage.cleared_position:
            damage.require_head_recovery("it truncated entries that it may have acknowledged")
        if run.truncated_from:
            if run.truncated_from <= log.index.last_index + 1:
                state.broken_reason = ""
            state.truncate(run.truncated_from)
        if (run.index is not None and run.last_index >= run.index.first_index
                and not state.broken_reason):
            self._extend(segment, state, run)
        for copy in run.copies:
            self._take_copy(state, copy, run.copy_entries.get(copy.index))
        if run.broken_reason:
            self._note_broken_log(segment, state, run.broken_reason)

    def _places(self, ranges: Iterable[tuple[int, int]]) -> tuple[PlaceRange, ...]:
        return tuple([self._journal.range_at(begin, end) for begin, end in ranges])

    def _join_lifecycle_records(self, segment: Segment, state: _GroupRebuild,
                                run: SegmentRun) -> None:
        """Apply the tombstone and the forced recovery of a segment's run to the log, as far as the
        checkpoint does not contain them; note if the replica is removed."""
        log = state.log
        if run.tombstone is not None:
            state.end_replica()
            if run.tombstone_position > log.tombstone_position:
                log.apply_tombstone(run.tombstone, run.tombstone_position,
                                    self._journal.place_at(run.tombstone_position))
                state.broken_reason, state.is_from_tombstone = "", True
        forced = run.forced_recovery
        if (forced is not None and forced.incarnation > log.group_incarnation
                and (run.forced_recovery_at[0] >= self._checkpoint.position
                     or run.group not in self._checkpoint.records)):
            log.apply_forced_recovery(forced, run.forced_recovery_at[1], run.forced_recovery_term)
        exists = run.index is not None or run.hard_state is not None or forced is not None
        if exists and segment.start >= log.snapshot_position:  # else a snapshot was installed since
            log.removed = run.removed

    def _take_copy(self, state: _GroupRebuild, copy: Copy, entry: Entry | None) -> None:
        if not copy.index:
            return  # truncated since
        log = state.log
        if log.index.holds(copy.index, copy.term):
            state.first_positions.setdefault(copy.index, log.index.position(copy.index))
        if not log.repair(copy):
            state.pending_copies.append((copy, entry))
            return
        if entry is None or entry.index <= self._applied_of(log):
            return
        unapplied_entries = state.unapplied_entries
        slot = bisect_left(unapplied_entries, entry.index, key=attrgetter("index"))
        known = slot < len(unapplied_entries) and unapplied_entries[slot].index == entry.index
        unapplied_entries[slot:slot + known] = [entry]

    def _restore_missing(self, record: GroupRecord) -> None:
        """Mark entries as missing again that the checkpoint's record names, because an index file
        does not tell.  Entries with a copy in the journal, or truncated since, stay as they are."""
        log = self._result.logs[record.group]
        if (log.incarnation != record.incarnation
                or log.tombstone_position != record.tombstone_position):
            return
        for index, position in record.missing:
            in_log = log.index.first_index <= index <= log.index.last_index
            if in_log and log.index.position(index) in (position, UNKNOWN_POSITION):
                place = self._place_at(position)
                log.damage.lose(index, place)
                if record.needs_head_recovery:
                    log.damage.suspect(index, place)

    def _extend(self, segment: Segment, state: _GroupRebuild, run: SegmentRun) -> None:
        log, index = state.log, run.index
        assert index is not None
        first_term = index.term(index.first_index)
        first_removed = log.index.first_conflict(index.first_index, first_term)
        if first_removed < log.index.first_index or first_term < log.index.prev_term:
            return self._note_broken_log(
                segment, state, f"index {index.first_index}, term {first_term} where the log begins"
                f" with index {log.index.first_index}")
        if first_removed > log.index.last_index:  # what lies between is lost, and may have copies
            first_removed = index.first_index
        # If there are entries to truncate, the record of that is lost.
        state.truncate(first_removed)
        if first_term == log.index.last_term:
            log.append_lost_of_last_term(index.first_index)
        else:
            log.append_lost(index.first_index)
        log.index.extend(index)
        for at, position in run.missing.items():
            if at in run.term_unknown:
                log.damage.lose_term(at)
            else:
                log.damage.lose(at, self._place_at(position))
        for partition, batches in run.partitions.items():
            log.partition_index(partition).extend(batches)
        state.unapplied_entries.extend(run.unapplied_entries)

    def _place_at(self, position: int) -> Place | None:
        return self._journal.place_at(position) if position != UNKNOWN_POSITION else None

    def _note_broken_log(self, segment: Segment, state: _GroupRebuild, why: str) -> None:
        log = state.log
        self._result.damage.append(Damage("log", segment.path, segment.start, log.group,
                                          log.index.last_index + 1, why))
        state.broken_reason = why

    def report_damage(self, found: list[FoundDamage]) -> None:
        """Add the damage that was not repaired or truncated since to the result.

        A range of unknown owner may have held the end of any group's log: require head recovery of
        every group that has not cleared it."""
        logs = self._result.logs
        for damaged, damage in found:
            if damaged.group >= 0:
                log, place = logs.get(damaged.group), self._journal.place_at(damaged.position)
                known = log.missing.get(damaged.index) if log is not None else None
                if known is not None and known.place == place:
                    self._result.damage.append(damage)
                continue
            begin, end = self._range_of(damaged)
            ranges = self._journal_damage.unexplained(begin, end)
            if not ranges:
                continue
            self._result.damage.append(damage)
            why = f"journal position {damaged.position} is {damage.why}"
            self._result.quarantine_all_reason = self._result.quarantine_all_reason or why
            self._journal_damage.add_unattributed(begin, end)
            for log in logs.values():
                if not log.damage.has_cleared(ranges):
                    log.damage.require_head_recovery(why)

    def restore_states(self, progress: RecoveryProgress) -> None:
        """Replay into each group's partition states the entries that the checkpoint has not
        applied, and quarantine groups with missing entries or a broken log.

        A log whose entries contradict the states is quarantined permanently."""
        progress.groups_total = len(self._groups)
        for group, state in self._groups.items():
            log = state.log
            progress.groups_done += 1
            log.raise_term()
            if log.missing:
                log.damage.quarantine(
                    f"entry {min(log.missing)} is damaged, lost or in question"
                    + f" and {len(log.missing) - 1} more" * (len(log.missing) > 1))
            if state.broken_reason:
                log.damage.require_head_recovery(state.broken_reason)
            record = self._checkpoint.records.get(group)
            if (record is not None and record.incarnation == log.incarnation
                    and not state.is_from_tombstone):
                states = self._checkpoint.partition_states[group]
            else:
                states = PartitionStates(group)
            self._result.partition_states[group] = states
            self._find_configurations(state)
            why = self._replay(state, states)
            if why:
                self._result.damage.append(Damage("log", self._journal.directory, 0, group,
                                                  states.last_index + 1, why))
                log.damage.quarantine_permanently(why)

    def _find_configurations(self, state: _GroupRebuild) -> None:
        """Add the configurations of membership entries above the applied state to the log: an entry
        in the log counts (thesis 4.1).  An invalid one quarantines the replica permanently."""
        log = state.log
        for entry in state.unapplied_entries:
            if (entry.kind == EntryKind.MEMBERSHIP
                    and log.configurations[-1][0] < entry.index <= log.index.last_index):
                why = joint_quorum.fault(entry.payload)
                if why:
                    return log.damage.quarantine_permanently(f"entry {entry.index}: {why}")
                log.configurations.append((entry.index, joint_quorum.decode(entry.payload)))

    def _replay(self, state: _GroupRebuild, states: PartitionStates) -> str:
        """Append unapplied entries to the partition states; stop before a missing entry, until that
        is repaired.  Return why an entry does not fit, or the states do not reach the log's end;
        empty = neither."""
        log = state.log
        # An applied entry may be missing too, as perhaps truncated: then its successors may be.
        if min(log.missing, default=states.last_index + 1) <= states.last_index:
            return ""
        first_missing = min(
            (index for index in log.missing if index > states.last_index), default=0
        )
        for entry in state.unapplied_entries:
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
