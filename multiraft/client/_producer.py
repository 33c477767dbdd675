"""Batching, idempotent producer as a state machine.

Contract.  Records go into ``records``.  The driver sends the attempts that ``poll`` returns, gives
the outcome of each to ``done``, and polls again at ``next_deadline_ms``.  Times are arguments.
O(1) per batch and event; a partition without batches costs nothing.

Invariants.  Each delivery ends with a receipt, a definite error, or ``AmbiguousOutcome``.  The last
is chosen when an attempt may have reached a log and no answer has decided its outcome.

Theory (Kafka's idempotent producer, KIP-98).  Batches of a partition carry consecutive sequences
under (producer id, epoch).  A leader appends a sequence only after the one before it, and answers a
repeated one with the offset of the first append.  An ambiguous attempt is therefore repeated, at
the new leader if there is one.  Up to five batches are in flight, which is the number that a leader
remembers, and they are repeated in order.  A batch that is given up leaves a gap, and the batches
behind it could never be appended.  When all others have been answered, the partition continues with
a new epoch and sequence 0; this also fences attempts that are still in flight.  Without
idempotence an attempt without an answer is not repeated, because a repetition could append the
batch twice.
"""

from __future__ import annotations

import heapq
import random
from types import MappingProxyType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from multiraft.client._accumulator import Accumulator, ProducerSettings
from multiraft.client._batches import Batch, Delivery, PartitionQueue
from multiraft.client._lifecycle import Closed, described, fresh
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._records import BatchReceipt, TimedReceipt
from multiraft.client.texts import duration
from multiraft.codec import layout
from multiraft.errors import MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    ErrorDetail,
    RecordsWithoutKey,
    StorageFull,
    TimedOut,
    UnknownPartition,
    exception_for,
)
from multiraft.wire.messages import (
    PARTITIONS_PER_REQUEST_MAX,
    BatchPart,
    Produce,
    ProduceResult,
)

#: A named tuple from all its fields, without the Python function in front of it.
_new = tuple.__new__
_NO_RECORDS: Mapping[int, tuple[int, ...]] = MappingProxyType({})


class Attempt(NamedTuple):
    """One produce request.  Give its outcome to ``ProducerState.done``."""

    number: int
    address: str
    node: int
    request: Produce
    payload: list[bytearray]
    batches: list[tuple[PartitionQueue, Batch]]
    timeout_ms: int


class ProducerState:
    """State of one producer: held records, identity, and attempts in flight."""

    def __init__(self, settings: ProducerSettings, metadata: MetadataCache, rng: random.Random,
                 kind: type[Delivery] = Delivery, owner: Any = None,
                 limits: NetworkLimits = NetworkLimits(),
                 node_batch_bytes_max: Callable[[], int] = lambda: layout.BATCH_BYTES_MAX):
        self.settings = settings.validate()
        self.closed: MultiRaftError | None = None  # the reason, once the producer has ended
        self.records = Accumulator(settings, metadata, rng, kind, owner, node_batch_bytes_max)
        self.identity = settings.identity  # (producer id, epoch) for new sequences
        #: True: the driver sends init_producer and calls ``identify`` with the answer.
        self.wants_identity = settings.sequenced and settings.identity is None
        self.identity_problem = ""
        self.lost_id = -1  # producer id that leaders have refused
        self._metadata = metadata
        self._metadata_seen = -1
        self._rng = rng
        self._limits = limits
        self._timers: list[tuple[int, int]] = []  # heap of (ms, incarnation)
        self._attempt = 0

    # ---- attempts out ----

    def identify(self, producer_id: int, epoch: int) -> None:
        """Set (producer id, epoch) for new sequences, from an answer to init_producer, and let all
        partitions continue.  If leaders have refused that id, another one is requested.
        O(partitions)."""
        self.identity = (producer_id, epoch)
        self.wants_identity = producer_id == self.lost_id
        self.records.ready.update(dict.fromkeys(self.records.partitions))

    def lose_id(self, producer_id: int) -> None:
        """Begin no more sequences under this id: leaders refused it as fenced or unknown."""
        self.lost_id = producer_id

    def poll(self, now_ms: int) -> list[Attempt]:
        """Batch records whose topics became known, expire and seal what is due, and return the
        attempts to send now.  O(partitions with changes)."""
        records = self.records
        if records.staged:
            records.unstage(now_ms)
        if self._metadata_seen != self._metadata.version:
            self._metadata_seen = self._metadata.version
            records.ready.update(dict.fromkeys(records.partitions))
        if self._timers and self._timers[0][0] <= now_ms:
            self._ring(now_ms)
        if not records.ready:
            return []
        ready, records.ready = records.ready, {}
        sendable: dict[str, list[tuple[PartitionQueue, Batch]]] = {}
        for incarnation in ready:
            queue = records.partitions.get(incarnation)
            if queue is not None:
                self._look_at(queue, now_ms, sendable)
        return [attempt for address, batches in sendable.items()
                for attempt in self._attempts(address, batches, now_ms)]

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next ``poll``; 0 = at once, None = no deadline."""
        records = self.records
        if records.ready or self._metadata_seen != self._metadata.version and records.partitions:
            return 0
        at = self._timers[0][0] if self._timers else None
        if records.staged:
            staged = records.staged_deadline_ms()
            if at is None or staged is not None and staged < at:
                at = staged
        return at

    def _ring(self, now_ms: int) -> None:
        """Mark the partitions whose timers are due as ready.  An idle partition keeps its timer, so
        that one which is used again has one timer and not one per use."""
        while self._timers and self._timers[0][0] <= now_ms:
            at, incarnation = heapq.heappop(self._timers)
            queue = self.records.find(incarnation)
            if queue is not None and queue.timer_ms == at:
                queue.timer_ms = None
                self.records.ready[incarnation] = None

    def _look_at(self, queue: PartitionQueue, now_ms: int, sendable: dict) -> None:
        batch = queue.open
        if batch is not None and batch.opened_ms + self.settings.linger_ms <= now_ms:
            self.records.seal(queue)
        self.records.ready.pop(queue.incarnation, None)  # its changes are processed now
        oldest = queue.oldest()
        if oldest is not None and oldest.deadline_ms <= now_ms:
            self._expire(queue, now_ms)
        taken = self._to_send(queue, now_ms, sendable)
        if queue.idle:
            self.records.retire(queue)
        elif not taken:  # else its timer is set with the attempt
            self._set_timer(queue, now_ms)

    def _to_send(self, queue: PartitionQueue, now_ms: int, sendable: dict) -> bool:
        """Add the batches that this partition may send now to those for its leader in ``sendable``;
        fail the waiting ones of a deleted partition.  Returns True if any was added."""
        location = self._metadata.locations.get(queue.incarnation)
        if location is None:
            self._fail_all(queue, UnknownPartition(f"topic {queue.topic!r} was deleted"),
                           waiting=True)
            return False
        address = self._address_for(queue, location.leader, now_ms)
        if address is None:
            return False
        taken = self._take(queue, now_ms)
        if taken:
            queue.address = address
            if address in sendable:
                sendable[address] += taken
            else:
                sendable[address] = taken
        return bool(taken)

    def _address_for(self, queue: PartitionQueue, leader: int, now_ms: int) -> str | None:
        """Return the address to send this partition's batches to now; None = not now, because a
        pause lasts or no leader is known.

        When the leader changed, batches in flight at the former one count as perhaps appended, and
        are sent again.  Without sequences they are waited for."""
        if queue.retry_at_ms > now_ms:
            return None
        address = self._metadata.nodes.get(leader)
        if address is None:
            self._metadata.want(queue.topic)
            return None
        if not queue.sent:
            return address
        if address != queue.address and queue.in_flight:
            if not self.settings.sequenced:
                return None
            for batch in queue.sent:  # sent to a node that no longer leads
                if batch.attempt:
                    batch.attempt = 0
                    batch.maybe_appended = True
                    batch.problem = "the partition's leader changed before an answer came"
                    queue.full = None
        if any(batch.attempt and now_ms - batch.sent_ms >= self.settings.suspect_ms
               for batch in queue.sent):
            self._metadata.want(queue.topic)
        return address

    def _take(self, queue: PartitionQueue, now_ms: int) -> list[tuple[PartitionQueue, Batch]]:
        """Return the batches to send now, in order: those to be repeated, all together, or else new
        ones.  Empty while batches are in flight before a repetition, or an identity is missing."""
        if queue.needs_reset:
            self._unsend(queue)
            if queue.sent or not self._renew(queue):
                return self._repeat(queue)
        if queue.sent and any(not batch.attempt for batch in queue.sent):
            return self._repeat(queue)
        taken = []
        while queue.queue and queue.span < self.settings.in_flight_max:
            if self.settings.sequenced and not self._sequence(queue, queue.queue[0]):
                break
            batch = queue.queue.popleft()
            queue.issue(batch)
            taken.append((queue, batch))
        return taken

    def _repeat(self, queue: PartitionQueue) -> list[tuple[PartitionQueue, Batch]]:
        """Return all unanswered batches, once none of them is in flight; before, none."""
        return [] if queue.in_flight else [(queue, batch) for batch in queue.sent]

    def _sequence(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Stamp the next sequence of the partition into the batch.  Returns False, and requests an
        identity, when there is none to use."""
        if queue.identity is None:
            if self.identity is None or self.identity[0] == self.lost_id:
                self.wants_identity = True
                return False
            queue.identity, queue.next_sequence = self.identity, 0
        batch.stamp(queue.identity, queue.next_sequence)
        queue.next_sequence = (queue.next_sequence + batch.count) % layout.SEQUENCE_MODULUS
        return True

    def _unsend(self, queue: PartitionQueue) -> None:
        """Put batches of ``sent`` that were certainly not appended back into the partition's queue,
        before a new epoch begins.  Do nothing while one of them is in flight."""
        # If the oldest such batch is in no log, neither is any batch behind it, whatever their
        # attempts ended with: no log takes a later sequence of this epoch without this one.
        at = next((at for at, batch in enumerate(queue.sent)
                   if not batch.attempt and not batch.maybe_appended), None)
        if at is None or any(batch.attempt for batch in queue.sent[at:]):
            return
        back, queue.sent = queue.sent[at:], queue.sent[:at]
        for batch in back:
            batch.maybe_appended = False
        queue.queue.extendleft(reversed(back))

    def _renew(self, queue: PartitionQueue) -> bool:
        """Let the partition continue under a newer identity, from sequence 0.  Returns False when
        there is none yet; it is requested, unless the application gave the identity."""
        assert self.identity is not None
        if self.identity == queue.identity or self.identity[0] == self.lost_id:
            self.wants_identity = self.settings.identity is None
            return False
        queue.identity, queue.next_sequence, queue.needs_reset = None, 0, False
        return True

    def _attempts(self, address: str, batches: list, now_ms: int) -> list[Attempt]:
        """Return the batches for the node at ``address`` as requests of bounded size; they are in
        flight from now on.  A batch that is ``alone`` gets a request of its own."""
        if len(batches) == 1:
            return [self._attempt_of(address, batches, now_ms)]
        attempts: list[Attempt] = []
        part: list[tuple[PartitionQueue, Batch]] = []
        size = 0
        for queue, batch in batches:
            if part and (size + len(batch.data) > self.settings.request_bytes_max
                         or len(part) == PARTITIONS_PER_REQUEST_MAX
                         or batch.alone or part[-1][1].alone):
                attempts.append(self._attempt_of(address, part, now_ms))
                part, size = [], 0
            part.append((queue, batch))
            size += len(batch.data)
        attempts.append(self._attempt_of(address, part, now_ms))
        return attempts

    def _attempt_of(self, address: str, batches: list, now_ms: int) -> Attempt:
        self._attempt += 1
        deadline_ms = now_ms + self.settings.request_timeout_ms
        parts, payload = [], []
        for queue, batch in batches:
            batch.attempt = self._attempt
            batch.sent_ms = now_ms
            self._set_timer(queue, now_ms)  # from now on an answer is due
            if batch.deadline_ms < deadline_ms:
                deadline_ms = batch.deadline_ms
            parts.append(_new(BatchPart, (queue.incarnation, len(batch.data))))
            payload.append(batch.data)
        timeout_ms = deadline_ms - now_ms if deadline_ms > now_ms else 1
        node = self._metadata.locations[batches[0][0].incarnation].leader
        return _new(Attempt, (self._attempt, address, node,
                              Produce(self.settings.acks, timeout_ms, tuple(parts)), payload,
                              batches, timeout_ms))

    def _set_timer(self, queue: PartitionQueue, now_ms: int) -> None:
        """Arm the timer of this partition, which has an unresolved batch, for the time at which it
        must be checked without another event; keep an earlier one."""
        oldest = queue.oldest()
        assert oldest is not None
        at = oldest.deadline_ms
        if queue.open is not None:
            at = min(at, queue.open.opened_ms + self.settings.linger_ms)
        if queue.retry_at_ms > now_ms:
            at = min(at, queue.retry_at_ms)
        for batch in queue.sent:
            if batch.attempt:
                suspect_ms = batch.sent_ms + self.settings.suspect_ms
                if suspect_ms <= now_ms:
                    suspect_ms = now_ms + self.settings.suspect_ms  # suspected already: check again
                if suspect_ms < at:
                    at = suspect_ms
        if at <= now_ms:
            at = now_ms + 1
        if queue.timer_ms is None or at < queue.timer_ms:
            queue.timer_ms = at
            heapq.heappush(self._timers, (at, queue.incarnation))

    # ---- outcomes in ----

    def done(self, attempt: Attempt, outcome: ResponseEvent | Lost, now_ms: int) -> None:
        """Process the outcome of an attempt: resolve each batch, or schedule its repetition.
        Batches that were resolved meanwhile are left out.  O(its batches)."""
        results: Sequence[ProduceResult] = ()
        times_ms: Sequence[int] | None = None
        keyless = _NO_RECORDS
        if type(outcome) is ResponseEvent:
            if self.settings.acks == "none":
                for queue, batch in attempt.batches:
                    if not batch.done:  # else it was given up while its link connected
                        self._acknowledge(queue, batch, -1)
                return
            if outcome.code == Code.OK:
                results, times_ms, refused = outcome.reply
                keyless = dict(refused) if refused else _NO_RECORDS
                if len(results) != len(attempt.batches) or (
                        times_ms is not None and len(times_ms) != len(results)):
                    outcome = Lost(True, f"{len(results)} results for {len(attempt.batches)} "
                                   "batches")
        for at, (queue, batch) in enumerate(attempt.batches):
            if batch.done:
                pass
            elif isinstance(outcome, Lost):
                self._lost(attempt, queue, batch, outcome, now_ms)
            elif outcome.code != Code.OK:
                self._refused(attempt, queue, batch, outcome.code, outcome.error, now_ms,
                              len(attempt.batches) > 1)
            elif results[at].code == Code.OK:
                self._acknowledge(queue, batch, results[at].base_offset,
                                  -1 if times_ms is None else times_ms[at])
            else:
                self._refused(attempt, queue, batch, results[at].code, results[at].error, now_ms,
                              keyless=keyless.get(at))
            if not queue.idle:  # an idle queue is likely used again; its timer retires it
                self.records.ready[queue.incarnation] = None

    def _acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int,
                     time_ms: int = -1) -> None:
        """Resolve a batch that is in the log; an answer to any of its attempts proves that.
        ``time_ms``: the timestamp that the leader gave its records, -1 = none."""
        queue.failures = 0
        queue.retry_at_ms = 0
        queue.full = None
        self._remove(queue, batch)
        receipt: BatchReceipt = _new(BatchReceipt, (
            queue.topic, queue.partition, base_offset, batch.count))
        if time_ms >= 0:
            receipt = TimedReceipt.of(*receipt, time_ms)
        self.records.resolve(batch, receipt)

    def _lost(self, attempt: Attempt, queue: PartitionQueue, batch: Batch, lost: Lost,
              now_ms: int) -> None:
        if batch.attempt != attempt.number:
            return
        batch.attempt = 0
        batch.problem = f"{attempt.address}: {lost.why}"
        queue.full = None
        batch.maybe_appended |= lost.sent
        self._metadata.want(queue.topic)
        self._retry(queue, batch, now_ms)

    def _refused(self, attempt: Attempt, queue: PartitionQueue, batch: Batch, code: int,
                 detail: ErrorDetail | None, now_ms: int, shared: bool = False,
                 keyless: tuple[int, ...] | None = None) -> None:
        """Process the refusal of a batch: learn of another leader, repeat the batch after a pause,
        or fail it.  Ignored if a newer attempt is in flight.

        ``shared``: the request was refused as a whole, with batches of other partitions; a final
        refusal then makes the batch be repeated alone once.  ``keyless``: positions of the records
        without a key for which it is refused."""
        if batch.attempt != attempt.number:
            return  # the attempt was given up: a newer one decides
        batch.attempt = 0
        error = exception_for(code, detail)
        batch.problem = f"{error.code.name}: {error}"
        queue.full = error if isinstance(error, StorageFull) else None
        batch.maybe_appended |= not error.definite
        first_ms = 0
        if code == Code.NOT_LEADER:
            self._metadata.leader_refused(queue.incarnation, attempt.node, detail)
        elif code == Code.MOVED:
            self._metadata.moved(queue.incarnation, error.detail)
            first_ms = self._limits.moving_ms_min
        elif code in (Code.LEADER_UNKNOWN, Code.STALE_METADATA, Code.UNKNOWN_PARTITION,
                      Code.SHUTTING_DOWN, Code.QUARANTINED, Code.AMBIGUOUS):
            self._metadata.want(queue.topic)
            first_ms = self._limits.moving_ms_min if code == Code.STALE_METADATA else 0
        elif code == Code.BATCH_TOO_LARGE:
            self.records.learn_limit(queue.topic, error.detail.limit)
        if code == Code.OUT_OF_ORDER_SEQUENCE:
            self._out_of_order(queue, batch, error, now_ms)
        elif code in (Code.PRODUCER_FENCED, Code.UNKNOWN_PRODUCER):
            self._fenced(queue, batch, error, now_ms)
        elif error.retriable or not error.definite or code == Code.UNKNOWN_PARTITION:
            self._retry(queue, batch, now_ms, first_ms)
        elif shared and not batch.alone:
            batch.alone = True  # another batch may be the cause
            self._retry(queue, batch, now_ms, first_ms)
        else:
            told = error.detail._replace(text=f"{self._name(queue, batch)}: {error}")
            self._fail(queue, batch, exception_for(code, told) if keyless is None
                       else RecordsWithoutKey(detail=told, records=keyless))

    def _out_of_order(self, queue: PartitionQueue, batch: Batch, error: MultiRaftError,
                      now_ms: int) -> None:
        """Process a refusal because the leader lacks the batch before this one.  A batch behind
        others waits for them.  The oldest one, if it is certainly in no log, needs a new epoch: the
        leader has forgotten an idle producer, or lost acknowledged batches, which ``acks="leader"``
        allows."""
        if batch is queue.sent[0] and not batch.maybe_appended:
            if self.settings.identity is not None:
                self._fail(queue, batch, error)
                return
            queue.needs_reset = True
        self._metadata.want(queue.topic)
        self._retry(queue, batch, now_ms)

    def _retry(self, queue: PartitionQueue, batch: Batch, now_ms: int, first_ms: int = 0) -> None:
        if not self.settings.sequenced:
            if batch.maybe_appended:
                self._fail(queue, batch, self._ambiguous(queue, batch, unavailable=True))
                return
            queue.sent.remove(batch)
            queue.put_back(batch)
        if queue.retry_at_ms <= now_ms:  # one pause for all batches that came back together
            queue.failures += 1
            queue.retry_at_ms = now_ms + backoff_ms(self._limits, queue.failures, self._rng,
                                                    first_ms)

    # ---- ends ----

    def _expire(self, queue: PartitionQueue, now_ms: int) -> None:
        for batch in queue.batches():
            if batch.deadline_ms > now_ms:
                break  # deadlines ascend
            if batch is queue.open:
                self.records.seal(queue)
                if not batch.count:
                    break
            if batch.attempt:
                batch.maybe_appended = True
                batch.problem = batch.problem or "no answer"
            self._fail(queue, batch, self._timed_out(queue, batch))

    def _timed_out(self, queue: PartitionQueue, batch: Batch) -> MultiRaftError:
        """Return the error of a batch whose delivery timeout has passed: ``StorageFull`` if the
        last attempt of the partition was refused for that, otherwise ``TimedOut``."""
        full = queue.full
        last = batch.problem or self.identity_problem or "not sent"
        if full is not None:
            last = f"{full.code.name}: {full}"
        text = (f"{self._name(queue, batch)} not delivered in "
                f"{duration(self.settings.delivery_timeout_ms)}; last: {last}"
                f"{self._metadata.why_unavailable(queue.incarnation)}")
        return TimedOut(text) if full is None else StorageFull(
            detail=full.detail._replace(text=text))

    def _fail(self, queue: PartitionQueue, batch: Batch, error: MultiRaftError) -> None:
        """Resolve a batch with ``error``, or as ambiguous if an attempt may have appended it.  If a
        sequence is missing then, the partition needs a new epoch."""
        if batch.maybe_appended and not isinstance(error, AmbiguousOutcome):
            error = self._ambiguous(queue, batch, unavailable=isinstance(error, TimedOut))
        if batch.identity is not None and batch in queue.sent:
            if batch is queue.sent[-1] and not batch.maybe_appended:
                queue.next_sequence = batch.base_sequence
            else:
                queue.needs_reset = True
        self._remove(queue, batch)
        self.records.resolve(batch, error.about(queue.topic, queue.partition))

    def _fail_all(self, queue: PartitionQueue, error: MultiRaftError, waiting: bool) -> None:
        """Resolve all batches of a partition with ``error``.  With ``waiting``, batches in flight
        are left for their answers; without, they count as perhaps appended."""
        if queue.open is not None:
            self.records.seal(queue)
        for batch in queue.batches():
            if batch.attempt and waiting:
                continue
            if batch.attempt:
                batch.maybe_appended = True
                batch.problem = batch.problem or "no answer"
            self._fail(queue, batch, fresh(error))

    def _fenced(self, queue: PartitionQueue, batch: Batch, error: MultiRaftError,
                now_ms: int) -> None:
        """Process a refusal of the identity.  With an identity of the caller's the producer ends.
        An assigned one is replaced: batches that are certainly in no log continue under another id,
        in order.  A batch that may be in the log is ambiguous, because no leader answers
        repetitions under the old id."""
        if self.settings.identity is not None:
            self.records.failed = error
            self._end_all(error)
            return
        queue.needs_reset = True
        assert batch.identity is not None
        self.lose_id(batch.identity[0])
        if batch.maybe_appended:
            self._fail(queue, batch, error)
        else:
            self._retry(queue, batch, now_ms)

    def close(self, why: str) -> None:
        """End all unresolved batches with ``Closed``, or as ambiguous; take no more records."""
        if self.closed is None:
            unsent = self.records.unsent()
            self.end(Closed(f"{why} and takes no more records"))
            self._end_all(Closed(f"{described(unsent)} not sent: {why}" if unsent
                                 else f"not sent: {why}"))

    def require_open(self) -> None:
        """Raise the error that the producer has ended with, if it has."""
        if self.closed is not None:
            raise fresh(self.closed)

    def end(self, error: MultiRaftError) -> None:
        """Refuse further records with ``error``; unresolved batches keep their state."""
        self.closed = self.records.failed = error
        self.wants_identity = False

    def _end_all(self, error: MultiRaftError) -> None:
        for queue in list(self.records.partitions.values()):
            self._fail_all(queue, error, waiting=False)
        self.records.fail_staged(error)

    def _ambiguous(self, queue: PartitionQueue, batch: Batch,
                   unavailable: bool) -> AmbiguousOutcome:
        """Return the error of a batch that may be in the log.  ``unavailable``: the partition gave
        no answer, so the text also names its leader and the members of its group that answer."""
        members = self._metadata.why_unavailable(queue.incarnation) if unavailable else ""
        return AmbiguousOutcome(f"{self._name(queue, batch)} may or may not have been appended; "
                                f"last: {batch.problem}{members}")

    @staticmethod
    def _name(queue: PartitionQueue, batch: Batch) -> str:
        records = "1 record" if batch.count == 1 else f"{batch.count} records"
        return f"batch of {records} for {queue.topic}/{queue.partition}"

    def _remove(self, queue: PartitionQueue, batch: Batch) -> None:
        if queue.sent and queue.sent[0] is batch:
            del queue.sent[0]
        elif batch in queue.sent:
            queue.sent.remove(batch)
        else:
            queue.queue.remove(batch)
