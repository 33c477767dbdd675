"""What a store can do about damage: name it, take copies, hand copies out, say that it is settled.

Contract.  ``Store.repair``, a part of the store with the store's contract: on the loop, memory
only, blocking work as plans.  Copies and lifts are lane entries of their own, written between
rounds; they are in use when they are durable.  Who asks whom, and when: ``repairer.py``.

Invariants.  An entry is replaced by one of the same group, incarnation, index and term only, which
is the same entry (Log Matching, paper 5.3); those of a group that was recovered by force have the
incarnation of the log, so its replica's counts, too.  A quarantine is lifted on disk before it is
lifted in memory, and never while an entry is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from multiraft import _layout, membership
from multiraft.marks import Reincarnation, reincarnation
from multiraft.storage.group_log import NO_CONFIGURATION, GroupLog
from multiraft.storage.index import NOWHERE, Copy, PartitionIndex
from multiraft.storage.lane import Part
from multiraft.storage.log_table import LogTable
from multiraft.storage.places import Place, merged, unknown
from multiraft.storage.plans import ReadPlan, StagedWrite
from multiraft.storage.segment_index import HOLE_STRUCT, REPAIR_STRUCT
from multiraft.types import Entry, EntryKind

#: Asked for in place of a term: whatever is committed at that index.  No entry has that term.
ANY_COMMITTED = 0

#: Damaged places of unknown ownership that one LIFT can settle, the newest of them; a lane with
#: more has to be thrown away.
HOLES_MAX = 64

#: Read at once to move a tail on after a repair.
TAIL_PLAN_BYTES = 4 << 20


class LocalRepair:
    """The store's own hand in repairing it."""

    def __init__(self, table: LogTable):
        self.entries_repaired = 0  # copies taken from peers since the start
        self._table = table
        self._found_named: bool | None = None  # whether lifts of earlier lives name damage
        self._forgotten: dict[int, int] = {}  # group -> last entry that is not missed any more

    def damaged(self, group: int, index: int, why: str) -> bool:
        """A durable entry cannot be read, or not as it was written: it is missing from now on, and
        the replica quarantined.  Whether that is news."""
        log = self._table.log(group)
        first, last = log.index.first_index, log.index.last_index
        if index in log.missing or not first <= index <= last:
            return False
        for hot in [hot for hot in log.cached if hot <= index]:
            del log.cached[hot]
        log.missing[index] = log.index.position(index)
        log.quarantine(f"entry {index}: {why}")
        return True

    def owners(self, begin: int, end: int) -> list[tuple[int, int]]:
        """(group, index) of the entries of present logs that begin in [begin, end) of the lane.
        O(entries): for the rare case that something is wrong there."""
        return [(group, index) for group, log in sorted(self._table.logs.items())
                for index in log.index.within(begin, end)]

    def is_at(self, position: int, group: int, index: int) -> bool:
        """Whether an entry of a present log is to be found at a place of the lane.  O(1)."""
        log = self._table.logs.get(group)
        return (log is not None and log.index.first_index <= index <= log.index.last_index
                and log.index.position(index) == position)

    def is_inside(self, position: int) -> bool:
        """Whether a place of the lane is in the middle of an entry of a present log, or of one that
        has a copy.  O(entries)."""
        first = position - _layout.ENTRY_BYTES_MAX - _layout.ENTRY_ALIGNMENT
        return (any(self._ends_behind(group, index, position)
                    for group, index in self.owners(first, position))
                or self._table.journal_damage.is_inside_copied(position))

    def _ends_behind(self, group: int, index: int, position: int) -> bool:
        at = self._table.log(group).index
        return at.position(index) + at.size(index) > position

    @property
    def knows_damage(self) -> bool:
        """Whether there are damaged places in the lane, as far as this start has met them or found
        them named by lifts.  O(1), O(groups) the first time."""
        if self._found_named is None:
            self._found_named = bool(self._named(self._table.journal.position))
        damage = self._table.journal_damage
        return bool(damage.holes or damage.copied or self._found_named)

    def _named(self, position: int) -> set[Place]:
        """Damage before a place of the lane that some group has settled.  A start does not meet all
        of it again: there are index files in front of it.  O(groups * places)."""
        # What begins where the lane does is how old a log is, and no damage.
        return {place for log in self._table.logs.values() for place in log.settled
                if place[0] and place[1] <= position}

    def is_settled(self, begin: int, end: int) -> bool:
        """Whether damage at a place of the lane, entries of present logs apart, concerns no group
        any more, or all know of it."""
        return not self._unsettled(begin, end)

    def _unsettled(self, begin: int, end: int) -> list[GroupLog]:
        """Those logs that know nothing of the damage of a place.  O(entries)."""
        logs, damage = self._table.logs, self._table.journal_damage
        owned = [(log.index.position(index), log.index.position(index) + log.index.size(index))
                 for log in logs.values() for index in log.index.within(begin, end)]
        places = [part for place in damage.without_copy(begin, end)
                  for part in unknown(*place, owned)]
        # A lift settles what was found before it.
        expected = [part for place in places for part in unknown(*place, damage.holes)]
        return [log for log in logs.values() if not log.removed
                and not log.has_settled(expected if log.quarantined else places)]

    def doubt_all(self, begin: int, end: int, why: str) -> list[int]:
        """Something was damaged that the present logs do not point to: a hard state or a drop, of
        whatever group.  All is in memory still, but the next start could not tell; so every group
        that has not settled it is doubtful until it was cleared, now that the others are well.
        Which are to be put out, once more if they follow: what their leader said before does not
        clear them of this."""
        unsettled = self._unsettled(begin, end)
        self._table.journal_damage.holes.append((begin, end))
        anew = sorted(log.group for log in unsettled if log.doubtful or not log.quarantined)
        for log in unsettled:
            log.doubt(why)
        return anew

    def restate(self, group: int) -> None:
        """Damage was found since the start, and nobody has taken the replica up yet: whoever does
        is told of it."""
        self._table.restore(group)

    def settled_unwritten(self) -> list[int]:
        """Groups of which nothing stood in the lane before they were created here, of which the
        next start could not tell: no lift says so.  O(groups)."""
        return [group for group, log in self._table.logs.items()
                if log.settled and log.lifted <= log.born
                and not log.quarantined and not log.removed]

    def quarantined(self, group: int) -> GroupLog | None:
        """The group's log when its replica is quarantined, for whoever repairs it; else None."""
        log = self._table.logs.get(group)
        return log if log is not None and log.quarantined and not log.removed else None

    def incarnation(self, group: int) -> int:
        """Of the group, as its replica here knows; 0 = there is none.  Only in one of the same can
        an entry of that index and term be the same."""
        log = self._table.logs.get(group)
        return (log.group_incarnation or log.incarnation) if log is not None else 0

    def term(self, group: int) -> int:
        """That the replica is in."""
        return self._table.log(group).hard_state.term

    def is_doubtful(self, group: int) -> bool:
        """Whether the group's replica may have lost more than it can name."""
        log = self.quarantined(group)
        return log is not None and log.doubtful

    def quarantined_groups(self) -> Iterator[int]:
        """Groups whose replica is quarantined, not those of which a tombstone is left.
        O(groups)."""
        return (group for group, log in self._table.logs.items()
                if log.quarantined and not log.removed)

    def absent(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the (index, term) that this log does not hold, though it has not been
        compacted so far."""
        index = self._table.log(group).index
        return [(at, term) for at, term in wanted if at > index.last_index or (
                term != ANY_COMMITTED and at >= index.first_index and not index.holds(at, term))]

    def compacted(self, group: int, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the (index, term) in whose place a state stands here."""
        first = self._table.log(group).index.first_index
        return [(at, term) for at, term in wanted if at < first]

    def wanted(self, group: int, count_max: int) -> tuple[tuple[int, int], ...]:
        """(index, term) of missing entries, lowest first."""
        log = self._table.log(group)
        return tuple([(index, _wanted_term(log, index))
                      for index in sorted(log.missing)[:count_max]])

    def unreadable(self, group: int, first: int) -> list[int]:
        """Missing entries from an index on, not those that are only in question.  O(missing)."""
        log = self._table.log(group)
        return sorted(index for index in log.missing
                      if index >= first and index not in log.questioned)

    def intact_behind(self, group: int, index: int) -> int:
        """The next entry that is not missing; 0 = there is none.  O(missing)."""
        log, index = self._table.log(group), index + 1
        while index in log.missing:
            index += 1
        return index if index <= log.index.last_index else 0

    def still_wanted(self, group: int,
                     asked: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Those that are wanted just so at this moment.  O(asked)."""
        log = self._table.log(group)
        return {index: term for index, term in asked
                if index in log.missing and term == _wanted_term(log, index)}

    def copies_plan(self, group: int, wanted: Sequence[tuple[int, int]],
                    bytes_max: int) -> list[ReadPlan]:
        """For a peer: plans that read those of the (index, term) that stand in this log too, one
        each, as many as fit into ``bytes_max`` and at least one.  O(wanted)."""
        log, total = self._table.log(group), 0
        plans: list[ReadPlan] = []
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
        """The first entry of the log whose term is lower than that of a committed one before it,
        which a peer gave where the term is not known here; 0 = none.  O(entries + lost)."""
        log = self._table.log(group)
        return min((behind for entry in entries if entry.index in log.unsure
                    and (behind := log.sure_behind(entry.index)) <= log.index.last_index
                    and log.index.term(behind) < entry.term), default=0)

    def stage_copies(self, group: int, entries: Sequence[Entry],
                     then: Callable[[], None]) -> StagedWrite | None:
        """Write copies of missing entries, as peers gave them; in use once that is durable, right
        before ``then`` is called.  A copy of what is not missing (any more) is left out; None when
        nothing is left."""
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
        """Write that a damaged place held an entry of which nobody needs a copy: it is compacted.
        None when that is known, or the place is not."""
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

    def _use(self, log: GroupLog, copies: list[tuple[Copy, Entry]],
             then: Callable[[], None]) -> None:
        for copy, entry in copies:
            self._table.journal_damage.copied[copy.damaged] = copy.damaged_size
            if log.repair(copy):
                self.entries_repaired += 1
                if entry.kind == EntryKind.DATA:
                    self._repair_batch(log, entry)
        then()

    def _repair_batch(self, log: GroupLog, entry: Entry) -> None:
        partition = log.partitions.get(entry.partition)
        if partition is None:
            partition = log.partitions[entry.partition] = PartitionIndex(entry.partition, log.group)
        partition.repair(entry.base_offset, entry.batch.count, entry.index,
                         entry.batch.max_timestamp_ms)

    def forget_below(self, group: int, first_index: int) -> list[int]:
        """Nobody needs the entries below any more: what is missing of them is not missed.  Which
        were.  The next start has them in its log again, and misses them."""
        log = self._table.log(group)
        forgotten = [index for index in log.missing if index < first_index]
        for index in forgotten:
            log.found(index)
        if forgotten:
            self._forgotten[group] = max(forgotten)
        return forgotten

    def applied_behind(self) -> dict[int, int]:
        """Of the groups that have forgotten entries, those that have applied one behind them: with
        that in a checkpoint the next start can do without them, whoever leads or whether anybody
        does; before, it takes a leader's word.  O(groups that have)."""
        tails = self._table.tails
        return {group: index for group, index in self._forgotten.items()
                if group in tails and tails[group].applied_index > index}

    def checkpointed(self, behind: dict[int, int]) -> None:
        """A checkpoint is durable, and has what was applied when ``applied_behind`` said this."""
        for group, index in behind.items():
            if self._forgotten.get(group) == index:
                del self._forgotten[group]

    def tail_plan(self, group: int, last_index: int) -> ReadPlan | None:
        """Entries that the tail could not be moved over because one of them was missing, a bounded
        number; None when it is at the log's end.  ``last_index``: as consensus has it, which may
        have dropped a suffix that stands here until its next round is staged."""
        log, tail = self._table.log(group), self._table.tails[group]
        first, last = tail.last_index + 1, min(log.index.last_index, last_index)
        if first > last:
            return None
        return self._table.read_plan(
            group, first, min(last, log.index.last_within(first, TAIL_PLAN_BYTES)))

    def extend_tail(self, group: int, entries: Sequence[Entry], last_index: int) -> str:
        """Move the tail over what ``tail_plan`` read, as far as it has not been dropped since; why
        it cannot be, or empty."""
        log, tail = self._table.log(group), self._table.tails[group]
        for entry in entries:
            if (entry.index != tail.last_index + 1 or entry.index > last_index
                    or not log.index.holds(entry.index, entry.term)):
                return ""
            is_change = entry.kind == EntryKind.MEMBERSHIP
            why = tail.verify(entry) or (membership.fault(entry.payload) if is_change else "")
            if why:
                log.quarantine_for_good(why)
                return why
            tail.append(entry)
            # A start could not read who the members are in what was missing.
            log.learn(entry.index, membership.decode(entry.payload) if is_change else None)
        return ""

    def disown(self, group: int, index: int) -> None:
        """Something else is committed where a missing entry stood, so that was dropped in a hole of
        the lane.  What stood behind it before the hole was dropped with it, and more may have been:
        all that is in question now, and as many entries below as are known to be wrong.
        O(entries behind it)."""
        log = self._table.log(group)
        for hot in [hot for hot in log.cached if hot <= index]:
            del log.cached[hot]
        log.disown(index)
        hole = max((begin for begin, _ in self._table.journal_damage.holes), default=0)
        for other in range(max(log.index.first_index, index - len(log.unsure)),
                           log.index.last_index + 1):
            if other < index or log.index.position(other) < hole:
                log.question(other)

    def expect_clearance(self, group: int) -> None:
        """More may be lost than is missing: only a leader can clear it."""
        log = self._table.log(group)
        log.doubt(log.quarantined)

    def stage_lift(self, group: int, then: Callable[[], None]) -> StagedWrite:
        """Write that all damage so far is settled for the group, what earlier lifts have settled
        included, with its term and vote and the group's incarnation, which may have been what was
        damaged; lifted once that is durable, right before ``then`` is called, unless more damage
        was found meanwhile.
        """
        log = self._table.log(group)
        term, vote = log.hard_state
        # A start does not see the holes behind index files, the scrub all of them.
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

    def _to_settle(self, holes: list[Place]) -> tuple[Place, ...]:
        """What a lift names of places that are settled: what copies explain, too, since their
        REPAIR records may be lost later, but only where there is room beside what nothing else
        explains.  O(places + copies)."""
        damage = self._table.journal_damage
        explained = merged([*holes, *damage.explained()])
        if len(explained) <= HOLES_MAX:
            return tuple(explained)
        # Whole, whatever stands in them: copies would cut one into more places than there is room.
        bare = [place for place in holes if damage.without_copy(*place)]
        room = max(0, HOLES_MAX - len(bare))
        return tuple(merged([*bare[-HOLES_MAX:], *explained[len(explained) - room:]]))

    def _lift(self, log: GroupLog, position: int, holes: tuple[Place, ...], found: int,
              then: Callable[[], None]) -> None:
        if position > log.lifted:  # else it was removed meanwhile, which settles all as well
            log.lifted, log.settled = position, holes
            is_all = found == len(self._table.journal_damage.holes)
            if not log.missing and is_all and not log.lasting:
                log.lift()
        then()


def _incarnation(log: GroupLog) -> list[Entry]:
    """The record of an incarnation that a forced recovery began, as of the members that are known
    for sure; a start that knows of it passes it over."""
    if log.group_incarnation <= log.incarnation:
        return []
    at = (log.barred, NO_CONFIGURATION) if log.barred else log.configurations[0]
    return [reincarnation(log.group, log.incarnation, at[0],
                          Reincarnation(log.group_incarnation, at[1]), log.barred_term)]


def _wanted_term(log: GroupLog, index: int) -> int:
    """Of a missing entry."""
    if index in log.unsure or index in log.questioned:
        return ANY_COMMITTED
    return log.index.term(index)
