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
from collections.abc import AsyncIterator
from typing import Any, Callable, Generator, Sequence

import trio

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._client import ClientCore
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._exchange import Exchange
from multiraft.client._lifecycle import Closed, Forked, fresh, note_failure, watch
from multiraft.client._network import NEVER_MS, Link, NetworkLimits
from multiraft.client._operations import OffsetRange, Operations, TopicDescription
from multiraft.client._plans import AsyncPlans
from multiraft.client._records import FetchedBatch
from multiraft.client._trio_producer import Producer
from multiraft.client._trio_sockets import LinkSocket, secured
from multiraft.client._waits import AsyncWaits
from multiraft.client.tls import TlsSettings
from multiraft.errors import ConfigError
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


class _NotOpen:
    """The clock of a client that nobody has entered."""

    def current_time(self) -> float:
        """Raises ``Closed``."""
        raise Closed("the client is not open: use it with async with")


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
        self._sockets: dict[Link, LinkSocket] = {}
        self._scopes: dict[Link, trio.CancelScope] = {}
        self._clock: trio.abc.Clock | _NotOpen = _NotOpen()
        self._pump_until_ms = 0  # the pump looks again by itself
        self.stale = False  # the machine was given something and has not gone on since
        self._nursery_manager: Any = None
        self._nursery: trio.Nursery | None = None
        watch(self)

    async def __aenter__(self) -> "Client":
        self._core.require_open()
        if self._nursery is not None:
            raise RuntimeError("the client is open already")
        self._clock = trio.lowlevel.current_clock()
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        self._core.now_ms = self.now_ms()
        self._nursery.start_soon(self._pump)
        return self

    async def __aexit__(self, kind, error, trace) -> bool | None:
        if isinstance(self._core.ended, Forked):
            # The run is the parent's, its epoll is shared: nothing may be waited for any more.
            self._nursery.cancel_scope.cancel()
            return None
        failure = self._core.close("the client was closed")
        self.notify()
        self._nursery.cancel_scope.cancel()
        # The body's own exception must not come out wrapped in the nursery's group.
        mine = error is not None and isinstance(error, Exception)
        given = (None, None, None) if mine else (kind, error, trace)
        suppressed = bool(await self._nursery_manager.__aexit__(*given)) and not mine
        note_failure(error, failure)
        return suppressed

    @property
    def closed(self) -> bool:
        """Whether it can not be used any more: it was left, or a forked process inherited it."""
        return self._core.ended is not None

    def inherited(self, error: Forked) -> None:
        """This is a child process (see ``_lifecycle.py``): nothing of the parent's is touched."""
        self._core.inherited(error)
        for talk in self._sockets.values():
            talk.discard()

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

    def producer(self, **settings) -> Producer:
        """A producer; ``settings`` are the fields of ``ProducerSettings``."""
        return Producer(self, ProducerSettings(**settings))

    def consume(self, topic: str, partition: int | None = None, start: Start = "earliest",
                until_end: bool = False, **settings) -> "Consumer":
        """Read ``topic`` (one partition, or all) from "earliest", "latest", an offset or a
        ``Timestamp`` (the first record at or after it, the end when there is none);
        ``until_end``: stop at what is the end now, or before what an open run of a sink has
        staged, which ``unread`` tells.  ``settings``: see ``ConsumerSettings``."""
        return Consumer(self, ConsumerSettings(**settings), topic, partition, start, until_end)

    # ---- the machine's legs ----

    async def _run(self, operation: Generator) -> Any:
        """Run an operation: wait where it says so."""
        self.require_open()
        answer = None
        while True:
            self._core.now_ms = self.now_ms()
            try:
                step = operation.send(answer)
            except StopIteration as end:
                return end.value
            self.require_open()  # it may have been closed meanwhile
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

    def require_open(self) -> None:
        """Raises ``Closed`` or ``Forked`` when the client can not be used."""
        self._core.require_open()
        if self._nursery is None:
            self._clock.current_time()

    async def checkpoint(self) -> None:
        """A checkpoint, but in a child process, whose run must not go on.  Raises ``Forked``."""
        if isinstance(self._core.ended, Forked):
            self._core.require_open()
        await trio.lowlevel.checkpoint()

    def notify(self) -> None:
        """Let those look again who wait for a state of the machine."""
        if self._changed:
            self._changed.unpark_all()

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
        """Wait until the machine's state fulfils ``condition``.  Raises ``Closed`` or ``Forked``
        when the client ends before."""
        if not condition():
            self.require_open()
            self.work()
            while not condition():
                self.require_open()
                await self._changed.park()

    def _advance(self) -> int:
        """Do what is due and send what it gave; when something is due next."""
        self.stale = False
        self._core.advance(self.now_ms())
        if self._core.network.changed:
            self._serve_links()
        self.notify()
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
                return await secured(sock, self._tls, link.host)
        except trio.TooSlowError:
            why = f"no connection in {timeout_ms} ms"
        except OSError as error:
            causes = getattr(error.__cause__, "exceptions", (error,))  # one for each address tried
            why = f"cannot connect: {'; '.join(map(str, causes))}"
        except UnicodeError as error:  # a name that no resolver can be asked for
            why = f"cannot connect: {error}"
        except ConfigError as error:
            why = str(error)
        self._core.network.broken(link, why, self.now_ms())
        return None

    async def _talk(self, link: Link, sock: socket.socket | TlsSocket) -> None:
        link.connected()
        talk = self._sockets[link] = LinkSocket(self, link, sock)
        talk.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.wait_and_send)
            await talk.receive()
            nursery.cancel_scope.cancel()

    def lost(self, link: Link, error: OSError) -> None:
        """The connection broke."""
        self._core.network.broken(link, f"connection lost: {error}", self.now_ms())
        self.wake()


class Consumer(AsyncWaits, AsyncIterator):
    """Batches of a topic, in offset order per partition: ``async for batch in consumer``."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._state = None
        self._client = client
        self._state = client._core.consumer(settings, topic, partition, start, until_end)

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> FetchedBatch:
        await self._client.checkpoint()
        await self._client.until(lambda: self._state.ready_to_take)
        batch = self._state.take()
        if batch is not None:
            self._client.wake()
            return batch
        self._release()
        if self._state.error is not None:
            raise fresh(self._state.error)
        raise StopAsyncIteration

    def position(self, partition: int) -> int | None:
        """Offset of the next record of ``partition``, also after the end; None = not known yet."""
        return self._state.position(partition)

    def close(self) -> None:
        """Stop fetching: whoever asks for more, or waits, is told ``Closed``.  The end, an error
        and garbage collection stop it as well.  Closing again does nothing."""
        self._state.end(Closed("the consumer was closed"))
        self._release()
        self._client.notify()

    def _release(self) -> None:
        self._client._core.remove(self._state)

    def __del__(self):
        self._release()
