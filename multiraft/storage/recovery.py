"""Start after a crash: read the lane, tell a torn tail from corruption, rebuild everything.

Contract.  ``recover`` reads, judges, cuts the torn tail durably and returns; damage is a value in
the result, never an exception.  Exceptions are: another node's or a newer format's files, and a
disk that fails.  Nothing that was durable is cut.  Recovery that is interrupted and started again
comes to the same result.

The decision, per place P of the lane where no intact entry follows the one before it.  D is the
highest lane position that anything intact (an entry's durable mark, a checkpoint) calls durable.

    what is at P                     P below D                       P at or above D
    -------------------------------  ------------------------------  -----------------------------
    anything but an intact header    damage: all groups of the lane  torn tail: cut at P, the rest
      (zeros, garbage, wrong chain)    are quarantined                 goes, intact or not
    intact header, damaged batch     damage: its group is            torn tail: the same
                                       quarantined, the entry stays
    a segment's own header           damage: all groups              never finished: file removed
    the lane's end                   damage: bytes are missing,      the clean end; what is behind
                                       all groups                      it and not zeros is cut off
    between two segments (the next   damage: bytes are missing,      the same
      one's first mark is not P)       all groups
    an entry whose index or term     it is taken, what contradicts   the same
      contradicts those before it      it was dropped (lost_drops.py)

Why.  One write is in flight at a time and its marks say what was durable *before* it.  So a later
entry that calls P durable proves that P once was readable: that is corruption.  Later entries of
the same write prove nothing, because pages reach the disk in any order.  What remains unprovable is
the newest write of a node that never came to start another one (docs/decisions/0002).

The cut is durable before anything is appended: later segments are removed newest first, then the
file is truncated.  Intact bytes above D are written once more and synced: after a failed sync the
page cache may show bytes that are not on disk and call them clean (Rebello et al., ATC 2020).

Damage of unknown ownership concerns each group that has not settled all of it, but for what a copy
says stood there (docs/decisions/0009).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter

from multiraft import _layout, membership
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.config import SEGMENT_BYTES_LIMIT
from multiraft.storage.errors import CorruptFile, UnknownEntry, UnknownFormat
from multiraft.storage.filesystem import File, Filesystem
from multiraft.storage.group_log import GroupLog
from multiraft.storage.index import NOWHERE, Copy, GroupIndex, PartitionIndex
from multiraft.storage.lane import SEGMENT_SUFFIX, Lane, Segment, SegmentHeader, index_path
from multiraft.storage.lost_drops import contradicts, is_history, newest, question
from multiraft.storage.recovered import Damage, Progress, Recovered
from multiraft.storage.segment_index import (
    LATER_FORMAT,
    Break,
    GroupRun,
    SegmentIndex,
    SegmentScan,
    living,
    read_index_file,
    scan_segment,
)
from multiraft.storage.segment_tail import entries_above, read_above
from multiraft.tail import PartitionTail
from multiraft.types import Entry, EntryKind

_HEADER_BYTES = _layout.SEGMENT_HEADER_BYTES


@dataclass(slots=True)
class _Found:
    """A segment file and what is in it."""

    segment: Segment
    size: int
    seed: int | None  # None: the header is damaged
    scan: SegmentScan


def recover(lane: Lane, header: SegmentHeader, checkpoint: Checkpoint,
            progress: Progress | None = None) -> Recovered:
    """Read the lane's directory, repair what a crash left, and make ``lane`` ready to append;
    ``progress`` is told how far it is.

    Raises ``WrongIdentity``, ``UnknownFormat``, ``OSError``.
    """
    return _Recovery(lane, header, checkpoint, progress or Progress()).run()


class _Recovery:
    def __init__(self, lane: Lane, header: SegmentHeader, checkpoint: Checkpoint,
                 progress: Progress):
        self._lane = lane
        self._progress = progress
        self._filesystem: Filesystem = lane.filesystem
        self._header = header
        self._checkpoint = checkpoint
        self._applied = checkpoint.applied()
        self._result = Recovered()
        self._tail_entries: dict[int, list[Entry]] = {}
        self._buried: dict[int, int] = {}  # group -> position of a tombstone behind the checkpoint
        self._found_damage: list[tuple[Break, Damage]] = []
        #: group -> copies of what the log did not have, or not yet
        self._early: dict[int, list[tuple[Copy, Entry | None]]] = {}
        #: group -> index -> where it first stood, of entries that are read from their copies
        self._first_places: dict[int, dict[int, int]] = {}

    def run(self) -> Recovered:
        files = self._segment_files()
        self._progress.segments_total = len(files)
        found = [self._examine(*item) for item in files]
        durable = max([self._checkpoint.position]
                      + [each.scan.index.highest_durable for each in found])
        cut = self._judge(found, durable)
        if cut >= 0:
            found = self._cut(found, cut)
        found = self._remove_empty_end(found, durable)
        self._settle(found, durable)
        self._join(found)
        self._judge_damage()
        self._finish_tails()
        self._resume(found, durable)
        return self._result

    # ---- finding --------------------------------------------------------------------------------

    def _segment_files(self) -> list[tuple[Segment, bool]]:
        """(segment, is it the last one) in lane order."""
        directory, suffix = self._lane.directory, SEGMENT_SUFFIX
        stems = [name.removesuffix(suffix) for name in self._filesystem.list(directory)
                 if name.endswith(suffix)]
        starts = sorted(int(stem) for stem in stems if stem.isdecimal() and len(stem) == 20)
        files = []
        for ordinal, start in enumerate(starts):
            last = ordinal == len(starts) - 1
            capacity = (self._lane.capacity_of(ordinal) if last
                        else starts[ordinal + 1] - start)
            files.append((Segment(f"{directory}/{start:020d}{suffix}", start, capacity, 0), last))
        return files

    def _examine(self, segment: Segment, last: bool) -> _Found:
        """Load the index file of a sealed segment, or scan it."""
        size = self._filesystem.size(segment.path)
        file = self._filesystem.open(segment.path)
        try:
            seed = self._seed(segment, file.read(_HEADER_BYTES, 0))
            segment.seed = seed or 0
            if not last and seed is not None:
                index = self._usable_index(segment, size, file)
                if index is not None:
                    segment.end = index.end
                    self._result.indexed_segments += 1
                    return _Found(segment, size, seed, SegmentScan(index, [], from_file=True))
            scan = self._scan(segment, seed, file, min(size, SEGMENT_BYTES_LIMIT))
        finally:
            file.close()
            self._progress.segments_done += 1
        if not last and not scan.breaks:
            self._result.unindexed.append(segment)
        return _Found(segment, size, seed, scan)

    def _seed(self, segment: Segment, data: bytes) -> int | None:
        """The chain's seed from an intact header.  Raises when the file is not ours."""
        header = SegmentHeader.parse(data)
        if header is None or header.start != segment.start:
            return None
        header.require(self._header, segment.path)
        return header.seed

    def _usable_index(self, segment: Segment, size: int, file: File) -> SegmentIndex | None:
        """The index file's content, with the entries that a tail needs; None = scan the segment."""
        if not self._filesystem.exists(index_path(segment)):
            return None
        try:
            index = read_index_file(self._filesystem, segment)
        except (CorruptFile, UnknownFormat):
            return None  # a cache: scanned and written anew
        if size < index.end - index.start:
            return None
        above = entries_above(index, self._applied, self._checkpoint.position)
        if above is None or not read_above(index, above, file):
            return None
        return index

    def _scan(self, segment: Segment, seed: int | None, file: File, length: int) -> SegmentScan:
        data = file.read(length, 0)
        scan = scan_segment(data, segment.start, seed, self._applied, self._checkpoint.position)
        for broken in scan.breaks:
            if broken.reason == LATER_FORMAT:
                raise UnknownEntry(segment.path, broken.position, broken.index)
        segment.end = scan.index.end
        self._result.scanned_bytes += len(data)
        self._result.scanned_segments += 1
        return scan

    # ---- judging --------------------------------------------------------------------------------

    def _judge(self, found: list[_Found], durable: int) -> int:
        """Record all damage below ``durable``; the lane position of a torn tail, -1 = none."""
        previous, reached = None, -1
        for each in found:
            for missing in self._missing_before(each, previous, reached):
                self._note_break(each.segment.path, missing)
                # Else what was lost is behind the ends that index files tell.
                self._result.unindexed = [other for other in self._result.unindexed
                                          if other.end < reached or other is each.segment]
            for broken in each.scan.breaks:
                if broken.position >= durable:
                    return broken.position
                self._note_break(each.segment.path, broken)
            previous = each
            if reached < 0 or each.scan.index.first_durable >= 0:
                reached = each.scan.index.end
        end = previous.scan.index.end if previous is not None else self._checkpoint.lane_start
        if end < durable:
            path = previous.segment.path if previous is not None else self._lane.directory
            self._note_break(path, Break(reached if reached >= 0 else end,
                                         f"missing: {durable} was durable", -1, 0, durable))
            return -1
        return self._stray_from(found)

    def _stray_from(self, found: list[_Found]) -> int:
        """Where what is no entry stands behind the last one: a torn tail too; -1 = nowhere."""
        for each in reversed(found):
            if each.scan.stray:
                return each.scan.index.end
            if each.scan.index.first_durable >= 0:
                break
        return -1

    def _missing_before(self, each: _Found, previous: _Found | None, reached: int) -> list[Break]:
        """The first entry of a segment carries the end of the one before it, and reaches the disk
        only after all of that: a difference is never a torn tail.  ``reached``: where the last
        entry before ends; segments between that lost all theirs do not tell more."""
        first_mark = each.scan.index.first_durable
        if first_mark < 0 or (previous is not None and first_mark == previous.scan.index.end):
            return []
        if previous is not None and previous.scan.from_file and first_mark > each.segment.start:
            return []  # the first entry is lost, and that is all
        if previous is None:
            lane_start = self._checkpoint.lane_start
            if each.segment.start == lane_start:
                return []
            return [Break(lane_start, "missing: the first segment starts later", -1, 0,
                          each.segment.start)]
        why = f"missing: the next segment continues from {first_mark}"
        if first_mark > each.segment.start:  # of what is before that entry no more is known
            first_mark = previous.scan.index.end + _layout.ENTRY_HEADER_BYTES
        return [Break(reached, why, -1, 0, first_mark)]

    def _note_break(self, path: str, broken: Break) -> None:
        kind = broken.reason.partition(":")[0]
        kind = kind if kind in ("missing", "payload") else "entry"
        why = f"unreadable below the durable mark: {broken.reason}"
        damage = Damage(kind, path, broken.position, broken.group, broken.index, why)
        self._found_damage.append((broken, damage))

    # ---- cutting --------------------------------------------------------------------------------

    def _cut(self, found: list[_Found], position: int) -> list[_Found]:
        """Remove everything from ``position`` on, durably; what is left."""
        at = max(slot for slot, each in enumerate(found) if each.segment.start <= position)
        torn = found[at]
        kept = position - torn.segment.start
        behind = found[at + 1:]
        self._result.cut_at = position
        self._result.cut_bytes = torn.size - kept + sum(each.size for each in behind)
        self._remove(behind)
        # A replica whose tombstone is cut goes on.
        self._applied = living(self._checkpoint.applied(), self._checkpoint.position,
                               [each.scan.index for each in found[:at]])
        file = self._filesystem.open(torn.segment.path)
        try:
            file.truncate(kept)
            file.sync()
            torn.scan = self._scan(torn.segment, torn.seed, file, kept)
        finally:
            file.close()
        torn.size = kept
        return found[:at + 1]

    def _remove_empty_end(self, found: list[_Found], durable: int) -> list[_Found]:
        """Segments that were created ahead, or not even that: without entries, and none missing."""
        kept = len(found)
        while (kept and found[kept - 1].scan.index.first_durable < 0
               and found[kept - 1].segment.start >= durable):
            kept -= 1
        self._remove(found[kept:])
        return found[:kept]

    def _remove(self, found: list[_Found]) -> None:
        """Newest first, each removal durable: a crash in between leaves the same decision."""
        for each in reversed(found):
            self._remove_index(each.segment)
            self._filesystem.remove(each.segment.path)
            self._filesystem.sync_directory(self._lane.directory)

    def _remove_index(self, segment: Segment) -> None:
        if self._filesystem.exists(index_path(segment)):
            self._filesystem.remove(index_path(segment))

    def _settle(self, found: list[_Found], durable: int) -> None:
        """Make what is above the mark durable by writing it once more."""
        for each in found:
            end = each.scan.index.end - each.segment.start
            begin = max(0, durable - each.segment.start)
            if begin < end:
                file = self._filesystem.open(each.segment.path)
                try:
                    file.write([file.read(end - begin, begin)], begin, True)
                finally:
                    file.close()

    def _resume(self, found: list[_Found], durable: int) -> None:
        """Point the lane behind the last entry: in its file, or, when that is damaged, in a new
        one."""
        lane = self._lane
        segments = [each.segment for each in found]
        since = max((record.since for record in self._checkpoint.records.values()), default=0)
        if not found:
            start = max(self._checkpoint.lane_start, _aligned(durable), since)
            lane.resume([], start, 0, start, None)
            return
        last = found[-1]
        index, segment = last.scan.index, last.segment
        segment.capacity = max(segment.capacity, _aligned(index.end - segment.start))
        next_start = max(segment.start + segment.capacity, _aligned(durable), since)
        if (last.seed is None or last.scan.breaks or index.end < durable
                or segment.start < since):
            lane.resume(segments, max(index.end, durable), 0, next_start, None)
            return
        self._remove_index(segment)
        self._filesystem.sync_directory(lane.directory)
        self._result.unindexed = [each for each in self._result.unindexed if each is not segment]
        lane.resume(segments, index.end, index.last_crc, next_start,
                    self._filesystem.open(segment.path))

    # ---- rebuilding -----------------------------------------------------------------------------

    def _join(self, found: list[_Found]) -> None:
        """Groups from the checkpoint, then every segment's part in lane order."""
        for record in self._checkpoint.records.values():
            log = GroupLog(record.group, record.incarnation, record.configuration)
            log.hard_state, log.commit = record.hard_state, record.commit
            log.index = GroupIndex(record.first_index, record.prev_term)
            log.quarantined, log.since = record.quarantined, record.since
            log.doubtful, log.lasting = record.doubtful, record.lasting
            log.lifted, log.settled = record.lifted, record.settled
            log.configurations = [(record.configuration_index, record.configuration)]
            log.barred, log.removed = record.barred, record.removed
            log.buried_at, log.group_incarnation = record.buried_at, record.group_incarnation
            self._result.logs[record.group] = log
        for each in found:
            for run in each.scan.index.runs.values():
                self._join_run(each.segment, run)
        indexes = [each.scan.index for each in found]
        self._found_damage = [(at, damage) for at, damage in self._found_damage if at.copied < 0
                              or not is_history(self._result.logs[at.copied], at, indexes)]
        holes = self._result.without_copies((at.position, max(at.position, at.end))
                                            for at, _ in self._found_damage if at.group < 0)
        for log in self._result.logs.values():
            applied = self._applied.get((log.group, log.incarnation), 0)
            if log.index.last_index < applied:
                log.lose(applied + 1)
            early = newest(self._early.pop(log.group, ()))
            if early and log.index.last_index < early[-1][0].index and not log.broken:
                log.lose(early[-1][0].index + 1)  # its end was damaged: the copies say where it is
            question(log, holes, applied, {copy.index: copy for copy, _ in early},
                     self._first_places.get(log.group, {}), self._result.copied)
            for copy, entry in early:
                if contradicts(log, copy):  # dropped before that was taken, and the drop is lost
                    log.doubt(f"the copy of entry {copy.index} contradicts the log")
                    log.question(copy.index)
                elif copy.index in log.missing:
                    self._take_copy(log, copy, entry, self._tail_entries.setdefault(log.group, []))
            self._give_up(log, applied)
        for record in self._checkpoint.records.values():
            self._miss_again(record)

    def _give_up(self, log: GroupLog, applied: int) -> None:
        """Of a lost entry of unknown term that has no copy it is known that it existed if it was
        applied.  Else the log ends before it."""
        unknown = min((index for index in log.unsure if index > applied), default=0)
        if unknown:
            log.broken = f"entry {unknown} is lost, and its term is unknown"
            self._drop(log, unknown, self._tail_entries.get(log.group, []))

    def _join_run(self, segment: Segment, run: GroupRun) -> None:
        log = self._result.logs.get(run.group)
        for copy in run.copies:  # of whatever life, the damaged place concerns nobody else
            if copy.damaged:
                self._result.copied[copy.damaged] = copy.damaged_size
        if log is not None and run.incarnation < log.incarnation:
            return
        if log is None or run.incarnation > log.incarnation:
            log = self._result.logs[run.group] = GroupLog(run.group, run.incarnation)
            self._tail_entries[run.group] = []
            self._forget_copies(run.group)
        if segment.end <= log.buried_at:
            return  # of an earlier life of the replica
        self._join_marks(segment, log, run)
        if run.hard_state is not None:
            log.merge_hard_state(run.hard_state)
        if segment.start < log.since:
            return  # a snapshot stands in the place of all that
        tail_entries = self._tail_entries.setdefault(run.group, [])
        if run.lifted > log.lifted:
            log.lifted, log.settled = run.lifted, run.settled
            if not log.lasting:  # it was void: whoever contradicts its leader has to be removed
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

    def _drop(self, log: GroupLog, first_gone: int, tail_entries: list[Entry]) -> None:
        log.cut(first_gone)
        self._early[log.group] = [item for item in self._early.get(log.group, ())
                                  if item[0].index < first_gone]
        self._first_places[log.group] = {
            at: place for at, place in self._first_places.get(log.group, {}).items()
            if at < first_gone}
        while tail_entries and tail_entries[-1].index >= first_gone:
            tail_entries.pop()

    def _forget_copies(self, group: int) -> None:
        """They are of an earlier life."""
        self._early.pop(group, None)
        self._first_places.pop(group, None)

    def _join_marks(self, segment: Segment, log: GroupLog, run: GroupRun) -> None:
        """The end of the replica's life, and the group's new one, if the checkpoint has it not."""
        if run.buried is not None:
            self._tail_entries[run.group] = []
            self._forget_copies(run.group)
            if run.buried_at > log.buried_at:
                log.bury(run.buried, run.buried_at)
                self._buried[run.group] = run.buried_at
        if run.reborn is not None and (run.reborn_at[0] >= self._checkpoint.position
                                       or run.group not in self._checkpoint.records):
            log.reincarnate(run.reborn, run.reborn_at[1])
        lives = run.index is not None or run.hard_state is not None or run.reborn is not None
        if lives and segment.start >= log.since:  # else a snapshot was installed since
            log.removed = run.removed

    def _take_copy(self, log: GroupLog, copy: Copy, entry: Entry | None,
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
        """What was missing when the checkpoint was written still is, unless the lane has its copy
        or it was dropped.  An index file does not tell."""
        log = self._result.logs[record.group]
        if (log.incarnation, log.buried_at) != (record.incarnation, record.buried_at):
            return
        for index, position in record.missing:
            in_log = log.index.first_index <= index <= log.index.last_index
            if in_log and log.index.position(index) in (position, NOWHERE):
                log.missing[index] = position
                if record.doubtful:
                    log.question(index)

    def _extend(self, segment: Segment, log: GroupLog, run: GroupRun,
                tail_entries: list[Entry]) -> None:
        index = run.index
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

    def _note_log(self, segment: Segment, log: GroupLog, why: str) -> None:
        self._result.damage.append(Damage("log", segment.path, segment.start, log.group,
                                          log.index.last_index + 1, why))
        log.broken = why

    def _judge_damage(self) -> None:
        """What was repaired or dropped since is history.  Of a hole that is not, nobody knows what
        stood there: every group may have lost its end, but for those that were cleared since."""
        logs = self._result.logs
        for broken, damage in self._found_damage:
            if broken.group >= 0:
                log = logs.get(broken.group)
                if log is not None and log.missing.get(broken.index) == broken.position:
                    self._result.damage.append(damage)
                continue
            begin, end = broken.position, max(broken.position, broken.end)
            places = self._result.without_copy(begin, end)
            if not places:
                continue
            self._result.damage.append(damage)
            why = f"lane position {broken.position} is {damage.why}"
            self._result.lane_damage = self._result.lane_damage or why
            self._result.holes.append((begin, end))
            for log in logs.values():
                if not log.has_settled(places):
                    log.doubt(why)

    def _finish_tails(self) -> None:
        """Replay what the checkpoint's applied state does not have, and mark what is damaged."""
        self._progress.groups_total = len(self._result.logs)
        for group, log in self._result.logs.items():
            self._progress.groups_done += 1
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
                tail = PartitionTail(group)
            self._result.tails[group] = tail
            self._find_configurations(log)
            why = self._replay(log, tail)
            if why:
                self._result.damage.append(Damage("log", self._lane.directory, 0, group,
                                                  tail.last_index + 1, why))
                log.quarantine_for_good(why)

    def _find_configurations(self, log: GroupLog) -> None:
        """Membership entries above the applied state: what is in the log counts (thesis 4.1)."""
        for entry in self._tail_entries.get(log.group, ()):
            if (entry.kind == EntryKind.MEMBERSHIP
                    and log.configurations[-1][0] < entry.index <= log.index.last_index):
                why = membership.fault(entry.payload)
                if why:
                    return log.quarantine_for_good(f"entry {entry.index}: {why}")
                log.configurations.append((entry.index, membership.decode(entry.payload)))

    def _replay(self, log: GroupLog, tail: PartitionTail) -> str:
        """Why the tail does not reach the log's end, or empty.  It stops before a missing entry and
        goes on when that is repaired.  One that is applied may be in question: then what follows it
        is, too."""
        if min(log.missing, default=tail.last_index + 1) <= tail.last_index:
            return ""
        first_missing = min((index for index in log.missing if index > tail.last_index), default=0)
        for entry in self._tail_entries.get(log.group, ()):
            if 0 < first_missing <= entry.index:
                return ""
            why = tail.verify(entry)
            if why:
                return why
            tail.append(entry)
        if tail.last_index != log.index.last_index and tail.last_index + 1 != first_missing:
            return (f"applied state and entries reach index {tail.last_index}, the log "
                    f"{log.index.last_index}")
        return ""


def _aligned(position: int) -> int:
    return -(-position // _layout.ENTRY_ALIGNMENT) * _layout.ENTRY_ALIGNMENT
