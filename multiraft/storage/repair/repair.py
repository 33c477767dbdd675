"""Repair of one node's logs: record damage, replace damaged entries by copies, clear quarantines.

Contract.  ``Store.repair``, with the store's contract: on the loop, memory only, blocking work as
jobs.  Copies and LIFT records are journal entries of their own, written between rounds, and
take effect when they are durable.  Requests to peers and their timing: ``coordinator.py``.

Invariants.  An entry is replaced only by one of the same group, incarnation, index and term, which
is the same entry (Log Matching, paper 5.3).  Entries of a group that was recovered by force keep
the incarnation of the log, so the incarnation of the group is compared as well.  A quarantine is
cleared on disk before it is cleared in memory, and never while an entry is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from multiraft.codec import layout
from multiraft.raft import joint_quorum
from multiraft.raft.replica_records import ForcedRecovery, reincarnation
from multiraft.storage.cold.cold_segment import HEADER_BYTES as COLD_HEADER_BYTES
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.cold.contents import UnreadableRecord
from multiraft.storage.damage.place import ORIGIN, PlaceRange
from multiraft.storage.damage.ranges import uncovered
from multiraft.storage.errors import CorruptRange, InvalidCopies
from multiraft.storage.index import UNKNOWN_POSITION, Copy
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.io_jobs import ReadJob, RowCopyJob, StagedWrite
from multiraft.storage.journal.journal import Part
from multiraft.storage.journal.segment_index import RANGE_STRUCT, REPAIR_STRUCT
from multiraft.storage.log_table import LogTable
from multiraft.storage.record_store import UNKNOWN_TERM, EntryPlace, MissingRecord
from multiraft.storage.repair.file_records import FileRecords
from multiraft.storage.stored_log import NO_CONFIGURATION, StoredLog
from multiraft.storage.uncopied_ranges import InstalledRange
from multiraft.types import Entry, EntryKind

#: Requests the committed entry of an index, of any term.  No entry has this term.
ANY_COMMITTED = 0

#: Bytes of entries that are read at once to apply them to the partition states after a repair.
REPLAY_BYTES_MAX = 4 << 20


class LocalRepair:
    """Damage of a node's logs and the records that mend them."""

    def __init__(self, table: LogTable):
        self.entries_repaired = 0  # copies taken from peers since the start
        self.records_copied = 0  # records behind snapshots, the same
        self._found: list[CorruptRange] = []
        self._table = table
        self._journal = table.journal
        self._damage = table.journal_damage
        self._forgotten: dict[int, int] = {}  # group -> last compacted entry that was missing
        #: Of the segment whose damage was found last, if its records are in its index file alone.
        self.examined: FileRecords | None = None

    def record_damage(self, group: int, index: int, why: str, position: int = 0,
                      size: int = 0) -> bool:
        """Mark a durable entry as missing, because it cannot be read as it was written, and
        quarantine its replica, in memory only.

        A record is only missing: what it did is in the checkpoints, so its replica stays as it is.
        ``position``, ``size``: of the journal, needed if its place is in an index file alone; 0 =
        unknown.  Return False, and change nothing, if that was known or the entry is not in the
        log."""
        log = self._table.log(group)
        if index in log.missing or index in log.records.missing or not (
                log.has(index) or log.records.in_file(index) is not None):
            return False
        # Entries in memory are contiguous up to the last one, so those before it leave as well.
        for each in [each for each in log.cached if each <= index]:
            del log.cached[each]
        if index < log.raft_start:
            return log.records.lose(index, MissingRecord(position, size))
        log.damage.lose(index, log.place_of(index, self._journal))
        log.damage.quarantine(f"entry {index}: {why}")
        return True

    def lose_unreadable(self, records: Iterable[UnreadableRecord]) -> None:
        """Count records as missing that a scan of a cold segment could not read, unless a copy of
        them counts, or nothing needs them.  ``take_found`` has an error for each.  O(records log
        n)."""
        for each in records:
            error = CorruptRange(each.group, each.index, "unreadable in a cold segment",
                                 each.position, each.size)
            if self._table.stands(each) and self.record_damage(
                    error.group, error.index, error.why, error.position, error.size):
                self._found.append(error)

    def take_found(self) -> list[CorruptRange]:
        """Return the errors of the records that ``lose_unreadable`` counted as missing since the
        last call, to be reported as damage."""
        found, self._found = self._found, []
        return found

    def owners(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return (group, index) of all entries and records of logs that begin in [begin, end) of
        the journal.  Records that are in index files alone are among them if they are in the
        ``examined`` one.  O(entries in memory): for the rare case of damage in that range."""
        return [(group, index) for group, log in sorted(self._table.logs.items())
                for index, _ in self._within(log, begin, end)]

    def _within(self, log: StoredLog, begin: int, end: int) -> list[tuple[int, EntryPlace]]:
        found = [(index, log.locate(index)) for index in log.indexes_within(begin, end)]
        if self.examined is not None:
            found += self.examined.within(log, begin, end)
        return found

    def place_of(self, group: int, index: int) -> EntryPlace | None:
        """Return where an entry or record of a log is; None = it is in neither, or in an index file
        that is not ``examined``.  O(log n)."""
        log = self._table.logs.get(group)
        if log is None:
            return None
        if log.has(index):
            return log.locate(index)
        return self.examined.locate(log, index) if self.examined is not None else None

    def is_at(self, position: int, group: int, index: int) -> bool:
        """Return True if the log of ``group`` has its entry or record ``index`` at a journal
        position.  O(log n)."""
        place = self.place_of(group, index)
        return place is not None and place.position == position

    def is_inside(self, position: int) -> bool:
        """Return True if a journal position lies inside an entry of a log, or of a damaged entry
        that has a copy.  O(entries of the node)."""
        first = position - layout.ENTRY_BYTES_MAX - layout.ENTRY_ALIGNMENT
        return (any(self._ends_behind(group, index, position)
                    for group, index in self.owners(first, position))
                or self._damage.is_inside_explained(self._journal.place_at(position)))

    def _ends_behind(self, group: int, index: int, position: int) -> bool:
        place = self.place_of(group, index)
        return place is not None and place.position + place.size > position

    @property
    def has_known_damage(self) -> bool:
        """True if the journal has damaged ranges, met by this start or named by LIFT records."""
        return self._damage.is_known

    def is_damage_cleared(self, begin: int, end: int) -> bool:
        """Return True if damage in a range of the journal, except in entries of logs, is cleared or
        known for every group.  O(entries of the node)."""
        return not self._logs_not_cleared(begin, end)

    def _logs_not_cleared(self, begin: int, end: int) -> list[StoredLog]:
        """Return the logs for which damage in a range is neither cleared nor known.  O(entries of
        the node)."""
        logs, range_at = self._table.logs, self._journal.range_at
        places = [place for log in logs.values() for _, place in self._within(log, begin, end)]
        owned = [range_at(at.position, at.position + at.size) for at in places]
        ranges = [part for each in self._damage.unexplained(*range_at(begin, end))
                  for part in uncovered(*each, owned)]
        # The LIFT that ends a quarantine will clear the ranges that were found before it.
        expected = [part for each in ranges
                    for part in uncovered(*each, self._damage.unattributed)]
        return [log for log in logs.values() if not log.removed
                and not log.damage.has_cleared(expected if log.quarantined else ranges)]

    def suspect_all(self, begin: int, end: int, why: str) -> list[int]:
        """Quarantine every group that has not cleared damage in a range to which no log points.
        Return the groups that consensus has to exclude, also those that are in head recovery
        already.

        The range may have held any group's hard state or truncation record. Memory still has the
        contents, but the next start could not tell. So each group must be cleared by its leader
        now, while the other nodes are intact; an earlier clearance does not cover this damage."""
        not_cleared = self._logs_not_cleared(begin, end)
        self._damage.add_unattributed(*self._journal.range_at(begin, end))
        anew = sorted(log.group for log in not_cleared
                      if log.damage.needs_head_recovery or not log.quarantined)
        for log in not_cleared:
            log.damage.require_head_recovery(why)
        return anew

    def lose_file(self, start: int, groups: Iterable[int]) -> list[int]:
        """Count the records of these groups in a segment as missing for which only its index file
        answers, because neither of the two can be read.  Return the groups that lack some.

        Each index in the file's ranges becomes missing, of up to ``HOLES_MAX``; members of the
        group tell which of them are records.  The segment stays until they are found: a start scans
        it, and has those of its records that are intact.  Do nothing while records begin to be
        answered from the file: the next read finds the damage again.  O(indexes in the ranges +
        partitions)."""
        known = self._table.indexed.find(start)
        if known is None or known.is_changing:
            return []
        header_bytes = COLD_HEADER_BYTES if is_cold(start) else layout.SEGMENT_HEADER_BYTES
        position = start + header_bytes + 1  # no entry begins there, so a start finds none damaged
        logs = [self._table.logs[group] for group in groups if group in self._table.logs]
        return [log.group for log in logs
                if not log.removed and log.lose_file(known, position)]

    def refresh_restored(self, group: int) -> None:
        """Describe a replica again for ``MultiRaft.add_group``, because damage was found since
        recovery described it and consensus has not added it yet."""
        self._table.restore(group)

    def groups_without_clear_record(self) -> list[int]:
        """Return the groups that this process created and that no LIFT record calls free of earlier
        damage.

        They had no records in the journal before, which the next start could not tell.
        O(groups)."""
        return [group for group, log in self._table.logs.items()
                if log.damage.needs_clear_record and not log.removed]

    def quarantined(self, group: int) -> StoredLog | None:
        """Return the group's log if its replica is quarantined, else None."""
        log = self._table.logs.get(group)
        return log if log is not None and log.quarantined and not log.removed else None

    def damaged(self, group: int) -> StoredLog | None:
        """Return the group's log if its replica is quarantined or records are missing, else
        None."""
        log = self._table.logs.get(group)
        if log is None or log.removed or not (log.quarantined or log.records.missing):
            return None
        return log

    def damaged_groups(self) -> Iterator[int]:
        """Yield the groups whose replica is quarantined or lacks records.  O(groups)."""
        return (group for group in self._table.logs if self.damaged(group) is not None)

    def is_record(self, group: int, index: int) -> bool:
        """Return True if an entry is a record of the group, readable or missing, or any entry of a
        segment whose index file answers for the group.  O(log n)."""
        log = self._table.logs.get(group)
        return log is not None and index < log.raft_start and (
            index in log.records or log.records.in_file(index) is not None)

    def incarnation(self, group: int) -> int:
        """Return the group's incarnation as this node's replica knows it; 0 = no replica.  Entries
        of equal index and term are the same only within one incarnation."""
        log = self._table.logs.get(group)
        return (log.group_incarnation or log.incarnation) if log is not None else 0

    def term(self, group: int) -> int:
        """Return the term of the group's replica. Raise ``UnknownGroup`` for a group without a log
        here."""
        return self._table.log(group).hard_state.term

    def needs_head_recovery(self, group: int) -> bool:
        """Return True if the group's replica may have lost more than the missing entries it knows.
        """
        log = self.quarantined(group)
        return log is not None and log.damage.needs_head_recovery

    def quarantined_groups(self) -> Iterator[int]:
        """Yield the groups whose replica is quarantined and not removed.  O(groups)."""
        return (group for group, log in self._table.logs.items()
                if log.quarantined and not log.removed)

    def absent(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those of the ``wanted`` (index, term) that are neither in the group's log nor
        compacted in it.  Term ``ANY_COMMITTED``: any entry at that index will do."""
        index = self._table.log(group).index
        return [(at, term) for at, term in wanted if at > index.last_index or (
                term != ANY_COMMITTED and at >= index.first_index and not index.holds(at, term))]

    def compacted(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those of the ``wanted`` (index, term) that are compacted in the group's log and no
        records here: no batches, or below the log start of their partition.  Also those that are
        not needed because another member has compacted them.  Uncopied indexes, and those that only
        an index file can tell, are not among them."""
        log = self._table.log(group)
        records = log.records
        return [(at, term) for at, term in wanted if log.is_forgotten(at) or (
                at < log.raft_start
                and at not in records.missing and not records.uncopied.first_in(at, at)
                and not records.holds(at, term) and not self._is_in_file(log, at, term))]

    def _is_in_file(self, log: StoredLog, index: int, term: int) -> bool:
        # The file may name entries below the records, which the log starts have passed, and those
        # that other members have compacted.
        return (log.records.in_file(index) is not None and index >= log.records.first_needed
                and index not in log.records.unneeded
                and term in (ANY_COMMITTED, log.records.term(index)))

    def is_absent(self, group: int, index: int) -> bool:
        """Return True if an index that an index file does not have is compacted and no record, and
        none is missing or uncopied there.  O(log n)."""
        log = self._table.logs.get(group)
        return log is not None and index < log.raft_start and index not in log.records and (
            not log.records.first_missing(index, index))

    def is_no_record(self, entry: Entry) -> bool:
        """Return True if an entry of this node that an index file named is compacted and no record:
        no batch, or below the log start of its partition.  O(1)."""
        log = self._table.logs.get(entry.group)
        if log is None or entry.index >= log.raft_start:
            return False
        state = self._table.partition_states[entry.group].applied(entry.partition)
        return entry.batch is None or state is None or (
            entry.base_offset + entry.batch.count <= state.log_start)

    def wanted(self, group: int, count_max: int) -> tuple[tuple[int, int], ...]:
        """Return (index, term) of up to ``count_max`` missing entries to request from peers, lowest
        first.  Term ``ANY_COMMITTED`` = the committed one.  O(missing log missing)."""
        log = self._table.log(group)
        return tuple([(index, _wanted_term(log, index))
                      for index in sorted(log.missing)[:count_max]])

    def wanted_records(self, group: int, count_max: int,
                       behind: int = 0) -> tuple[tuple[int, int], ...]:
        """Return (index, term) of up to ``count_max`` missing records and holes to request from
        peers, as ``wanted``: the next ones behind an index, or the first.  O(count)."""
        records = self._table.log(group).records
        wanted = (records.missing_behind(behind, count_max)
                  or records.missing_behind(0, count_max))
        return tuple([(index, records.term(index)) for index in wanted])

    def unreadable(self, group: int, first: int) -> list[int]:
        """Return the unreadable entries from an index on, without those that are missing only
        because they may have been truncated.  O(missing)."""
        unreadable = self._table.log(group).damage.unreadable()
        return sorted(index for index in unreadable if index >= first)

    def guessed_through(self, group: int) -> int:
        """Return the last forgotten entry of the Raft log, whose term is a guess; 0 = none.
        O(entries)."""
        return self._table.log(group).guessed_through

    def next_intact(self, group: int, index: int) -> int:
        """Return the index of the first entry behind ``index`` that is not missing; 0 = none.
        O(missing)."""
        log, index = self._table.log(group), index + 1
        while index in log.missing:
            index += 1
        return index if index <= log.index.last_index else 0

    def still_wanted(self, group: int,
                     asked: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Return index -> term of the requested entries that are still wanted with the same term.
        O(asked)."""
        log = self._table.log(group)
        return {index: term for index, term in asked
                if (index in log.missing and term == _wanted_term(log, index))
                or (index in log.records.missing and term == log.records.term(index))}

    def copy_jobs(self, group: int, wanted: Sequence[tuple[int, int]],
                    bytes_max: int) -> list[ReadJob | RowCopyJob]:
        """Return jobs that read, for a peer, those ``wanted`` (index, term) that this log has
        intact, records among them; with the term ``ANY_COMMITTED``, those that are applied.

        One job for each entry whose place is in memory, and one for each index file that has
        others: as many as fit into ``bytes_max``, and at least one if the log has any. O(wanted).
        """
        log, total = self._table.log(group), 0
        jobs: list[ReadJob | RowCopyJob] = []
        in_files: dict[IndexedSegment, list[int]] = {}
        first, applied = log.raft_start, self._table.partition_states[group].applied_index
        for index, term in wanted:
            if self._is_in_file(log, index, term):
                segment = log.records.in_file(index)
                assert segment is not None
                in_files.setdefault(segment, []).append(index)
                continue
            if index < first:  # committed, whatever the term that is asked for
                known = log.records.holds(index, term)
            elif term == ANY_COMMITTED:
                known = first <= index <= applied
            else:
                known = log.index.holds(index, term)
            if not known or log.first_missing_of((index,)) or log.is_forgotten(index):
                continue
            total += log.size(index)
            if jobs and total > bytes_max:
                break
            jobs.append(self._table.read_from_disk(log, (index,)) if index < first
                        else self._table.read_job(group, index, index))
        for segment, indexes in in_files.items():
            if jobs and total >= bytes_max:
                break
            reader = self._table.indexed.reader(group, {segment.number})
            jobs.append(RowCopyJob(group, log.incarnation, indexes, log.records.terms, reader,
                                   segment.number, bytes_max - total))
            total = bytes_max  # it may take all of them
        return jobs

    def first_conflict(self, group: int, entries: Sequence[Entry]) -> int:
        """Return the first index of this log whose term is lower than that of a committed entry
        before it, which a peer sent; 0 = none.

        Only entries whose own term is unknown here are compared.  O(entries + lost)."""
        log = self._table.log(group)
        return min((behind for entry in entries if log.damage.is_term_unknown(entry.index)
                    and (behind := log.next_of_known_term(entry.index)) <= log.index.last_index
                    and log.index.term(behind) < entry.term), default=0)

    def stage_copies(self, group: int, entries: Sequence[Entry],
                     on_durable: Callable[[], None]) -> StagedWrite | None:
        """Return the write of copies of missing entries and records, which peers sent.  They take
        effect when they are durable, right before ``on_durable`` is called.

        Entries that are not missing, or of a term that cannot be right, are left out; None when no
        copy remains."""
        log = self._table.log(group)
        parts: list[Part] = []
        copies: list[Copy] = []
        taken: dict[int, int] = {}
        for entry in entries:
            if entry.incarnation != log.incarnation or not self._is_missing(log, entry, taken):
                continue
            taken[entry.index] = entry.term
            damaged, size = _damaged_place(log, entry.index)
            record = Entry(EntryKind.REPAIR, group, log.incarnation, entry.term, entry.index,
                         payload=REPAIR_STRUCT.pack(damaged, size))
            placed = self._journal.place_in_one_segment([record, entry])
            parts += placed.parts
            copies.append(Copy.of(entry, placed.positions[1], placed.sizes[1], damaged, size))
        if not parts:
            return None
        return self._table.stage_records(parts, lambda: self._use(log, copies, on_durable))

    def stage_records(self, group: int, entries: Sequence[Entry], first: int, through: int,
                      lacking: Sequence[tuple[int, int]],
                      on_durable: Callable[[], None]) -> StagedWrite | None:
        """Return the write of copies of uncopied records, which another member sent: ``entries``,
        ascending, are all records of the indexes first..through, but for those in the ranges
        ``lacking``, which that member lacks.

        When the copies are durable, right before ``on_durable`` is called, they become records and
        the indexes are no longer uncopied.  Ranges of one index in ``lacking`` are missing records
        then, to be requested from any member; longer ones stay uncopied.  Copies of records that
        are here, or below their partition's log start, are left out.  None when no copy remains:
        the indexes are no longer uncopied, and ``on_durable`` is not called.

        Raise ``InvalidCopies``, and change nothing, if the answer contradicts itself or the terms
        that are known here; ``EntryTooLarge`` for an entry over ``entry_bytes_max``.
        O(entries)."""
        log = self._table.log(group)
        lacking = tuple(lacking)
        why = _copies_fault(log, entries, first, through, lacking)
        if why:
            raise InvalidCopies(group, why)
        states = self._table.partition_states[group]
        wanted = [entry for entry in entries if log.is_copy_needed(entry, states)]
        known = log.installed
        if not wanted:
            self._take_records(log, known, (), first, through, lacking)
            return None
        pairs: list[Entry] = []
        for entry in wanted:
            pairs.append(Entry(EntryKind.REPAIR, group, log.incarnation, entry.term, entry.index,
                               payload=REPAIR_STRUCT.pack(UNKNOWN_POSITION, 0)))
            pairs.append(entry)
        placed = self._journal.place_pairs(pairs)
        copies = [Copy.of(entry, placed.positions[at], placed.sizes[at], UNKNOWN_POSITION, 0)
                  for at, entry in zip(range(1, len(pairs), 2), wanted)]

        def take() -> None:
            self._take_records(log, known, copies, first, through, lacking)
            on_durable()

        return self._table.stage_records(placed.parts, take)

    def _take_records(self, log: StoredLog, installed: Sequence[InstalledRange],
                      copies: Sequence[Copy], first: int, through: int,
                      lacking: Sequence[tuple[int, int]]) -> None:
        """Take durable copies.  Do nothing if the replica was removed, or another snapshot
        installed, since they were staged with these ``installed`` ranges."""
        if self._table.logs.get(log.group) is log and log.installed == tuple(installed):
            self.records_copied += log.take_copies(copies, self._table.partition_states[log.group])
            log.records.copied(first, through, lacking, log.raft_start)

    def _is_missing(self, log: StoredLog, entry: Entry, taken: dict[int, int]) -> bool:
        """Return True if a peer's entry is a missing one of the log, or a missing record, by its
        index and term."""
        if entry.index < log.raft_start:
            return (entry.index in log.records.missing
                    and log.records.term(entry.index) in (ANY_COMMITTED, entry.term))
        return entry.index in log.missing and log.may_have_term(entry.index, entry.term, taken)

    def stage_unneeded(self, group: int, index: int) -> StagedWrite | None:
        """Return the write of a record that a damaged range held a compacted entry, of which no
        copy is needed.

        None when such a record exists, or the log does not know the entry's position."""
        log = self._table.log(group)
        if not log.index.first_index <= index <= log.index.last_index:
            return None
        return self._stage_unneeded(log, index, log.locate(index))

    def _stage_unneeded(self, log: StoredLog, index: int, place: EntryPlace) -> StagedWrite | None:
        term, position, size = place
        begin, end = self._journal.range_at(position, position + size)
        if position == UNKNOWN_POSITION or self._damage.is_explained(begin):
            return None
        self._damage.explain(begin, end)
        record = Entry(EntryKind.REPAIR, log.group, log.incarnation, term, index,
                     payload=REPAIR_STRUCT.pack(position, size))
        placed = self._journal.place_in_one_segment([record])
        return self._table.stage_records(placed.parts, lambda: None)

    def _use(self, log: StoredLog, copies: list[Copy], on_durable: Callable[[], None]) -> None:
        for copy in copies:
            at = copy.damaged_position
            self._damage.explain(*self._journal.range_at(at, at + copy.damaged_size))
            self.entries_repaired += log.repair(copy)
        on_durable()

    def forget_holes(self, group: int, indexes: Sequence[int]) -> bool:
        """Stop counting holes among ``indexes`` as missing, because a peer that has compacted these
        entries has no records of them.  Missing records stay: they are needed while their
        partition's log start, as applied here, is not above them.

        The partition of a record that was in an index file alone is not known, so it counts as a
        hole.  If a read finds it again, it is lost again.  A missing batch that seems to end below
        the log start may end above it, which only a peer can tell.  Return True if there was any;
        the next checkpoint names it.  O(indexes * partitions log n)."""
        log, states = self._table.log(group), self._table.partition_states[group]
        holes = [index for index in indexes if index in log.records.missing
                 and (index not in log.records or not log.is_batch_needed(index, states))]
        log.forget_records(holes)
        return bool(holes)

    def compact(self, group: int, first_index: int,
                unneeded: Sequence[int] = ()) -> list[StagedWrite]:
        """Raise the Raft start of a damaged log to ``first_index``, because peers have compacted
        the entries below it.  Return the writes of records that its missing entries which are no
        records are not needed.

        A log of a group without partitions only forgets its missing entries.  ``unneeded``: see
        ``StoredLog.compact``."""
        log, states = self._table.log(group), self._table.partition_states[group]
        if not states.partitions_count and not log.records:
            staged = [self.stage_unneeded(group, index)
                      for index in self.forget_below(group, first_index)]
            return [each for each in staged if each is not None]
        before = {index: log.locate(index) for index in log.missing if index < first_index}
        log.compact(first_index, states, unneeded)
        if before:
            self._forgotten[group] = max(before)
        for index in sorted(unneeded):
            # In ascending order, as they are repaired: the term that the log has for a forgotten
            # entry is a guess, which may not limit the terms of entries before it.
            if (index in log.missing and index < first_index
                    and min(log.damage.terms_unknown(), default=index) >= index):
                log.forget_unneeded(index)
        staged = [self._stage_unneeded(log, index, place) for index, place in before.items()
                  if index not in log.records.missing and index not in log.missing]
        return [each for each in staged if each is not None]

    def forget_below(self, group: int, first_index: int) -> list[int]:
        """Stop counting compacted entries below ``first_index`` as missing; return those that were.

        Until a checkpoint has applied an entry behind them, the next start has them in its log
        again, and misses them."""
        forgotten = self._table.log(group).damage.compact(first_index)
        if forgotten:
            self._forgotten[group] = max(forgotten)
        return forgotten

    def applied_past_forgotten(self) -> dict[int, int]:
        """Return group -> last forgotten entry of the groups that have applied an entry behind it.
        A checkpoint with that applied state lets the next start do without the forgotten entries;
        without it, the group needs a leader to say so.  O(groups with forgotten entries)."""
        partition_states = self._table.partition_states
        return {group: index for group, index in self._forgotten.items()
                if group in partition_states and partition_states[group].applied_index > index}

    def checkpointed(self, behind: dict[int, int]) -> None:
        """Forget entries that a durable checkpoint has applied.  ``behind``: result of
        ``applied_past_forgotten`` when the checkpoint was captured.  O(behind)."""
        for group, index in behind.items():
            if self._forgotten.get(group) == index:
                del self._forgotten[group]

    def replay_job(self, group: int, last_index: int) -> ReadJob | None:
        """Return a job that reads up to ``REPLAY_BYTES_MAX`` of the entries which the partition
        states lack because one of them was missing.  None when the states are at the log's end.

        ``last_index``: of the log in consensus, which may have truncated a suffix that is still
        here until its next round is staged."""
        log, states = self._table.log(group), self._table.partition_states[group]
        first, last = states.last_index + 1, min(log.index.last_index, last_index)
        if first > last:
            return None
        return self._table.read_job(
            group, first, min(last, log.index.last_within(first, REPLAY_BYTES_MAX)))

    def replay(self, group: int, entries: Sequence[Entry], last_index: int) -> str:
        """Append the entries that ``replay_job`` read to the partition states, up to the first one
        that was truncated since or lies behind ``last_index``.

        Return why an entry does not fit the states, or an empty string.  Such an entry quarantines
        the replica permanently."""
        log, states = self._table.log(group), self._table.partition_states[group]
        for entry in entries:
            if (entry.index != states.last_index + 1 or entry.index > last_index
                    or not log.index.holds(entry.index, entry.term)):
                return ""
            is_change = entry.kind == EntryKind.MEMBERSHIP
            why = states.check_entry(entry) or (
                joint_quorum.fault(entry.payload) if is_change else "")
            if why:
                log.damage.quarantine_permanently(why)
                return why
            states.append(entry)
            # The start could not read the configuration in an entry that was missing.
            configuration = joint_quorum.decode(entry.payload) if is_change else None
            log.set_configuration(entry.index, configuration)
        return ""

    def discard_superseded(self, group: int, index: int) -> None:
        """Give up a missing entry in whose place another one is committed: it was truncated, and
        the record of that was in a damaged range.

        Entries behind it and before that range were truncated as well, and entries below may have
        been.  Mark these as perhaps truncated; below, as many as have an unknown term.  O(entries
        behind it)."""
        log = self._table.log(group)
        for each in [each for each in log.cached if each <= index]:
            del log.cached[each]
        log.discard_superseded(index)
        damage_begin = max((begin for begin, _ in self._damage.unattributed), default=ORIGIN)
        guesses = sum(1 for _ in log.damage.terms_unknown())
        for other in range(max(log.index.first_index, index - guesses), log.index.last_index + 1):
            if other < index or log.index.position(other) < damage_begin.journal_offset:
                log.damage.suspect(other, log.place_of(other, self._journal))

    def is_raft_start_recorded(self, group: int) -> bool:
        """Return True if all kept checkpoints have the log's Raft start.

        A start with a lower one reads entries again that were dropped here.  If their replacements
        or the records of their truncation are lost, only damage that is not cleared tells it to ask
        a peer."""
        log = self._table.log(group)
        return log.raft_start_recorded >= log.raft_start

    def require_head_recovery(self, group: int) -> None:
        """Require that a leader clears the replica: it may have lost more than is missing."""
        damage = self._table.log(group).damage
        damage.require_head_recovery(damage.why)

    def stage_clear(self, group: int, on_durable: Callable[[], None]) -> StagedWrite:
        """Return the write of a LIFT record, which clears all damage so far for the group, also the
        ranges of earlier records.

        The group's term, vote and incarnation go with it, because their records may have been in
        the damaged ranges.  The quarantine ends when the LIFT is durable, right before
        ``on_durable`` is called, unless entries are missing or more damage was found meanwhile."""
        log = self._table.log(group)
        term, vote = log.hard_state
        found = self._damage.unattributed_count
        ranges = self._damage.ranges_to_clear(log.damage.cleared_ranges)
        placed = self._journal.place_in_one_segment([
            Entry(EntryKind.HARD_STATE, group, log.incarnation, term, 0,
                  payload=vote.to_bytes(4, "little")),
            *_incarnation(log),
            Entry(EntryKind.LIFT, group, log.incarnation, term, 0,
                  payload=b"".join(RANGE_STRUCT.pack(begin.journal_offset, end.journal_offset)
                                   for begin, end in ranges))])
        return self._table.stage_records(
            placed.parts,
            lambda: self._take_clear(log, placed.positions[-1], ranges, found, on_durable))

    def _take_clear(self, log: StoredLog, position: int, ranges: tuple[PlaceRange, ...], found: int,
                    on_durable: Callable[[], None]) -> None:
        is_all = found == self._damage.unattributed_count
        log.damage.clear(position, ranges, is_all and not log.missing)
        on_durable()


def _incarnation(log: StoredLog) -> list[Entry]:
    """Return a list of the record of the incarnation that a forced recovery began, with the members
    that are known for sure; empty without a forced recovery.

    A start that has the incarnation ignores the record."""
    if log.group_incarnation <= log.incarnation:
        return []
    at = (
        (log.vote_barrier_index, NO_CONFIGURATION)
        if log.vote_barrier_index
        else log.configurations[0]
    )
    return [reincarnation(log.group, log.incarnation, at[0],
                          ForcedRecovery(log.group_incarnation, at[1]), log.vote_barrier_term)]


def _copies_fault(log: StoredLog, entries: Sequence[Entry], first: int, through: int,
                  lacking: Sequence[tuple[int, int]]) -> str:
    """Return why another member's answer cannot be all records of the indexes first..through, but
    for those in ``lacking``; empty if it can."""
    if not 0 < first <= through < log.raft_start:
        return f"indexes {first} to {through}, the Raft start is {log.raft_start}"
    before = first - 1
    for begin, end in lacking:
        if not before < begin <= end <= through:
            return f"it lacks indexes {begin} to {end}, of {before + 1} to {through}"
        before = end
    before = first - 1
    for entry in entries:
        if (entry.group, entry.incarnation, entry.kind) != (log.group, log.incarnation,
                                                            EntryKind.DATA) or not entry.batch:
            return f"{entry!r} is no batch of incarnation {log.incarnation}"
        if not before < entry.index <= through:
            return f"index {entry.index} behind {before}, of {first} to {through}"
        before, term = entry.index, log.records.term(entry.index)
        if term not in (UNKNOWN_TERM, entry.term):
            return f"term {entry.term} at index {entry.index}, which has term {term}"
    return ""


def _damaged_place(log: StoredLog, index: int) -> tuple[int, int]:
    """Return journal position and framed size of a missing entry or record; 0 = unknown, or in a
    cold segment, whose damage concerns nothing but its records."""
    if index < log.raft_start:
        missing = log.records.missing[index]
        if is_cold(missing.position) or not missing.size:
            return UNKNOWN_POSITION, 0
        return missing
    position = log.missing[index].position
    return position, log.index.size(index) if position else 0


def _wanted_term(log: StoredLog, index: int) -> int:
    """Return the term with which a missing entry is requested from peers; ``ANY_COMMITTED`` if it
    is unknown or the entry may have been truncated."""
    return log.index.term(index) if log.damage.is_term_requested(index) else ANY_COMMITTED
