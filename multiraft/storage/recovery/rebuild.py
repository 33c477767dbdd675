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
from collections.abc import Mapping
from operator import attrgetter

from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Segment
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.ranges import ByteRange
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
            progress: RecoveryProgress, directory: str) -> None:
    """Fill ``result`` with the logs, partition states and damage of a checkpoint and the journal's
    segments.  O(groups + segments * groups in them + entries that are not applied + damage *
    groups).

    ``damage``: what reading the segments found; ``applied``: (group, incarnation) -> index that the
    checkpoint has applied."""
    rebuilding = _Rebuilding(checkpoint, applied, result, directory)
    rebuilding.report_damage(rebuilding.join(found, damage))
    rebuilding.restore_states(progress)


class _Rebuilding:
    def __init__(self, checkpoint: Checkpoint, applied: Mapping[tuple[int, int], int],
                 result: RecoveryReport, directory: str):
        self._checkpoint = checkpoint
        self._applied = applied
        self._result = result
        self._journal_damage = result.journal_damage
        self._directory = directory
        self._unapplied_entries: dict[int, list[Entry]] = {}
        #: group -> position of a tombstone behind the checkpoint
        self._tombstone_positions: dict[int, int] = {}
        #: group -> copies of what the log did not have, or not yet
        self._pending_copies: dict[int, list[tuple[Copy, Entry | None]]] = {}
        #: group -> index -> where it first stood, of entries that are read from their copies
        self._first_positions: dict[int, dict[int, int]] = {}

    def join(self, found: list[FoundSegment], damage: list[FoundDamage]) -> list[FoundDamage]:
        """Start with the checkpoint's groups, add every segment's runs in journal order, and mark
        the missing entries of each log. Return ``damage`` without that of obsolete copies."""
        for record in self._checkpoint.records.values():
            self._result.logs[record.group] = _log_of(record)
        for segment, index in found:
            for run in index.runs.values():
                self._join_run(segment, run)
        indexes = [index for _, index in found]
        damage = [(at, each) for at, each in damage if at.copy_group < 0
                  or not is_obsolete_copy(self._result.logs[at.copy_group], at, indexes)]
        unexplained = self._journal_damage.unexplained_ranges(
            (at.position, max(at.position, at.end)) for at, _ in damage if at.group < 0
        )
        for log in self._result.logs.values():
            self._find_missing(log, unexplained)
        for record in self._checkpoint.records.values():
            self._restore_missing(record)
        return damage

    def _find_missing(self, log: StoredLog, unexplained: list[tuple[int, list[ByteRange]]]) -> None:
        """Mark the entries of a log that are missing or perhaps truncated, now that the whole
        journal was joined; then read those that a copy has from that copy.

        A copy that contradicts the log requires head recovery.  The log is truncated before a lost
        entry of unknown term that is not applied.  ``unexplained``: damaged ranges, as
        ``mark_maybe_truncated`` takes them."""
        applied = self._applied.get((log.group, log.incarnation), 0)
        if log.index.last_index < applied:
            log.append_lost(applied + 1)
        pending = newest_copies(self._pending_copies.pop(log.group, ()))
        if pending and log.index.last_index < pending[-1][0].index and not log.broken_reason:
            # Its end was damaged: the copies tell where the log ends.
            log.append_lost(pending[-1][0].index + 1)
        mark_maybe_truncated(log, unexplained, applied, {copy.index: copy for copy, _ in pending},
                             self._first_positions.get(log.group, {}),
                             self._journal_damage.repaired_ranges)
        for copy, entry in pending:
            if conflicts_with(log, copy):  # truncated before the copy, and the record is lost
                log.require_head_recovery(f"the copy of entry {copy.index} contradicts the log")
                log.mark_maybe_truncated(copy.index)
            elif copy.index in log.missing:
                self._take_copy(log, copy, entry, self._unapplied_entries.setdefault(log.group, []))
        self._truncate_unknown(log, applied)

    def _truncate_unknown(self, log: StoredLog, applied: int) -> None:
        """Truncate the log before its first lost entry of unknown term behind the ``applied``
        index, and note the log as broken.  Do nothing without such an entry: applied ones are known
        to have existed."""
        unknown = min((index for index in log.term_unknown if index > applied), default=0)
        if unknown:
            log.broken_reason = f"entry {unknown} is lost, and its term is unknown"
            self._truncate(log, unknown, self._unapplied_entries.get(log.group, []))

    def _join_run(self, segment: Segment, run: SegmentRun) -> None:
        log = self._result.logs.get(run.group)
        # Of any incarnation: a damaged place with a copy concerns no other group.
        for copy in run.copies:
            if copy.damaged_position:
                self._journal_damage.repaired_ranges[copy.damaged_position] = copy.damaged_size
        if log is not None and run.incarnation < log.incarnation:
            return
        if log is None or run.incarnation > log.incarnation:
            log = self._result.logs[run.group] = StoredLog(run.group, run.incarnation)
            self._unapplied_entries[run.group] = []
            self._forget_copies(run.group)
        if segment.end <= log.tombstone_position:
            return  # of an earlier replica
        self._join_lifecycle_records(segment, log, run)
        if run.hard_state is not None:
            log.merge_hard_state(run.hard_state)
        if segment.start < log.snapshot_position:
            return  # an installed snapshot replaces these entries
        unapplied_entries = self._unapplied_entries.setdefault(run.group, [])
        if run.cleared_position > log.cleared_position:
            log.cleared_position, log.cleared_ranges = run.cleared_position, run.cleared_ranges
            # Else the LIFT was void: a replica in conflict with its leader has to be removed.
            if not log.permanently_quarantined:
                log.clear_quarantine()
        if run.head_recovery_truncate_position > log.cleared_position:
            log.require_head_recovery("it truncated entries that it may have acknowledged")
        if run.truncated_from:
            if run.truncated_from <= log.index.last_index + 1:
                log.broken_reason = ""
            self._truncate(log, run.truncated_from, unapplied_entries)
        if (run.index is not None and run.last_index >= run.index.first_index
                and not log.broken_reason):
            self._extend(segment, log, run, unapplied_entries)
        for copy in run.copies:
            self._take_copy(log, copy, run.copy_entries.get(copy.index), unapplied_entries)
        if run.broken_reason:
            self._note_broken_log(segment, log, run.broken_reason)

    def _truncate(self, log: StoredLog, first_removed: int, unapplied_entries: list[Entry]) -> None:
        log.truncate(first_removed)
        self._pending_copies[log.group] = [item for item in self._pending_copies.get(log.group, ())
                                  if item[0].index < first_removed]
        self._first_positions[log.group] = {
            at: place for at, place in self._first_positions.get(log.group, {}).items()
            if at < first_removed}
        while unapplied_entries and unapplied_entries[-1].index >= first_removed:
            unapplied_entries.pop()

    def _forget_copies(self, group: int) -> None:
        """Forget the copies and first positions noted for the group: the incarnation of the replica
        that they belong to has ended."""
        self._pending_copies.pop(group, None)
        self._first_positions.pop(group, None)

    def _join_lifecycle_records(self, segment: Segment, log: StoredLog, run: SegmentRun) -> None:
        """Apply the tombstone and the forced recovery of a segment's run to the log, as far as the
        checkpoint does not contain them; note if the replica is removed."""
        if run.tombstone is not None:
            self._unapplied_entries[run.group] = []
            self._forget_copies(run.group)
            if run.tombstone_position > log.tombstone_position:
                log.apply_tombstone(run.tombstone, run.tombstone_position)
                self._tombstone_positions[run.group] = run.tombstone_position
        forced = run.forced_recovery
        if (forced is not None and forced.incarnation > log.group_incarnation
                and (run.forced_recovery_at[0] >= self._checkpoint.position
                     or run.group not in self._checkpoint.records)):
            log.apply_forced_recovery(forced, run.forced_recovery_at[1], run.forced_recovery_term)
        exists = run.index is not None or run.hard_state is not None or forced is not None
        if exists and segment.start >= log.snapshot_position:  # else a snapshot was installed since
            log.removed = run.removed

    def _take_copy(self, log: StoredLog, copy: Copy, entry: Entry | None,
                   unapplied_entries: list[Entry]) -> None:
        if not copy.index:
            return  # truncated since
        if log.index.holds(copy.index, copy.term):
            self._first_positions.setdefault(log.group, {}).setdefault(
                copy.index, log.index.position(copy.index))
        if not log.repair(copy):
            self._pending_copies.setdefault(log.group, []).append((copy, entry))
            return
        if copy.count:
            partition = log.partitions.setdefault(copy.partition,
                                                  PartitionIndex(copy.partition, log.group))
            partition.repair(copy.base_offset, copy.count, copy.index, copy.max_timestamp_ms)
        if entry is None or entry.index <= self._applied.get((log.group, log.incarnation), 0):
            return
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
                log.missing[index] = position
                if record.needs_head_recovery:
                    log.mark_maybe_truncated(index)

    def _extend(self, segment: Segment, log: StoredLog, run: SegmentRun,
                unapplied_entries: list[Entry]) -> None:
        index = run.index
        assert index is not None
        first_term = index.term(index.first_index)
        first_removed = log.index.first_conflict(index.first_index, first_term)
        if first_removed < log.index.first_index or first_term < log.index.prev_term:
            return self._note_broken_log(
                segment, log, f"index {index.first_index}, term {first_term} where the log begins "
                f"with index {log.index.first_index}")
        if first_removed > log.index.last_index:  # what lies between is lost, and may have copies
            first_removed = index.first_index
        # If there are entries to truncate, the record of that is lost.
        self._truncate(log, first_removed, unapplied_entries)
        last = log.index.last_index
        if index.first_index > last + 1 and first_term == log.index.last_term:
            log.missing.update(dict.fromkeys(range(last + 1, index.first_index), UNKNOWN_POSITION))
            log.index.append_placeholders(index.first_index)
        elif index.first_index > last + 1:
            log.append_lost(index.first_index)
        log.index.extend(index)
        log.missing.update(run.missing)
        log.term_unknown.update(run.term_unknown)
        for partition, batches in run.partitions.items():
            known = log.partitions.get(partition)
            if known is None:
                known = log.partitions[partition] = PartitionIndex(partition, log.group)
            known.extend(batches)
        unapplied_entries.extend(run.unapplied_entries)

    def _note_broken_log(self, segment: Segment, log: StoredLog, why: str) -> None:
        self._result.damage.append(Damage("log", segment.path, segment.start, log.group,
                                          log.index.last_index + 1, why))
        log.broken_reason = why

    def report_damage(self, found: list[FoundDamage]) -> None:
        """Add the damage that was not repaired or truncated since to the result.

        A range of unknown owner may have held the end of any group's log: require head recovery of
        every group that has not cleared it."""
        logs = self._result.logs
        for damaged, damage in found:
            if damaged.group >= 0:
                log = logs.get(damaged.group)
                if log is not None and log.missing.get(damaged.index) == damaged.position:
                    self._result.damage.append(damage)
                continue
            begin, end = damaged.position, max(damaged.position, damaged.end)
            ranges = self._journal_damage.unexplained(begin, end)
            if not ranges:
                continue
            self._result.damage.append(damage)
            why = f"journal position {damaged.position} is {damage.why}"
            self._result.quarantine_all_reason = self._result.quarantine_all_reason or why
            self._journal_damage.unattributed_ranges.append((begin, end))
            for log in logs.values():
                if not log.has_cleared(ranges):
                    log.require_head_recovery(why)

    def restore_states(self, progress: RecoveryProgress) -> None:
        """Replay into each group's partition states the entries that the checkpoint has not
        applied, and quarantine groups with missing entries or a broken log.

        A log whose entries contradict the states is quarantined permanently."""
        progress.groups_total = len(self._result.logs)
        for group, log in self._result.logs.items():
            progress.groups_done += 1
            log.raise_term()
            if log.missing:
                log.quarantine(f"entry {min(log.missing)} is damaged, lost or in question"
                               + f" and {len(log.missing) - 1} more" * (len(log.missing) > 1))
            if log.broken_reason:
                log.require_head_recovery(log.broken_reason)
            record = self._checkpoint.records.get(group)
            if (record is not None and record.incarnation == log.incarnation
                    and group not in self._tombstone_positions):
                states = self._checkpoint.partition_states[group]
            else:
                states = PartitionStates(group)
            self._result.partition_states[group] = states
            self._find_configurations(log)
            why = self._replay(log, states)
            if why:
                self._result.damage.append(Damage("log", self._directory, 0, group,
                                                  states.last_index + 1, why))
                log.quarantine_permanently(why)

    def _find_configurations(self, log: StoredLog) -> None:
        """Add the configurations of membership entries above the applied state to the log: an entry
        in the log counts (thesis 4.1).  An invalid one quarantines the replica permanently."""
        for entry in self._unapplied_entries.get(log.group, ()):
            if (entry.kind == EntryKind.MEMBERSHIP
                    and log.configurations[-1][0] < entry.index <= log.index.last_index):
                why = joint_quorum.fault(entry.payload)
                if why:
                    return log.quarantine_permanently(f"entry {entry.index}: {why}")
                log.configurations.append((entry.index, joint_quorum.decode(entry.payload)))

    def _replay(self, log: StoredLog, states: PartitionStates) -> str:
        """Append unapplied entries to the partition states; stop before a missing entry, until that
        is repaired.  Return why an entry does not fit, or the states do not reach the log's end;
        empty = neither."""
        # An applied entry may be missing too, as perhaps truncated: then its successors may be.
        if min(log.missing, default=states.last_index + 1) <= states.last_index:
            return ""
        first_missing = min(
            (index for index in log.missing if index > states.last_index), default=0
        )
        for entry in self._unapplied_entries.get(log.group, ()):
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


def _log_of(record: GroupRecord) -> StoredLog:
    """Return a group's log as a checkpoint has it, without entries, which the segments have."""
    log = StoredLog(record.group, record.incarnation, record.configuration)
    log.hard_state, log.commit = record.hard_state, record.commit
    log.index = GroupIndex(record.first_index, record.prev_term)
    log.quarantined, log.snapshot_position = record.quarantined, record.snapshot_position
    log.needs_head_recovery = record.needs_head_recovery
    log.permanently_quarantined = record.permanently_quarantined
    log.cleared_position, log.cleared_ranges = record.cleared_position, record.cleared_ranges
    log.configurations = [(record.configuration_index, record.configuration)]
    log.vote_barrier_index, log.vote_barrier_term = (
        record.vote_barrier_index,
        record.vote_barrier_term,
    )
    log.removed = record.removed
    log.tombstone_position = record.tombstone_position
    log.group_incarnation = record.group_incarnation
    return log
