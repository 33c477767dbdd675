"""Passes of retention on one node: which partitions are examined, and what is proposed for them.

Contract.  ``steps`` is one pass, as an iterator: each ``next`` is a bounded portion of work, and
the caller decides what runs in between.  The set ``appended``, ``lead`` and ``settings_altered``
say what a later pass has to examine.  A pass proposes LOG_START entries in groups that this node
leads; what they remove is decided when they are applied, on every replica alike.

Invariants.  Only the leader of a partition's last epoch proposes, from state that it has applied
after it became leader.  A log start rises, and never above the high watermark.  By age nothing goes
while this node's wall clock is far from those of the others, and no producer expires.

Theory.  A partition is examined when it took batches since the last pass, when its oldest batch is
due by age, when its settings were altered, and when this node became its leader.  No pass visits
partitions for which none of these is true, so an idle partition costs nothing.  A pass may be cut
off at any point: the next leader examines all partitions of the group.

Of records in groups of earlier epochs this node may know neither age nor size.  A pass leaves
``questions`` about them, and a later one decides by the answers (``answer``).  While one of these
groups does not answer, nothing of the partition goes (docs/decisions/0065).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.errors import ProposalError
from multiraft.partitions.clock_list import index_before, last_clock, time_after
from multiraft.partitions.retention_records import (
    CLOCK_MS_MAX,
    UNKNOWN_BYTES,
    LogStart,
    expire_payload,
    log_starts_payload,
)
from multiraft.storage.errors import BlockNotCached
from multiraft.types import METADATA_GROUP, EntryKind, Payload
from node.metadata.settings_table import CLUSTER
from node.retention.batch_reader import Batches, BatchReader
from node.retention.earlier_epochs import EpochPart, Question, start_in_history
from node.retention.retention_policy import (
    UNLIMITED,
    Facts,
    Limits,
    Pairs,
    Removal,
    StoredBatch,
    limits_of,
)
from node.retention.retention_schedule import RetentionSchedule

if TYPE_CHECKING:
    from multiraft.liveness.clock_skew import ClockSkew
    from multiraft.partitions.partition_state import PartitionState
    from multiraft.partitions.state import PartitionStates
    from node.metadata.node_releases import ReleaseGate
    from node.metadata.state_machine import Location, MetadataState
    from node.retention.clock_entries import ClockEntries

#: Partitions that one step examines at most, at some 10 us each.
PARTITIONS_PER_STEP = 64
#: Batches that one step examines at most, at about 1 us each.
BATCHES_PER_STEP = 512
#: Rows of one LOG_START entry that a pass proposes.  The format allows more, but a step of the
#: leader makes all of them, and an entry of this size takes half a millisecond.
ROWS_PER_ENTRY = 512
#: Passes after which a partition that cannot be examined now is examined again, and after which
#: even a small part of a limit is worth a row: a minute.
PASSES_PER_RETRY = 6
#: A partition is examined by age at most this often: so many times in its ``retention.ms``.
AGE_SHARE = 16
#: Age at which a producer without a batch is forgotten, milliseconds: a week, as long as Kafka
#: keeps transactional ids.  Ids of such producers begin a new epoch.
PRODUCER_EXPIRY_MS = 7 * 24 * 3_600_000
#: Shortest time between two expiries of producers that are proposed in a group, milliseconds.
EXPIRY_INTERVAL_MS = 3_600_000
#: Partitions of a group whose producers are compared before an expiry: a step of the loop.
EXPIRY_PARTITIONS_MAX = 4096
#: Partitions whose earlier epochs are asked about between two passes; others wait for a minute.
QUESTIONS_MAX = 256
#: Batches that are examined first; more are read only if all of these go.
FIRST_BATCHES = 4
#: Reasons for which retention pauses.
CLOCK, RELEASES = "clock", "releases"


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

    def propose(self, group: int, kind: EntryKind, payload: Payload) -> object: ...


class MetadataCopy(Protocol):
    """This node's copy of the metadata; a snapshot replaces the state object."""

    @property
    def state(self) -> MetadataState: ...


class _Count(NamedTuple):
    """Bytes of a partition's batches up to an offset."""

    end_offset: int
    bytes: int

    def with_batches(self, batches: list[StoredBatch]) -> _Count:
        return _Count(batches[-1].end_offset, self.bytes + sum(batch.size for batch in batches))


class _Row(NamedTuple):
    """A decision about one partition."""

    partition: int
    epoch: int
    log_start_before: int
    removal: Removal
    counted: _Count | None  # the partition before, where its state does not know its bytes


class RetentionPasses:
    """The decisions of one node about the partitions that it leads."""

    def __init__(self, core: Consensus, store: Batches, metadata: MetadataCopy,
                 clocks: ClockEntries, skew: ClockSkew, gate: ReleaseGate, bucket_ms: int,
                 internal: Mapping[str, Pairs],
                 paused: Callable[[str, bool], None] = lambda _reason, _paused: None):
        """``gate``: whether all nodes know the entries.  ``bucket_ms``: time by which a partition
        may be examined too late.  ``internal``: topic of the nodes' own -> its settings where it
        has none.  ``paused(reason, whether)`` is called when retention pauses, and when it
        continues."""
        self._core = core
        self._store = store
        self._metadata = metadata
        self._clocks = clocks
        self._skew = skew
        self._gate = gate
        self._internal = internal
        self._report = paused
        self._schedule = RetentionSchedule(bucket_ms)
        self._expiries = RetentionSchedule(bucket_ms)  # of groups, not of partitions
        self._retry_ms = PASSES_PER_RETRY * bucket_ms
        #: Partitions that took a batch since the last pass; the handler of appends adds them.
        self.appended: set[int] = set()
        self._altered: set[int] = set()  # topics
        self._begun: set[int] = set()  # groups whose leader this node became
        self._unclosed: set[int] = set()  # groups with batches behind their last CLOCK, perhaps
        self._active: set[int] = set()  # groups that took batches since the last pass
        self._held: set[int] = set()  # partitions with records in groups of earlier epochs
        #: group -> partition -> what was decided in this pass; a partition may be examined twice
        self._rows: dict[int, dict[int, _Row]] = {}
        #: Partition -> what to ask the groups of its earlier epochs; the driver takes them.
        self.questions: dict[int, Question] = {}
        self._answers: dict[int, tuple[Question, tuple[EpochPart, ...] | None]] = {}
        self._state: MetadataState | None = None
        self._is_far = False
        self._is_closed = False  # a node does not know the entries
        self._budget = 0
        self.examined = 0  # partitions
        #: The driver reads the block that it wants.
        self.reader = BatchReader(store, PARTITIONS_PER_STEP * BATCHES_PER_STEP)
        self.proposed = 0  # log starts
        self.refused = 0  # log starts
        self.expiries = 0  # of producers, proposed
        self.bytes_removed = 0
        self.records_removed = 0
        self.reasons: Counter[str] = Counter()  # reason -> 1 while retention pauses for it

    # ---- what happens between passes ------------------------------------------------------------

    def lead(self, group: int) -> None:
        """Have the next pass examine all partitions of a group whose leader this node became.
        O(1)."""
        if group != METADATA_GROUP:
            self._begun.add(group)
            self._clocks.lead(group)

    def settings_altered(self, topic: int) -> None:
        """Have the next pass examine the partitions of a topic; 0 = the defaults of the cluster
        were altered, and all partitions are examined.  O(1), O(groups) for the cluster."""
        if topic == CLUSTER:
            self._begun.update(self._led())
        else:
            self._altered.add(topic)

    @property
    def scheduled(self) -> int:
        """Number of partitions that are due by age, or to be examined again."""
        return len(self._schedule)

    @property
    def unclosed(self) -> frozenset[int]:
        """Groups whose last batch no CLOCK follows, as far as this node knows. O(groups)."""
        return frozenset(self._unclosed)

    @property
    def held(self) -> int:
        """Number of partitions with records in groups of earlier epochs, as last examined."""
        return len(self._held)

    # ---- one pass -------------------------------------------------------------------------------

    def steps(self, now_ms: int) -> Iterator[None]:
        """Run a pass, in steps; ``now_ms``: this node's wall clock, milliseconds since 1970.  The
        first step has run when the first ``next`` returns.  O(partitions to examine + batches that
        go)."""
        self._budget = PARTITIONS_PER_STEP * BATCHES_PER_STEP
        self._judge_releases()
        self._judge_clock()
        if self._gate.fault:
            self.appended.clear()
            return
        if self._state is not self._metadata.state:  # of a snapshot, or the first
            self._state = self._metadata.state
            self._begun.update(self._led())
        appended, self.appended = self.appended, set()
        for partition in appended:
            yield from self._spend(self._examine(partition, now_ms, False))
        yield from self._close_clocks(now_ms)
        for partition in list(self._answers):
            yield from self._spend(self._examine(partition, now_ms, True))
        self._answers.clear()
        if not self._is_far:
            for partition in self._schedule.take(now_ms):
                yield from self._spend(self._examine(partition, now_ms, True))
            for group in self._expiries.take(now_ms):
                self._expire(group, now_ms)
                yield
        altered, self._altered = self._altered, set()
        for topic in altered:
            found = self._metadata.state.topic_at(topic)
            for partition in map(found.incarnation_of, range(found.partitions)) if found else ():
                yield from self._spend(self._examine(partition, now_ms, True))
        yield from self._examine_begun(now_ms)
        for group in list(self._rows):
            self._propose(group, now_ms)
            yield

    def _judge_releases(self) -> None:
        is_closed = bool(self._gate.fault)
        if is_closed is not self._is_closed:
            self._is_closed = is_closed
            self._begun.update(self._led())  # nothing was examined meanwhile
        # Nodes of a new cluster that have not registered yet are no reason for an operator to act.
        is_paused = is_closed and not self._gate.awaits_registration
        if is_paused is not bool(self.reasons[RELEASES]):
            self._pause(RELEASES, is_paused)

    def _judge_clock(self) -> None:
        if self._is_far is not self._skew.is_far:
            self._is_far = self._skew.is_far
            if not self._is_far:
                # Times that were computed with the wrong clock are wrong.
                self._begun.update(self._led())
            self._pause(CLOCK, self._is_far)

    def _pause(self, reason: str, paused: bool) -> None:
        self.reasons[reason] = int(paused)
        self._report(reason, paused)

    def _led(self) -> list[int]:
        return [group for group in self._core.status.led_groups() if group != METADATA_GROUP]

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
            states = self._store.partition_states[group]
            self._expiries.put_no_later(group, now_ms + EXPIRY_INTERVAL_MS)
            for partition in list(states.partitions()):
                yield from self._spend(self._examine_begun_one(states, partition, now_ms))

    def _examine_begun_one(self, states: PartitionStates, partition: int,
                           now_ms: int) -> Iterator[int]:
        if states.epoch_of(partition) and states.tail_state(partition).records:
            yield from self._examine(partition, now_ms, True)
        else:
            yield PARTITIONS_PER_STEP  # about as long as a batch takes

    def _spend(self, work: Iterator[int]) -> Iterator[None]:
        """Run ``work``, which yields the cost of what it did, and yield whenever the budget of a
        step is used up."""
        for cost in work:
            self._budget -= cost
            if self._budget <= 0:
                self._budget = PARTITIONS_PER_STEP * BATCHES_PER_STEP
                yield

    # ---- clocks ---------------------------------------------------------------------------------

    def _close_clocks(self, now_ms: int) -> Iterator[None]:
        """Propose a CLOCK in groups that took batches and took none since the last pass."""
        active, self._active = self._active, set()
        for group in self._unclosed - active:
            if not self._core.status.is_leader(group) or self._clocks.close(group):
                self._unclosed.discard(group)
        self._unclosed |= active
        for group in active:
            self._expiries.put_no_later(group, now_ms + EXPIRY_INTERVAL_MS)
        yield

    def _expire(self, group: int, now_ms: int) -> None:
        """Propose the expiry of producers in a led group whose last batches are old enough, if
        there are any; look again later while the group knows producers."""
        states = self._store.partition_states.get(group)
        if states is None or not self._core.status.is_leader(group) or not states.has_producers:
            return
        self._expiries.put(group, now_ms + EXPIRY_INTERVAL_MS)
        below_index = index_before(states.applied_group_state.clocks,
                                   now_ms - PRODUCER_EXPIRY_MS) + 1
        if (not self._core.status.has_applied_in_term(group)
                or below_index <= max(1, states.group_state.expired_below)
                or not states.has_producer_before(below_index, EXPIRY_PARTITIONS_MAX)):
            return
        try:
            self._core.propose(group, EntryKind.PRODUCERS_EXPIRE, expire_payload(below_index))
        except ProposalError:
            return  # the next look repeats it
        self.expiries += 1

    def _require_clock(self, group: int, partition: int,
                       states: PartitionStates) -> Iterator[int]:
        """Have a later pass propose a CLOCK if none follows the partition's last batch."""
        last = yield from self.reader.batches(group, partition,
                                              states.next_offset(partition) - 1, 1)
        if last and last[0].index > last_clock(states.group_state.clocks)[0]:
            self._unclosed.add(group)

    def _require_earlier_clocks(self, place: Location) -> None:
        """Have a pass propose a CLOCK behind the last batch of each earlier epoch whose group this
        node leads.

        A batch may come between a pass and the switch of its partition.  No pass counts its group
        as active then, and without another batch there it would have no age."""
        self._unclosed.update(entry.group for entry in place.epoch_history[:-1]
                              if self._core.status.is_leader(entry.group))

    # ---- one partition --------------------------------------------------------------------------

    def _examine(self, partition: int, now_ms: int, is_due: bool) -> Iterator[int]:
        """Decide about one partition, and yield the cost of each portion of that.  ``is_due``: any
        removal is proposed, not only one that is worth an entry."""
        self.examined += 1
        yield BATCHES_PER_STEP
        place = self._metadata.state.locate(partition)
        if place is not None and len(place.epoch_history) > 1:
            self._require_earlier_clocks(place)
        found = self._leading(partition)
        if found is None:
            return
        place, states, state = found
        if not is_due:
            self._active.add(place.group)
        limits = self._limits(place)
        if limits.is_unlimited:
            self._forget(partition)
            return
        if state is None or states.next_offset(partition) != state.next_offset:
            self.appended.add(partition)  # for the next pass, which finds more of it applied
        if state is None or states.tail_state(partition).log_start != state.log_start:
            if is_due:
                self._schedule.put(partition, now_ms + self._retry_ms)
            return
        if not self._is_whole(place, state):
            self._examine_history(place, partition, limits, state, now_ms)
            return
        count = yield from self._counted(place.group, partition, limits, state)
        if not states.is_open(partition):
            self._retry(partition, now_ms)
            return
        self._held.discard(partition)
        clocks = states.applied_group_state.clocks
        if is_due and limits.age_ms != UNLIMITED:
            yield from self._require_clock(place.group, partition, states)
        expired_index = 0
        if limits.age_ms != UNLIMITED and not self._is_far and now_ms > limits.age_ms:
            expired_index = index_before(clocks, now_ms - limits.age_ms)
        removal = Removal(limits, Facts(state.log_start, state.next_offset, state.live_bytes,
                                        expired_index))
        yield from self._walk(place.group, partition, removal)
        if not states.is_open(partition):
            self._retry(partition, now_ms)
            return
        goes = removal.records > 0 and (is_due or removal.is_worth_an_entry())
        if goes or count is not None:
            self._decide(place.group, _Row(partition, state.epoch, state.log_start, removal, count),
                         now_ms)
        # The index may lack a batch that was just proposed; the tail has it.
        is_empty = states.next_offset(partition) == removal.log_start
        due_ms = CLOCK_MS_MAX if is_empty else self._next_ms(limits, removal, clocks, now_ms, goes)
        if due_ms == CLOCK_MS_MAX:
            self._forget(partition)
        elif is_due:
            self._schedule.put(partition, due_ms)
        else:
            self._schedule.put_no_later(partition, due_ms)

    def _retry(self, partition: int, now_ms: int) -> None:
        """Examine a partition again later: between two steps of its examination a seal or its
        deletion came into the log, or its opening left the log."""
        self._schedule.put(partition, now_ms + self._retry_ms)

    def _examine_history(self, place: Location, partition: int, limits: Limits,
                         state: PartitionState, now_ms: int) -> None:
        """Decide about a partition with records in groups of earlier epochs, if they answered;
        otherwise leave the question."""
        self._held.add(partition)
        self._schedule.put(partition, now_ms + self._retry_ms)
        if any(entry.group == place.group for entry in place.epoch_history[:-1]):
            return  # it came back: bytes of one group would be counted in two epochs
        question = Question(state.log_start, -1 if limits.age_ms == UNLIMITED or self._is_far
                            else max(-1, now_ms - limits.age_ms))
        answered, parts = self._answers.pop(partition, (question, None))
        if parts is None or answered.log_start != state.log_start:
            if len(self.questions) < QUESTIONS_MAX:
                self.questions[partition] = question
            return
        facts = Facts(state.log_start, state.next_offset, state.live_bytes, 0)
        removal = Removal(limits, facts)
        removal.skip_to(start_in_history(limits, facts, parts))
        if removal.records:
            self._decide(place.group, _Row(partition, state.epoch, state.log_start, removal, None),
                         now_ms)

    def answer(self, partition: int, question: Question, parts: Sequence[EpochPart]) -> None:
        """Have the next pass decide about a partition by what the groups of its earlier epochs
        answered, oldest first.  O(1)."""
        self._answers[partition] = question, tuple(parts)

    def _decide(self, group: int, row: _Row, now_ms: int) -> None:
        """Keep a decision until the pass ends, or an entry is full."""
        rows = self._rows.setdefault(group, {})
        rows[row.partition] = row
        if len(rows) >= ROWS_PER_ENTRY:
            self._propose(group, now_ms)

    def _leading(self, partition: int) -> tuple[
            Location, PartitionStates, PartitionState | None] | None:
        """Return where a partition is that this node decides about, the states of its group, and
        its applied state; no state while its opening, or what this leader has to apply first, is on
        its way.  None = another node decides, or the partition is no more."""
        place = self._metadata.state.locate(partition)
        if place is None or not self._core.status.is_leader(place.group):
            self._forget(partition)  # the next leader examines it
            return None
        states = self._store.partition_states[place.group]
        tail_epoch = states.epoch_of(partition)
        if tail_epoch != place.epoch:
            if tail_epoch > place.epoch or place.switch is not None:
                return place, states, None
            self._forget(partition)  # it took no batch here
            return None
        state = states.applied(partition)
        is_settled = (place.switch is None and states.is_open(partition) and state is not None
                      and state.epoch == place.epoch
                      and self._core.status.has_applied_in_term(place.group)
                      # The bytes of batches that are not copied yet would not be counted.
                      and not self._core.status.records_left(place.group))
        return place, states, state if is_settled else None

    def _limits(self, place: Location) -> Limits:
        settings = self._metadata.state.settings
        return limits_of(place.topic.name, settings.of(place.topic.incarnation).pairs,
                         settings.of(CLUSTER).pairs, self._internal.get(place.topic.name, ()))

    def _is_whole(self, place: Location, state: PartitionState) -> bool:
        """Return True if all records of the partition are in its present group and epoch."""
        return len(place.epoch_history) == 1 or state.log_start >= state.start_offset

    def _forget(self, partition: int) -> None:
        self._schedule.forget(partition)
        self._held.discard(partition)

    def _counted(self, group: int, partition: int, limits: Limits,
                 state: PartitionState) -> Generator[int, None, _Count | None]:
        """Return the bytes of the batches that the index has of the partition, if its state does
        not know its bytes and a limit needs them; else None."""
        if limits.bytes == UNLIMITED or state.live_bytes != UNKNOWN_BYTES:
            return None
        count = _Count(state.log_start, 0)
        while batches := (yield from self.reader.batches(group, partition, count.end_offset,
                                                         BATCHES_PER_STEP)):
            count = count.with_batches(batches)
            yield len(batches) * PARTITIONS_PER_STEP
        return count

    def _walk(self, group: int, partition: int, removal: Removal) -> Iterator[int]:
        """Have ``removal`` take batches until one stays, or none is left."""
        portion = FIRST_BATCHES  # usually the first batch stays
        while batches := (yield from self.reader.batches(group, partition, removal.log_start,
                                                         portion)):
            goes_on = removal.take(batches)
            yield len(batches) * PARTITIONS_PER_STEP
            if not goes_on:
                return
            portion = BATCHES_PER_STEP

    def _next_ms(self, limits: Limits, removal: Removal, clocks: bytes, now_ms: int,
                 goes: bool) -> int:
        """Return when the partition is due again: when its oldest batch is, by age, or in a minute
        if a part of a limit is to go that is not worth an entry yet; ``CLOCK_MS_MAX`` = never."""
        due_ms = CLOCK_MS_MAX
        if removal.records and not goes:
            due_ms = now_ms + self._retry_ms
        if limits.age_ms != UNLIMITED and not self._is_far:
            due_ms = min(due_ms, self._expiry_ms(limits, removal, clocks, now_ms))
        return max(due_ms, now_ms + 1)

    def _expiry_ms(self, limits: Limits, removal: Removal, clocks: bytes, now_ms: int) -> int:
        kept = removal.first_kept
        appended_ms = time_after(clocks, kept.index) if kept is not None else None
        if appended_ms is None:
            appended_ms = now_ms  # the CLOCK that will follow it is not earlier
        return max(appended_ms + limits.age_ms,
                   now_ms + min(self._retry_ms, limits.age_ms // AGE_SHARE))

    # ---- proposals ------------------------------------------------------------------------------

    def _propose(self, group: int, now_ms: int) -> None:
        """Propose the log starts that were decided in a group, in one entry.  Those that the log
        has overtaken are left to a later pass, and so are all of them if the proposal is
        refused."""
        decided = self._rows.pop(group)
        rows, proposed = [], []
        for row in decided.values():
            log_start = self._checked(group, row)
            if log_start is None:
                self._schedule.put(row.partition, now_ms + self._retry_ms)
            else:
                rows.append(log_start)
                proposed.append(row.removal)
        if not rows:
            return
        try:
            self._core.propose(group, EntryKind.LOG_START, log_starts_payload(rows))
        except ProposalError:
            self.refused += len(rows)
            for each in rows:
                self._schedule.put(each.partition, now_ms + self._retry_ms)
            return
        self.proposed += len(rows)
        self.bytes_removed += sum(removal.bytes for removal in proposed)
        self.records_removed += sum(removal.records for removal in proposed)

    def _checked(self, group: int, row: _Row) -> LogStart | None:
        """Return the row of the entry, with the bytes that are left at the end of the log; None if
        the partition is not as it was when the row was decided."""
        states = self._store.partition_states.get(group)
        if (states is None or not self._core.status.is_leader(group)
                or not states.is_open(row.partition)):
            return None
        tail = states.tail_state(row.partition)
        if tail.epoch != row.epoch or tail.log_start != row.log_start_before:
            return None
        live_bytes = tail.live_bytes
        if row.counted is not None:
            live_bytes = self._completed(group, row.partition, row.counted, tail.next_offset)
        if live_bytes != UNKNOWN_BYTES:
            live_bytes = max(0, live_bytes - row.removal.bytes)
        return LogStart(row.partition, row.removal.log_start, live_bytes)

    def _completed(self, group: int, partition: int, count: _Count, end_offset: int) -> int:
        """Return the bytes up to ``end_offset``, the end of the log; unknown if the index lacks a
        batch that was just proposed, or many were since the count."""
        try:
            batches = self._store.batches(group, partition, count.end_offset, BATCHES_PER_STEP)
        except BlockNotCached:
            return UNKNOWN_BYTES
        self.reader.walked += len(batches)
        if batches:
            count = count.with_batches([StoredBatch(*batch) for batch in batches])
        return count.bytes if count.end_offset == end_offset else UNKNOWN_BYTES
