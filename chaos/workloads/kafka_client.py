"""Clients of Kafka (librdkafka) for workloads: producers, consumers, administration, on threads.

Contract.  librdkafka blocks and calls back, so each call that may wait runs on a thread of trio,
one call at a time for each client; trio never waits.  A producer has at most ``IN_FLIGHT_MAX``
appends without an outcome.  Every client is closed when its block ends, also by a cancellation:
appends without an outcome are then ``info``.

An error that certainly says that nothing happened is a ``Refused`` or an ``OffsetOutOfRange``; the
history has it as ``fail``.  Every other one is a ``NotKnown``: ``info``.

Theory.  librdkafka repeats an append by itself only where it has no effect, or with idempotence.  A
producer without idempotence has no retries here: librdkafka still repeats what a node refused as
not the leader, because that was appended nowhere, so the last refusal is that of all attempts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio

from chaos import values
from chaos.checkers.verdict import Anomaly
from chaos.history import KAFKA, PORT
from chaos.workloads.recorder import TEXT_MAX, Operation
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import Code, OffsetOutOfRange, RequestError

#: The extra of the distribution that has the package, and the package.
EXTRA, PACKAGE = "chaos", "confluent_kafka"
#: Name of the anomaly of a producer that ended with a fatal error.
PRODUCER_ENDED = "kafka-producer-ended"
#: Data of the invocation of each operation at Kafka's port.
AT_KAFKAS_PORT = {PORT: KAFKA}
#: Ack level -> Kafka's.
ACKS = {"commit": "all", "leader": "1", "none": "0"}
#: Appends of one producer without an outcome; librdkafka's own queue has as many.
IN_FLIGHT_MAX = 64
#: Appends that are given to a producer together.
BURST_MAX = 8
#: Time that one call waits on its thread for outcomes or records.
WAIT_S = 0.1
#: Time from an append to its outcome, at most, without and with idempotence: with it the client
#: repeats, also when a fault of some seconds is over.  And the time of a request.
DELIVERY_TIMEOUT_MS, INSIST_TIMEOUT_MS, REQUEST_TIMEOUT_MS = 8_000, 20_000, 2_000
#: Time of a request of the administration.
ADMIN_S = 5.0
ADMIN_TIMES = {"request_timeout": ADMIN_S, "operation_timeout": ADMIN_S}
#: A client has an outcome for each append within this time, or has a bug.
ANSWER_TIMEOUT_S = 30.0
#: Kafka's numbers of errors that leave open whether a node has appended: network exception, timed
#: out, not enough replicas after the append.
AMBIGUOUS = frozenset({7, 13, 20})
OUT_OF_RANGE = 1
SAYS_OUT_OF_RANGE = "Offset out of range"
#: A consumer asks for a coordinator, which it does not need for assigned partitions.
NO_GROUPS = 30


class Refused(RequestError):
    """Raised when a node refused a request at Kafka's port: nothing happened."""

    code = Code.INVALID_REQUEST


class NotKnown(MultiRaftError):
    """Raised when a client of Kafka does not know whether its request took effect."""


class NoOutcome(Exception):
    """Raised when a client of Kafka gives no outcome for an append: a bug of the client."""


def library() -> Any:
    """Return the package ``confluent_kafka``, which is of an extra.  Raises ``ImportError``; the
    command has required the package before."""
    import confluent_kafka  # of an extra, which the command's help does without
    return confluent_kafka


def servers(context: WorkloadContext) -> str:
    """Return the addresses of all members as librdkafka takes them."""
    return ",".join(context.kafka_nodes().values())


def common(context: WorkloadContext) -> dict[str, Any]:
    """Return the settings that all clients have."""
    return {"bootstrap.servers": servers(context), "client.id": "multiraft-chaos",
            "socket.timeout.ms": 3_000, "socket.connection.setup.timeout.ms": 2_000,
            "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000, "log_level": 0,
            "topic.metadata.propagation.max.ms": 2_000,
            # Errors of single connections are no outcomes; without this they go to standard error.
            "error_cb": _ignored}


def _ignored(_error: Any) -> None:
    return None


def error_of(error: Any, is_definite: bool) -> MultiRaftError:
    """Return the exception for a ``KafkaError``. ``is_definite``: a refusal by a node says that
    nothing happened; otherwise an earlier attempt may have taken effect."""
    text = f"{error.name()}: {error.str()}"
    if is_definite and error.code() > 0 and error.code() not in AMBIGUOUS:
        if error.code() == OUT_OF_RANGE:
            return OffsetOutOfRange(text)
        return Refused(text)
    return NotKnown(text)


async def on_thread(call: Callable[..., Any], *arguments: Any, is_definite: bool = False) -> Any:
    """Call a client on a thread and return its result; a cancelled caller waits for its end.
    Raises ``Refused``, ``OffsetOutOfRange`` or ``NotKnown`` in place of a ``KafkaException``."""
    try:
        return await trio.to_thread.run_sync(partial(call, *arguments))
    except library().KafkaException as error:
        raise error_of(error.args[0], is_definite) from error


# ---- producers -------------------------------------------------------------------------------


class Append(NamedTuple):
    """One record to append, and the operation that it is in the history."""

    place: PartitionRef
    record: bytes
    time_ms: int
    operation: Operation


class _Outcome(NamedTuple):
    append: Append
    error: Any  # a ``KafkaError``, or None
    offset: int


class KafkaProducer:
    """A producer: appends are given to ``send``, and their operations completed by ``serve``."""

    def __init__(self, context: WorkloadContext, acks: str, idempotent: bool,
                 handle: Callable[[dict[str, Any]], Any] | None = None):
        """``handle``: makes librdkafka's producer of its settings."""
        self.acknowledged: set[str] = set()  # keys
        self.is_fatal = False  # the identity of the producer can no longer be used
        self._context = context
        self._acks = acks
        self._idempotent = idempotent
        settings = {
            "acks": ACKS[acks], "enable.idempotence": idempotent, "linger.ms": 3,
            "message.timeout.ms": INSIST_TIMEOUT_MS if idempotent else DELIVERY_TIMEOUT_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "queue.buffering.max.messages": IN_FLIGHT_MAX, "retry.backoff.ms": 50,
            **({} if idempotent else {"retries": 0})}
        self._handle = (handle or library().Producer)({**common(context), **settings})
        self._open: dict[int, Append] = {}  # by the identity of the tuple
        self._outcomes: list[_Outcome] = []  # of the call that is on its thread
        self._settled = trio.Condition()

    async def room(self) -> None:
        """Wait until the client has room for ``BURST_MAX`` appends."""
        async with self._settled:
            while len(self._open) + BURST_MAX > IN_FLIGHT_MAX:
                await self._settled.wait()

    async def send(self, appends: Sequence[Append]) -> None:
        """Give appends to the client, in this order, after ``room``; a producer has one caller.
        Appends that the client does not take are completed as refused."""
        assert len(appends) <= BURST_MAX
        for append in appends:
            self._open[id(append)] = append
        not_taken = await trio.to_thread.run_sync(self._give, appends)
        for append, error in not_taken:
            self._complete(append, error)

    def _give(self, appends: Iterable[Append]) -> list[tuple[Append, MultiRaftError]]:
        """Enqueue appends; return those that the client did not take.  Called on a thread."""
        refused: list[tuple[Append, MultiRaftError]] = []
        for append in appends:
            try:
                self._handle.produce(
                    append.place.topic, append.record, partition=append.place.partition,
                    timestamp=append.time_ms, on_delivery=partial(self._delivered, append))
            except BufferError as error:
                refused.append((append, Refused(str(error))))
            except library().KafkaException as error:  # a fatal error, or no such partition
                self._note_fatal(error.args[0])
                refused.append((append, Refused(str(error))))
        return refused

    def _delivered(self, append: Append, error: Any, message: Any) -> None:
        """Take the outcome of an append: the callback of the client, on the thread of ``poll``."""
        self._outcomes.append(_Outcome(append, error, message.offset()))

    async def serve(self) -> None:
        """Complete the operations of appends as their outcomes come, until cancelled."""
        while True:
            await trio.to_thread.run_sync(self._poll, WAIT_S)
            await self._take_outcomes()

    def _poll(self, wait_s: float) -> None:
        """Have the client call back with its outcomes.  Called on a thread.  Raises the client's
        errors but the fatal one, which it raises beside the outcomes."""
        try:
            self._handle.poll(wait_s)
        except library().KafkaException as error:
            if not self._note_fatal(error.args[0]):
                raise

    def _note_fatal(self, error: Any) -> bool:
        """Return True if an error ends the use of the client, and note the first such one: a
        correct cluster gives no producer a reason for it."""
        is_fatal = error.fatal() or error.code() == library().KafkaError._FATAL
        if is_fatal and not self.is_fatal:
            self.is_fatal = True
            self._context.anomalies.append(Anomaly(
                "A0", PRODUCER_ENDED, "a producer of librdkafka ended with a fatal error: "
                f"{error.name()}: {error.str()}"[:TEXT_MAX], "", (),
                self._context.recorder.now_us()))
        return is_fatal

    async def _take_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for append, error, offset in outcomes:
            if error is None:
                self._complete(append, None, offset)
            else:
                self._note_fatal(error)
                self._complete(append, error_of(error, not self._idempotent))
        if outcomes:
            async with self._settled:
                self._settled.notify_all()

    def _complete(self, append: Append, error: MultiRaftError | None, offset: int = -1) -> None:
        del self._open[id(append)]
        if error is not None:
            append.operation.failed(error)
        elif self._acks == "none":
            append.operation.ok(offset=-1)
        else:
            append.operation.ok(offset=offset)
            self.acknowledged.add(append.place.key)
            self._context.topics.heard(append.place.key, offset + 1)

    async def settled(self) -> None:
        """Wait until every append has an outcome.  Raises ``NoOutcome`` when one has none after
        ``ANSWER_TIMEOUT_S``."""
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            async with self._settled:
                while self._open:
                    await self._settled.wait()
        if self._open:
            raise NoOutcome(f"{len(self._open)} appends have no outcome after "
                            f"{ANSWER_TIMEOUT_S:.0f} s")

    async def close(self) -> None:
        """Drop all appends, whose outcome is then not known, and close the client."""
        await trio.to_thread.run_sync(self._purge)
        await self._take_outcomes()
        for append in list(self._open.values()):
            self._complete(append, NotKnown("the client was closed"))

    def _purge(self) -> None:
        self._handle.purge()
        self._poll(0)
        self._handle.close()


@contextlib.asynccontextmanager
async def producer(context: WorkloadContext, acks: str, idempotent: bool
                   ) -> AsyncIterator[KafkaProducer]:
    """Give a producer that completes its appends as long as the block lasts, and is closed with
    it."""
    opened = await trio.to_thread.run_sync(partial(KafkaProducer, context, acks, idempotent))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened.serve)
            yield opened
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await opened.close()


# ---- consumers -------------------------------------------------------------------------------


class Received(NamedTuple):
    """A record that a consumer was given."""

    topic: str
    partition: int
    offset: int
    record: bytes


class KafkaConsumer:
    """A consumer of assigned partitions."""

    def __init__(self, context: WorkloadContext, isolation: str,
                 handle: Callable[[dict[str, Any]], Any] | None = None):
        """``isolation``: "read_committed" or "read_uncommitted"; ``handle``: makes librdkafka's
        consumer of its settings."""
        self._handle = (handle or library().Consumer)({
            **common(context), "group.id": "multiraft-chaos", "enable.auto.commit": False,
            "enable.partition.eof": True, "auto.offset.reset": "error",
            "isolation.level": isolation, "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50,
            "queued.min.messages": 1_000,
            "check.crcs": True})
        self.ends: dict[tuple[str, int], int] = {}  # (topic, partition) -> newest end reached

    async def assign(self, positions: Mapping[PartitionRef, int]) -> None:
        """Replace the assignment: read these partitions from these offsets on."""
        part = library().TopicPartition
        await on_thread(self._handle.assign, [part(place.topic, place.partition, at)
                                              for place, at in positions.items()])

    async def take(self, records_max: int, wait_s: float, until_end: bool = False
                   ) -> tuple[list[Received], bool]:
        """Return records as they come within ``wait_s``, ``records_max`` at most, and whether the
        end of a partition was reached. ``until_end``: return then.  Raises ``OffsetOutOfRange``
        when an offset of the assignment is not there, ``NotKnown`` when a partition cannot be
        read."""
        return await trio.to_thread.run_sync(self._take, records_max, wait_s, until_end)

    def _take(self, records_max: int, wait_s: float, until_end: bool
              ) -> tuple[list[Received], bool]:
        """Poll until the time is over.  Called on a thread."""
        deadline, found, ended = time.monotonic() + wait_s, [], False
        while len(found) < records_max and not (ended and until_end):
            message = self._handle.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                break
            if message.error() is None:
                found.append(Received(message.topic(), message.partition(), message.offset(),
                                      message.value() or b""))
            elif self._is_end(message.error()):
                ended = True
                self.ends[message.topic(), message.partition()] = message.offset()
        return found, ended

    def _is_end(self, error: Any) -> bool:
        """True if an event says that the end of a partition was reached, False if it says nothing
        about the assignment. Raises as ``take``."""
        kinds = library().KafkaError
        if error.code() == kinds._PARTITION_EOF:
            return True
        if error.code() == kinds._AUTO_OFFSET_RESET and SAYS_OUT_OF_RANGE in error.str():
            raise OffsetOutOfRange(error.str())
        if error.code() > 0 and error.code() != NO_GROUPS or error.code() in (
                kinds._AUTO_OFFSET_RESET, kinds._BAD_MSG, kinds._UNKNOWN_PARTITION,
                kinds._UNKNOWN_TOPIC):
            raise error_of(error, False)
        return False  # of a connection, which the client opens again

    async def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client that asks a node, on a thread. Raises ``NotKnown``."""
        return await on_thread(partial(getattr(self._handle, method), *arguments, **options))

    async def close(self) -> None:
        """Close the client."""
        await trio.to_thread.run_sync(self._handle.close)


@contextlib.asynccontextmanager
async def consumer(context: WorkloadContext, isolation: str) -> AsyncIterator[KafkaConsumer]:
    """Give a consumer that is closed with the block."""
    opened = await trio.to_thread.run_sync(partial(KafkaConsumer, context, isolation))
    try:
        yield opened
    finally:
        with trio.CancelScope(shield=True):
            await opened.close()


def runs_of(run: int, key: str, records: Iterable[Received]) -> list:
    """Return ``[[base offset, [value, ...]], ...]`` of records of one partition; records that
    follow without a gap are one run."""
    runs: list = []
    for received in records:
        value = values.decode(run, key, received.record)
        if runs and runs[-1][0] + len(runs[-1][1]) == received.offset:
            runs[-1][1].append(value)
        else:
            runs.append([received.offset, [value]])
    return runs


# ---- administration --------------------------------------------------------------------------


class KafkaAdmin:
    """The administration of topics and records."""

    def __init__(self, context: WorkloadContext):
        from confluent_kafka import admin  # of an extra
        self._admin = admin
        self._handle: Any = admin.AdminClient(common(context))

    async def close(self) -> None:
        """Close the client: librdkafka's ends with the last reference to it."""
        await trio.to_thread.run_sync(self._drop)

    def _drop(self) -> None:
        self._handle = None

    async def create(self, topic: str, partitions: int) -> None:
        """Create a topic, with the cluster's number of replicas.  Raises ``NotKnown``."""
        await on_thread(_result, lambda: self._handle.create_topics(
            [self._admin.NewTopic(topic, partitions, -1)], **ADMIN_TIMES))

    async def delete(self, topic: str) -> None:
        """Delete a topic.  Raises ``NotKnown``."""
        await on_thread(_result, lambda: self._handle.delete_topics([topic], **ADMIN_TIMES))

    async def delete_records(self, place: PartitionRef, before: int) -> int:
        """Delete the records of a partition below an offset, -1 = all, and return its log start.
        Raises ``OffsetOutOfRange`` or ``Refused``, also for a repetition, which has no other
        effect; or ``NotKnown``."""
        part = library().TopicPartition(place.topic, place.partition,
                                        library().OFFSET_END if before < 0 else before)
        deleted = await on_thread(_result, lambda: self._handle.delete_records(
            [part], **ADMIN_TIMES), is_definite=True)
        return deleted.low_watermark


@contextlib.asynccontextmanager
async def admin(context: WorkloadContext) -> AsyncIterator[KafkaAdmin]:
    """Give an administration that is closed with the block."""
    opened = await trio.to_thread.run_sync(partial(KafkaAdmin, context))
    try:
        yield opened
    finally:
        with trio.CancelScope(shield=True):
            await opened.close()


def _result(begin: Callable[[], Mapping[Any, Any]]) -> Any:
    """Return the result of the only future of a request.  Raises ``KafkaException``."""
    (future,) = begin().values()
    return future.result(ADMIN_S + ANSWER_TIMEOUT_S)
