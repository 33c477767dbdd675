"""Records of cold segments, joined to the logs that recovery rebuilt from the journal.

Contract.  ``join_cold_records`` reads each cold segment that the checkpoint names, and adds its
records to the groups' record stores and partition indexes.  It runs when the Raft starts are
raised.  Damage is reported and never raised.

Invariants.  A record counts once.  Of its copies the newest does: one in the journal behind the
position from which a cold segment was copied is newer than the one there, and of two cold segments
that with the higher number is.  Only records of known terms join, and none that is below its
partition's log start.

Theory.  A record that cannot be read is missing, like one of the journal.  Without the index file,
an unreadable place tells only which records stand beside it.  As they are in order, what is lost
lies between these: its indexes become holes, or uncopied, and members of the group are asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

from multiraft.storage.atomic_file import replace_file
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import ColdContents, ColdRun
from multiraft.storage.cold.cold_segment import ColdSegment, place_in
from multiraft.storage.cold.contents import FoundContents, read_contents
from multiraft.storage.disk_space import is_full
from multiraft.storage.index import Copy
from multiraft.storage.journal.journal import Journal
from multiraft.storage.record_store import HOLES_MAX, UNKNOWN_TERM, MissingRecord, term_in
from multiraft.storage.recovery.cold_ranges import ColdSummaries
from multiraft.storage.recovery.report import Damage, RecoveryReport
from multiraft.storage.removable_segments import GroupContents, PackedGroups
from multiraft.storage.stored_log import StoredLog


def join_cold_records(journal: Journal, checkpoint: Checkpoint, cluster: bytes, node: int,
                      report: RecoveryReport, summaries: ColdSummaries) -> None:
    """Add the records of the checkpoint's cold segments to the logs in ``report``, and what cannot
    be read of them to its damage.  A cold segment whose index file answers for all groups that need
    it is not read, by its summary.

    Block.  O(records in cold segments, + records of the groups that have some).  Raise
    ``WrongIdentity``, ``UnknownFormat`` or ``OSError`` as ``read_contents``."""
    groups = {group: _GroupRecords(log, record, report)
              for group, log in report.logs.items()
              if (record := checkpoint.records.get(group)) is not None
              and (record.incarnation, record.tombstone_position) == (
                  log.incarnation, log.tombstone_position)}
    for segment in journal.cold:
        number, parts = segment.name.number, summaries.get(segment.name.number)
        if parts is not None and not any(part.run.group in groups and (
                part.run.group, number) not in report.cold_answered for part in parts):
            report.cold_contents[number] = PackedGroups({
                part.run.group: GroupContents(part.run.incarnation, part.run.ranges[-1][1],
                                              part.run.ranges[0][0])
                for part in parts if part.run.ranges})
            continue
        found = read_contents(journal.filesystem, journal.cold.directory, segment.name, cluster,
                              node)
        report.cold_contents[number] = found.contents.groups()
        if not found.is_indexed and not found.lost and not found.unreadable:
            _write_index(journal, segment, found.contents)
        for group, run in found.contents.runs.items():
            if group in groups and (group, number) not in report.cold_answered:
                groups[group].take(segment, run, {index for each, index in found.unreadable
                                                  if each == group})
        for group, first, last in _lost_ranges(found):
            for each in groups.values() if group < 0 else filter(None, [groups.get(group)]):
                each.lose(first, last)
        for begin, end in found.lost:
            report.damage.append(Damage("cold", segment.path, segment.start + begin, -1, 0,
                                        f"{end - begin} bytes of a cold segment are unreadable"))
        report.damage += [Damage("cold", segment.path, segment.start, group, index,
                                 "the record in a cold segment is unreadable")
                          for group, index in found.unreadable]
    for each in groups.values():
        each.finish()


def _write_index(journal: Journal, segment: ColdSegment, contents: ColdContents) -> None:
    """Write the index file of a cold segment that lacks only that, for the next start.  On a full
    disk leave it to that."""
    directory, _, name = segment.index_path.rpartition("/")
    try:
        replace_file(journal.filesystem, directory, name, cold_index.encode(contents))
    except OSError as error:
        if not is_full(error):
            raise


def _lost_ranges(found: FoundContents) -> Iterator[tuple[int, int, int]]:
    """Yield (group, first, last) of indexes that may have stood in unreadable places; group -1 =
    any, last 0 = up to the Raft start."""
    if not found.lost:
        return
    places = sorted((byte, group, partition, index)
                    for group, run in found.contents.runs.items()
                    for index, byte, partition in _with_partitions(run))
    for begin, _ in found.lost:
        at = bisect_left(places, begin, key=itemgetter(0))
        before = places[at - 1] if at else None
        behind = places[at] if at < len(places) else None
        if before is None or behind is None:
            yield -1, 1, 0
        elif before[1:3] == behind[1:3]:
            yield before[1], before[3] + 1, behind[3] - 1
        else:
            for group in range(before[1], behind[1] + 1):
                yield group, 1, 0


def _with_partitions(run: ColdRun) -> Iterator[tuple[int, int, int]]:
    bytes_of = dict(zip(run.indexes, run.bytes))
    for partition, batches in run.partitions.items():
        for index in batches.indexes_below(1 << 64):
            yield index, bytes_of[index], partition


class _GroupRecords:
    """Records of one group in cold segments while they are read."""

    def __init__(self, log: StoredLog, record: GroupRecord, report: RecoveryReport):
        self._log = log
        self._record = record
        self._states = report.partition_states[log.group]
        self._known_missing = dict(record.missing)
        self._places: dict[int, tuple[int, int]] = {}
        self._missing: set[int] = set()
        self._batches: dict[int, dict[int, Copy]] = {}
        self._holes: list[tuple[int, int]] = []

    def take(self, segment: ColdSegment, run: ColdRun, unreadable: set[int]) -> None:
        """Take the group's records in the next cold segment.  O(records)."""
        if run.incarnation != self._log.incarnation or not self._record.record_terms:
            return
        slots = dict(zip(run.indexes, range(len(run.indexes))))
        terms = list(zip(run.run_starts, run.run_terms))
        for partition, batches in run.partitions.items():
            state = self._states.applied(partition)
            if state is None:
                continue
            for slot in range(len(batches)):
                base, end, index = batches.batch(slot)
                # An unreadable batch may end anywhere before the next one.
                is_live = end > state.log_start or index in unreadable and (
                    slot + 1 == len(batches) or batches.batch(slot + 1)[0] > state.log_start)
                if is_live and self._is_record(index, term_in(terms, index)):
                    at = slots[index]
                    place = place_in(segment.name.number, run.bytes[at]), run.sizes[at]
                    if self._take_place(index, place, segment.name.copied_from,
                                        index in unreadable):
                        # The highest timestamp so far does as well as the batch's own.
                        self._batches.setdefault(partition, {})[index] = Copy(
                            index, term_in(terms, index), *place, 0, 0, partition, base,
                            end - base, batches.latest(slot))

    def _is_record(self, index: int, term: int) -> bool:
        """Return True if the entry of an index and term is the committed one, below the Raft
        start."""
        record = self._record
        return (record.record_terms[0][0] <= index < record.first_index
                and term_in(record.record_terms, index) in (UNKNOWN_TERM, term))

    def _take_place(self, index: int, place: tuple[int, int], copied_from: int,
                    is_unreadable: bool) -> bool:
        """Take the place of a record, unless a newer copy or a readable older one is known.  Return
        False then."""
        records = self._log.records
        is_missing = is_unreadable or self._known_missing.get(index) == place[0]
        in_journal = records.locate(index).position if index in records else -1
        if in_journal >= copied_from:
            return False
        if is_missing and (in_journal >= 0 and index not in records.missing
                           or index in self._places and index not in self._missing):
            return False
        self._places[index] = place
        (self._missing.add if is_missing else self._missing.discard)(index)
        return True

    def lose(self, first: int, last: int) -> None:
        """Count the indexes first..last, 0 = up to the Raft start, as holes or uncopied where no
        record is known."""
        if self._record.record_terms:
            self._holes.append((max(first, self._record.record_terms[0][0]),
                                last or self._record.first_index - 1))

    def finish(self) -> None:
        """Add everything that was taken to the log.  O(records of the group)."""
        log = self._log
        if self._places:
            log.records.join(self._places, self._record.record_terms, log.raft_start)
            for index, (position, size) in self._places.items():
                if index in self._missing:
                    log.records.set_missing(index, MissingRecord(position, size))
                else:
                    log.records.forget_missing(index)
            for partition, found in self._batches.items():
                log.partition_index(partition).take_copies(
                    [copy for _, copy in sorted(found.items())], self._missing)
        if self._holes:
            self._add_holes()

    def _add_holes(self) -> None:
        records, room = self._log.records, HOLES_MAX
        for first, last in self._holes:
            if last - first >= room:
                records.uncopied.add(first, last)
                continue
            for index in range(first, last + 1):
                if (index not in records and index not in records.missing
                        and index not in records.unneeded):
                    records.lose_hole(index)
                    room -= 1
        records.restore_terms(self._record.record_terms, self._log.raft_start)
