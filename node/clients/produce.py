"""The produce handler: takes batches, proposes them, and answers a request when its last batch is
decided.

Contract. ``handle`` runs on the loop and never waits. Its request is ``Appends``, whatever the
protocol that it came by. For a request of more than
``BATCHES_AT_ONCE`` batches it returns an iterator over the remaining steps; the session runs one of
them per turn of the loop, and handles no other request before the last. Each batch is verified
(CRC, counts, inner offsets), compared with the limit of its topic, checked against the leader's
partition state, and proposed. Its result comes from the table of pending appends, or at once if it
is refused or already in the log. The leader opens a partition in its group right before the first
batch, so an idle topic costs nothing.

Theory. Requests of a connection are handled in order of arrival, so a producer's five batches in
flight stay in order; ``tail.validate_append`` checks their sequences in log order. The group's log
decides where a partition takes appends; the metadata only say which group to ask. A partition that
is being switched takes appends in its new group as soon as the opening entry is in that group's
log: later entries are committed only together with it. A producer is redirected only once the seal
is *applied*, because a new leader may drop a seal that is not committed; until then it is asked to
retry. A batch of a transaction that this node does not know waits for the metadata leader's answer
(``staged_batches``). A batch for a topic with compaction may wait for the check of its keys, and
later batches of its partition behind it (``key_checks``). A wait ends before the sequence of the
batch is judged, so a refused batch takes none, as in Kafka.

A leader stamps its wall clock into the batches of a topic with LogAppendTime. The times of a
partition need not rise, as in Kafka: another leader's clock may be behind. A bound by the last time
would carry the error of one wrong clock to all later batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.codec import layout
from multiraft.core import check_batch
from multiraft.errors import CodecError, PartitionSealed, ProposalError
from multiraft.partitions.state import PartitionStates
from multiraft.types import BatchInfo, EntryKind
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import ProduceReply, ProduceResult
from node.access import Operation, ResourceKind, denial
from node.clients.error_codes import (
    REFUSALS,
    DiskFull,
    NotAuthorized,
    OverTopicLimit,
    Redirect,
    refusal,
)
from node.clients.key_checks import KeyChecks
from node.clients.load_counts import LoadCounts
from node.clients.partition_open import partition_open_of, require_known_deletions
from node.clients.pending_appends import PendingAppends, ProduceRequest
from node.clients.producer_ids import ProducerIds
from node.clients.record_keys import KeyCheck, RecordsWithoutKey
from node.clients.staged_batches import StagedBatches
from node.clock import monotonic_ns, wall_ms
from node.histogram import Histogram
from node.loop.steps import advanced, parts
from node.metadata.state_machine import Location

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.router import Router
    from node.clients.session import Session
    from node.metadata.topics import Topic

#: Batches per step: each may belong to another group, whose log, followers and replies the
#: following round then processes.
BATCHES_PER_STEP = 32
#: Batches of a request that are proposed without steps: requests of ordinary producers have fewer.
BATCHES_AT_ONCE = 64


class DiskSpace(Protocol):
    """The free space of this node's disk, as far as records are concerned."""

    refused: int  # batches

    @property
    def full(self) -> bool: ...  # no records are accepted

    def describe(self) -> str: ...  # for the refusal


class Clocks(Protocol):
    """The clocks in the logs of the groups led here."""

    due_ms: dict[int, int]  # group -> time from which a clock is due before its next batch

    def before_append(self, group: int, now_ms: int) -> None: ...


class Retention(Protocol):
    """The decisions about records that leave their partitions."""

    appended: set[int]  # partitions that took batches


class Appends(NamedTuple):
    """Request to append batches, of any protocol. ``batches`` are ``batch_count`` pairs: the
    incarnation of a partition, and a writable view of a batch, which the leader stamps in place.
    They are iterated once, ``BATCHES_PER_STEP`` at a time if there are many: an iterator may make
    each when its turn comes."""

    batch_count: int
    batches: Iterable[tuple[int, memoryview]]
    acks: str  # "commit", "leader" or "none"
    timeout_ms: int
    session: Session | None = None  # of the client; None = this node itself appends


class ProduceHandler:
    """The handler of the appends of all sessions."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 directory: Router, pending: PendingAppends, timeout_ms_max: int,
                 staged: StagedBatches, space: DiskSpace | None = None,
                 counts: LoadCounts | None = None,
                 now_ns: Callable[[], int] = monotonic_ns,
                 wall_ms: Callable[[], int] = wall_ms, *, clocks: Clocks,
                 retention: Retention, key_checks: KeyChecks):
        self._space = space
        self._counts = counts  # None = loads are not published
        self._core = core
        self._partition_states = partition_states  # group -> its partitions
        self._directory = directory
        self._producer_ids = ProducerIds(directory, lambda: now_ns() // 1_000_000)
        self._pending = pending
        self._timeout_ms_max = timeout_ms_max
        self._staged = staged
        self._key_checks = key_checks
        self._numbers = count()
        self._now_ns = now_ns  # a monotonic clock
        self._clocks = clocks
        self._retention = retention
        self._now_ms = 0  # at which the last request was accepted
        self._wall_ms = wall_ms  # for topics with LogAppendTime
        self.records = 0
        self.bytes = 0
        self.batches = 0
        self.refusals: dict[int, int] = {}  # wire code -> batches
        #: Ack level -> time from acceptance of a request to its reply, if its first batch was
        #: appended.
        self.latencies = {"commit": Histogram(), "leader": Histogram(), "none": Histogram()}

    @property
    def refused(self) -> int:
        """Batches answered with a definite error."""
        return sum(self.refusals.values())

    def handle(self, request: Appends, answer: Callable[[ProduceReply], None],
               seen_index: int = 0) -> Iterator[None] | None:
        """Verify and propose the batches of a request. ``answer(reply)`` is called exactly once,
        possibly before this returns. ``seen_index``: the newest metadata index that the client
        knows. Return None if all batches were processed, else an iterator over the remaining steps.
        """
        accepted_ns = self._now_ns()
        self._now_ms = accepted_ns // 1_000_000
        deadline_ms = self._now_ms + min(request.timeout_ms, self._timeout_ms_max)
        latency = self.latencies[request.acks]
        produce = ProduceRequest(
            next(self._numbers), partial(_answered, answer, latency, accepted_ns, self._now_ns),
            request.batch_count, deadline_ms, request.session)
        if not request.batch_count:
            answer(ProduceReply(()))
            return None
        self._pending.open(produce)
        batches = iter(request.batches)
        if request.batch_count > BATCHES_AT_ONCE:
            return advanced(self._steps(request, batches, produce, seen_index))
        self._take(range(request.batch_count), batches, request.acks, produce, seen_index)
        return None

    def _steps(self, request: Appends, batches: Iterator[tuple[int, memoryview]],
               produce: ProduceRequest, seen_index: int) -> Iterator[None]:
        for part in parts(request.batch_count, BATCHES_PER_STEP):
            if part.start:
                yield
            self._take(part, batches, request.acks, produce, seen_index)

    def _take(self, slots: range, batches: Iterator[tuple[int, memoryview]], acks: str,
              produce: ProduceRequest, seen_index: int) -> None:
        """Propose the next of ``batches``, one for each slot."""
        # The slots first: ``zip`` takes no batch beyond the last of them.
        for slot, (partition, batch) in zip(slots, batches):
            try:
                self._append(partition, batch, acks, produce, slot, seen_index)
            except REFUSALS as error:
                self._refuse(produce, slot, error)

    def _refuse(self, produce: ProduceRequest, slot: int, error: Exception) -> None:
        code, detail = refusal(error, self._directory.leader_detail)
        if isinstance(error, RecordsWithoutKey):
            produce.found_keyless(slot, error.records)
        self.refusals[code] = self.refusals.get(code, 0) + 1
        produce.complete(slot, ProduceResult(code, -1, detail))

    def _resume(self, partition: int, batch: memoryview, acks: str, produce: ProduceRequest,
                slot: int, seen_index: int, checked: BatchInfo, error: Exception | None) -> None:
        """Append a staged batch after it has waited for the state of its transaction; if ``error``
        is given, refuse it instead. Does nothing if the batch was answered meanwhile."""
        if produce.results[slot] is not None:
            return  # its deadline passed meanwhile, and it was answered as ambiguous
        try:
            if error is not None:
                raise error
            self._append(partition, batch, acks, produce, slot, seen_index, checked)
        except REFUSALS as refused:
            self._refuse(produce, slot, refused)

    def _keys_checked(self, partition: int, batch: memoryview, acks: str, produce: ProduceRequest,
                      slot: int, seen_index: int, checked: BatchInfo, fault: Exception | None
                      ) -> None:
        """Append a batch after the check of its keys; if that found a ``fault``, refuse it, unless
        the log has it. Does nothing if the batch was answered meanwhile."""
        if produce.results[slot] is not None:
            return  # as above
        try:
            self._append(partition, batch, acks, produce, slot, seen_index, checked, fault)
        except REFUSALS as refused:
            self._refuse(produce, slot, refused)

    def _append(self, partition: int, batch: memoryview, acks: str, produce: ProduceRequest,
                slot: int, seen_index: int, checked: BatchInfo | None = None,
                fault: Exception | None = None) -> None:
        """Propose a batch, or have it wait. ``checked``: its fields after it has waited. Raises
        what refuses it: ``fault``, which was found meanwhile, unless the log has the batch."""
        place = self._directory.locate(partition)
        if place is None:
            raise self._directory.unknown(partition, seen_index)
        if place.topic is not produce.topic:
            _check_permission(produce, place.topic)
        group, tail = place.group, self._partition_states.get(place.group)
        if place.switch is not None or tail is None or not self._core.status.is_leader(group):
            group, tail = self._leading(place, partition)
        if self._space is not None and self._space.full:
            self._space.refused += 1
            raise DiskFull(self._space.describe())
        if not self._core.records_fit(group):
            raise DiskFull(f"the disks of too many voters of group {group} are full: no majority "
                         f"could store the records")
        info = check_batch(batch) if checked is None else checked
        if fault is None and len(batch) > place.batch_bytes_max:
            fault = OverTopicLimit(place.batch_bytes_max, len(batch))
        if fault is not None and not _is_in_log(tail, partition, info):
            raise fault
        if checked is None and (place.is_compacted or partition in self._key_checks.waiting) and (
                self._waits_for_keys(place, tail, batch, info, partial(
                    self._keys_checked, partition, batch, acks, produce, slot, seen_index, info))):
            return
        if layout.STAGED_PRODUCER_MIN <= info.producer_id <= layout.STAGED_PRODUCER_MAX and (
                self._staged.waits(info, seen_index, partial(
                    self._resume, partition, batch, acks, produce, slot, seen_index, info))):
            return
        # A producer begins at sequence 0; the partition state refuses any other first sequence.
        if (info.base_sequence == 0 and info.producer_id >= 0
                and tail.begins_producer(partition, info)):
            self._producer_ids.check(info, seen_index)
        if tail.epoch_of(partition) < place.epoch:
            require_known_deletions(tail, self._directory.metadata_index)
            self._core.propose(group, EntryKind.PARTITION_OPEN, partition_open_of(place),
                               partition=partition)
        if self._now_ms >= self._clocks.due_ms.get(group, 0):
            self._clocks.before_append(group, self._now_ms)
        time_ms = self._wall_ms() if place.has_append_time else None
        try:
            proposed = self._core.propose_batch(group, partition, batch, info, time_ms)
        except PartitionSealed as sealed:
            raise self._redirect(place, partition) or sealed from None
        self._retention.appended.add(partition)
        if time_ms is not None and not proposed.duplicate:
            produce.stamped(slot, time_ms)
        self.batches += 1
        self.records += info.count
        self.bytes += len(batch)
        if self._counts is not None and not proposed.duplicate:
            self._counts.appended(group, partition, info.count, len(batch))
        if acks == "none":
            produce.complete(slot, ProduceResult(Code.OK, proposed.base_offset))
        elif proposed.duplicate and proposed.index <= self._covered(group, acks):
            produce.complete(slot, ProduceResult(Code.OK, proposed.base_offset))
        else:
            self._pending.add(group, proposed.index, acks, produce, slot, proposed.base_offset)

    def _waits_for_keys(self, place: Location, tail: PartitionStates, batch: memoryview,
                        info: BatchInfo, resume: Callable[[Exception | None], None]) -> bool:
        """Return True if a batch waits, and False if it may be appended now: its topic has no
        compaction, its keys are checked, or the log has it. Raises what refuses it."""
        partition = place.topic.incarnation_of(place.partition)
        check = (KeyCheck(batch, info.codec, place.batch_bytes_max) if place.is_compacted
                 else None)
        try:
            return self._key_checks.waits(partition, len(batch), check, resume)
        except CodecError:
            if not _is_in_log(tail, partition, info):
                raise
            return False

    def _leading(self, place: Location, partition: int) -> tuple[int, PartitionStates]:
        """Return the group led here that takes the partition's appends, and its state. During a
        switch that may be the new group. Raises ``Redirect`` if this node leads none of them."""
        switch = place.switch
        if switch is not None:
            tail = self._partition_states.get(switch.to_group)
            if (tail is not None and tail.epoch_of(partition) >= switch.epoch
                    and self._core.status.is_leader(switch.to_group)):
                return switch.to_group, tail
        tail = self._partition_states.get(place.group)
        if tail is not None and self._core.status.is_leader(place.group):
            return place.group, tail
        raise (self._redirect(place, partition)
               or Redirect(*self._directory.redirect(place, place.epoch_history[-1])))

    def _redirect(self, place: Location, partition: int) -> Redirect | None:
        """Return the redirect to the new group of a partition; None unless its seal is applied here
        and the metadata name the switch."""
        tail = self._partition_states.get(place.group)
        state = tail.applied(partition) if tail is not None else None
        if place.switch is None or state is None or not state.sealed or state.epoch != place.epoch:
            return None
        return Redirect(*self._directory.next_location(place.switch))

    def _covered(self, group: int, acks: str) -> int:
        """Return the highest index of ``group`` that ``acks`` covers: durable here for ``leader``,
        else also committed."""
        durable = self._core.status.durable_index(group)
        return durable if acks == "leader" else min(durable, self._core.status.commit_index(group))


def _check_permission(produce: ProduceRequest, topic: Topic) -> None:
    """Return if the client of a request may write to a topic. Raises ``NotAuthorized``."""
    session = produce.session
    if session is not None and not session.may(Operation.WRITE, ResourceKind.TOPIC, topic.name):
        raise NotAuthorized(denial(session.principal, Operation.WRITE, ResourceKind.TOPIC,
                                   topic.name))
    produce.topic = topic


def _is_in_log(tail: PartitionStates, partition: int, info: BatchInfo) -> bool:
    """Return True if the log has the batch already: it was appended before the limit of its topic
    was lowered, or the topic had compaction, and its repetition must not be refused as if it had
    had no effect."""
    try:
        return tail.validate_append(partition, info).duplicate
    except ProposalError:  # neither a repetition nor the next batch
        return False


def _answered(answer: Callable[[ProduceReply], None], latency: Histogram, accepted_ns: int,
              now_ns: Callable[[], int], produce: ProduceRequest) -> None:
    if produce.results[0].code == Code.OK:
        latency.observe((now_ns() - accepted_ns) // 1000)
    answer(ProduceReply(tuple(produce.results), produce.append_times_ms(),
                        produce.keyless()))


def acknowledged(base_offset: int) -> ProduceResult:
    """Return the result of an append that its ack level covers."""
    return ProduceResult(Code.OK, base_offset)


def ambiguous(why: str) -> ProduceResult:
    """Return the result of an append that may or may not have happened."""
    return ProduceResult(Code.AMBIGUOUS, -1, ErrorDetail(text=f"{why}: the batch may or may not "
                                                         "have been appended"))
