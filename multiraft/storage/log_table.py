"""Logs of all groups of one node, with the journal that holds their entries and its damage.

Contract.  The state that ``Store`` and ``LocalRepair`` share.  Owned by the loop; no method blocks
or writes: reads and writes leave as I/O jobs (``io_jobs.py``).  Recovery fills the table, ``Store``
adds and removes logs, ``LocalRepair`` replaces damaged entries of logs by copies.

Invariants.  ``logs`` and ``partition_states`` have the same groups.  ``restored`` has those of them
that are not removed, as recovery found or ``Store`` created them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multiraft.errors import Compacted, UnknownGroup
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import GroupRestored
from multiraft.storage.cold.contents import UnreadableRecord
from multiraft.storage.damage.journal_damage import JournalDamage
from multiraft.storage.index import UNKNOWN_POSITION
from multiraft.storage.indexed_segments import IndexedSegments
from multiraft.storage.io_jobs import ReadJob, RecordsJob, RowRecordsJob, StagedWrite, spans_of
from multiraft.storage.journal.journal import Journal, Part
from multiraft.storage.record_store import FileRange
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry

#: Missing records and uncopied ranges that one answer to a member names: it ends before the next.
LACKING_MAX = 256


class LogTable:
    """Every group's log and partition states, and the journal below them."""

    def __init__(
        self,
        journal: Journal,
        logs: dict[int, StoredLog],
        partition_states: dict[int, PartitionStates],
        journal_damage: JournalDamage,
        read_gap_bytes_max: int,
        indexed: IndexedSegments | None = None,
    ):
        """``read_gap_bytes_max``: bytes between two entries that one read covers, see
        ``StorageConfig``."""
        self.journal = journal
        self.filesystem = journal.filesystem
        self.indexed = indexed if indexed is not None else IndexedSegments(journal.filesystem)
        self.logs = logs
        self.partition_states = partition_states
        self.restored: dict[int, GroupRestored] = {}
        self.journal_damage = journal_damage
        self.staged_sequence = 0  # of the last round
        self.read_gap_bytes_max = read_gap_bytes_max
        for group in sorted(logs):
            if not logs[group].removed:
                self.restore(group)

    def log(self, group: int) -> StoredLog:
        """Return a group's log, also when only a tombstone is left of it. Raise ``UnknownGroup`` if
        this node never had a replica of it."""
        log = self.logs.get(group)
        if log is None:
            raise UnknownGroup(f"group {group} is not on this node")
        return log

    def stands(self, record: UnreadableRecord) -> bool:
        """Return True if the place of a record in a cold segment is the one that counts for a log,
        which may need it: no copy of it is elsewhere.  O(log n)."""
        log = self.logs.get(record.group)
        if log is None or log.incarnation != record.incarnation:
            return False
        records, index = log.records, record.index
        if index in records:
            return records.locate(index).position == record.position
        found = records.in_file(index)
        return (found is not None and index >= records.first_needed
                and index not in records.unneeded
                and found.segment.start <= record.position < found.segment.end
                and self.partition_states[record.group].applied(record.partition) is not None)

    def restore(self, group: int) -> GroupRestored:
        """Return a description of a group's present state for ``MultiRaft.add_group``, and keep it
        in ``restored``. O(runs of terms). Raise ``UnknownGroup`` for a group without a log here."""
        restored = self.log(group).restored(self.partition_states[group].applied_index)
        self.restored[group] = restored
        return restored

    def read_job(self, group: int, first: int, last: int) -> ReadJob:
        """Return a job for a blocking, verified read of the entries first..last. O(entries). Raise
        ``Compacted`` if ``first`` is below the log's first index, ``UnknownGroup`` for a group
        without a log here.

        Entries in memory are taken from there now, because the newest entries of the range may be
        in no file yet: their round is still being written."""
        log = self.log(group)
        if first < log.raft_start:
            log.index.position(first)  # raises Compacted
        first_cached = first
        while first_cached <= last and first_cached not in log.cached:
            first_cached += 1
        cached = tuple([log.cached[index].entry for index in range(first_cached, last + 1)])
        return self.read_from_disk(log, range(first, first_cached), cached)

    def read_from_disk(self, log: StoredLog, indexes: Sequence[int],
                       cached: tuple[Entry, ...] = ()) -> ReadJob:
        """Return a job that reads entries and records from the journal's files, followed by
        ``cached``, which are in memory.  The job raises ``CorruptRange`` for the first one that is
        missing.  Raise ``Compacted`` for a forgotten one, as the members do that have compacted it.
        O(entries), O(log n) for each record."""
        if lost := log.first_missing_of(indexes):
            return self.missing_job(log, lost)
        places = [(each, *log.locate(each)) for each in indexes]
        for index, _, position, _ in places:
            if position == UNKNOWN_POSITION:
                raise Compacted(f"index {index} was lost, and other members have compacted it")
        return self.read_places(log, places, cached)

    def read_places(self, log: StoredLog, places: Sequence[tuple[int, int, int, int]],
                    cached: tuple[Entry, ...] = ()) -> ReadJob:
        """Return a job that reads the entries at ``places``, as ``spans_of`` takes them, followed
        by ``cached``.  O(places log n)."""
        spans = spans_of(self.journal.file_of, places, self.read_gap_bytes_max)
        return ReadJob(log.group, log.incarnation, spans, self.filesystem, cached)

    def records_job(self, log: StoredLog, first: int, last: int,
                    bytes_max: int) -> RecordsJob | RowRecordsJob | None:
        """Return a job that reads the records and batches in [first, last] for another member; see
        ``Store.records_job``.  ``last``: at most the applied index."""
        if first > last:
            return None
        lost = log.lacking(first, last)
        if len(lost) > LACKING_MAX:
            last = lost[LACKING_MAX][0] - 1
        in_file = log.records.file_from(first)
        if in_file is not None and in_file.first <= first:
            return self._row_records_job(log, in_file, first, min(last, in_file.last), lost,
                                         bytes_max)
        if in_file is not None:
            last = min(last, in_file.first - 1)
        begin, through = max(first, log.raft_start), first - 1
        jobs: list[ReadJob] = []
        if first < begin:
            found, through = log.records.within(first, min(last, begin - 1), bytes_max)
            if found:
                jobs.append(self.read_from_disk(log, found))
                bytes_max -= jobs[0].bytes
        # At least one entry, unless there are records in the answer.
        if through == begin - 1 < last and (bytes_max > 0 or not jobs):
            through = min(last, log.index.last_within(begin, max(0, bytes_max)))
            jobs += [self.read_job(log.group, low, high)
                     for low, high in _readable_ranges(log, begin, through)]
        return RecordsJob(jobs, first, through, tuple(
            [(low, min(high, through)) for low, high in lost if low <= through]))

    def _row_records_job(self, log: StoredLog, in_file: FileRange, first: int, last: int,
                         lost: Sequence[tuple[int, int]], bytes_max: int) -> RowRecordsJob:
        found, last = log.records.within(first, last, bytes_max)
        known = {}
        for index in found:
            _, position, size = log.records.locate(index)
            known[index] = position, size, self.journal.file_of(position)
        number = in_file.segment.number
        return RowRecordsJob(log.group, log.incarnation, first, last, lost, known,
                             log.records.terms, self.indexed.reader(log.group, {number}), number,
                             bytes_max, self.read_gap_bytes_max)

    def missing_job(self, log: StoredLog, index: int) -> ReadJob:
        """Return a job that raises ``CorruptRange`` for an entry that is known to be missing."""
        return ReadJob(log.group, log.incarnation, [], self.filesystem, (), index)

    def stage_records(self, parts: list[Part], on_durable: Callable[[], None]) -> StagedWrite:
        """Return a write of journal records that belong to no round.  ``on_durable`` is called when
        they are durable."""
        return StagedWrite(self.staged_sequence, self.filesystem, self.journal, parts, on_durable)


def _readable_ranges(log: StoredLog, first: int, last: int) -> list[tuple[int, int]]:
    """Return the ranges, (first, last), of the entries first..last of a Raft log that are neither
    missing nor forgotten.  O(indexes)."""
    missing, ranges = log.missing, list[tuple[int, int]]()
    for index in range(first, last + 1):
        if index in missing or log.index.position(index) == UNKNOWN_POSITION:
            continue
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = ranges[-1][0], index
        else:
            ranges.append((index, index))
    return ranges
