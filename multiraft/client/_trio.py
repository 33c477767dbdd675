"""The trio driver of the client: sockets, waiting, and nothing that decides.

Contract.  ``multiraft.client`` exports what is public here; it imports this module only when one of
its names is asked for, so that programs without trio need none.

Invariants.  Whoever gives the machine something, or received something for it, lets it go on in his
own task (``work``), which costs no switch of tasks; one pump task does it when time has passed, and
for those who only ``wake`` it.  A link has one receiving and one sending task.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, Callable, Generator, Sequence

import trio

from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._core import ClientCore
from multiraft.client._exchange import Exchange
from multiraft.client._network import GATHER_MAX, NEVER_MS, Link, NetworkLimits, drop_sent
from multiraft.client._operations import OffsetRange, Operations, TopicDescription
from multiraft.client._plans import AsyncPlans
from multiraft.client._records import BatchReceipt, FetchedBatch, Record
from multiraft.client.tls import TlsSettings
from multiraft.errors import ConfigError
from multiraft.wire.frames import Buffer
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
from multiraft.wire.nodes import (
    JoinClusterReply,
    NodeDescribeReply,
    NodeListReply,
    NodeRow,
    ScrubNodeReply,
)
from multiraft.wire.tls import TlsSocket


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BatchDelivery(Delivery):
    """The fate of one batch."""

    __slots__ = ("client",)

    async def wait(self) -> BatchReceipt:
        """Where the batch was appended.  Raises a ``RequestError`` when it certainly was not,
        ``AmbiguousOutcome`` when nobody knows."""
        self.claimed = True
        if self.client.stale:
            self.client.work()
        if self.outcome is None:
            await self._park()
        else:
            await trio.lowlevel.checkpoint()
        return self.result()

    async def _park(self) -> None:
        task = trio.lowlevel.current_task()

        def wake() -> None:
            trio.lowlevel.reschedule(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self.forget(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self.when_done(wake)
        await trio.lowlevel.wait_task_rescheduled(abort)


class Client(AsyncPlans):
    """A connection to a cluster, through any of its nodes; use it with ``async with``."""

    def __init__(self, servers: Sequence[str], *, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), rng: random.Random | None = None,
                 tls: TlsSettings | None = None):
        self._tls = tls
        if tls is not None:
            tls.context()  # what cannot be used is said here, not at the first connection
        self._core = ClientCore(servers, rng if rng is not None else random.Random(), 0, client_id,
                                limits)
        self._operations = Operations(self._core)
        self._wake = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._sockets: dict[Link, _LinkSocket] = {}
        self._scopes: dict[Link, trio.CancelScope] = {}
        self._clock: trio.abc.Clock | None = None
        self._pump_until_ms = 0  # the pump looks again by itself
        self.stale = False  # the machine was given something and has not gone on since
        self._nursery_manager: Any = None
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> "Client":
        self._clock = trio.lowlevel.current_clock()
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        self._core.now_ms = self.now_ms()
        self._nursery.start_soon(self._pump)
        return self

    async def __aexit__(self, kind, error, trace) -> bool | None:
        self._core.network.close()
        self._nursery.cancel_scope.cancel()
        # The body's own exception must not come out wrapped in the nursery's group.
        mine = error is not None and isinstance(error, Exception)
        given = (None, None, None) if mine else (kind, error, trace)
        return bool(await self._nursery_manager.__aexit__(*given)) and not mine

    # ---- topics ----

    async def create_topic(self, name: str, partitions: int = 1,
                           replication_factor: int = 0) -> TopicMetadata:
        """Create a topic.  ``replication_factor`` 0 = the pool's, the only one there is."""
        return await self._run(self._operations.create_topic(name, partitions, replication_factor))

    async def delete_topic(self, name: str, incarnation: int = 0) -> None:
        """Delete a topic: that incarnation; 0 = the present one.  Raises ``UnknownTopic``."""
        await self._run(self._operations.delete_topic(name, incarnation))

    async def list_topics(self) -> list[TopicSummary]:
        """All topics, by name."""
        return await self._run(self._operations.list_topics())

    async def describe_topic(self, name: str) -> TopicDescription:
        """Partitions, leaders and offsets of a topic."""
        return await self._run(self._operations.describe_topic(name))

    async def topic_metadata(self, name: str) -> TopicMetadata:
        """Where the partitions of a topic are, as the node that answers knows; nobody else is
        asked."""
        return await self._run(self._operations.topic_metadata(name))

    async def list_offsets(self, name: str) -> dict[int, OffsetRange]:
        """First and next offset of each partition."""
        return await self._run(self._operations.list_offsets(name))

    async def offsets_at(self, name: str, timestamp_ms: int) -> dict[int, int | None]:
        """For each partition the offset of its first record at or after ``timestamp_ms``
        (milliseconds since 1970); None when there is none yet."""
        return await self._run(self._operations.offsets_at(name, timestamp_ms))

    # ---- cluster ----

    async def catch_up(self) -> None:
        """Learn how new the metadata is: what this client asks from then on, of whatever node,
        sees all that anybody had changed before."""
        await self._run(self._operations.catch_up())

    async def cluster_status(self) -> ClusterStatusReply:
        """Nodes and totals, as the node that answers sees them."""
        return await self._run(self._operations.cluster_status())

    async def group_list(self) -> list[GroupSummary]:
        """All Raft groups."""
        return await self._run(self._operations.group_list())

    async def group_transfer(self, group: int, to: int = 0) -> GroupTransferReply:
        """Hand leadership of ``group`` to node ``to`` (0 = whoever is furthest)."""
        return await self._run(self._operations.group_transfer(group, to))

    async def group_members(self, group: int, voters: tuple[int, ...] = (),
                      learners: tuple[int, ...] = (),
                      expected_index: int = -1) -> GroupMembersReply:
        """The members of ``group`` as its leader sees them; with ``voters``, begin to make these
        and ``learners`` the members."""
        return await self._run(self._operations.group_members(group, voters, learners,
                                                         expected_index))

    async def group_replica(self, group: int, address: str,
                            timeout_ms: int = 0) -> GroupMembersReply:
        """The replica of ``group`` on the node at ``address``; ``timeout_ms`` as elsewhere."""
        return await self._run(self._operations.group_replica(group, address, timeout_ms))

    async def group_recover(self, group: int, survivor: int, incarnation: int) -> GroupRecoverReply:
        """Forced recovery: see docs/decisions/0007."""
        return await self._run(self._operations.group_recover(group, survivor, incarnation))

    async def node_status(self, address: str = "", timeout_ms: int = 0) -> NodeStatusReply:
        """Statistics of the node at ``address`` ("" = any); with ``timeout_ms`` it is asked once
        and not waited for longer."""
        return await self._run(self._operations.node_status(address, timeout_ms))

    async def group_describe(self, group: int, address: str,
                       timeout_ms: int = 0) -> GroupDescribeReply:
        """The replica of ``group`` on the node at ``address``; ``timeout_ms`` as above."""
        return await self._run(self._operations.group_describe(group, address, timeout_ms))

    # ---- nodes ----

    async def join_cluster(self, node: NodeRow) -> JoinClusterReply:
        """Make a data directory a node of the cluster."""
        return await self._run(self._operations.join_cluster(node))

    async def node_list(self) -> NodeListReply:
        """All nodes, and the ids of those that were removed."""
        return await self._run(self._operations.node_list())

    async def node_describe(self, node: int) -> NodeDescribeReply:
        """One node and its groups."""
        return await self._run(self._operations.node_describe(node))

    async def remove_node(self, node: int) -> None:
        """Forget a node that is in no group any more, for ever."""
        await self._run(self._operations.remove_node(node))

    async def scrub_node(self, node: int, address: str, bytes_per_second: int = 0,
                         timeout_ms: int = 0) -> ScrubNodeReply:
        """``node``, at ``address``, has begun to read and check all of its disk, at so many bytes
        per second (0 = as it is configured); ``timeout_ms`` as above."""
        return await self._run(
            self._operations.scrub_node(node, address, bytes_per_second, timeout_ms))

    # ---- data ----

    def producer(self, **settings) -> "Producer":
        """A producer; ``settings`` are the fields of ``ProducerSettings``."""
        return Producer(self, ProducerSettings(**settings))

    def consume(self, topic: str, partition: int | None = None, start: Start = "earliest",
                until_end: bool = False, **settings) -> "Consumer":
        """Read ``topic`` (one partition, or all) from "earliest", "latest", an offset or a
        ``Timestamp`` (the first record at or after it, the end when there is none);
        ``until_end``: stop at what is the end now.  ``settings``: see ``ConsumerSettings``."""
        return Consumer(self, ConsumerSettings(**settings), topic, partition, start, until_end)

    # ---- the machine's legs ----

    async def _run(self, operation: Generator) -> Any:
        """Run an operation: wait where it says so."""
        answer = None
        while True:
            self._core.now_ms = self.now_ms()
            try:
                step = operation.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(step, Exchange):
                answer = await self._exchange(step)
            else:
                answer = await trio.sleep(step.ms / 1000)

    async def _exchange(self, step: Exchange) -> Any:
        outcomes, event = [], trio.Event()

        def done(outcome: object) -> None:
            outcomes.append(outcome)
            event.set()

        self._core.network.request(step.address, step.request, (), step.timeout_ms, done,
                                   self.now_ms())
        self.work()
        await event.wait()
        return outcomes[0]

    def now_ms(self) -> int:
        """The time by trio's clock."""
        return int(self._clock.current_time() * 1000)

    def wake(self) -> None:
        """Something was given to the machine: let the pump see it."""
        self.stale = True
        self._wake.set()

    def work(self) -> None:
        """Something was given to the machine: let it go on here and now."""
        due_ms = self._advance()
        if due_ms < self._pump_until_ms:
            self._wake.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the machine's state fulfils ``condition``."""
        if not condition():
            self.work()
            while not condition():
                await self._changed.park()

    def _advance(self) -> int:
        """Do what is due and send what it gave; when something is due next."""
        self.stale = False
        self._core.advance(self.now_ms())
        if self._core.network.changed:
            self._serve_links()
        if self._changed:
            self._changed.unpark_all()
        due_ms = self._core.next_deadline_ms()
        return NEVER_MS if due_ms is None else due_ms

    async def _pump(self) -> None:
        while True:
            self._wake = trio.Event()
            self._pump_until_ms = due_ms = self._advance()
            if due_ms == NEVER_MS:
                await self._wake.wait()
            elif due_ms <= self.now_ms():
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_at(due_ms / 1000):
                    await self._wake.wait()

    def _serve_links(self) -> None:
        while self._core.network.changed:
            for link in self._core.network.take_changed():
                talk = self._sockets.get(link)
                if link.closed:
                    if link in self._scopes:
                        self._scopes[link].cancel()
                elif talk is not None:
                    talk.flush()
                elif link not in self._scopes:
                    self._scopes[link] = trio.CancelScope()
                    self._nursery.start_soon(self._serve, link)

    async def _serve(self, link: Link) -> None:
        """One connection, from connect to close."""
        with self._scopes[link]:
            try:
                sock = await self._connect(link)
                if sock is not None:
                    with sock:
                        await self._talk(link, sock)
            finally:
                del self._scopes[link]
                self._sockets.pop(link, None)
        self.wake()

    async def _connect(self, link: Link) -> socket.socket | TlsSocket | None:
        timeout_ms = self._core.limits.connect_timeout_ms
        try:
            with trio.fail_after(timeout_ms / 1000):
                stream = await trio.open_tcp_stream(link.host, link.port)
                sock = socket.socket(fileno=stream.socket.detach())
                sock.setblocking(False)
                if self._tls is None:
                    return sock
                return await _secured(sock, self._tls, link.host)
        except trio.TooSlowError:
            why = f"no connection in {timeout_ms} ms"
        except OSError as error:
            causes = getattr(error.__cause__, "exceptions", (error,))  # one for each address tried
            why = f"cannot connect: {'; '.join(map(str, causes))}"
        except ConfigError as error:
            why = str(error)
        self._core.network.broken(link, why, self.now_ms())
        return None

    async def _talk(self, link: Link, sock: socket.socket | TlsSocket) -> None:
        link.connected()
        talk = self._sockets[link] = _LinkSocket(self, link, sock)
        talk.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.wait_and_send)
            await talk.receive()
            nursery.cancel_scope.cancel()

    def lost(self, link: Link, error: OSError) -> None:
        """The connection broke."""
        self._core.network.broken(link, f"connection lost: {error}", self.now_ms())
        self.wake()


async def _secured(sock: socket.socket, tls: TlsSettings, host: str) -> TlsSocket:
    """TLS over a connection, its handshake done; ``sock`` is closed when that fails."""
    try:
        secure = TlsSocket(sock, tls.context(), tls.server_name or host)
        while not secure.handshake():
            if secure.wants_write:
                await trio.lowlevel.wait_writable(sock)
            else:
                await trio.lowlevel.wait_readable(sock)
    except (OSError, ConfigError, trio.Cancelled):
        sock.close()
        raise
    return secure


class _LinkSocket:
    """A socket that is tried first and waited for only on EAGAIN: a small request costs one system
    call and no switch of tasks."""

    def __init__(self, client: Client, link: Link, sock: socket.socket | TlsSocket):
        self._client = client
        self._link = link
        self._sock = sock
        self._outgoing: list[Buffer] = []
        self._blocked = trio.Event()  # set: the socket took no more

    def flush(self) -> None:
        """Send what there is, as far as the socket takes it."""
        outgoing = self._link.take_outgoing()
        if self._outgoing:
            outgoing = self._outgoing + outgoing
        try:
            if not self._blocked.is_set():
                while outgoing:
                    outgoing = drop_sent(outgoing, self._sock.sendmsg(outgoing[:GATHER_MAX]))
        except BlockingIOError:
            self._blocked.set()
        except OSError as error:
            outgoing = []
            self._client.lost(self._link, error)
        self._outgoing = outgoing

    async def wait_and_send(self) -> None:
        """Send again whenever the socket has room again."""
        while True:
            await self._blocked.wait()
            await trio.lowlevel.wait_writable(self._sock)
            self._blocked = trio.Event()
            self.flush()

    async def receive(self) -> None:
        """Receive until the link is closed.  The wait comes first: it is the checkpoint that lets
        others run, and trying first would mostly be in vain."""
        while not self._link.closed:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                count = self._sock.recv_into(self._link.buffer_for_receive())
            except BlockingIOError:
                continue  # a spurious wake-up
            except OSError as error:
                self._client.lost(self._link, error)
                return
            self._link.received(count, self._client.now_ms())
            self._client.work()


class Producer:
    """Appends records in batches; use it with ``async with``.  ``settings`` are fixed."""

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._state = client._core.producer(settings, self._delivery)
        self._records = self._state.records

    async def __aenter__(self) -> "Producer":
        self._client.wake()
        return self

    async def __aexit__(self, kind, error, trace) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._state.abandon("the producer was closed")
            self._client._core.remove(self._state)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Take one record; the delivery is that of the batch it travels in.  Raises ``BufferFull``
        with limit and value, ``RecordTooLarge``, ``TypeError`` or ``UnknownPartition``."""
        delivery = self._records.send(record, self._client.now_ms(), _wall_ms())
        self._client.wake()
        return delivery

    async def send(self, record: Record) -> BatchDelivery:
        """As ``send_nowait``, but waits for room instead of raising ``BufferFull``."""
        while True:
            try:
                delivery = self._records.send(record, self._client.now_ms(), _wall_ms())
            except BufferFull:
                await self._room()
            else:
                self._client.work()
                await trio.lowlevel.checkpoint()
                return delivery

    async def send_many(self, topic: str, records: Sequence[bytes] | Sequence[Record],
                        ) -> list[BatchDelivery]:
        """Take values (bytes without keys: the fast way) or records, waiting for room; one
        delivery per batch touched."""
        deliveries: list[BatchDelivery] = []
        if records and isinstance(records[0], Record):
            for record in records:
                _note(deliveries, await self._place(record))
            return deliveries
        await self._client.until(self._records.topic_waiter(topic, self._client.now_ms))
        at = 0
        while at < len(records):
            try:
                delivery, at = self._records.extend(topic, records, at, self._client.now_ms(),
                                                    _wall_ms())
            except BufferFull:
                await self._room()
                continue
            _note(deliveries, delivery)
            self._client.wake()
            await trio.lowlevel.checkpoint()
        return deliveries

    async def _place(self, record: Record) -> BatchDelivery:
        try:
            return self.send_nowait(record)
        except BufferFull:
            return await self.send(record)

    async def flush(self) -> None:
        """Send everything now and wait until each batch has its outcome.  Raises the first failure
        of a batch that nobody waits for."""
        number = self._records.seal_all()
        await self._client.until(lambda: self._records.settled(number))
        failure = self._records.take_failure()
        if failure is not None:
            raise failure

    def _delivery(self) -> BatchDelivery:
        delivery = BatchDelivery()
        delivery.client = self._client
        return delivery

    async def _room(self) -> None:
        low = self.settings.buffer_bytes_max - self.settings.batch_bytes
        await self._client.until(lambda: self._records.buffered_bytes <= low)


def _note(deliveries: list, delivery: Delivery) -> None:
    """Consecutive records of one batch share its delivery."""
    if not deliveries or deliveries[-1] is not delivery:
        deliveries.append(delivery)


class Consumer(AsyncIterator):
    """Batches of a topic, in offset order per partition: ``async for batch in consumer``."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._state = None
        self._client = client
        self._state = client._core.consumer(settings, topic, partition, start, until_end)

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> FetchedBatch:
        await trio.lowlevel.checkpoint()
        await self._client.until(lambda: self._state.ready_to_take)
        batch = self._state.take()
        if batch is not None:
            self._client.wake()
            return batch
        self.close()
        if self._state.error is not None:
            raise self._state.error
        raise StopAsyncIteration

    def position(self, partition: int) -> int | None:
        """Offset of the next record of ``partition``; None = not known yet."""
        return self._state.position(partition)

    def close(self) -> None:
        """Stop fetching.  Also done by the end, by an error and by garbage collection."""
        self._client._core.remove(self._state)

    def __del__(self):
        self.close()
