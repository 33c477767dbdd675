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
import time
from typing import Any, Callable, Generator, Sequence

from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery, note_taken
from multiraft.client._blocking_sockets import LinkSocket, SecureLinkSocket, monotonic_ms
from multiraft.client._client import ClientCore
from multiraft.client._compression import DecompressionTooLarge
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._exchange import Exchange
from multiraft.client._lifecycle import Closed, Forked, fresh, note_failure, watch
from multiraft.client._network import Link, NetworkLimits, NoNodeAnswered
from multiraft.client._operations import (
    OffsetRange,
    Operations,
    PartitionDescription,
    TopicDescription,
)
from multiraft.client._plans import BlockingPlans
from multiraft.client._records import (
    VALUE_BYTES_MAX,
    BatchReceipt,
    FetchedBatch,
    Record,
    Timestamp,
)
from multiraft.client._unreadable import OversizedBatch, UnreadableBatch
from multiraft.client._waits import BlockingWaits, Wait
from multiraft.client.tls import TlsSettings
from multiraft.errors import MultiRaftError, RecordTooLarge
from multiraft.wire import nodes
from multiraft.wire.errors import AmbiguousOutcome, RequestError
from multiraft.wire.members import GroupMembersReply, GroupRecoverReply
from multiraft.wire.messages import (
    ClusterStatusReply,
    GroupDescribeReply,
    GroupSummary,
    GroupTransferReply,
    NodeStatusReply,
    TopicMetadata,
    TopicSummary,
)

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


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BatchDelivery(Delivery):
    """The fate of one batch."""

    __slots__ = ("client",)

    def wait(self) -> BatchReceipt:
        """Where the batch was appended.  Raises a ``RequestError`` when it certainly was not,
        ``AmbiguousOutcome`` when nobody knows."""
        while self.outcome is None:
            self.client.advance()
            if self.outcome is None:
                self.client.listen()
        return self.result()


class Client(BlockingPlans):
    """A connection to a cluster, through any of its nodes; use it with ``with``."""

    def __init__(self, servers: Sequence[str], *, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), rng: random.Random | None = None,
                 tls: TlsSettings | None = None):
        self.tls = tls
        if tls is not None:
            tls.context()  # what cannot be used is said here, not at the first connection
        self.core = ClientCore(servers, rng if rng is not None else random.Random(), monotonic_ms(),
                               client_id, limits)
        self.connecting: dict[LinkSocket, None] = {}
        self._operations = Operations(self.core)
        self._sockets: dict[Link, LinkSocket] = {}
        self._poll = select.poll()
        self._registered: dict[int, LinkSocket] = {}  # by file descriptor
        self.turned_ms = 0  # when the sockets were looked at last
        watch(self)

    def __enter__(self) -> "Client":
        self.core.require_open()
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
        return self.core.ended is not None

    def _end(self) -> MultiRaftError | None:
        failure = self.core.close("the client was closed")
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
        return failure

    def inherited(self, error: Forked) -> None:
        """This is a child process (see ``_lifecycle.py``): nothing of the parent's is touched."""
        self.core.inherited(error)
        for sock in self._sockets.values():
            sock.discard()
        self._sockets.clear()
        self.connecting.clear()
        self._registered.clear()
        self._poll = select.poll()

    # ---- topics ----

    def create_topic(self, name: str, partitions: int = 1,
                     replication_factor: int = 0) -> TopicMetadata:
        """Create a topic.  ``replication_factor`` 0 = the pool's, the only one there is."""
        return self._run(self._operations.create_topic(name, partitions, replication_factor))

    def delete_topic(self, name: str, incarnation: int = 0) -> None:
        """Delete a topic: that incarnation; 0 = the present one.  Raises ``UnknownTopic``."""
        self._run(self._operations.delete_topic(name, incarnation))

    def list_topics(self) -> list[TopicSummary]:
        """All topics, by name."""
        return self._run(self._operations.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """Partitions, leaders and offsets of a topic."""
        return self._run(self._operations.describe_topic(name))

    def topic_metadata(self, name: str) -> TopicMetadata:
        """Where the partitions of a topic are, as the node that answers knows; nobody else is
        asked."""
        return self._run(self._operations.topic_metadata(name))

    def list_offsets(self, name: str) -> dict[int, OffsetRange]:
        """First and next offset of each partition."""
        return self._run(self._operations.list_offsets(name))

    def offsets_at(self, name: str, timestamp_ms: int) -> dict[int, int | None]:
        """For each partition the offset of its first record at or after ``timestamp_ms``
        (milliseconds since 1970); None when there is none yet."""
        return self._run(self._operations.offsets_at(name, timestamp_ms))

    # ---- cluster ----

    def catch_up(self) -> None:
        """Learn how new the metadata is: what this client asks from then on, of whatever node,
        sees all that anybody had changed before."""
        self._run(self._operations.catch_up())

    def cluster_status(self) -> ClusterStatusReply:
        """Nodes and totals, as the node that answers sees them."""
        return self._run(self._operations.cluster_status())

    def group_list(self) -> list[GroupSummary]:
        """All Raft groups."""
        return self._run(self._operations.group_list())

    def group_transfer(self, group: int, to: int = 0) -> GroupTransferReply:
        """Hand leadership of ``group`` to node ``to`` (0 = whoever is furthest)."""
        return self._run(self._operations.group_transfer(group, to))

    def group_members(self, group: int, voters: tuple[int, ...] = (),
                      learners: tuple[int, ...] = (),
                      expected_index: int = -1) -> GroupMembersReply:
        """The members of ``group`` as its leader sees them; with ``voters``, begin to make these
        and ``learners`` the members."""
        return self._run(self._operations.group_members(group, voters, learners, expected_index))

    def group_replica(self, group: int, address: str, timeout_ms: int = 0) -> GroupMembersReply:
        """The replica of ``group`` on the node at ``address``; ``timeout_ms`` as elsewhere."""
        return self._run(self._operations.group_replica(group, address, timeout_ms))

    def group_recover(self, group: int, survivor: int, incarnation: int) -> GroupRecoverReply:
        """Forced recovery: see docs/decisions/0007."""
        return self._run(self._operations.group_recover(group, survivor, incarnation))

    def node_status(self, address: str = "", timeout_ms: int = 0) -> NodeStatusReply:
        """Statistics of the node at ``address`` ("" = any); with ``timeout_ms`` it is asked once
        and not waited for longer."""
        return self._run(self._operations.node_status(address, timeout_ms))

    def group_describe(self, group: int, address: str, timeout_ms: int = 0) -> GroupDescribeReply:
        """The replica of ``group`` on the node at ``address``; ``timeout_ms`` as above."""
        return self._run(self._operations.group_describe(group, address, timeout_ms))

    # ---- nodes ----

    def join_cluster(self, node: nodes.NodeRow) -> nodes.JoinClusterReply:
        """Make a data directory a node of the cluster."""
        return self._run(self._operations.join_cluster(node))

    def node_list(self) -> nodes.NodeListReply:
        """All nodes, and the ids of those that were removed."""
        return self._run(self._operations.node_list())

    def node_describe(self, node: int) -> nodes.NodeDescribeReply:
        """One node and its groups."""
        return self._run(self._operations.node_describe(node))

    def remove_node(self, node: int) -> None:
        """Forget a node that is in no group any more, for ever."""
        self._run(self._operations.remove_node(node))

    def scrub_node(self, node: int, address: str, bytes_per_second: int = 0,
                   timeout_ms: int = 0) -> nodes.ScrubNodeReply:
        return self._run(self._operations.scrub_node(node, address, bytes_per_second, timeout_ms))

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

    def until(self, condition: Callable[[], bool]) -> None:
        """Work until the machine's state fulfils ``condition``."""
        while not condition():
            self.advance()
            if not condition():
                self.listen()

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
        self.core.require_open()
        now_ms = self.turned_ms = monotonic_ms()
        self.core.advance(now_ms)
        if self.connecting:
            for sock in list(self.connecting):
                sock.tick(now_ms)
        while self.core.network.changed:
            for link in self.core.network.take_changed():
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
        due_ms = self.core.next_deadline_ms()
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

    def _run(self, operation: Generator) -> Any:
        """Run an operation: work where it says to wait."""
        self.core.require_open()
        answer = None
        while True:
            self.core.now_ms = monotonic_ms()
            try:
                step = operation.send(answer)
            except StopIteration as end:
                return end.value
            self.core.require_open()  # a signal's handler may have closed it
            answer = self._exchange(step) if isinstance(step, Exchange) else self._pause(step.ms)

    def _exchange(self, step: Exchange) -> Any:
        outcomes: list = []
        self.core.network.request(step.address, step.request, (), step.timeout_ms,
                                  outcomes.append, monotonic_ms())
        self.until(lambda: bool(outcomes))
        return outcomes[0]

    def _pause(self, pause_ms: int) -> None:
        deadline_ms = monotonic_ms() + pause_ms
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            self.advance()
            self.listen(left_ms)


class Producer:
    """Appends records in batches; use it with ``with``.  ``settings`` are fixed."""

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._state = client.core.producer(settings, self._delivery)
        self._records = self._state.records

    def __enter__(self) -> "Producer":
        self._state.require_open()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.close()
        elif self._state.closed is None:
            self._end()
            note_failure(error, self._records.take_last_failure())

    def close(self) -> None:
        """Flush, and take no more records; closing again does nothing.  Raises as ``flush``."""
        if self._state.closed is None:
            try:
                self.flush()
            finally:
                self._end()

    def _end(self) -> None:
        self._state.close("the producer was closed")
        self._client.core.remove(self._state)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Take one record; the delivery is that of the batch it travels in.  Raises ``BufferFull``
        with limit and value, and at once for what can never be appended: ``RecordTooLarge``,
        ``InvalidTopicName``, ``UnknownPartition``, ``TypeError``, ``ValueError``."""
        now_ms = monotonic_ms()
        delivery = self._records.send(record, now_ms, _wall_ms())
        self._client.turn_if_due(now_ms)
        return delivery

    def send(self, record: Record) -> BatchDelivery:
        """As ``send_nowait``, but waits for room instead of raising ``BufferFull``."""
        while True:
            try:
                return self.send_nowait(record)
            except BufferFull as full:
                self._wait_for_room(full.needed)

    def send_many(self, topic: str, records: Sequence[bytes] | Sequence[Record],
                  ) -> list[BatchDelivery]:
        """Take values (bytes without keys: the fast way) or records, waiting for room; one
        delivery per batch touched.  Raises as ``send`` at the first record that is refused; then
        the error's ``index`` is its place in the list and ``deliveries`` are those of the records
        before it, which were taken; those behind it were not."""
        deliveries: list[BatchDelivery] = []
        at = 0
        try:
            if records and isinstance(records[0], Record):
                for record in records:
                    _note(deliveries, self.send(record))
                    at += 1
                return deliveries
            while at < len(records):
                self._wait_for_topic(topic)
                now_ms = monotonic_ms()
                try:
                    delivery, at = self._records.extend(topic, records, at, now_ms, _wall_ms())
                except BufferFull as full:
                    self._wait_for_room(full.needed)
                    continue
                _note(deliveries, delivery)
                self._client.turn_if_due(now_ms)
        except Exception as error:
            note_taken(error, at, deliveries)
            raise
        return deliveries

    def _wait_for_room(self, needed: int) -> None:
        self._client.until(lambda: self._records.room_for(needed))

    def _wait_for_topic(self, topic: str) -> None:
        since_ms = monotonic_ms()
        self._client.until(lambda: self._records.topic_ready(topic, monotonic_ms(), since_ms))

    def flush(self) -> None:
        """Send everything now and wait until each batch has its outcome.  Raises the first failure
        that nobody was told of by ``wait`` or ``when_done``, an ambiguous one before others, with
        notes of the rest."""
        self._state.require_open()
        number = self._records.seal_all()
        with self._records.flushing():
            self._client.until(lambda: self._records.settled(number))
            note_failure(None, self._records.take_failure())

    def _delivery(self) -> BatchDelivery:
        delivery = BatchDelivery()
        delivery.client = self._client
        return delivery


def _note(deliveries: list, delivery: Delivery) -> None:
    """Consecutive records of one batch share its delivery."""
    if not deliveries or deliveries[-1] is not delivery:
        deliveries.append(delivery)


class Consumer(BlockingWaits):
    """Batches of a topic, in offset order per partition: ``for batch in consumer``."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._state = None
        self._client = client
        self._state = client.core.consumer(settings, topic, partition, start, until_end)

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> FetchedBatch:
        if not self._state.ready_to_take:
            self._client.until(lambda: self._state.ready_to_take)
        else:
            self._client.turn_sometimes()
        batch = self._state.take()
        if batch is not None:
            return batch
        self._release()
        if self._state.error is not None:
            raise fresh(self._state.error)
        raise StopIteration

    def position(self, partition: int) -> int | None:
        """Offset of the next record of ``partition``, also after the end; None = not known yet."""
        return self._state.position(partition)

    def close(self) -> None:
        """Stop fetching: whoever asks for more is told ``Closed``.  The end, an error and garbage
        collection stop it as well.  Closing again does nothing."""
        self._state.end(Closed("the consumer was closed"))
        self._release()

    def _release(self) -> None:
        self._client.core.remove(self._state)

    def __del__(self):
        self._release()
