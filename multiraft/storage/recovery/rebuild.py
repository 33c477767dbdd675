"""Reconstruction of a starting node's groups from its checkpoint and its segments.

Contract.  ``rebuild`` takes the data that ``recovery`` read, sound or damaged, in journal order,
and fills the result: each group's log and tail, and the groups that damage still concerns.  It
neither reads nor writes the disk.

Invariant.  Segments are joined in journal order, each group's part of them by ``group_rebuild``.

Theory.  A truncation and a copy are records like others, so each of them may be lost alone.
Entries behind a lost truncation contradict those that it removed (``lost_truncations.py``), and a
lost entry may have a copy further on.  So a log is judged when the whole journal was read, and
damage last, because repairs and truncations may have made it irrelevant.
"""

from __future__ import annotations

from collections.abc import Mapping

from multiraft.partitions.state import PartitionStates
from multiraft.storage.block_index.file_codec import FileHeader
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.damage.place import PlaceRange
from multiraft.storage.index import GroupIndex
from multiraft.storage.indexed_segments import IndexedSegments
from multiraft.storage.journal.journal import Journal, Segment
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.record_store import CompactedPart
from multiraft.storage.recovery.cold_ranges import ColdPart, ColdSummaries
from multiraft.storage.recovery.group_rebuild import GroupRebuild, places
from multiraft.storage.recovery.lost_truncations import (
    is_obsolete_copy,
)
from multiraft.storage.recovery.report import Damage, RecoveryProgress, RecoveryReport
from multiraft.storage.repaired_indexes import RepairedIndexes
from multiraft.storage.stored_log import StoredLog

FoundSegment = tuple[Segment, SegmentIndex]
FoundDamage = tuple[DamagedRange, Damage]


def rebuild(found: list[FoundSegment], damage: list[FoundDamage], checkpoint: Checkpoint,
            applied: Mapping[tuple[int, int], int], result: RecoveryReport,
            progress: RecoveryProgress, journal: Journal,
            file_headers: Mapping[int, FileHeader], cold: ColdSummaries) -> None:
    """Fill ``result`` with the logs, partition states and damage of a checkpoint and the journal's
    segments.  O(groups + segments * groups in them + entries that are not applied + damage *
    groups).

    ``damage``: what reading the segments found; ``applied``: (group, incarnation) -> index that the
    checkpoint has applied; ``journal``: with these segments; ``file_headers``: of index files, by
    start of the segment, of those whose entries were not read; ``cold``: summaries of cold
    segments, as far as their index files may answer."""
    indexed = result.indexed = IndexedSegments(journal.filesystem)
    rebuilding = _Rebuilding(checkpoint, applied, result, journal, indexed, file_headers, cold)
    rebuilding.report_damage(rebuilding.join(found, damage))
    rebuilding.restore_states(progress)


class _Rebuilding:
    def __init__(self, checkpoint: Checkpoint, applied: Mapping[tuple[int, int], int],
                 result: RecoveryReport, journal: Journal,
                 indexed: IndexedSegments, file_headers: Mapping[int, FileHeader],
                 cold: ColdSummaries):
        self._indexed = indexed
        self._cold: dict[int, list[ColdPart]] = {}  # by group
        for parts in cold.values():
            for part in parts:
                self._cold.setdefault(part.run.group, []).append(part)
        self._file_headers = file_headers
        self._checkpoint = checkpoint
        self._applied = applied
        self._result = result
        self._journal = journal
        self._journal_damage = result.journal_damage
        self._groups: dict[int, GroupRebuild] = {}
        self._lost: list[tuple[int, int]] = []  # damaged ranges of unknown owner

    def join(self, found: list[FoundSegment], damage: list[FoundDamage]) -> list[FoundDamage]:
        """Start with the checkpoint's groups, add every segment's runs in journal order, and mark
        the missing entries of each log. Return ``damage`` without that of obsolete copies."""
        # A damaged copy tells what it was.
        self._lost = [(at.position, max(at.position, at.end)) for at, _ in damage
                      if at.group < 0 and at.copy_group < 0]
        for record in self._checkpoint.records.values():
            self._groups[record.group] = self._group_of(self._log_of(record))
        for segment, index in found:
            for run in index.runs.values():
                self._join_run(segment, run)
        self._result.logs = {group: each.log for group, each in self._groups.items()}
        indexes = [index for _, index in found]
        damage = [(at, each) for at, each in damage if at.copy_group < 0
                  or not is_obsolete_copy(self._result.logs[at.copy_group], at, indexes)]
        damage = [(at, each) for at, each in damage if at.copy_group < 0
                  or not self._take_damaged_copy(at, each)]
        unexplained = [
            (begin.journal_offset, parts)
            for begin, parts in self._journal_damage.unexplained_ranges(
                self._range_of(at) for at, _ in damage if at.group < 0)
        ]
        # Whole ranges, also those of which copies explain a part: the set shall not change with
        # each copy.
        self._result.unexplained = [
            (begin, end) for begin, end in self._lost
            if self._journal_damage.unexplained(*self._journal.range_at(begin, end))]
        for each in self._groups.values():
            each.find_missing(self._journal_damage, unexplained, self._result.unexplained)
        for record in self._checkpoint.records.values():
            self._groups[record.group].restore_missing(record)
        end = self._journal.end_place
        self._journal_damage.was_cleared_before = any(
            each.log.damage.clears_damage_before(end) for each in self._groups.values())
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
        # Dense from the first record on, so that everything lost is seen to be missing; raised to
        # the Raft start when the whole journal was joined.
        log.index = (GroupIndex(record.record_terms[0][0]) if record.record_terms
                     else GroupIndex(record.first_index, record.prev_term))
        log.records.repaired = RepairedIndexes(record.repaired)  # further copies join them
        log.records.compacted = {each[0]: CompactedPart(*each[1:])
                                 for each in record.compacted}
        log.snapshot_position, log.installed = record.snapshot_position, record.installed
        if record.snapshot_position and not record.record_terms:
            log.raft_start_recorded = record.first_index  # installed, so in two checkpoints
        log.damage.restore(record.quarantined, record.needs_head_recovery,
                           record.permanently_quarantined, record.cleared_position,
                           places(self._journal, cleared))
        log.configurations = [(record.configuration_index, record.configuration)]
        log.vote_barrier_index, log.vote_barrier_term = (
            record.vote_barrier_index,
            record.vote_barrier_term,
        )
        log.removed = record.removed
        log.tombstone_position = record.tombstone_position
        log.group_incarnation = record.group_incarnation
        return log

    def _take_damaged_copy(self, at: DamagedRange, damage: Damage) -> bool:
        """Count a record as missing whose copy is damaged, and report it.  Return False, and do
        nothing, for a copy of an entry of the Raft log, which may be the only trace of it."""
        if not self._groups[at.copy_group].lose_copy(at.index, at.position):
            return False
        self._result.damage.append(damage._replace(group=at.copy_group, index=at.index))
        return True

    def _range_of(self, damaged: DamagedRange) -> PlaceRange:
        return self._journal.range_at(damaged.position, max(damaged.position, damaged.end))

    def _join_run(self, segment: Segment, run: SegmentRun) -> None:
        group = self._groups.get(run.group)
        # Of any incarnation: a damaged place with a copy concerns no other group.
        for copy in run.copies:
            if copy.damaged_position:
                self._journal_damage.explain(*self._journal.range_at(
                    copy.damaged_position, copy.damaged_position + copy.damaged_size))
        if group is None or run.incarnation > group.log.incarnation:
            group = self._groups[run.group] = self._group_of(StoredLog(run.group, run.incarnation))
        if run.incarnation == group.log.incarnation:
            group.take_run(segment, run)

    def _group_of(self, log: StoredLog) -> GroupRebuild:
        known_to = self._checkpoint.position if log.group in self._checkpoint.records else 0
        return GroupRebuild(log, self._journal, self._applied, known_to, self._result.damage,
                            self._checkpoint.records.get(log.group), self._checkpoint.removed,
                            self._lost)

    def report_damage(self, found: list[FoundDamage]) -> None:
        """Add the damage that was not repaired or truncated since to the result.

        A range of unknown owner may have held the end of any group's log: require head recovery of
        every group that has not cleared it."""
        logs = self._result.logs
        for damaged, damage in found:
            if damaged.group >= 0:
                log = logs.get(damaged.group)
                known = log.missing.get(damaged.index) if log is not None else None
                if known is not None and known.position == damaged.position:
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
        for group, each in self._groups.items():
            log = each.log
            progress.groups_done += 1
            record = self._checkpoint.records.get(group)
            is_known = record is not None and each.is_replica_of(record)
            states = (self._checkpoint.partition_states[group] if is_known
                      else PartitionStates(group))
            if record is not None and is_known:
                answered = each.raise_raft_start(record, states, self._indexed,
                                                 self._file_headers, self._cold.get(group, ()))
                self._result.cold_answered.update((group, number) for number in answered)
            log.raise_term()
            if log.missing:
                log.damage.quarantine(
                    f"entry {min(log.missing)} is damaged, lost or in question"
                    + f" and {len(log.missing) - 1} more" * (len(log.missing) > 1))
            each.report_early_entries()
            if each.broken_reason:
                log.damage.require_head_recovery(each.broken_reason)
            self._result.partition_states[group] = states
            each.find_configurations()
            why = each.replay(states)
            if why:
                self._result.damage.append(Damage("log", self._journal.directory, 0, group,
                                                  states.last_index + 1, why))
                log.damage.quarantine_permanently(why)
            elif not log.quarantined:
                each.trim(states)
