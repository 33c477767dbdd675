"""Record accumulator of a producer: open and sealed batches per partition, and records of topics
whose metadata are not known yet.

Contract.  ``send`` and ``extend`` take records and never wait; ``BufferFull`` bounds the bytes that
are held.  A batch is sealed when it is full, when its linger time is over, or by ``seal_all``.  It
counts as held until ``resolve`` gives its deliveries their outcome.  ``_producer.py`` decides which
batch is sent to which node, and when.

Theory.  Records without a key stay with one partition until its batch is sealed, and then continue
with the next partition: batches are spread, not records (Kafka's sticky partitioner, KIP-480).  A
record of an unknown topic is held without a batch, because its partition depends on the number of
partitions.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Sequence

from multiraft import core
from multiraft.client._batches import Batch, BatchOutcome, Delivery, PartitionQueue
from multiraft.client._lifecycle import fresh
from multiraft.client._metadata import MetadataCache
from multiraft.client._records import (
    BatchReceipt,
    Record,
    batch_bytes_of,
    require_partition,
    require_record,
    require_topic_name,
)
from multiraft.client._transactions import is_staged
from multiraft.client.texts import duration
from multiraft.codec import layout
from multiraft.compression import codec_number, compress
from multiraft.errors import ConfigError, MultiRaftError, RecordTooLarge
from multiraft.wire.errors import AmbiguousOutcome, TimedOut, UnknownPartition, UnknownTopic
from multiraft.wire.messages import TIMEOUT_MS_MAX, TopicMetadata
from multiraft.wire.schema import I16_MAX, I64_MAX

#: Batches that a leader remembers per producer and partition, to recognise repetitions.
IDEMPOTENT_IN_FLIGHT_MAX = 5
#: Topics whose limit of batches a producer remembers: the others cost one more refusal.
_TOPIC_LIMITS_MAX = 1_000
#: Empty builders kept for later batches, because their memory is allocated already.
_BUILDERS_KEPT_MAX = 64
#: Failed batches kept for ``flush``, which reports those that no caller has waited for.
_FAILURES_KEPT_MAX = 1_000
#: Further failures that the error raised by ``flush`` names in its notes.
_FAILURES_NOTED_MAX = 10
#: Idle partitions whose sequences are kept before those of deleted partitions are dropped.
_IDLE_QUEUES_MIN = 1_024


class BufferFull(MultiRaftError):
    """The producer holds as many unacknowledged bytes as it may.  ``limit`` is
    ``buffer_bytes_max``, ``value`` the bytes held, ``needed`` those of the refused record."""

    def __init__(self, limit: int, value: int, needed: int = 0):
        super().__init__(f"buffer_bytes_max={limit} is reached with {value} bytes unacknowledged")
        self.limit = limit
        self.value = value
        self.needed = needed


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of one producer (``Client.producer``)."""

    #: "commit": acknowledged when committed; "leader": when durable on the leader; "none": never.
    acks: str = "commit"
    #: Time that a batch waits for more records.
    linger_ms: int = 5
    batch_bytes: int = 256 << 10
    compression: str = "none"
    #: Unacknowledged batches of one partition; a leader recognises repetitions of five.
    in_flight_max: int = 5
    #: Time after which a batch is given up, counted from its first record.
    delivery_timeout_ms: int = 30_000
    idempotent: bool = True
    #: Unacknowledged bytes: bounds memory when the cluster is slower than the producer.
    buffer_bytes_max: int = 64 << 20
    #: Bytes of batches that share a request: those of several partitions, far below a frame's
    #: limit.
    request_bytes_max: int = 4 << 20
    #: Time after which a node that cannot decide one attempt has to answer that it is ambiguous.
    request_timeout_ms: int = 10_000
    #: An attempt without an answer for this long makes the client ask for the leader again.
    suspect_ms: int = 1_000
    #: (producer id, epoch) to sequence under, instead of an assigned one: a later producer that
    #: sends the same batches under it appends no duplicates.  It is never replaced; a batch that
    #: would need another identity fails.  The identity of a transaction
    #: (``multiraft.client.staging``) makes records visible when the transaction is committed.
    identity: tuple[int, int] | None = None

    def validate(self) -> "ProducerSettings":
        """Return the settings.  Raises ``ConfigError`` that names an invalid one."""
        for name in ("linger_ms", "batch_bytes", "in_flight_max", "delivery_timeout_ms",
                     "buffer_bytes_max", "request_bytes_max", "request_timeout_ms", "suspect_ms"):
            if type(getattr(self, name)) is not int or getattr(self, name) > I64_MAX:
                raise ConfigError(f"{name}={getattr(self, name)!r:.80} must be an integer of 63 "
                                  "bits")
        if self.acks not in ("commit", "leader", "none"):
            raise ConfigError(f"acks={self.acks!r:.80}: expected 'commit' (Kafka's all), 'leader' "
                              "(1) or 'none' (0)")
        if type(self.idempotent) is not bool:
            raise ConfigError(f"idempotent={self.idempotent!r:.80} must be a bool")
        codec_number(self.compression)
        least = layout.BATCH_HEADER_BYTES + 64
        if not least <= self.batch_bytes <= layout.BATCH_BYTES_MAX:
            raise ConfigError(f"batch_bytes={self.batch_bytes} is outside {least}.."
                              f"{layout.BATCH_BYTES_MAX}")
        if self.buffer_bytes_max < 2 * self.batch_bytes:
            raise ConfigError(f"buffer_bytes_max={self.buffer_bytes_max} must hold two batches of "
                              f"batch_bytes={self.batch_bytes}")
        if self.in_flight_max < 1 or (
                self.sequenced and self.in_flight_max > IDEMPOTENT_IN_FLIGHT_MAX):
            raise ConfigError(f"in_flight_max={self.in_flight_max} is outside 1.."
                              f"{IDEMPOTENT_IN_FLIGHT_MAX} (idempotent)")
        for name in ("delivery_timeout_ms", "request_timeout_ms", "suspect_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be positive")
        if self.request_timeout_ms > TIMEOUT_MS_MAX:
            raise ConfigError(f"request_timeout_ms={self.request_timeout_ms} is more than nodes "
                              f"take, {TIMEOUT_MS_MAX}")
        if self.identity is not None and not (
                isinstance(self.identity, tuple) and len(self.identity) == 2
                and all(type(number) is int for number in self.identity)
                and 0 <= self.identity[0] <= I64_MAX and 0 <= self.identity[1] <= I16_MAX):
            raise ConfigError(f"identity={self.identity!r:.80}: expected a producer id of 63 bits "
                              "and an epoch of 15")
        if self.linger_ms < 0:
            raise ConfigError(f"linger_ms={self.linger_ms} must not be negative")
        return self

    @property
    def sequenced(self) -> bool:
        """True if batches carry sequences, which are useless without acknowledgements."""
        return self.idempotent and self.acks != "none"


def _too_large(topic: str, value: int, name: str, limit: int) -> RecordTooLarge:
    """Return the error of a record of ``value`` bytes; ``name`` names the exceeded limit."""
    whose = ("the producer's buffer" if name == "buffer_bytes_max"
             else "the most that a node takes in one batch")
    error = RecordTooLarge(f"record of {value} bytes for topic {topic!r:.300} is larger than "
                           f"{name}={limit}, {whose}")
    error.limit, error.value = limit, value
    return error.about(topic)


#: A delivery from its fields, without a Python function: one is made for each record.
_new = tuple.__new__


def _is_untold(outcomes: Sequence[BatchOutcome]) -> bool:
    """Return True unless every outcome of the batch was given to a caller."""
    return not all(outcome.claimed for outcome in outcomes)


class _Staged(NamedTuple):
    """A record whose topic's partitions are not known yet."""

    number: int
    record: Record
    outcome: BatchOutcome
    wall_ms: int
    bytes: int
    deadline_ms: int


class Accumulator:
    """Held records of one producer; ``send`` and ``extend`` add, ``resolve`` removes."""

    def __init__(self, settings: ProducerSettings, metadata: MetadataCache, rng: random.Random,
                 kind: type[Delivery] = Delivery, owner: Any = None,
                 node_batch_bytes_max: Callable[[], int] = lambda: layout.BATCH_BYTES_MAX):
        """``kind``: class of deliveries; ``owner``: the client that they wait with."""
        self.failed: MultiRaftError | None = None  # records are refused with it
        self.buffered_bytes = 0
        self.flushes = 0  # calls that wait in ``flushing``
        self._failed: deque[list[BatchOutcome]] = deque(maxlen=_FAILURES_KEPT_MAX)
        self._failures_dropped = 0  # unreported failures beyond _FAILURES_KEPT_MAX
        #: By incarnation: queues with batches, and those whose last batch was resolved just now.
        self.partitions: dict[int, PartitionQueue] = {}
        self.ready: dict[int, None] = {}  # incarnations whose queue has changed
        self.staged: dict[str, list[_Staged]] = {}  # by topic; ``unstage`` removes
        self._settings = settings
        self._buffer_bytes_max = settings.buffer_bytes_max
        self._metadata = metadata
        self._rng = rng
        self._codec = codec_number(settings.compression)
        self._is_staged = is_staged(settings.identity)
        self._kind = kind
        self._owner = owner
        self._node_batch_bytes_max = node_batch_bytes_max  # from the last Welcome
        #: Topic -> limit of its batches that is below ``batch_bytes``, the last learned one last.
        self._topic_limits: dict[str, int] = {}
        self._idle: dict[int, PartitionQueue] = {}  # without batches, kept for their sequences
        self._idle_max = _IDLE_QUEUES_MIN
        self._sticky: dict[str, int] = {}  # topic -> partition of the current keyless batch
        self._builders: list[core.BatchBuilder] = []
        self._unresolved: dict[int, None] = {}  # numbers of batches and staged records, in order
        self._number = 0
        self._seal_through = 0  # batches up to this number do not linger
        self._last_opened: Batch | None = None

    # ---- records in ----

    def send(self, record: Record, now_ms: int, wall_ms: int) -> Delivery:
        """Add one record to the open batch of its partition and return the delivery of the record.
        While the topic's partitions are not known, hold the record.

        Raises ``BufferFull``, ``RecordTooLarge``, ``TypeError``, ``ValueError``,
        ``InvalidTopicName``, ``UnknownPartition``, or the error that ended the producer; the record
        was not taken then.  O(bytes)."""
        if type(record) is Record and type(record[1]) is bytes and record[2] is None and (
                not record[5]):
            size = len(record[1])  # as ``require_record``, for the usual record without a key
        else:
            size = require_record(record)
        if (self.failed is not None or size > layout.BATCH_BYTES_MAX
                or self.buffered_bytes + size > self._buffer_bytes_max):
            self._admit(size, record.topic)
        name = record[0]
        topic = self._metadata.topics.get(name)
        if topic is None or name in self.staged:
            return self._stage(record, now_ms, wall_ms)
        batch = self._append(topic, record, now_ms, wall_ms)
        return _new(self._kind, (batch.outcomes[0], batch.count - 1, 1))

    def extend(self, topic_name: str, values: Sequence[bytes], start: int, now_ms: int,
               wall_ms: int) -> tuple[Delivery, int]:
        """Add values[start:] without keys to the topic's current batch, as many as fit.  Only when
        ``topic_ready``.

        Returns the delivery of the values that were taken, perhaps none, and the index of the first
        one that was not.  Raises as ``send``."""
        self._admit(0, topic_name)
        topic = self._metadata.topics[topic_name]
        queue = self._queue(topic, self._sticky_partition(topic))
        batch = self._open_batch(queue, now_ms)
        first = batch.count
        try:
            took = batch.builder.extend(wall_ms, values, start)
        except RecordTooLarge:
            record = Record(topic_name, values[start])
            self._admit(require_record(record), topic_name)
            batch = self._append_alone(queue, record, now_ms, wall_ms)
            return _new(self._kind, (batch.outcomes[0], 0, 1)), start + 1
        self._grew(batch)
        if took < len(values):
            self.seal(queue)
            if took == start and not batch.count:
                raise AssertionError("an empty batch takes at least one record or raises")
        return _new(self._kind, (batch.outcomes[0], first, took - start)), took

    def topic_ready(self, name: str, now_ms: int, since_ms: int) -> bool:
        """Return True if the topic's partitions are known and no record waits for them; else ask
        for its metadata.  ``since_ms`` is the time from which the caller has been waiting.

        Raises ``UnknownTopic`` when nodes have answered since then that the topic does not exist,
        and ``TimedOut`` when no node has answered ``delivery_timeout_ms`` after ``since_ms``.  Also
        raises as ``send``."""
        if self.failed is not None:
            raise fresh(self.failed)
        if self._metadata.topics.get(name) is not None:
            return name not in self.staged
        require_topic_name(name)
        problem = self._no_topic(name, since_ms, now_ms)
        if problem is not None:
            self._metadata.refused.pop(name, None)  # another call asks again
            raise problem
        if now_ms - since_ms >= self._settings.delivery_timeout_ms:
            raise self._no_metadata(name)
        self._metadata.want(name)
        return False

    def learn_limit(self, topic: str, limit: int) -> None:
        """Build batches of at most ``limit`` bytes for a topic from now on, because a leader
        refused a larger one.  A record that is larger alone is still sent, and refused.  O(1)."""
        if not layout.BATCH_HEADER_BYTES < limit < self._settings.batch_bytes:
            return
        self._topic_limits.pop(topic, None)
        self._topic_limits[topic] = limit
        if len(self._topic_limits) > _TOPIC_LIMITS_MAX:
            del self._topic_limits[next(iter(self._topic_limits))]

    def room_for(self, needed: int) -> bool:
        """Return True if ``needed`` bytes, and at least a batch, fit into the buffer now, or the
        producer has ended.

        Open batches are sealed when the sealed ones would not free enough, so that the caller does
        not wait for their linger time.  O(partitions with batches)."""
        buffer_max = self._buffer_bytes_max
        wanted = min(max(needed, self._settings.batch_bytes), buffer_max)
        if self.buffered_bytes + wanted <= buffer_max or self.failed is not None:
            return True
        still = sum(queue.open.accounted_bytes for queue in self.partitions.values()
                    if queue.open is not None)
        if still + wanted > buffer_max:
            self.seal_all()
        return False

    def seal_all(self) -> int:
        """Seal all open batches, so that they do not linger.  Returns a number with which
        ``settled`` tells if all records up to now are resolved.  O(partitions with batches)."""
        for queue in self.partitions.values():
            if queue.open is not None:
                self.seal(queue)
        self._seal_through = self._number
        return self._number

    def unsent(self) -> dict[str, int]:
        """Return topic -> number of its records that are certainly in no log yet.
        O(batches + records that wait for metadata)."""
        counts: dict[str, int] = {}
        for queue in self.partitions.values():
            count = sum(batch.count for batch in queue.batches()
                        if not batch.attempt and not batch.maybe_appended)
            if count:
                counts[queue.topic] = counts.get(queue.topic, 0) + count
        for topic, staged in self.staged.items():
            counts[topic] = counts.get(topic, 0) + len(staged)
        return counts

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        """Count a flush for the duration of the block: it takes the failures of its batches, and
        ``take_last_failure`` leaves them."""
        self.flushes += 1
        try:
            yield
        finally:
            self.flushes -= 1

    def settled(self, number: int) -> bool:
        """Return True if all records that were taken before the call of ``seal_all`` which returned
        ``number`` have their outcome."""
        oldest = next(iter(self._unresolved), None)
        return oldest is None or oldest > number

    def _admit(self, size: int, topic: str) -> None:
        """Raise the reason if a record of ``size`` bytes cannot be taken, now or ever."""
        if self.failed is not None:
            raise fresh(self.failed)
        if size > layout.BATCH_BYTES_MAX:
            raise _too_large(topic, size, "batch_bytes_max", layout.BATCH_BYTES_MAX)
        self._require_room(size, topic)

    def _stage(self, record: Record, now_ms: int, wall_ms: int) -> Delivery:
        """Hold a record until the partitions of its topic are known, request them, and return the
        record's own delivery.  Raises as ``send``."""
        require_topic_name(record.topic)
        if record.partition is not None:
            require_partition(record.topic, record.partition)
        timestamp = wall_ms if record.timestamp_ms is None else record.timestamp_ms
        size = self._alone(record, timestamp).size
        self._require_room(size, record.topic)
        self._metadata.want(record.topic)
        outcome = BatchOutcome(self._owner)
        self.buffered_bytes += size
        staged = _Staged(self._next_number(), record, outcome, wall_ms, size,
                         now_ms + self._settings.delivery_timeout_ms)
        self.staged.setdefault(record.topic, []).append(staged)
        return _new(self._kind, (outcome, 0, 1))

    def _append(self, topic: TopicMetadata, record: Record, now_ms: int, wall_ms: int,
                outcome: BatchOutcome | None = None) -> Batch:
        """Add a record to the open batch of its partition and return that batch, whose last record
        it is.  ``outcome``: of a record that has one already, because it waited."""
        name, value, key, partition, timestamp_ms, headers = record
        if key is None and partition is None:
            sticky = self._sticky.get(name)
            number = (sticky if sticky is not None and sticky < len(topic.partitions)
                      else self._sticky_partition(topic))
        else:
            number = self._partition_of(topic, record)
        queue = self.partitions.get(topic.partitions[number].incarnation)
        if queue is None:
            queue = self._queue(topic, number)
        timestamp = wall_ms if timestamp_ms is None else timestamp_ms
        batch = queue.open
        if batch is None:
            batch = self._open_batch(queue, now_ms, outcome)
        builder = batch.builder
        try:
            took = builder.append(timestamp, key, value, headers)
        except RecordTooLarge:
            return self._append_alone(queue, record, now_ms, timestamp, outcome)
        if not took:
            self.seal(queue)
            batch = self._open_batch(queue, now_ms, outcome)
            builder = batch.builder
            took = builder.append(timestamp, key, value, headers)
            assert took, "an empty batch takes any record that fits alone"
        size = builder.size  # as ``_grew`` does
        self.buffered_bytes += size - batch.accounted_bytes
        batch.accounted_bytes = size
        batch.count = builder.count
        if outcome is not None and outcome is not batch.outcomes[0]:
            batch.outcomes.append(outcome)
        return batch

    def _append_alone(self, queue: PartitionQueue, record: Record, now_ms: int, timestamp: int,
                      outcome: BatchOutcome | None = None) -> Batch:
        """Put a record that is larger than ``batch_bytes`` into a batch of its own, after the open
        one, seal both, and return its batch. A record with an ``outcome`` is counted in the buffer
        already. Any other raises ``BufferFull`` without room for it now, and
        ``RecordTooLarge`` if the whole buffer is too small."""
        builder = self._alone(record, timestamp)
        if outcome is None:
            self._require_room(builder.size, record.topic)
        self.seal(queue)
        batch = self._open_batch(queue, now_ms, outcome, builder)
        self._grew(batch)
        self.seal(queue)
        return batch

    def _alone(self, record: Record, timestamp: int) -> core.BatchBuilder:
        """Return a batch with this record alone. Raises what encoding raises, and
        ``RecordTooLarge`` for a record above the nodes' limit of a batch. O(bytes)."""
        limit = min(self._node_batch_bytes_max(), layout.BATCH_BYTES_MAX)
        builder = core.BatchBuilder(layout.BATCH_BYTES_MAX)
        try:
            builder.append(timestamp, record.key, record.value, record.headers)
        except RecordTooLarge as error:
            size = batch_bytes_of(record)
            if size <= limit:
                raise  # the number of headers is too large, not the record
            raise _too_large(record.topic, size, "batch_bytes_max", limit) from error
        if builder.size > limit:
            raise _too_large(record.topic, builder.size, "batch_bytes_max", limit)
        return builder

    def _require_room(self, size: int, topic: str) -> None:
        """Raise ``BufferFull`` if ``size`` bytes do not fit into the buffer now, ``RecordTooLarge``
        if they never do."""
        limit = self._buffer_bytes_max
        if size > limit:
            raise _too_large(topic, size, "buffer_bytes_max", limit)
        if self.buffered_bytes + size > limit:
            raise BufferFull(limit, self.buffered_bytes, size)

    def _partition_of(self, topic: TopicMetadata, record: Record) -> int:
        count = len(topic.partitions)
        if record.partition is not None:
            partition = require_partition(topic.name, record.partition)
            if partition >= count:
                self._metadata.want(topic.name)  # it may have been added meanwhile
                raise UnknownPartition(f"topic {topic.name!r} has partitions 0..{count - 1}, not "
                                       f"{partition}").about(topic.name, partition)
            return partition
        if record.key is None:
            return self._sticky_partition(topic)
        return (core.murmur2(record.key) & 0x7FFFFFFF) % count

    def _sticky_partition(self, topic: TopicMetadata) -> int:
        partition = self._sticky.get(topic.name)
        if partition is None or partition >= len(topic.partitions):
            partition = self._sticky[topic.name] = self._rng.randrange(len(topic.partitions))
        return partition

    def _queue(self, topic: TopicMetadata, partition: int) -> PartitionQueue:
        incarnation = topic.partitions[partition].incarnation
        queue = self.partitions.get(incarnation)
        if queue is None:
            queue = self._idle.pop(incarnation, None)
            if queue is None:
                queue = PartitionQueue(topic.name, partition, incarnation)
            self.partitions[incarnation] = queue
        return queue

    def _open_batch(self, queue: PartitionQueue, now_ms: int, outcome: BatchOutcome | None = None,
                    builder: core.BatchBuilder | None = None) -> Batch:
        """Return the partition's open batch, or open a new one.  A new one has ``outcome`` if its
        first record has one already, and ``builder`` if its only record is encoded already."""
        if queue.open is None:
            if builder is None:
                limit = self._topic_limits.get(queue.topic) if self._topic_limits else None
                if limit is not None:
                    builder = core.BatchBuilder(limit)
                else:
                    builder = self._builders.pop() if self._builders else core.BatchBuilder(
                        self._settings.batch_bytes)
            queue.open = Batch(self._next_number(), builder, now_ms,
                               now_ms + self._settings.delivery_timeout_ms,
                               outcome or BatchOutcome(self._owner))
            self.ready[queue.incarnation] = None
            self._metadata.used[queue.topic] = None
            self._last_opened = queue.open
        return queue.open

    def _grew(self, batch: Batch) -> None:
        self.buffered_bytes += batch.builder.size - batch.accounted_bytes
        batch.accounted_bytes = batch.builder.size
        batch.count = batch.builder.count

    def seal(self, queue: PartitionQueue) -> None:
        """Close the open batch: compress, build and queue it for sending.  Records without a key
        continue with the next partition.  An empty batch, whose first record was refused, is
        dropped.  O(bytes)."""
        batch, queue.open = queue.open, None
        assert batch is not None
        builder = batch.builder
        batch.builder = None  # type: ignore[assignment]  # sealed: it takes no more records
        usual = (builder.size <= self._settings.batch_bytes
                 and queue.topic not in self._topic_limits)
        if builder.count:
            codec, block = self._codec, None
            if codec:
                block = compress(codec, builder.records_block())
                if layout.BATCH_HEADER_BYTES + len(block) > layout.BATCH_BYTES_MAX:
                    codec, block = layout.CODEC_NONE, None  # it would grow too large
            batch.data = builder.build(codec=codec, block=block)
            if self._is_staged:  # before ``stamp`` computes the CRC over it
                batch.data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.ATTRIBUTE_TRANSACTIONAL
            self.buffered_bytes += len(batch.data) - batch.accounted_bytes
            batch.accounted_bytes = len(batch.data)
            queue.queue.append(batch)
            self.ready[queue.incarnation] = None
        else:
            del self._unresolved[batch.number]
        builder.clear()
        if usual and len(self._builders) < _BUILDERS_KEPT_MAX:
            self._builders.append(builder)
        topic = self._metadata.topics.get(queue.topic)
        if topic is not None and self._sticky.get(queue.topic) == queue.partition:
            self._sticky[queue.topic] = (queue.partition + 1) % len(topic.partitions)

    def _next_number(self) -> int:
        self._number += 1
        self._unresolved[self._number] = None
        return self._number

    # ---- ends ----

    def take_failure(self) -> MultiRaftError | None:
        """Return the failures that no caller has received, as one error, and forget them.  It is
        the first ambiguous one, else the first, with notes of up to ``_FAILURES_NOTED_MAX`` others.
        None = there are none.  O(failures)."""
        untold: list[Any] = [failed[0].outcome for failed in self._failed if _is_untold(failed)]
        dropped, self._failures_dropped = self._failures_dropped, 0
        self._failed.clear()
        if not untold:
            return None
        failure = next((error for error in untold if isinstance(error, AmbiguousOutcome)),
                       untold[0])
        others = [error for error in untold if error is not failure]
        failure = fresh(failure)
        if others or dropped:
            failure.add_note(f"one of {len(untold) + dropped} failures that no caller received")
        texts = dict.fromkeys(f"{type(other).__name__}: {other}" for other in others
                              if str(other) != str(failure))
        for text in list(texts)[:_FAILURES_NOTED_MAX]:
            failure.add_note(text)
        return failure

    def take_last_failure(self) -> MultiRaftError | None:
        """Return the failures as ``take_failure`` does, at the end of the producer; None while a
        ``flush`` takes them."""
        return None if self.flushes else self.take_failure()

    def fail_staged(self, error: MultiRaftError) -> None:
        """End every record of an unknown topic with ``error``."""
        for name in list(self.staged):
            for staged in self.staged.pop(name):
                self._end_staged(staged, fresh(error))

    def resolve(self, batch: Batch, outcome: BatchReceipt | MultiRaftError) -> None:
        """Give the batch's deliveries their outcome and free its bytes.  A failure that no caller
        receives is kept for ``take_failure``."""
        self.buffered_bytes -= batch.accounted_bytes
        batch.accounted_bytes = 0
        batch.attempt = 0
        del self._unresolved[batch.number]
        self._tell(batch.outcomes, outcome)

    def _tell(self, outcomes: list[BatchOutcome], outcome: BatchReceipt | MultiRaftError) -> None:
        for each in outcomes:
            each.resolve(outcome)
        if not isinstance(outcome, BatchReceipt) and _is_untold(outcomes):
            if len(self._failed) == _FAILURES_KEPT_MAX and _is_untold(self._failed[0]):
                self._failures_dropped += 1
            self._failed.append(outcomes)

    def retire(self, queue: PartitionQueue) -> None:
        """Move a queue without batches to the idle ones, which keep sequences while the partition
        exists; drop it if the partition was deleted.  O(1) amortized."""
        del self.partitions[queue.incarnation]
        if self._metadata.locations.get(queue.incarnation) is not None:
            self._idle[queue.incarnation] = queue
        if len(self._idle) > self._idle_max:
            self._idle = {incarnation: queue for incarnation, queue in self._idle.items()
                          if self._metadata.locations.get(incarnation) is not None}
            self._idle_max = max(_IDLE_QUEUES_MIN, 2 * len(self._idle))

    def find(self, incarnation: int) -> PartitionQueue | None:
        """Return the queue of a partition, idle or not; None = it has none."""
        return self.partitions.get(incarnation) or self._idle.get(incarnation)

    def staged_deadline_ms(self) -> int | None:
        """Return the first deadline of a record of an unknown topic; None = there is none."""
        return min((staged[0].deadline_ms for staged in self.staged.values()), default=None)

    # ---- records whose topic was unknown ----

    def unstage(self, now_ms: int) -> None:
        """Batch the records whose topics have become known.  End those whose topics do not exist or
        whose deadlines have passed; the others stay, and their topics are requested."""
        for name in list(self.staged):
            topic = self._metadata.topics.get(name)
            if topic is not None:
                for staged in self.staged.pop(name):
                    self._place(topic, staged, now_ms)
                self._seal_early(topic)
            elif name in self._metadata.refused:
                for staged in self.staged.pop(name):
                    self._end_staged(staged, fresh(self._metadata.refused[name]))
            else:
                self._end_missing(name, now_ms)
                if name in self.staged:
                    self._metadata.want(name)
                    self._expire_staged(name, now_ms)

    def _end_missing(self, name: str, now_ms: int) -> None:
        """End the records that have waited long enough for a topic that does not exist; keep the
        others.  Each record has its own deadline, because the topic may be created at any time."""
        waiting, timeout_ms = self.staged.pop(name), self._settings.delivery_timeout_ms
        for at, staged in enumerate(waiting):
            if not self._metadata.is_missing(name, staged.deadline_ms - timeout_ms, now_ms):
                self.staged[name] = waiting[at:]
                return
            self._end_staged(staged, UnknownTopic(f"topic {name!r} does not exist").about(name))

    def _no_topic(self, name: str, since_ms: int, now_ms: int) -> MultiRaftError | None:
        """Return the error of a topic that nodes refuse, or that is missing for a caller that has
        waited since ``since_ms``; None = not decided yet."""
        if name in self._metadata.refused:
            return fresh(self._metadata.refused[name])
        if self._metadata.is_missing(name, since_ms, now_ms):
            return UnknownTopic(f"topic {name!r} does not exist").about(name)
        return None

    def _no_metadata(self, name: str) -> MultiRaftError:
        waited = duration(self._settings.delivery_timeout_ms)
        return TimedOut(f"topic {name!r}: no metadata in {waited}"
                        f"{self._metadata.why_missing()}").about(name)

    def _seal_early(self, topic: TopicMetadata) -> None:
        """Seal the batches of a topic whose records waited for metadata when ``seal_all`` was
        called."""
        for part in topic.partitions:
            queue = self.partitions.get(part.incarnation)
            if queue is not None and queue.open is not None and (
                    queue.open.number <= self._seal_through):
                self.seal(queue)

    def _place(self, topic: TopicMetadata, staged: _Staged, now_ms: int) -> None:
        """Add a record whose topic has become known to a batch, and its outcome to that batch; a
        record that is refused has its outcome now.

        A batch that the record opens takes the record's number, so that a flush waits for it."""
        self._last_opened = None
        try:
            placed = self._append(topic, staged.record, now_ms, staged.wall_ms, staged.outcome)
        except (MultiRaftError, TypeError, ValueError) as error:
            if not isinstance(error, MultiRaftError):
                error = ConfigError(f"record for {topic.name!r}: {error}")
            self._end_staged(staged, error.about(topic.name))
            return
        staged.outcome.first = placed.count - 1
        self.buffered_bytes -= staged.bytes
        batch = self._last_opened
        if batch is not None and batch.number > staged.number:
            del self._unresolved[batch.number]
            batch.number, batch.deadline_ms = staged.number, staged.deadline_ms
        else:
            del self._unresolved[staged.number]

    def _expire_staged(self, name: str, now_ms: int) -> None:
        late = [staged for staged in self.staged[name] if staged.deadline_ms <= now_ms]
        for staged in late:
            self.staged[name].remove(staged)
            self._end_staged(staged, self._no_metadata(name))
        if not self.staged[name]:
            del self.staged[name]

    def _end_staged(self, staged: _Staged, error: MultiRaftError) -> None:
        self.buffered_bytes -= staged.bytes
        del self._unresolved[staged.number]
        self._tell([staged.outcome], error)
