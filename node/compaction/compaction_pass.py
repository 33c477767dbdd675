"""Passes of compaction by key on one node: which partitions are examined, and what is proposed.

Contract.  ``steps`` is one pass, as an iterator: each ``next`` is a bounded portion of work, and
the caller decides what runs in between.  ``raised``, ``lead`` and ``settings_altered`` say what a
later pass has to examine.  A pass proposes COMPACT entries in groups that this node leads; how
records are compacted is no subject here.  Without a function that tells what replicas carried out,
nothing is examined and nothing proposed.

Invariants.  Only the leader of a partition's last epoch proposes, from state that it has applied
after it became leader, while every node knows the entry.  A partition has at most one COMPACT that
is not applied here, or not carried out by the voters that are up.  While this node's wall clock is
far from those of the others, no record is old and no tombstone goes.

Theory.  Records are compacted when they are in the record store.  So a partition is examined when
the Raft start of its group passes batches of it, when a time is reached at which something of it
will be old, when its settings were altered, and when this node became its leader.  No pass visits
partitions for which none of these is true.  A pass may be cut off at any point: the next leader
examines all partitions of the group.

The sizes that decide are sums over the batches' rows in index files.  Dirty batches are counted
once.  The clean part is counted once for each COMPACT and each log start: it reads less than the
compaction does.  All of this is in memory only, and of one leadership.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.errors import ProposalError
from multiraft.partitions.clock_list import index_before, time_after
from multiraft.partitions.retention_records import CLOCK_MS_MAX, Compaction, compact_payload
from multiraft.types import METADATA_GROUP, EntryKind, Payload
from node.compaction.compaction_policy import (
    INDEX_MAX,
    Bounds,
    DirtyPart,
    Rules,
    Standing,
    decide,
    dirty_share,
    rules_of,
)
from node.compaction.tombstone_marks import Mark, TombstoneMarks
from node.metadata.settings_table import CLUSTER
from node.retention.batch_reader import Batches, BatchReader
from node.retention.retention_schedule import RetentionSchedule

if TYPE_CHECKING:
    from multiraft.liveness.clock_skew import ClockSkew
    from multiraft.partitions.partition_state import PartitionState
    from multiraft.partitions.state import PartitionStates
    from node.metadata.node_releases import ReleaseGate
    from node.metadata.state_machine import Location, MetadataState

#: Partitions that one step examines at most, at some 30 us each.
PARTITIONS_PER_STEP = 32
#: Batches that one step examines at most, at about 1 us each.
BATCHES_PER_STEP = 512
#: Passes after which a partition that cannot be examined now is examined again: a minute.
PASSES_PER_RETRY = 6
#: COMPACT entries of one group that are not carried out at a time.  A replica carries out one after
#: the other, and what is proposed later counts more records.
IN_FLIGHT_MAX = 64
#: What is remembered of a partition without anything to come is dropped after this, in
#: milliseconds: counting its batches again takes a microsecond for each.
KEPT_MS = 3_600_000

#: Function of (group, partition) that returns a generation: 0 = none was carried out.
Generations = Callable[[int, int], int]


class Roles(Protocol):
    """The part of ``multiraft.raft.status_view.StatusView`` that is asked here."""

    def is_leader(self, group: int) -> bool: ...

    def has_applied_in_term(self, group: int) -> bool: ...

    def records_left(self, group: int) -> int: ...

    def led_groups(self) -> list[int]: ...


class Consensus(Protocol):
    """The part of ``multiraft.raft.multi_raft.MultiRaft`` that is used here."""

    @property
    def status(self) -> Roles: ...

    def propose(self, group: int, kind: EntryKind, payload: Payload,
                partition: int = 0) -> object: ...


class Store(Batches, Protocol):
    """The part of ``multiraft.storage.store.Store`` that is used here."""

    def raft_start(self, group: int) -> int: ...


class MetadataCopy(Protocol):
    """This node's copy of the metadata; a snapshot replaces the state object."""

    @property
    def state(self) -> MetadataState: ...


class Clocks(Protocol):
    """The proposer of CLOCK entries (``node.retention.clock_entries``)."""

    def close(self, group: int) -> bool: ...

    def date(self, group: int) -> bool: ...


class CarriedOut(NamedTuple):
    """Functions that tell which COMPACT of a partition was carried out."""

    here: Generations  # by this node's replica
    elsewhere: Generations  # the lowest one that the voters on other nodes that are up reported
    everywhere: Generations  # the lowest one that all members on other nodes reported


class Proposed(NamedTuple):
    """A COMPACT that was proposed."""

    group: int
    partition: int
    compaction: Compaction
    dirty_bytes: int


class _Known:
    """Knowledge of a leader of one partition."""

    __slots__ = ("group", "leadership", "generation", "log_start", "clean_to", "clean_bytes",
                 "dirty", "marks", "marked", "used_ms")

    def __init__(self, group: int, leadership: int):
        self.group = group
        self.leadership = leadership
        self.generation = -1  # of the COMPACT that the numbers belong to; -1 = no numbers
        self.log_start = 0
        self.clean_to = 0  # ``up_to`` of that COMPACT
        self.clean_bytes = -1  # below; -1 = not counted yet
        self.dirty = DirtyPart(0)
        self.marks = TombstoneMarks()
        self.marked = 0  # generation of the last mark
        self.used_ms = 0  # when a batch was last added to the dirty part

    def begin(self, state: PartitionState, now_ms: int) -> None:
        """Begin to count anew behind another COMPACT, and from another log start on."""
        last = state.compaction
        if (last.generation, state.log_start) != (self.generation, self.log_start):
            self.generation, self.log_start = last.generation, state.log_start
            self.clean_to = last.up_to
            self.dirty = DirtyPart(max(last.up_to, state.log_start))
            self.clean_bytes = 0 if last.up_to <= state.log_start else -1
            self.used_ms = now_ms


class CompactionPasses:
    """The decisions of one node about compaction in the partitions that it leads."""

    def __init__(self, core: Consensus, store: Store, metadata: MetadataCopy, clocks: Clocks,
                 skew: ClockSkew, gate: ReleaseGate, bucket_ms: int,
                 carried_out: CarriedOut | None,
                 report: Callable[[Proposed], None] = lambda _proposed: None):
        """``gate``: whether all nodes know the entry.  ``bucket_ms``: time by which a partition may
        be examined too late.  ``carried_out`` None = nothing is proposed: COMPACT entries are not
        carried out here, or not wanted.  ``report`` is called with each proposal."""
        self._core = core
        self._store = store
        self._metadata = metadata
        self._clocks = clocks
        self._skew = skew
        self._gate = gate
        self._bucket_ms = bucket_ms
        self._carried_out = carried_out
        self._report = report
        self._schedule = RetentionSchedule(bucket_ms)
        self._raised: set[int] = set()  # partitions with batches that the Raft start passed
        self._altered: set[int] = set()  # topics
        self._begun: set[int] = set()  # groups whose leader this node became
        self._leaderships: Counter[int] = Counter()  # group -> how often that happened
        self._known: dict[int, _Known] = {}
        self._in_flight: dict[int, set[int]] = {}  # group -> partitions
        #: Group -> partitions that are due, and wait until others are carried out.
        self._ready: dict[int, dict[int, None]] = {}
        self._undated: set[int] = set()  # groups with batches behind their last CLOCK
        self._marked: set[int] = set()  # groups with marks behind their last CLOCK
        self._state: MetadataState | None = None
        self._is_far = False
        self._is_closed = False  # a node does not know the entry
        self._budget = 0
        self._share_max = 0.0
        #: The driver reads the block that it wants.
        self.reader = BatchReader(store, PARTITIONS_PER_STEP * BATCHES_PER_STEP)
        self.examined = 0  # partitions
        self.proposed = 0  # COMPACT entries
        self.refused = 0  # COMPACT entries
        self.dirty_bytes = 0  # that the proposed ones are to compact
        self.dirty_share_max = 0.0  # of the last pass that examined a dirty partition

    # ---- what happens between passes ------------------------------------------------------------

    def raised(self, group: int, partitions: Collection[int]) -> None:
        """Have the next pass examine partitions of a group with batches that may have come into the
        record store.  O(partitions)."""
        if self._carried_out is None:
            return
        if self._core.status.is_leader(group):
            self._raised.update(partitions)
        else:
            for partition in partitions:
                self._forget(partition)

    def lead(self, group: int) -> None:
        """Have the next pass examine all partitions of a group whose leader this node became, and
        forget what it knew of them.  O(1)."""
        if group != METADATA_GROUP and self._carried_out is not None:
            self._begun.add(group)
            self._leaderships[group] += 1
            self._in_flight.pop(group, None)
            self._ready.pop(group, None)

    def settings_altered(self, topic: int) -> None:
        """Have the next pass examine the partitions of a topic; 0 = the defaults of the cluster
        were altered, and all partitions are examined.  O(1), O(groups) for the cluster."""
        if self._carried_out is None:
            return
        if topic == CLUSTER:
            self._begun.update(self._led())
        else:
            self._altered.add(topic)

    @property
    def candidates(self) -> int:
        """Number of partitions with records to compact at some time, or with a COMPACT that is not
        carried out."""
        return len(self._known)

    @property
    def in_flight(self) -> int:
        """Number of partitions with a COMPACT that is not carried out.  O(groups with any)."""
        return sum(map(len, self._in_flight.values()))

    # ---- one pass -------------------------------------------------------------------------------

    def steps(self, now_ms: int) -> Iterator[None]:
        """Run a pass, in steps; ``now_ms``: this node's wall clock, milliseconds since 1970.  The
        first step has run when the first ``next`` returns.  O(partitions to examine + batches that
        were not counted yet)."""
        if self._carried_out is None:
            return
        self._budget = PARTITIONS_PER_STEP * BATCHES_PER_STEP
        self._share_max = 0.0
        self._judge()
        if self._gate.fault:
            self._raised.clear()
            return
        if self._state is not self._metadata.state:  # of a snapshot, or the first
            self._state = self._metadata.state
            self._begun.update(self._led())
        for partition in self._schedule.take(now_ms):
            yield from self._spend(self._examine(partition, now_ms))
        for partition in self._taken_ready():
            yield from self._spend(self._examine(partition, now_ms))
        raised, self._raised = self._raised, set()
        for partition in raised:
            yield from self._spend(self._examine(partition, now_ms))
        altered, self._altered = self._altered, set()
        for topic in altered:
            found = self._metadata.state.topic_at(topic)
            for partition in map(found.incarnation_of, range(found.partitions)) if found else ():
                yield from self._spend(self._examine(partition, now_ms))
        yield from self._examine_begun(now_ms)
        self._date(self._marked, self._clocks.date)
        self._date(self._undated, self._clocks.close)
        self.dirty_share_max = self._share_max or self.dirty_share_max
        yield

    def _judge(self) -> None:
        """Have all partitions examined again once all nodes know the entry, and once this node's
        clock is right again."""
        is_closed, is_far = bool(self._gate.fault), self._skew.is_far
        if (self._is_closed and not is_closed) or (self._is_far and not is_far):
            self._begun.update(self._led())
        self._is_closed, self._is_far = is_closed, is_far

    def _led(self) -> list[int]:
        return [group for group in self._core.status.led_groups() if group != METADATA_GROUP]

    def _taken_ready(self) -> Iterator[int]:
        """Yield the partitions that waited for others of their group, as many as there is room
        for.  O(groups with any)."""
        for group, waiting in list(self._ready.items()):
            room = IN_FLIGHT_MAX - len(self._in_flight.get(group, ()))
            for partition in list(islice(waiting, max(0, room))):
                del waiting[partition]
                yield partition
            if not waiting:
                self._ready.pop(group, None)

    def _examine_begun(self, now_ms: int) -> Iterator[None]:
        """Examine the partitions of groups whose leader this node became; those of a leader that
        has not applied an entry of its term yet are left to the next pass."""
        begun, self._begun = self._begun, set()
        for group in begun:
            if not self._core.status.is_leader(group):
                continue
            if not self._core.status.has_applied_in_term(group):
                self._begun.add(group)
                continue
            for partition in list(self._store.partition_states[group].partitions()):
                yield from self._spend(self._examine(partition, now_ms))

    def _spend(self, work: Iterator[int]) -> Iterator[None]:
        """Run ``work``, which yields the cost of what it did, and yield whenever the budget of a
        step is used up."""
        for cost in work:
            self._budget -= cost
            if self._budget <= 0:
                self._budget = PARTITIONS_PER_STEP * BATCHES_PER_STEP
                yield

    def _date(self, groups: set[int], propose: Callable[[int], bool]) -> None:
        """Propose a CLOCK in groups that need one; those where it is not possible now are left to
        the next pass.  O(groups)."""
        for group in list(groups):
            if not self._core.status.is_leader(group) or propose(group):
                groups.discard(group)

    # ---- one partition --------------------------------------------------------------------------

    def _examine(self, partition: int, now_ms: int) -> Iterator[int]:
        """Decide about one partition, and yield the cost of each portion of that."""
        self.examined += 1
        yield BATCHES_PER_STEP
        place = self._metadata.state.locate(partition)
        rules = self._rules(place) if place is not None else None
        if place is None or rules is None or not self._core.status.is_leader(place.group):
            self._forget(partition)  # it is not compacted, or the next leader examines it
            return
        states = self._store.partition_states[place.group]
        if not states.epoch_of(partition):
            self._forget(partition)  # it took no batch here
            return
        state = self._settled(place, partition, states)
        if state is None:
            self._schedule.put(partition, now_ms + PASSES_PER_RETRY * self._bucket_ms)
            return
        known = self._known_of(place.group, partition)
        if not self._is_carried_out(place.group, partition, states, state):
            self._in_flight.setdefault(place.group, set()).add(partition)
            self._schedule.put(partition, now_ms + self._bucket_ms)
            return
        self._in_flight.get(place.group, set()).discard(partition)
        self._mark(partition, known, state, states, rules, now_ms)
        known.begin(state, now_ms)
        clocks = states.applied_group_state.clocks
        yield from self._count(partition, known, Bounds(
            state.next_offset, self._store.raft_start(place.group),
            self._old_index(clocks, rules.min_lag_ms, now_ms)), now_ms)
        if not self._stands(place, partition, states, state):
            self._schedule.put(partition, now_ms + self._bucket_ms)
            return
        found = decide(rules, self._standing(place, known, states, state, rules,
                                             now_ms), known.dirty)
        if found is not None:
            self._propose(partition, known, found, now_ms)
        else:
            self._wait(partition, known, rules, clocks, now_ms)

    def _rules(self, place: Location) -> Rules | None:
        settings = self._metadata.state.settings
        return rules_of(place.topic.name, settings.of(place.topic.incarnation).pairs,
                        settings.of(CLUSTER).pairs)

    def _settled(self, place: Location, partition: int,
                 states: PartitionStates) -> PartitionState | None:
        """Return the applied state of a partition that is open here; None while a switch, its
        opening, or what this leader has to apply or to copy first, is on its way."""
        state = states.applied(partition)
        is_settled = (place.switch is None and states.is_open(partition) and state is not None
                      and state.epoch == states.epoch_of(partition) == place.epoch
                      and self._core.status.has_applied_in_term(place.group)
                      and not self._core.status.records_left(place.group))
        return state if is_settled else None

    def _known_of(self, group: int, partition: int) -> _Known:
        known, leadership = self._known.get(partition), self._leaderships[group]
        if known is None or (known.group, known.leadership) != (group, leadership):
            self._forget(partition)
            known = self._known[partition] = _Known(group, leadership)
        return known

    def _is_carried_out(self, group: int, partition: int, states: PartitionStates,
                        state: PartitionState) -> bool:
        """Return True if no COMPACT of the partition is on its way: the last one of the log is
        applied, and this replica and the voters that are up have carried it out."""
        last, told = state.compaction, self._carried_out
        if told is None or states.tail_state(partition).compaction != last:
            return False
        return not last.generation or last.generation <= min(
            told.here(group, partition), told.elsewhere(group, partition))

    def _mark(self, partition: int, known: _Known, state: PartitionState,
              states: PartitionStates, rules: Rules, now_ms: int) -> None:
        """Mark a COMPACT that all members have carried out, and have a CLOCK follow, unless no
        tombstone up to there is left; note which marks are old."""
        last, told = state.compaction, self._carried_out
        if last.generation > known.marked and told is not None:
            if last.up_to <= max(last.tombstones_below, state.log_start):
                known.marked = last.generation
            elif told.everywhere(known.group, partition) >= last.generation:
                known.marked = last.generation
                known.marks.add(Mark(last.up_to, states.last_index, now_ms), rules.tombstone_ms)
                self._marked.add(known.group)
        known.marks.judge(self._old_index(states.applied_group_state.clocks, rules.tombstone_ms,
                                          now_ms))

    def _old_index(self, clocks: bytes, age_ms: int, now_ms: int) -> int:
        """Return the index up to which entries are ``age_ms`` old; 0 = none is, or this node's
        clock cannot tell."""
        if not age_ms:
            return INDEX_MAX
        if self._is_far or now_ms <= age_ms:
            return 0
        return index_before(clocks, now_ms - age_ms)

    def _count(self, partition: int, known: _Known, bounds: Bounds, now_ms: int) -> Iterator[int]:
        """Add batches to the dirty part until one has to wait, or none is left, and count the clean
        part if the ratio of the two decides."""
        dirty, begin = known.dirty, known.dirty.up_to
        while batches := (yield from self.reader.batches(known.group, partition, dirty.up_to,
                                                         BATCHES_PER_STEP)):
            goes_on = dirty.take(batches, bounds)
            yield len(batches) * PARTITIONS_PER_STEP
            if not goes_on:
                break
        if dirty.up_to > begin:
            known.used_ms = now_ms
        if known.clean_bytes < 0 and dirty.first_index:
            known.clean_bytes = yield from self._clean_bytes(partition, known)
        if dirty.first_index:
            self._share_max = max(self._share_max, dirty_share(dirty, known.clean_bytes))

    def _clean_bytes(self, partition: int, known: _Known) -> Generator[int, None, int]:
        """Return the bytes of the batches below the last COMPACT's ``up_to``, as the records have
        them; fewer if a block of an index file cannot be read."""
        offset, total = known.log_start, 0
        while batches := (yield from self.reader.batches(known.group, partition, offset,
                                                         BATCHES_PER_STEP)):
            clean = [batch for batch in batches if batch.end_offset <= known.clean_to]
            total += sum(batch.size for batch in clean)
            yield len(batches) * PARTITIONS_PER_STEP
            if len(clean) < len(batches):
                break
            offset = batches[-1].end_offset
        return total

    def _stands(self, place: Location, partition: int, states: PartitionStates,
                state: PartitionState) -> bool:
        """Return True if a decision by ``state`` still fits the end of the log: between two steps a
        seal, a deletion or another leader may have come."""
        if (self._store.partition_states.get(place.group) is not states
                or not self._core.status.is_leader(place.group)
                or not states.is_open(partition)):
            return False
        tail = states.tail_state(partition)
        return (tail.epoch, tail.compaction) == (state.epoch, state.compaction)

    def _standing(self, place: Location, known: _Known, states: PartitionStates,
                  state: PartitionState, rules: Rules, now_ms: int) -> Standing:
        has_history = len(place.epoch_history) > 1
        return Standing(
            state.compaction, state.log_start, max(0, known.clean_bytes),
            self._old_index(states.applied_group_state.clocks, rules.max_lag_ms, now_ms),
            known.marks.old_up_to if not has_history else 0,
            known.marks.newest is None and known.marked >= state.compaction.generation)

    def _propose(self, partition: int, known: _Known, compaction: Compaction,
                 now_ms: int) -> None:
        """Propose a COMPACT, or have it wait until others of the group are carried out."""
        in_flight = self._in_flight.setdefault(known.group, set())
        if len(in_flight) >= IN_FLIGHT_MAX:
            self._ready.setdefault(known.group, {})[partition] = None
            return
        try:
            self._core.propose(known.group, EntryKind.COMPACT, compact_payload(compaction),
                               partition)
        except ProposalError:
            self.refused += 1
            self._schedule.put(partition, now_ms + PASSES_PER_RETRY * self._bucket_ms)
            return
        in_flight.add(partition)
        self._schedule.put(partition, now_ms + self._bucket_ms)
        self.proposed += 1
        self.dirty_bytes += known.dirty.bytes
        self._report(Proposed(known.group, partition, compaction, known.dirty.bytes))

    def _wait(self, partition: int, known: _Known, rules: Rules, clocks: bytes,
              now_ms: int) -> None:
        """Schedule a partition without a COMPACT that is due for the time at which one may be.
        What is known of it is dropped if there is no such time, and there was none for long."""
        dirty, waiting, due_ms = known.dirty, known.dirty.waiting, CLOCK_MS_MAX
        if waiting is not None and waiting.index < self._store.raft_start(known.group):
            due_ms = min(due_ms, self._old_ms(known, clocks, waiting.index, rules.min_lag_ms,
                                              now_ms))
        if dirty.first_index and rules.max_lag_ms < CLOCK_MS_MAX:
            due_ms = min(due_ms, self._old_ms(known, clocks, dirty.first_index, rules.max_lag_ms,
                                              now_ms))
        if known.generation > known.marked:  # some members have not told that it is carried out
            due_ms = min(due_ms, now_ms + PASSES_PER_RETRY * self._bucket_ms)
        if known.marks.newest is not None:
            due_ms = min(due_ms, known.marks.newest.seen_ms + rules.tombstone_ms)
        if due_ms < CLOCK_MS_MAX:
            passes = PASSES_PER_RETRY if self._is_far else 1  # a wrong clock tells no time
            self._schedule.put(partition, max(due_ms, now_ms + passes * self._bucket_ms))
        elif now_ms - known.used_ms >= KEPT_MS:
            self._forget(partition)
        else:
            self._schedule.put(partition, known.used_ms + KEPT_MS)

    def _old_ms(self, known: _Known, clocks: bytes, index: int, age_ms: int, now_ms: int) -> int:
        """Return when the entry at ``index`` will be ``age_ms`` old.  If no CLOCK follows it yet,
        have one proposed, which is not earlier than now."""
        appended_ms = time_after(clocks, index)
        if appended_ms is None:
            self._undated.add(known.group)
            appended_ms = now_ms
        return appended_ms + age_ms

    def _forget(self, partition: int) -> None:
        self._schedule.forget(partition)
        known = self._known.pop(partition, None)
        if known is not None:
            self._in_flight.get(known.group, set()).discard(partition)
