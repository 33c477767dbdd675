"""The client without trio: the same names and behaviour, one thread, plain sockets.

    with Client(["127.0.0.1:9101"]) as client:
        client.create_topic("flights", partitions=4)
        with client.producer() as producer:
            receipt = producer.send_nowait(Record("flights", b"UA 1545", key=b"UA")).wait()
        for batch in client.consume("flights", until_end=True):
            ...

Contract.  As ``multiraft.client``, but nothing happens between calls: whoever only ever calls
``send_nowait`` has to call ``flush`` (or anything that waits) for the rest to be sent.  Not for use
by several threads at once, nor by a process that inherited it: make a client in each worker.

Elsewhere.  All decisions are in the machines (``_client.py``); this module moves bytes and waits.
"""

from __future__ import annotations

import random
import select
import socket
from functools import partial
from typing import Any, Callable, Sequence, TypeVar

from multiraft.client import _operations, _placements, _plans
from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._blocking_sockets import LinkSocket, SecureLinkSocket, monotonic_ms
from multiraft.client._client import ClientCore
from multiraft.client._compression import DecompressionTooLarge
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._consuming import BaseConsumer, ConsumerCore
from multiraft.client._lifecycle import Closed, Forked, note_failure, watch
from multiraft.client._methods import blocking_method
from multiraft.client._network import Link, NetworkLimits, NoNodeAnswered
from multiraft.client._operations import OffsetRange, PartitionDescription, TopicDescription
from multiraft.client._producing import ProducerCore
from multiraft.client._records import (
    VALUE_BYTES_MAX,
    BatchReceipt,
    FetchedBatch,
    Record,
    Timestamp,
)
from multiraft.client._steps import Exchange, Operation, Pause, Step, Turn, Until, WaitFor
from multiraft.client._unreadable import OversizedBatch, UnreadableBatch
from multiraft.client._waits import Wait
from multiraft.client.tls import TlsSettings
from multiraft.errors import MultiRaftError, RecordTooLarge
from multiraft.wire.errors import AmbiguousOutcome, RequestError

__all__ = [
    "AmbiguousOutcome", "BatchDelivery", "BatchReceipt", "BufferFull", "Client", "Closed",
    "Consumer", "DecompressionTooLarge", "FetchedBatch", "Forked", "NoNodeAnswered", "OffsetRange",
    "OversizedBatch", "PartitionDescription", "Producer", "Record", "RecordTooLarge",
    "RequestError", "Timestamp", "TlsSettings", "TopicDescription", "UnreadableBatch",
    "VALUE_BYTES_MAX", "Wait",
]

#: Nobody waits for the sockets while records are only given: look at them at least this often.
_TURN_INTERVAL_MS = 2
#: One wait: far below what ``poll`` takes.
_WAIT_MS_MAX = 3_600_000


_Result = TypeVar("_Result")


class BatchDelivery(Delivery):
    """The fate of one batch."""

    __slots__ = ("client",)

    def __init__(self, client: "Client"):
        super().__init__()
        self.client = client

    def wait(self) -> BatchReceipt:
        """Return where the batch was appended.  Raises a ``RequestError`` when it certainly was
        not, ``AmbiguousOutcome`` when that is unknown."""
        self.client.until(lambda: self.outcome is not None)
        return self.result()


class Client:
    """A connection to a cluster, through any of its nodes; use it with ``with``."""

    def __init__(self, servers: Sequence[str], *, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), rng: random.Random | None = None,
                 tls: TlsSettings | None = None):
        self.tls = tls
        if tls is not None:
            tls.context()  # what cannot be used is said here, not at the first connection
        self._core = ClientCore(servers, rng if rng is not None else random.Random(),
                                monotonic_ms(), client_id, limits)
        self.connecting: dict[LinkSocket, None] = {}
        self._sockets: dict[Link, LinkSocket] = {}
        self._poll = select.poll()
        self._registered: dict[int, LinkSocket] = {}  # by file descriptor
        self.turned_ms = 0  # when the sockets were looked at last
        watch(self)

    def __enter__(self) -> "Client":
        self._core.require_open()
        return self

    def __exit__(self, kind, error, trace) -> None:
        note_failure(error, self._end())

    def close(self) -> None:
        """Close every connection, and with it whatever was made by this client; closing again does
        nothing.  Raises the first failure of a record that nobody was told of: a producer that is
        not closed before has not sent what it holds."""
        note_failure(None, self._end())

    @property
    def closed(self) -> bool:
        """Whether it can not be used any more: it was closed, or a forked process inherited it."""
        return self._core.ended is not None

    def _end(self) -> MultiRaftError | None:
        failure = self._core.close("the client was closed")
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
        return failure

    def inherited(self, error: Forked) -> None:
        """This is a child process (see ``_lifecycle.py``): nothing of the parent's is touched."""
        self._core.inherited(error)
        for sock in self._sockets.values():
            sock.discard()
        self._sockets.clear()
        self.connecting.clear()
        self._registered.clear()
        self._poll = select.poll()

    # ---- topics ----

    create_topic = blocking_method(_operations.create_topic)
    delete_topic = blocking_method(_operations.delete_topic)
    list_topics = blocking_method(_operations.list_topics)
    describe_topic = blocking_method(_operations.describe_topic)
    topic_metadata = blocking_method(_operations.topic_metadata)
    list_offsets = blocking_method(_operations.list_offsets)
    offsets_at = blocking_method(_operations.offsets_at)

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

    def producer(self, **settings) -> "Producer":
        """A producer; ``settings`` are the fields of ``ProducerSettings``."""
        return Producer(self, ProducerSettings(**settings))

    def consume(self, topic: str, partition: int | None = None, start: Start = "earliest",
                until_end: bool = False, **settings) -> "Consumer":
        """Read ``topic`` (one partition, or all) from "earliest", "latest", an offset or a
        ``Timestamp`` (the first record at or after it, the end when there is none);
        ``until_end``: stop at the end as it is now (see ``unread``).  See ``ConsumerSettings``."""
        return Consumer(self, ConsumerSettings(**settings), topic, partition, start, until_end)

    # ---- the machine's legs ----

    def until(self, condition: Callable[[], bool], deadline_ms: int | None = None) -> bool:
        """Send and receive until ``condition`` holds.  Returns False when it does not before
        ``deadline_ms``.  Raises ``Closed`` or ``Forked`` when the client ends before."""
        wait_ms = None
        while not condition():
            if deadline_ms is not None:
                wait_ms = deadline_ms - monotonic_ms()
                if wait_ms <= 0:
                    return False
            self.advance()
            if not condition():
                self.listen(wait_ms)
        return True

    def notify(self) -> None:
        """Do nothing: no other task waits for this client."""

    def turn_sometimes(self) -> None:
        """Send and receive what is possible at once, if that was not done just now."""
        self.turn_if_due(monotonic_ms())

    def turn_if_due(self, now_ms: int) -> None:
        """The same, for who has looked at the clock already."""
        if now_ms - self.turned_ms >= _TURN_INTERVAL_MS:
            self.advance()
            self.listen(0)

    def advance(self) -> None:
        """Do what is due and send what it gave.  Raises ``Closed`` or ``Forked``."""
        self._core.require_open()
        now_ms = self.turned_ms = monotonic_ms()
        self._core.advance(now_ms)
        if self.connecting:
            for sock in list(self.connecting):
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
            kind = LinkSocket if self.tls is None else SecureLinkSocket
            self._sockets[link] = kind(self, link)

    def listen(self, wait_ms: int | None = None) -> None:
        """Wait for the next event, at most ``wait_ms`` and never past what is due next; receive.
        Comes right after ``advance``, whose time it takes for now."""
        due_ms = self._core.next_deadline_ms()
        for sock in self.connecting:
            due_ms = sock.deadline_ms if due_ms is None else min(due_ms, sock.deadline_ms)
        if due_ms is not None:
            left_ms = due_ms - self.turned_ms if due_ms > self.turned_ms else 0
            if wait_ms is None or left_ms < wait_ms:
                wait_ms = left_ms if left_ms < _WAIT_MS_MAX else _WAIT_MS_MAX
        for number, events in self._poll.poll(wait_ms):
            sock = self._registered.get(number)
            if sock is not None:
                sock.ready(events)

    def register(self, raw: socket.socket, events: int, sock: LinkSocket) -> None:
        """Listen for ``events`` of a socket; again = for others than before."""
        self._poll.register(raw, events)
        self._registered[raw.fileno()] = sock

    def unregister(self, raw: socket.socket) -> None:
        """Listen to it no more."""
        self._poll.unregister(raw)
        del self._registered[raw.fileno()]

    def _run(self, operation: Operation[_Result]) -> _Result:
        """Run an operation of the client.  Raises ``Closed`` or ``Forked`` when it has ended."""
        self._core.require_open()
        return self.drive(operation)

    def drive(self, operation: Operation[_Result]) -> _Result:
        """Run ``operation`` to its end."""
        self._core.now_ms = monotonic_ms()
        try:
            step = operation.send(None)
            while True:
                try:
                    outcome = self._perform(step)
                except MultiRaftError as error:
                    step = operation.throw(error)
                else:
                    self._core.now_ms = monotonic_ms()
                    step = operation.send(outcome)
        except StopIteration as end:
            return end.value
        finally:
            operation.close()

    def _perform(self, step: Step) -> Any:
        """Carry one step out; what it results in."""
        match step:
            case Until():
                self.until(step.condition)
            case Turn():
                self.turn_sometimes()
            case WaitFor():
                self.until(lambda: step.signal.is_set)
            case Exchange():
                self._core.require_open()  # a signal's handler may have closed it
                return self._exchange(step)
            case Pause():
                self._core.require_open()
                self.until(lambda: False, monotonic_ms() + step.ms)
        return None

    def _exchange(self, step: Exchange) -> Any:
        outcomes: list = []
        self._core.network.request(step.address, step.request, (), step.timeout_ms,
                                  outcomes.append, monotonic_ms())
        self.until(lambda: bool(outcomes))
        return outcomes[0]


class Producer:
    """Appends records in batches; use it with ``with``.  ``settings`` are fixed."""

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._core = ProducerCore[BatchDelivery](
            client._core, settings, partial(BatchDelivery, client), monotonic_ms, None)

    def __enter__(self) -> "Producer":
        self._core.require_open()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._run(self._core.leave(error))

    close = blocking_method(ProducerCore[BatchDelivery].close)
    flush = blocking_method(ProducerCore[BatchDelivery].flush)
    send_many = blocking_method(ProducerCore[BatchDelivery].send_many)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Take one record; the delivery is that of the batch it travels in.  Raises ``BufferFull``
        with limit and value, and at once for what can never be appended: ``RecordTooLarge``,
        ``InvalidTopicName``, ``UnknownPartition``, ``TypeError``, ``ValueError``."""
        now_ms = monotonic_ms()
        delivery = self._core.take(record, now_ms)
        self._client.turn_if_due(now_ms)
        return delivery

    def send(self, record: Record) -> BatchDelivery:
        """As ``send_nowait``, but waits for room instead of raising ``BufferFull``."""
        now_ms = monotonic_ms()
        delivery = self._core.try_take(record, now_ms)
        if delivery is None:
            delivery = self._run(self._core.send(record))
        self._client.turn_if_due(now_ms)
        return delivery

    def _run(self, operation: Operation[_Result]) -> _Result:
        return self._client.drive(operation)


class Consumer(BaseConsumer):
    """Batches of a topic, in offset order per partition: ``for batch in consumer``."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._client = client
        self._core = ConsumerCore(client._core, settings, topic, partition, start, until_end,
                                  monotonic_ms, client.notify)

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> FetchedBatch:
        if self._core.is_ready():
            self._client.turn_sometimes()
        else:
            self._client.until(self._core.is_ready)
        batch = self._core.take()
        if batch is None:
            raise StopIteration
        return batch

    def wait(self, timeout_ms: int) -> bool:
        """Wait until there is a batch or the end is reached.  Returns False when that takes longer
        than ``timeout_ms``."""
        return self._client.until(self._core.is_ready, monotonic_ms() + timeout_ms)
