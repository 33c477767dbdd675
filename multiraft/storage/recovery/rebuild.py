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
from multiraft.storage.index import NOWHERE, Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Segment
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.ranges import ByteRange
from multiraft.storage.recovery.lost_truncations import contradicts, is_history, newest, question
from multiraft.storage.recovery.report import Damage, Progress, Recovered
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry, EntryKind

FoundSegment = tuple[Segment, SegmentIndex]
FoundDamage = tuple[DamagedRange, Damage]


def rebuild(found: list[FoundSegment], damage: list[FoundDamage], checkpoint: Checkpoint,
            applied: Mapping[tuple[int, int], int], result: Recovered, progress: Progress,
            directory: str) -> None:
    """Fill ``result`` from a checkpoint and the journal's segments; ``applied`` says per group and
    incarnation what the checkpoint has applied.  O(groups + segments * groups in them + entries
    that are not applied + damage * groups)."""
    rebuilding = _Rebuilding(checkpoint, applied, result, directory)
    rebuilding.judge_damage(rebuilding.join(found, damage))
    rebuilding.finish_tails(progress)


class _Rebuilding:
    def __init__(self, checkpoint: Checkpoint, applied: Mapping[tuple[int, int], int],
                 result: Recovered, directory: str):
        self._checkpoint = checkpoint
        self._applied = applied
        self._result = result
        self._journal_damage = result.journal_damage
        self._directory = directory
        self._tail_entries: dict[int, list[Entry]] = {}
        self._buried: dict[int, int] = {}  # group -> position of a tombstone behind the checkpoint
        #: group -> copies of what the log did not have, or not yet
        self._early: dict[int, list[tuple[Copy, Entry | None]]] = {}
        #: group -> index -> where it first stood, of entries that are read from their copies
        self._first_places: dict[int, dict[int, int]] = {}

    def join(self, found: list[FoundSegment], damage: list[FoundDamage]) -> list[FoundDamage]:
        """Start with the checkpoint's groups and add every segment's runs in journal order; return
        the damage that was not repaired or superseded since."""
        for record in self._checkpoint.records.values():
            self._result.logs[record.group] = _log_of(record)
        for segment, index in found:
            for run in index.runs.values():
                self._join_run(segment, run)
        indexes = [index for _, index in found]
        damage = [(at, each) for at, each in damage if at.copied < 0
                  or not is_history(self._result.logs[at.copied], at, indexes)]
        holes = self._journal_damage.without_copies((at.position, max(at.position, at.end))
                                                    for at, _ in damage if at.group < 0)
        for log in self._result.logs.values():
            self._look_back(log, holes)
        for record in self._checkpoint.records.values():
            self._miss_again(record)
        return damage

    def _look_back(self, log: StoredLog, holes: list[tuple[int, list[ByteRange]]]) -> None:
        """Now that all of the journal was seen: what of the log is missing or in question, and what
        of that a copy has that stands in front of it."""
        applied = self._applied.get((log.group, log.incarnation), 0)
        if log.index.last_index < applied:
            log.lose(applied + 1)
        early = newest(self._early.pop(log.group, ()))
        if early and log.index.last_index < early[-1][0].index and not log.broken:
            log.lose(early[-1][0].index + 1)  # its end was damaged: the copies say where it is
        question(log, holes, applied, {copy.index: copy for copy, _ in early},
                 self._first_places.get(log.group, {}), self._journal_damage.copied)
        for copy, entry in early:
            if contradicts(log, copy):  # dropped before that was taken, and the drop is lost
                log.doubt(f"the copy of entry {copy.index} contradicts the log")
                log.question(copy.index)
            elif copy.index in log.missing:
                self._take_copy(log, copy, entry, self._tail_entries.setdefault(log.group, []))
        self._give_up(log, applied)

    def _give_up(self, log: StoredLog, applied: int) -> None:
        """Truncate the log before a lost entry of unknown term that was not applied and has no
        copy.  If it was applied, it is known to have existed."""
        unknown = min((index for index in log.unsure if index > applied), default=0)
        if unknown:
            log.broken = f"entry {unknown} is lost, and its term is unknown"
            self._drop(log, unknown, self._tail_entries.get(log.group, []))

    def _join_run(self, segment: Segment, run: SegmentRun) -> None:
        log = self._result.logs.get(run.group)
        # Of any incarnation: a damaged place with a copy concerns no other group.
        for copy in run.copies:
            if copy.damaged:
                self._journal_damage.copied[copy.damaged] = copy.damaged_size
        if log is not None and run.incarnation < log.incarnation:
            return
        if log is None or run.incarnation > log.incarnation:
            log = self._result.logs[run.group] = StoredLog(run.group, run.incarnation)
            self._tail_entries[run.group] = []
            self._forget_copies(run.group)
        if segment.end <= log.buried_at:
            return  # of an earlier replica
        self._join_marks(segment, log, run)
        if run.hard_state is not None:
            log.merge_hard_state(run.hard_state)
        if segment.start < log.since:
            return  # an installed snapshot replaces these entries
        tail_entries = self._tail_entries.setdefault(run.group, [])
        if run.lifted > log.lifted:
            log.lifted, log.settled = run.lifted, run.settled
            # Else the LIFT was void: a replica that contradicts its leader has to be removed.
            if not log.lasting:
                log.lift()
        if run.given_up > log.lifted:
            log.doubt("it gave up entries that it may have acknowledged")
        if run.cut_from:
            if run.cut_from <= log.index.last_index + 1:
                log.broken = ""
            self._drop(log, run.cut_from, tail_entries)
        if run.index is not None and run.last_index >= run.index.first_index and not log.broken:
            self._extend(segment, log, run, tail_entries)
        for copy in run.copies:
            self._take_copy(log, copy, run.copied.get(copy.index), tail_entries)
        if run.broken:
            self._note_log(segment, log, run.broken)

    def _drop(self, log: StoredLog, first_gone: int, tail_entries: list[Entry]) -> None:
        log.cut(first_gone)
        self._early[log.group] = [item for item in self._early.get(log.group, ())
                                  if item[0].index < first_gone]
        self._first_places[log.group] = {
            at: place for at, place in self._first_places.get(log.group, {}).items()
            if at < first_gone}
        while tail_entries and tail_entries[-1].index >= first_gone:
            tail_entries.pop()

    def _forget_copies(self, group: int) -> None:
        """Forget copies that belong to an earlier incarnation."""
        self._early.pop(group, None)
        self._first_places.pop(group, None)

    def _join_marks(self, segment: Segment, log: StoredLog, run: SegmentRun) -> None:
        """Apply the tombstone and the forced recovery of a segment that the checkpoint does not
        have."""
        if run.buried is not None:
            self._tail_entries[run.group] = []
            self._forget_copies(run.group)
            if run.buried_at > log.buried_at:
                log.apply_tombstone(run.buried, run.buried_at)
                self._buried[run.group] = run.buried_at
        if (run.reborn is not None and run.reborn.incarnation > log.group_incarnation
                and (run.reborn_at[0] >= self._checkpoint.position
                     or run.group not in self._checkpoint.records)):
            log.reincarnate(run.reborn, run.reborn_at[1], run.reborn_term)
        lives = run.index is not None or run.hard_state is not None or run.reborn is not None
        if lives and segment.start >= log.since:  # else a snapshot was installed since
            log.removed = run.removed

    def _take_copy(self, log: StoredLog, copy: Copy, entry: Entry | None,
                   tail_entries: list[Entry]) -> None:
        if not copy.index:
            return  # dropped since
        if log.index.holds(copy.index, copy.term):
            self._first_places.setdefault(log.group, {}).setdefault(
                copy.index, log.index.position(copy.index))
        if not log.repair(copy):
            self._early.setdefault(log.group, []).append((copy, entry))
            return
        if copy.count:
            partition = log.partitions.setdefault(copy.partition,
                                                  PartitionIndex(copy.partition, log.group))
            partition.repair(copy.base_offset, copy.count, copy.index, copy.max_timestamp_ms)
        if entry is None or entry.index <= self._applied.get((log.group, log.incarnation), 0):
            return
        slot = bisect_left(tail_entries, entry.index, key=attrgetter("index"))
        known = slot < len(tail_entries) and tail_entries[slot].index == entry.index
        tail_entries[slot:slot + known] = [entry]

    def _miss_again(self, record: GroupRecord) -> None:
        """Mark as missing again what the checkpoint's record names, unless the journal has a copy
        of the entry or it was truncated.  An index file does not tell."""
        log = self._result.logs[record.group]
        if (log.incarnation, log.buried_at) != (record.incarnation, record.buried_at):
            return
        for index, position in record.missing:
            in_log = log.index.first_index <= index <= log.index.last_index
            if in_log and log.index.position(index) in (position, NOWHERE):
                log.missing[index] = position
                if record.doubtful:
                    log.question(index)

    def _extend(self, segment: Segment, log: StoredLog, run: SegmentRun,
                tail_entries: list[Entry]) -> None:
        index = run.index
        assert index is not None
        first_term = index.term(index.first_index)
        first_gone = log.index.contradicted_by(index.first_index, first_term)
        if first_gone < log.index.first_index or first_term < log.index.prev_term:
            return self._note_log(segment, log, f"index {index.first_index}, term {first_term} "
                                  f"where the log begins with index {log.index.first_index}")
        if first_gone > log.index.last_index:  # what lies between is lost, and may have copies
            first_gone = index.first_index
        self._drop(log, first_gone, tail_entries)  # if there is any, the record of that is lost
        last = log.index.last_index
        if index.first_index > last + 1 and first_term == log.index.last_term:
            log.missing.update(dict.fromkeys(range(last + 1, index.first_index), NOWHERE))
            log.index.fill(index.first_index)
        elif index.first_index > last + 1:
            log.lose(index.first_index)
        log.index.extend(index)
        log.missing.update(run.missing)
        log.unsure.update(run.unsure)
        for partition, batches in run.partitions.items():
            known = log.partitions.get(partition)
            if known is None:
                known = log.partitions[partition] = PartitionIndex(partition, log.group)
            known.extend(batches)
        tail_entries.extend(run.tail_entries)

    def _note_log(self, segment: Segment, log: StoredLog, why: str) -> None:
        self._result.damage.append(Damage("log", segment.path, segment.start, log.group,
                                          log.index.last_index + 1, why))
        log.broken = why

    def judge_damage(self, found: list[FoundDamage]) -> None:
        """Report damage that was not repaired or truncated since.  A range of unknown owner may
        have held the end of any group's log: quarantine every group that has not settled it."""
        logs = self._result.logs
        for broken, damage in found:
            if broken.group >= 0:
                log = logs.get(broken.group)
                if log is not None and log.missing.get(broken.index) == broken.position:
                    self._result.damage.append(damage)
                continue
            begin, end = broken.position, max(broken.position, broken.end)
            places = self._journal_damage.without_copy(begin, end)
            if not places:
                continue
            self._result.damage.append(damage)
            why = f"journal position {broken.position} is {damage.why}"
            self._result.quarantine_all_reason = self._result.quarantine_all_reason or why
            self._journal_damage.holes.append((begin, end))
            for log in logs.values():
                if not log.has_settled(places):
                    log.doubt(why)

    def finish_tails(self, progress: Progress) -> None:
        """Replay what the checkpoint's applied state does not have, and mark what is damaged."""
        progress.groups_total = len(self._result.logs)
        for group, log in self._result.logs.items():
            progress.groups_done += 1
            log.lift_term()
            if log.missing:
                log.quarantine(f"entry {min(log.missing)} is damaged, lost or in question"
                               + f" and {len(log.missing) - 1} more" * (len(log.missing) > 1))
            if log.broken:
                log.doubt(log.broken)
            record = self._checkpoint.records.get(group)
            if (record is not None and record.incarnation == log.incarnation
                    and group not in self._buried):
                tail = self._checkpoint.tails[group]
            else:
                tail = PartitionStates(group)
            self._result.tails[group] = tail
            self._find_configurations(log)
            why = self._replay(log, tail)
            if why:
                self._result.damage.append(Damage("log", self._directory, 0, group,
                                                  tail.last_index + 1, why))
                log.quarantine_for_good(why)

    def _find_configurations(self, log: StoredLog) -> None:
        """Membership entries above the applied state: what is in the log counts (thesis 4.1)."""
        for entry in self._tail_entries.get(log.group, ()):
            if (entry.kind == EntryKind.MEMBERSHIP
                    and log.configurations[-1][0] < entry.index <= log.index.last_index):
                why = joint_quorum.fault(entry.payload)
                if why:
                    return log.quarantine_for_good(f"entry {entry.index}: {why}")
                log.configurations.append((entry.index, joint_quorum.decode(entry.payload)))

    def _replay(self, log: StoredLog, tail: PartitionStates) -> str:
        """Append entries to the partition states; return why the states do not reach the log's end,
        or an empty string.  They stop before a missing entry until that is repaired."""
        # An applied entry may be missing too, as perhaps truncated: then its successors may be.
        if min(log.missing, default=tail.last_index + 1) <= tail.last_index:
            return ""
        first_missing = min((index for index in log.missing if index > tail.last_index), default=0)
        for entry in self._tail_entries.get(log.group, ()):
            if 0 < first_missing <= entry.index:
                return ""
            why = tail.check_entry(entry)
            if why:
                return why
            tail.append(entry)
        if tail.last_index != log.index.last_index and tail.last_index + 1 != first_missing:
            return (f"applied state and entries reach index {tail.last_index}, the log "
                    f"{log.index.last_index}")
        return ""


def _log_of(record: GroupRecord) -> StoredLog:
    """Return a group's log as a checkpoint has it, without entries, which the segments have."""
    log = StoredLog(record.group, record.incarnation, record.configuration)
    log.hard_state, log.commit = record.hard_state, record.commit
    log.index = GroupIndex(record.first_index, record.prev_term)
    log.quarantined, log.since = record.quarantined, record.since
    log.doubtful, log.lasting = record.doubtful, record.lasting
    log.lifted, log.settled = record.lifted, record.settled
    log.configurations = [(record.configuration_index, record.configuration)]
    log.vote_barrier_index, log.vote_barrier_term = (
        record.vote_barrier_index,
        record.vote_barrier_term,
    )
    log.removed = record.removed
    log.buried_at, log.group_incarnation = record.buried_at, record.group_incarnation
    return log
