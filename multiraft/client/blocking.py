"""Blocking client of the distributed log, in one thread and without trio: the names and the
behaviour of ``multiraft.client``.

    with Client(["127.0.0.1:9101"]) as client:
        client.create_topic("flights", partitions=4)
        with client.producer() as producer:
            receipt = producer.send_nowait(Record("flights", b"UA 1545", key=b"UA")).wait()
        for batch in client.consume("flights", until_end=True):
            for record in batch:
                ...

Contract.  Errors and retries as in ``multiraft.client``.  The client does nothing between calls:
after ``send_nowait``, records are sent by ``flush``, ``close``, ``poll`` or another call that
waits.  One thread at a time may use a client; a second one gets ``ConcurrentUse``.  Only the
process that made it may use it: a child made by a fork gets ``Forked``, and makes a client of its
own.

Elsewhere.  ``_client.py`` and the operations decide (``_steps.py``); this module moves bytes and
waits.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
from time import time_ns
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Sequence, TypeVar, Unpack

from multiraft.client import (
    _operations,
    _placements,
    _plans,
    _record_deletion,
    _sizes,
    _topic_settings,
)
from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._blocking_sockets import LinkSocket, SecureLinkSocket, monotonic_ms
from multiraft.client._client import ClientCore
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._consuming import BaseConsumer, ConsumerCore
from multiraft.client._gaps import Gap
from multiraft.client._lifecycle import (
    Closed,
    Forked,
    NeedsTrio,
    RecordsNotSent,
    note_failure,
    watch,
)
from multiraft.client._methods import blocking_method
from multiraft.client._network import Link, NetworkLimits, NoNodeAnswered
from multiraft.client._operations import OffsetRange, PartitionDescription, TopicDescription
from multiraft.client._producing import ProducerCore
from multiraft.client._record_deletion import DeletedRecords
from multiraft.client._records import (
    VALUE_BYTES_MAX,
    BatchReceipt,
    FetchedBatch,
    Record,
    RecordReceipt,
    Timestamp,
)
from multiraft.client._settings import ConsumerOptions, ProducerOptions, settings_of
from multiraft.client._steps import Exchange, Operation, Pause, Step, Turn, Until, WaitFor
from multiraft.client._thread_guard import ConcurrentUse, ThreadGuard
from multiraft.client._unreadable import OversizedBatch, UnreadableBatch
from multiraft.client._waits import Wait
from multiraft.client.tls import TlsSettings
from multiraft.compression import DecompressionTooLarge
from multiraft.errors import ConfigError, MultiRaftError, RecordTooLarge
from multiraft.wire.errors import (
    AmbiguousOutcome,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidPartitions,
    InvalidRequest,
    InvalidSetting,
    InvalidTopicName,
    LeaderUnknown,
    LimitExceeded,
    NotAuthorized,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    Quarantined,
    QueueFull,
    RecordsWithoutKey,
    RequestError,
    ShuttingDown,
    StaleTransaction,
    StorageFull,
    TimedOut,
    TopicExists,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    Unsupported,
)
from multiraft.wire.tls import TlsSocket

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "AmbiguousOutcome", "BatchDelivery", "BatchReceipt", "BatchTooLarge", "BufferFull", "Client",
    "Closed", "ConcurrentUse", "ConfigError", "Consumer", "ConsumerOptions", "CorruptBatch",
    "DecompressionTooLarge", "DeletedRecords", "FetchedBatch", "Forked", "Gap", "InvalidBatch",
    "InvalidPartitions", "InvalidRequest", "InvalidSetting", "InvalidTopicName", "LeaderUnknown",
    "LimitExceeded", "MultiRaftError", "NeedsTrio", "NetworkLimits", "NoNodeAnswered",
    "NotAuthorized", "NotLeader", "OffsetNotAvailable", "OffsetOutOfRange", "OffsetRange",
    "OutOfOrderSequence", "OversizedBatch", "PartitionDescription", "Producer", "ProducerFenced",
    "ProducerOptions", "Quarantined", "QueueFull", "Record", "RecordReceipt", "RecordTooLarge",
    "RecordsNotSent", "RecordsWithoutKey", "RequestError", "ShuttingDown", "StaleTransaction",
    "Start", "StorageFull", "TimedOut", "Timestamp", "TlsSettings", "TopicDescription",
    "TopicExists", "UnknownPartition",
    "UnknownProducer", "UnknownTopic", "UnreadableBatch", "Unsupported", "VALUE_BYTES_MAX", "Wait",
]

#: A producer that is only given records serves the sockets at least this often.
_TURN_INTERVAL_MS = 2
#: The longest single wait: far below the maximum of ``poll``.
_WAIT_MS_MAX = 3_600_000


_Result = TypeVar("_Result")


def _wake_no_task() -> None:
    """Do nothing: a blocking client has no tasks that wait."""


class BatchDelivery(Delivery):
    """Pending outcome of a record, or of records that ``send_many`` put into one batch.  ``done``
    is True once the outcome is known; ``result`` returns it, ``when_done`` calls a function then,
    and ``offset`` and ``offsets`` tell where the records are.  Deliveries of one batch are
    equal, but for records that waited for the metadata of their topic."""

    __slots__ = ()

    def wait(self) -> RecordReceipt:
        """Wait for the outcome and return the ``RecordReceipt``: ``offset`` of the record, and the
        batch that it is in.  Raises a ``RequestError`` (``TimedOut`` after ``delivery_timeout_ms``,
        among others) when the batch was certainly not appended, ``AmbiguousOutcome`` when that is
        unknown, ``Closed`` or ``Forked`` when the client ended before the batch was sent."""
        batch = self._batch
        client: Client = batch.owner
        if batch.outcome is None:
            with client._guard:
                while batch.outcome is None:
                    client.advance()
                    if batch.outcome is None:
                        client.listen()
        return self.result()


class Client:
    """Client of a cluster, connected through any of its nodes; use it with ``with``.

    Parameters:
        servers      bootstrap servers, "host:port" or "[v6]:port", at least one: a list, or a text
                     with commas; the client learns the addresses of the other nodes from the
                     first that answers
        client_id    text of at most 249 bytes in UTF-8 that names this client to nodes
        limits       intervals of connections and retries in milliseconds (``NetworkLimits``)
        rng          source of random numbers for pauses, choice of nodes and nonces; for tests
        tls          certificates; None = connections without TLS

    No connection is opened before the first request.  Operations are repeated for 10 s (see
    ``multiraft.client``).  Raises ``ConfigError`` for an invalid address or ``client_id``, for no
    address, and for TLS files that cannot be used.

        with Client(["127.0.0.1:9101", "127.0.0.1:9102"]) as client:
            client.create_topic("flights", partitions=4)
    """

    def __init__(self, servers: str | Sequence[str], *, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), rng: random.Random | None = None,
                 tls: TlsSettings | None = None):
        self._tls = tls
        if tls is not None:
            tls.context()  # raise for unusable files here, not at the first connection
        self._core = ClientCore(servers, rng if rng is not None else random.Random(),
                                monotonic_ms(), client_id, limits)
        self._connecting: dict[LinkSocket, None] = {}
        self._sockets: dict[Link, LinkSocket] = {}
        self._poll = select.poll()
        self._registered: dict[int, LinkSocket] = {}  # by file descriptor
        self._turned_ms = 0  # time of the last ``advance``
        self._guard = ThreadGuard()
        watch(self)

    def __enter__(self) -> "Client":
        self._core.require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        unsent = self._core.unsent()
        note_failure(error, self._end(), unsent)

    if not TYPE_CHECKING:  # type checkers know that these are missing

        async def __aenter__(self):
            raise TypeError("use plain `with` for this client; the one for `async with`, under "
                            "trio, is multiraft.client.Client")

        async def __aexit__(self, *_):
            pass

    def close(self) -> None:
        """Close all connections, producers and consumers of this client.  Records that a producer
        still holds are not sent: close producers first.  Raises the first failure of a batch that
        no caller has received yet.  Closing again does nothing."""
        note_failure(None, self._end())

    @property
    def closed(self) -> bool:
        """True if the client has ended: it was closed, or a forked process inherited it."""
        return self._core.ended is not None

    def poll(self, timeout_ms: int = 0) -> None:
        """Send records that are due and receive answers, for ``timeout_ms`` milliseconds; with 0,
        as far as that needs no waiting.  A program that works for long between its calls calls
        ``poll`` meanwhile: the client has no thread, and sends only inside of its methods.  Raises
        ``Closed`` or ``Forked`` when the client has ended."""
        with self._guard:
            self._core.require_open()
            now_ms = monotonic_ms()
            if timeout_ms > 0:
                self._until(lambda: False, now_ms + timeout_ms)
            else:
                self._turn_if_due(now_ms)

    def __repr__(self) -> str:
        return self._core.describe("multiraft.client.blocking")

    def __del__(self) -> None:
        if hasattr(self, "_core"):  # else the constructor has raised
            self._warn_unsent("the client was garbage-collected")

    def _warn_unsent(self, why: str) -> None:
        """Warn of records that an open client holds and has never sent."""
        self._core.warn_unsent(f"{why}, and a blocking client sends only inside of its methods")

    def _end(self) -> MultiRaftError | None:
        with self._guard:
            failure = self._core.close("the client was closed")
            for sock in self._sockets.values():
                sock.close()
            self._sockets.clear()
            return failure

    def _inherited(self, error: Forked) -> None:
        """End the client in a child process (see ``_lifecycle.py``), without touching the parent's
        connections."""
        self._core.inherited(error)
        self._guard.renew()
        for sock in self._sockets.values():
            sock.discard()
        self._sockets.clear()
        self._connecting.clear()
        self._registered.clear()
        self._poll = select.poll()

    # ---- topics ----

    create_topic = blocking_method(_operations.create_topic)
    delete_topic = blocking_method(_operations.delete_topic)
    add_partitions = blocking_method(_operations.add_partitions)
    list_topics = blocking_method(_operations.list_topics)
    describe_topic = blocking_method(_operations.describe_topic)
    topic_metadata = blocking_method(_operations.topic_metadata)
    list_offsets = blocking_method(_operations.list_offsets)
    offsets_at = blocking_method(_operations.offsets_at)
    delete_records = blocking_method(_record_deletion.delete_records)
    alter_settings = blocking_method(_topic_settings.alter_settings)
    describe_settings = blocking_method(_topic_settings.describe_settings)
    topic_sizes = blocking_method(_sizes.topic_sizes)
    partition_sizes = blocking_method(_sizes.partition_sizes)

    # ---- cluster, groups, nodes ----

    catch_up = blocking_method(_operations.catch_up)
    cluster_status = blocking_method(_operations.cluster_status)
    group_list = blocking_method(_operations.group_list)
    group_transfer = blocking_method(_operations.group_transfer)
    group_members = blocking_method(_operations.group_members)
    group_replica = blocking_method(_operations.group_replica)
    group_recover = blocking_method(_operations.group_recover)
    group_describe = blocking_method(_operations.group_describe)
    node_status = blocking_method(_operations.node_status)
    join_cluster = blocking_method(_operations.join_cluster)
    node_list = blocking_method(_operations.node_list)
    node_describe = blocking_method(_operations.node_describe)
    remove_node = blocking_method(_operations.remove_node)
    scrub_node = blocking_method(_operations.scrub_node)
    control_cleaner = blocking_method(_operations.control_cleaner)

    # ---- placement, plans, sinks ----

    explain_placement = blocking_method(_placements.explain_placement)
    topic_pool_size = blocking_method(_placements.topic_pool_size)
    partition_replicas = blocking_method(_placements.partition_replicas)
    switch_partition = blocking_method(_placements.switch_partition)
    pool_grow = blocking_method(_placements.pool_grow)
    pool_status = blocking_method(_placements.pool_status)
    plan_request = blocking_method(_plans.plan_request)
    group_loads = blocking_method(_plans.group_loads)
    partition_loads = blocking_method(_plans.partition_loads)
    sink_request = blocking_method(_operations.sink_request)

    # ---- data ----

    def producer(self, **settings: Unpack[ProducerOptions]) -> "Producer":
        """Return a producer of this client; use it with ``with``, whose end flushes it.

            with client.producer(compression="zstd") as producer:
                producer.send(Record("flights", b"UA 1545", key=b"UA"))

        Settings, all optional:

            acks="commit"                  acknowledge when a batch is committed; "leader": when it
                                           is durable on the leader; "none": never, offset -1
            linger_ms=5                    wait for more records before a batch is sent
            batch_bytes=262144             size at which a batch is sent; a larger record gets a
                                           batch of its own, up to 8 MiB
            compression="none"             or "gzip", "snappy", "lz4", "zstd"
            in_flight_max=5                unacknowledged batches of a partition, 1 to 5 (more
                                           only with idempotent=False)
            delivery_timeout_ms=30000      give a batch up, counted from its first record
            idempotent=True                have leaders recognise repeated batches; without it an
                                           attempt that gets no answer ends as ``AmbiguousOutcome``
            buffer_bytes_max=67108864      unacknowledged bytes, above which ``send`` waits and
                                           ``send_nowait`` raises ``BufferFull``
            request_bytes_max=4194304      bytes of batches that share a request
            request_timeout_ms=10000       time that a node has for one attempt
            suspect_ms=1000                look for another leader when an answer takes longer
            identity=None                  (producer id, epoch) instead of one that the cluster
                                           assigns; see ``multiraft.client.staging``

        Raises ``ConfigError`` for an invalid setting, ``Closed`` or ``Forked`` when the client has
        ended."""
        with self._guard:
            return Producer(self, settings_of(ProducerSettings, "producer", settings))

    def consume(self, topic: str, partition: int | None = None, start: Start = "earliest",
                until_end: bool = False, **settings: Unpack[ConsumerOptions]) -> "Consumer":
        """Return a consumer of ``topic``: of one ``partition``, or of all (None).

            for batch in client.consume("flights", until_end=True):
                for record in batch:
                    ...

        ``start``: "earliest", "latest", an offset, or ``Timestamp(ms)`` for the first record at or
        after a time in milliseconds since 1970 (the end when there is none); or a mapping with one
        of these by partition, as ``positions`` of a consumer returns it: partitions that it leaves
        out are read from their beginning.  With ``until_end``
        the consumer ends at the end of each partition as of its start, or before records that an
        open transaction of a sink has staged (``unread`` names those partitions).  Without it the
        consumer waits for new records.

        Settings, all optional:

            partition_bytes_max=1048576    bytes that are fetched ahead of each partition
            fetch_bytes_max=8388608        bytes of one fetch of several partitions
            wait_max_ms=500                duration of a long poll
            unavailable_ms=30000           raise the last error of a partition after this time
                                           without a success
            request_timeout_ms=10000       time for one request
            prefer="leader"                or "nearest": a replica in ``rack`` is asked first; it
                                           serves a committed record slightly later
            rack=""                        this consumer's rack
            isolation="read_committed"     or "read_uncommitted": deliver staged records as well
            offset_reset="none"            or "earliest" or "latest": continue there when records
                                           were deleted before they were read; ``gaps`` has them

        Raises ``ConfigError`` for an invalid setting or start, ``TypeError``, ``InvalidTopicName``
        or ``UnknownPartition`` for a topic or partition that cannot exist, ``Closed`` or ``Forked``
        when the client has ended.  Iteration raises ``UnknownTopic`` or ``UnknownPartition`` (also
        after a deletion), ``OffsetOutOfRange`` for an offset that was deleted or is beyond the end,
        ``UnreadableBatch`` for a batch that fails its check on each replica, and after
        ``unavailable_ms`` the last error, or ``TimedOut``."""
        with self._guard:
            return Consumer(self, settings_of(ConsumerSettings, "consume", settings), topic,
                            partition, start, until_end)

    # ---- the driver ----

    def _until(self, condition: Callable[[], bool], deadline_ms: int | None = None) -> bool:
        """Send and receive until ``condition`` holds.  Returns False when it does not hold by
        ``deadline_ms`` (of ``monotonic_ms``; None = wait without limit).  Raises ``Closed`` or
        ``Forked`` when the client ends first."""
        wait_ms = None
        with self._guard:
            while not condition():
                if deadline_ms is not None:
                    wait_ms = deadline_ms - monotonic_ms()
                    if wait_ms <= 0:
                        return False
                self.advance()
                if not condition():
                    self.listen(wait_ms)
            return True

    def _turn_sometimes(self) -> None:
        """Send and receive what is possible without waiting, at most every 2 milliseconds."""
        self._turn_if_due(monotonic_ms())

    def _turn_if_due(self, now_ms: int) -> None:
        """Send and receive as ``_turn_sometimes`` does, at the time ``now_ms`` that the caller has
        read already."""
        if now_ms - self._turned_ms >= _TURN_INTERVAL_MS:
            self.advance()
            self.listen(0)

    def advance(self) -> None:
        """Advance the core and send its output, without waiting.  Raises ``Closed`` or
        ``Forked``."""
        self._core.require_open()
        now_ms = self._turned_ms = monotonic_ms()
        self._core.advance(now_ms)
        if self._connecting:
            for sock in list(self._connecting):
                sock.tick(now_ms)
        while self._core.network.changed:
            for link in self._core.network.take_changed():
                self._serve(link)

    def _serve(self, link: Link) -> None:
        sock = self._sockets.get(link)
        if link.closed:
            if sock is not None:
                sock.close()
                del self._sockets[link]
        elif sock is not None:
            sock.flush()
        else:
            kind = LinkSocket if self._tls is None else SecureLinkSocket
            self._sockets[link] = kind(self, link)

    def listen(self, wait_ms: int | None = None) -> None:
        """Wait for the sockets, at most ``wait_ms`` (None = no limit) and not past the core's next
        deadline, and receive and send what is possible.  Only right after ``advance``, whose time
        counts as the present one."""
        due_ms = self._core.next_deadline_ms()
        for each in self._connecting:
            due_ms = each.deadline_ms if due_ms is None else min(due_ms, each.deadline_ms)
        if due_ms is not None:
            left_ms = due_ms - self._turned_ms if due_ms > self._turned_ms else 0
            if wait_ms is None or left_ms < wait_ms:
                wait_ms = left_ms if left_ms < _WAIT_MS_MAX else _WAIT_MS_MAX
        for number, events in self._poll.poll(wait_ms):
            sock = self._registered.get(number)
            if sock is not None:
                sock.ready(events)

    def _register(self, raw: socket.socket | TlsSocket, events: int, sock: LinkSocket) -> None:
        """Have ``poll`` report ``events`` of ``raw`` to ``sock``, instead of those registered
        before."""
        self._registered[raw.fileno()] = sock
        self._poll.register(raw, events)

    def _unregister(self, raw: socket.socket | TlsSocket) -> None:
        """Have ``poll`` report no more events of a socket, if it is registered: a
        ``KeyboardInterrupt`` may have come before that."""
        number = raw.fileno()
        with contextlib.suppress(KeyError):
            self._poll.unregister(number)
        self._registered.pop(number, None)

    def _run(self, operation: Operation[_Result]) -> _Result:
        """Run an operation of the client.  Raises ``Closed`` or ``Forked`` when it has ended."""
        self._core.require_open()
        return self._drive(operation)

    def _drive(self, operation: Operation[_Result]) -> _Result:
        """Run ``operation`` to its end in this thread, step by step, and return its result.  A
        step's ``MultiRaftError`` is thrown into the operation."""
        with self._guard:
            self._core.now_ms = monotonic_ms()
            try:
                step = operation.send(None)
                while True:
                    try:
                        outcome = self._perform(step)
                    except MultiRaftError as error:
                        step = operation.throw(error)
                    else:
                        step = operation.send(outcome)
            except StopIteration as end:
                return end.value
            finally:
                operation.close()

    def _perform(self, step: Step) -> Any:
        """Carry out one step, which may wait, and return its result: that of an ``Exchange``, else
        None."""
        match step:
            case Turn():
                self._turn_if_due(monotonic_ms())
            case Until():
                self._until(step.condition)
            case WaitFor():
                self._until(lambda: step.signal.is_set)
            case Exchange():
                self._core.require_open()  # a signal handler may have closed the client
                return self._exchange(step)
            case Pause():
                self._core.require_open()
                self._until(lambda: False, monotonic_ms() + step.ms)
                self._core.now_ms = monotonic_ms()
        return None

    def _exchange(self, step: Exchange) -> Any:
        outcomes: list = []
        self._core.network.request(step.address, step.request, (), step.timeout_ms,
                                  outcomes.append, monotonic_ms())
        self._until(lambda: bool(outcomes))
        self._core.now_ms = monotonic_ms()
        return outcomes[0]


class Producer:
    """Producer that appends records in batches; ``Client.producer`` makes it, use it with ``with``.
    The end of the block flushes; after an exception, records that are not sent yet are dropped.
    ``settings`` cannot be changed.

        with client.producer() as producer:
            deliveries = producer.send_many("flights", [b"UA 1545", b"DL 461"])
            producer.flush()
    """

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._core = ProducerCore[BatchDelivery](
            client._core, settings, BatchDelivery, client, monotonic_ms, None)
        self._intake = self._core.intake
        # Read here once: ``send`` is called for each record.
        self._acquire, self._release = client._guard.acquire, client._guard.release

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    def __enter__(self) -> "Producer":
        self._core.require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._run(self._core.leave(error))

    close = blocking_method(ProducerCore[BatchDelivery].close)
    flush = blocking_method(ProducerCore[BatchDelivery].flush)
    send_many = blocking_method(ProducerCore[BatchDelivery].send_many)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Add one record to the open batch of its partition and return the delivery of the
        record.  It is not sent yet: the client has no thread, and sends inside of ``flush``,
        ``close``, ``wait`` of a delivery, ``poll`` of the client, and later calls of ``send``.  A
        program that ends before one of these loses the record, with a ``RecordsNotSent`` warning.
        Raises ``BufferFull`` (with ``limit`` and ``value`` in bytes) when ``buffer_bytes_max`` is
        reached, ``Closed`` or ``Forked`` after the end, ``ConcurrentUse`` while another thread uses
        the client, and for a record that can never be appended ``RecordTooLarge``,
        ``InvalidTopicName``, ``UnknownPartition``, ``TypeError`` or ``ValueError``; the record was
        not taken then."""
        if not self._acquire(False):
            self._refuse()
        try:
            now_ms = monotonic_ms()
            delivery = self._intake.send(record, now_ms, time_ns() // 1_000_000)
            client = self._client
            if now_ms - client._turned_ms >= _TURN_INTERVAL_MS:
                client._turn_if_due(now_ms)
            return delivery
        finally:
            self._release()

    def send(self, record: Record) -> BatchDelivery:
        """Add one record as ``send_nowait`` does, but wait for buffer space instead of raising
        ``BufferFull``.  It does not wait for the outcome of the batch."""
        if not self._acquire(False):
            self._refuse()
        try:
            now_ms = monotonic_ms()
            delivery = self._core.try_take(record, now_ms)
            if delivery is None:
                delivery = self._run(self._core.send(record))
            self._client._turn_if_due(now_ms)
            return delivery
        finally:
            self._release()

    def _refuse(self) -> NoReturn:
        """Raise ``Forked`` in a child process, whose parent may hold the guard; else
        ``ConcurrentUse``."""
        self._core.require_open()
        raise ConcurrentUse()

    def _run(self, operation: Operation[_Result]) -> _Result:
        return self._client._drive(operation)


class Consumer(BaseConsumer):
    """Consumer of a topic; ``Client.consume`` makes it.  ``for batch in consumer`` yields
    ``FetchedBatch`` values, in offset order within a partition and in no order between partitions.
    Offsets are not stored by the cluster: keep ``positions`` to resume."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._client = client
        self._core = ConsumerCore(
            client._core, client._core.consumer(settings, topic, partition, start, until_end),
            monotonic_ms, _wake_no_task)

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> FetchedBatch:
        with self._client._guard:
            if self._core.is_ready():
                self._client._turn_sometimes()
            else:
                self._client._until(self._core.is_ready)
            batch = self._core.take()
        if batch is None:
            raise StopIteration
        return batch

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the next iteration does not have to wait: for a batch, the end or an error.
        Returns False after ``timeout_ms`` milliseconds without one."""
        return self._client._until(self._core.is_ready, monotonic_ms() + timeout_ms)

    def positions(self) -> dict[int, int]:
        """Return the offset of the next record by partition, for ``start`` of a later consumer,
        which continues there.  A partition of which nothing is known yet is left out; a later
        consumer reads it from its beginning.  O(partitions)."""
        with self._client._guard:
            return super().positions()

    def waits(self) -> tuple[Wait, ...]:
        """Return the partitions that wait for something else than new records: metadata, a leader,
        an answer, or the decision of a transaction; each with the reason.  O(partitions)."""
        with self._client._guard:
            return super().waits()

    def close(self) -> None:
        """Stop fetching: later calls raise ``Closed``.  A consumer also stops at its end, after an
        error and when it is garbage-collected.  Closing again does nothing."""
        with self._client._guard:
            super().close()
