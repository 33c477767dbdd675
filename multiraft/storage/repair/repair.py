"""Repair of one node's logs: record damage, replace damaged entries by copies, lift quarantines.

Contract.  ``Store.repair``, with the store's contract: on the loop, memory only, blocking work as
plans.  Copies and lifts are journal entries of their own, written between rounds, and take effect
when they are durable.  Requests to peers and their timing: ``coordinator.py``.

Invariants.  An entry is replaced only by one of the same group, incarnation, index and term, which
is the same entry (Log Matching, paper 5.3).  Entries of a group that was recovered by force keep
the incarnation of the log, so the incarnation of the group is compared as well.  A quarantine is
lifted on disk before it is lifted in memory, and never while an entry is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from multiraft.codec import layout
from multiraft.raft import joint_quorum
from multiraft.raft.replica_records import ForcedRecovery, reincarnation
from multiraft.storage.index import NOWHERE, Copy, PartitionIndex
from multiraft.storage.io_jobs import ReadJob, StagedWrite
from multiraft.storage.journal.journal import Part
from multiraft.storage.journal.segment_index import HOLE_STRUCT, REPAIR_STRUCT
from multiraft.storage.log_table import LogTable
from multiraft.storage.ranges import ByteRange, merged, unknown
from multiraft.storage.stored_log import NO_CONFIGURATION, StoredLog
from multiraft.types import Entry, EntryKind

#: Requests the committed entry of an index, of any term.  No entry has this term.
ANY_COMMITTED = 0

#: Damaged ranges of unknown owner that one LIFT can settle, the newest of them; a journal with
#: more has to be replaced.
HOLES_MAX = 64

#: Bytes of entries that are read at once to apply them to the partition states after a repair.
TAIL_PLAN_BYTES = 4 << 20


class LocalRepair:
    """Damage of a node's logs and the records that mend them."""

    def __init__(self, table: LogTable):
        self.entries_repaired = 0  # copies taken from peers since the start
        self._table = table
        self._found_named: bool | None = None  # lifts before this start name damage; None = unknown
        self._forgotten: dict[int, int] = {}  # group -> last compacted entry that was missing

    def damaged(self, group: int, index: int, why: str) -> bool:
        """Mark a durable entry as missing, because it cannot be read as it was written, and
        quarantine its replica.  Return False if that was known or the entry is not in the log."""
        log = self._table.log(group)
        first, last = log.index.first_index, log.index.last_index
        if index in log.missing or not first <= index <= last:
            return False
        # Entries in memory are contiguous up to the last one, so those before it leave as well.
        for hot in [hot for hot in log.cached if hot <= index]:
            del log.cached[hot]
        log.missing[index] = log.index.position(index)
        log.quarantine(f"entry {index}: {why}")
        return True

    def owners(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return (group, index) of all entries that begin in [begin, end) of the journal and are in
        a log.  O(entries of the node): for the rare case of damage in that range."""
        return [(group, index) for group, log in sorted(self._table.logs.items())
                for index in log.index.within(begin, end)]

    def is_at(self, position: int, group: int, index: int) -> bool:
        """Return True if the log of ``group`` has its entry ``index`` at a journal position.  O(1).
        """
        log = self._table.logs.get(group)
        return (log is not None and log.index.first_index <= index <= log.index.last_index
                and log.index.position(index) == position)

    def is_inside(self, position: int) -> bool:
        """Return True if a journal position lies inside an entry of a log, or of a damaged entry
        that has a copy.  O(entries of the node)."""
        first = position - layout.ENTRY_BYTES_MAX - layout.ENTRY_ALIGNMENT
        return (any(self._ends_behind(group, index, position)
                    for group, index in self.owners(first, position))
                or self._table.journal_damage.is_inside_copied(position))

    def _ends_behind(self, group: int, index: int, position: int) -> bool:
        at = self._table.log(group).index
        return at.position(index) + at.size(index) > position

    @property
    def knows_damage(self) -> bool:
        """Return True if the journal has damaged ranges, met by this start or named by lifts.
        O(1), O(groups) the first time."""
        if self._found_named is None:
            self._found_named = bool(self._named(self._table.journal.position))
        damage = self._table.journal_damage
        return bool(damage.holes or damage.copied or self._found_named)

    def _named(self, position: int) -> set[ByteRange]:
        """Return the damaged ranges before a journal position that a group has settled.  A start
        does not meet all of them again, because it reads index files instead of sealed segments.
        O(groups * ranges)."""
        # A range from position 0 on says how old a log is, and is no damage.
        return {place for log in self._table.logs.values() for place in log.settled
                if place[0] and place[1] <= position}

    def is_settled(self, begin: int, end: int) -> bool:
        """Return True if damage in a range of the journal, except in entries of logs, is settled or
        known for every group.  O(entries of the node)."""
        return not self._unsettled(begin, end)

    def _unsettled(self, begin: int, end: int) -> list[StoredLog]:
        """Return the logs for which damage in a range is neither settled nor known.  O(entries of
        the node)."""
        logs, damage = self._table.logs, self._table.journal_damage
        owned = [(log.index.position(index), log.index.position(index) + log.index.size(index))
                 for log in logs.values() for index in log.index.within(begin, end)]
        places = [part for place in damage.without_copy(begin, end)
                  for part in unknown(*place, owned)]
        # The lift that ends a quarantine will settle the ranges that were found before it.
        expected = [part for place in places for part in unknown(*place, damage.holes)]
        return [log for log in logs.values() if not log.removed
                and not log.has_settled(expected if log.quarantined else places)]

    def suspect_all(self, begin: int, end: int, why: str) -> list[int]:
        """Quarantine every group that has not settled damage in a range that no log points to: it
        may have been any group's hard state or truncation record.  Memory still has the contents,
        but the next start could not tell, so each group must be cleared by its leader now, while
        the other nodes are intact.  Return the groups to exclude from consensus, also those that
        follow a leader already: its earlier clearance does not cover this damage."""
        unsettled = self._unsettled(begin, end)
        self._table.journal_damage.holes.append((begin, end))
        anew = sorted(log.group for log in unsettled if log.doubtful or not log.quarantined)
        for log in unsettled:
            log.doubt(why)
        return anew

    def restate(self, group: int) -> None:
        """Renew the description of a replica that recovery found and consensus has not added yet,
        because damage was found since."""
        self._table.restore(group)

    def settled_unwritten(self) -> list[int]:
        """Return the groups that had no records in the journal before this process created them,
        and no lift that says so yet: the next start could not tell.  O(groups)."""
        return [group for group, log in self._table.logs.items()
                if log.settled and log.lifted <= log.born
                and not log.quarantined and not log.removed]

    def quarantined(self, group: int) -> StoredLog | None:
        """Return the group's log if its replica is quarantined, else None."""
        log = self._table.logs.get(group)
        return log if log is not None and log.quarantined and not log.removed else None

    def incarnation(self, group: int) -> int:
        """Return the group's incarnation as this node's replica knows it; 0 = no replica.  Entries
        of equal index and term are the same only within one incarnation."""
        log = self._table.logs.get(group)
        return (log.group_incarnation or log.incarnation) if log is not None else 0

    def term(self, group: int) -> int:
        """Return the term of the group's replica.  Raise ``UnknownGroup``."""
        return self._table.log(group).hard_state.term

    def is_doubtful(self, group: int) -> bool:
        """Return True if the group's replica may have lost more than the missing entries it knows.
        """
        log = self.quarantined(group)
        return log is not None and log.doubtful

    def quarantined_groups(self) -> Iterator[int]:
        """Yield the groups whose replica is quarantined and not removed.  O(groups)."""
        return (group for group, log in self._table.logs.items()
                if log.quarantined and not log.removed)

    def absent(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those (index, term) that are not in the group's log and not compacted in it."""
        index = self._table.log(group).index
        return [(at, term) for at, term in wanted if at > index.last_index or (
                term != ANY_COMMITTED and at >= index.first_index and not index.holds(at, term))]

    def compacted(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those (index, term) that are compacted in the group's log."""
        first = self._table.log(group).index.first_index
        return [(at, term) for at, term in wanted if at < first]

    def wanted(self, group: int, count_max: int) -> tuple[tuple[int, int], ...]:
        """Return (index, term) of missing entries, lowest first.  O(missing log missing)."""
        log = self._table.log(group)
        return tuple([(index, _wanted_term(log, index))
                      for index in sorted(log.missing)[:count_max]])

    def unreadable(self, group: int, first: int) -> list[int]:
        """Return the unreadable entries from an index on, without those that are missing only
        because they may have been truncated.  O(missing)."""
        log = self._table.log(group)
        return sorted(index for index in log.missing
                      if index >= first and index not in log.questioned)

    def intact_behind(self, group: int, index: int) -> int:
        """Return the first entry behind ``index`` that is not missing; 0 = none.  O(missing)."""
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
                if index in log.missing and term == _wanted_term(log, index)}

    def copies_plan(self, group: int, wanted: Sequence[tuple[int, int]],
                    bytes_max: int) -> list[ReadJob]:
        """Plan reads, for a peer, of those (index, term) that this log has intact: one plan each,
        as many as fit into ``bytes_max`` and at least one.  O(wanted)."""
        log, total = self._table.log(group), 0
        plans: list[ReadJob] = []
        first, applied = log.index.first_index, self._table.tails[group].applied_index
        for index, term in wanted:
            if term == ANY_COMMITTED:
                known = first <= index <= applied
            else:
                known = log.index.holds(index, term)
            if not known or index in log.missing:
                continue
            total += log.index.size(index)
            if plans and total > bytes_max:
                break
            plans.append(self._table.read_plan(group, index, index))
        return plans

    def contradicted(self, group: int, entries: Sequence[Entry]) -> int:
        """Return the first entry of the log with a lower term than a committed entry before it that
        a peer sent, where this log does not know the term; 0 = none.  O(entries + lost)."""
        log = self._table.log(group)
        return min((behind for entry in entries if entry.index in log.unsure
                    and (behind := log.sure_behind(entry.index)) <= log.index.last_index
                    and log.index.term(behind) < entry.term), default=0)

    def stage_copies(self, group: int, entries: Sequence[Entry],
                     then: Callable[[], None]) -> StagedWrite | None:
        """Stage copies of missing entries that peers sent.  They take effect when they are durable,
        right before ``then`` is called.  Entries that are not missing are left out; None when no
        copy remains."""
        log = self._table.log(group)
        parts: list[Part] = []
        copies: list[tuple[Copy, Entry]] = []
        taken: dict[int, int] = {}
        for entry in entries:
            if (entry.index not in log.missing or entry.incarnation != log.incarnation
                    or not log.fits(entry.index, entry.term, taken)):
                continue
            taken[entry.index] = entry.term
            damaged = log.missing[entry.index]
            size = log.index.size(entry.index) if damaged else 0
            mark = Entry(EntryKind.REPAIR, group, log.incarnation, entry.term, entry.index,
                         payload=REPAIR_STRUCT.pack(damaged, size))
            placed = self._table.journal.place_whole([mark, entry])
            parts += placed.parts
            copies.append((Copy(entry.index, entry.term, placed.positions[1], placed.sizes[1],
                                damaged, size), entry))
        if not parts:
            return None
        return self._table.stage_records(parts, lambda: self._use(log, copies, then))

    def stage_needless(self, group: int, index: int) -> StagedWrite | None:
        """Stage a record that a damaged range held a compacted entry, of which no copy is needed.
        None when such a record exists, or the entry's position is unknown."""
        log, copied = self._table.log(group), self._table.journal_damage.copied
        if not log.index.first_index <= index <= log.index.last_index:
            return None
        position, size = log.index.position(index), log.index.size(index)
        if position == NOWHERE or position in copied:
            return None
        copied[position] = size
        mark = Entry(EntryKind.REPAIR, group, log.incarnation, log.index.term(index), index,
                     payload=REPAIR_STRUCT.pack(position, size))
        placed = self._table.journal.place_whole([mark])
        return self._table.stage_records(placed.parts, lambda: None)

    def _use(self, log: StoredLog, copies: list[tuple[Copy, Entry]],
             then: Callable[[], None]) -> None:
        for copy, entry in copies:
            self._table.journal_damage.copied[copy.damaged] = copy.damaged_size
            if log.repair(copy):
                self.entries_repaired += 1
                if entry.kind == EntryKind.DATA:
                    self._repair_batch(log, entry)
        then()

    def _repair_batch(self, log: StoredLog, entry: Entry) -> None:
        partition = log.partitions.get(entry.partition)
        if partition is None:
            partition = log.partitions[entry.partition] = PartitionIndex(entry.partition, log.group)
        batch = entry.batch
        assert batch is not None
        partition.repair(entry.base_offset, batch.count, entry.index, batch.max_timestamp_ms)

    def forget_below(self, group: int, first_index: int) -> list[int]:
        """Stop counting compacted entries below ``first_index`` as missing; return those that were.
        Until a checkpoint has applied an entry behind them, a start has them in its log again, and
        misses them."""
        log = self._table.log(group)
        forgotten = [index for index in log.missing if index < first_index]
        for index in forgotten:
            log.found(index)
        if forgotten:
            self._forgotten[group] = max(forgotten)
        return forgotten

    def applied_behind(self) -> dict[int, int]:
        """Return group -> last forgotten entry of the groups that have applied an entry behind it.
        A checkpoint with that applied state lets the next start do without the forgotten entries;
        without it, the group needs a leader to say so.  O(groups with forgotten entries)."""
        tails = self._table.tails
        return {group: index for group, index in self._forgotten.items()
                if group in tails and tails[group].applied_index > index}

    def checkpointed(self, behind: dict[int, int]) -> None:
        """Record that a checkpoint is durable that was captured when ``applied_behind`` returned
        ``behind``.  O(behind)."""
        for group, index in behind.items():
            if self._forgotten.get(group) == index:
                del self._forgotten[group]

    def tail_plan(self, group: int, last_index: int) -> ReadJob | None:
        """Plan a read of entries that the partition states lack because one of them was missing, a
        bounded number; None when the states are at the log's end.  ``last_index``: of the log in
        consensus, which may have truncated a suffix that is still here until its next round is
        staged."""
        log, tail = self._table.log(group), self._table.tails[group]
        first, last = tail.last_index + 1, min(log.index.last_index, last_index)
        if first > last:
            return None
        return self._table.read_plan(
            group, first, min(last, log.index.last_within(first, TAIL_PLAN_BYTES)))

    def extend_tail(self, group: int, entries: Sequence[Entry], last_index: int) -> str:
        """Append the entries that ``tail_plan`` read to the partition states, as far as they were
        not truncated since.  Return why an entry does not fit the states, or an empty string."""
        log, tail = self._table.log(group), self._table.tails[group]
        for entry in entries:
            if (entry.index != tail.last_index + 1 or entry.index > last_index
                    or not log.index.holds(entry.index, entry.term)):
                return ""
            is_change = entry.kind == EntryKind.MEMBERSHIP
            why = tail.check_entry(entry) or (
                joint_quorum.fault(entry.payload) if is_change else "")
            if why:
                log.quarantine_for_good(why)
                return why
            tail.append(entry)
            # The start could not read the configuration in an entry that was missing.
            log.learn(entry.index, joint_quorum.decode(entry.payload) if is_change else None)
        return ""

    def disown(self, group: int, index: int) -> None:
        """Give up a missing entry in whose place another one is committed: it was truncated, and
        the record of that was in a damaged range.  The entries behind it in front of that range
        were truncated with it, and entries below may have been: mark them as in question, as many
        below as are known to be wrong.  O(entries behind it)."""
        log = self._table.log(group)
        for hot in [hot for hot in log.cached if hot <= index]:
            del log.cached[hot]
        log.disown(index)
        hole = max((begin for begin, _ in self._table.journal_damage.holes), default=0)
        for other in range(max(log.index.first_index, index - len(log.unsure)),
                           log.index.last_index + 1):
            if other < index or log.index.position(other) < hole:
                log.question(other)

    def require_head_recovery(self, group: int) -> None:
        """Require that a leader clears the replica: it may have lost more than is missing."""
        log = self._table.log(group)
        log.doubt(log.quarantined)

    def stage_lift(self, group: int, then: Callable[[], None]) -> StagedWrite:
        """Stage a LIFT: all damage so far is settled for the group, including the ranges of earlier
        lifts.  The group's term, vote and incarnation go with it, because their records may have
        been in the damaged ranges.  The quarantine ends when the LIFT is durable, right before
        ``then`` is called, unless more damage was found meanwhile.
        """
        log = self._table.log(group)
        term, vote = log.hard_state
        # Earlier ranges too: a start does not meet those in segments with an index file, but the
        # scrub reads all segments.
        damage = self._table.journal_damage
        found = len(damage.holes)
        holes = self._to_settle(merged([*log.settled, *damage.holes]))
        placed = self._table.journal.place_whole([
            Entry(EntryKind.HARD_STATE, group, log.incarnation, term, 0,
                  payload=vote.to_bytes(4, "little")),
            *_incarnation(log),
            Entry(EntryKind.LIFT, group, log.incarnation, term, 0,
                  payload=b"".join(HOLE_STRUCT.pack(*hole) for hole in holes))])
        return self._table.stage_records(placed.parts, lambda: self._lift(log, placed.positions[-1],
                                                                    holes, found, then))

    def _to_settle(self, holes: list[ByteRange]) -> tuple[ByteRange, ...]:
        """Return the ranges that a LIFT names, at most ``HOLES_MAX``: first those that no copy
        explains, then those of copies, whose REPAIR records may be lost later.  O(n log n) in
        ranges and copies."""
        damage = self._table.journal_damage
        explained = merged([*holes, *damage.explained()])
        if len(explained) <= HOLES_MAX:
            return tuple(explained)
        # Ranges stay whole: without the parts that copies explain, one could become more ranges
        # than a LIFT has room for.
        bare = [place for place in holes if damage.without_copy(*place)]
        room = max(0, HOLES_MAX - len(bare))
        return tuple(merged([*bare[-HOLES_MAX:], *explained[len(explained) - room:]]))

    def _lift(self, log: StoredLog, position: int, holes: tuple[ByteRange, ...], found: int,
              then: Callable[[], None]) -> None:
        if position > log.lifted:  # else a tombstone behind it has settled all damage
            log.lifted, log.settled = position, holes
            is_all = found == len(self._table.journal_damage.holes)
            if not log.missing and is_all and not log.lasting:
                log.lift()
        then()


def _incarnation(log: StoredLog) -> list[Entry]:
    """Return the record of the incarnation that a forced recovery began, with the members that are
    known for sure, as a list of none or one.  A start that has the incarnation ignores it."""
    if log.group_incarnation <= log.incarnation:
        return []
    at = (
        (log.vote_barrier_index, NO_CONFIGURATION)
        if log.vote_barrier_index
        else log.configurations[0]
    )
    return [reincarnation(log.group, log.incarnation, at[0],
                          ForcedRecovery(log.group_incarnation, at[1]), log.vote_barrier_term)]


def _wanted_term(log: StoredLog, index: int) -> int:
    """Return the term with which a missing entry is requested from peers."""
    # A truncated entry may still be in the log of a member that has not heard of the truncation, so
    # only the committed entry at that index will do.
    if index in log.unsure or index in log.questioned:
        return ANY_COMMITTED
    return log.index.term(index)
