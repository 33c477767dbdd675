"""Trio driver of the client: connections, waiting, and the pump task.  It makes no decisions.

Contract.  ``multiraft.client`` exports the public names of this module.  It imports the module when
one of them is first used, so that programs without trio can import the package.  Operations and
their steps: ``_steps.py``.

Invariants.  A task that gives the client core input, or received input for it, advances the core
itself (``_work``), without a switch of tasks.  One pump task advances the core when a deadline has
passed, and after ``_wake``.  A link has one receiving and one sending task.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Callable, Sequence, TypeVar, Unpack

import trio

from multiraft.client import (
    _operations,
    _placements,
    _plans,
    _record_deletion,
    _sizes,
    _topic_settings,
)
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._client import ClientCore
from multiraft.client._consumer import ConsumerSettings, Start
from multiraft.client._consuming import BaseConsumer, ConsumerCore
from multiraft.client._lifecycle import AsyncBlock, Closed, Forked, NeedsTrio, note_failure, watch
from multiraft.client._methods import async_method
from multiraft.client._network import NEVER_MS, Link, NetworkLimits
from multiraft.client._records import FetchedBatch
from multiraft.client._settings import ConsumerOptions, ProducerOptions, settings_of
from multiraft.client._steps import Exchange, Operation, Pause, Step, Turn, Until, WaitFor
from multiraft.client._trio_producer import Producer, parked
from multiraft.client._trio_sockets import LinkSocket, secured
from multiraft.client.texts import duration
from multiraft.client.tls import TlsSettings
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire.tls import TlsSocket

if TYPE_CHECKING:
    from types import TracebackType

_Result = TypeVar("_Result")


class _NotOpen:
    """Clock of a client whose block was not entered."""

    def current_time(self) -> float:
        """Raise ``NeedsTrio`` outside of trio, and else ``Closed``: the client was not entered."""
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            raise NeedsTrio() from None
        raise Closed("the client is not open: use it with `async with Client(...) as client`")


class Client(AsyncBlock):
    """Client of a cluster, connected through any of its nodes; use it with ``async with``.

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

        async with Client(["127.0.0.1:9101", "127.0.0.1:9102"]) as client:
            await client.create_topic("flights", partitions=4)
    """

    def __init__(self, servers: str | Sequence[str], *, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), rng: random.Random | None = None,
                 tls: TlsSettings | None = None):
        self._tls = tls
        if tls is not None:
            tls.context()  # raise for unusable files here, not at the first connection
        self._core = ClientCore(servers, rng if rng is not None else random.Random(), 0, client_id,
                                limits)
        self._wake_event = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._sockets: dict[Link, LinkSocket] = {}
        self._scopes: dict[Link, trio.CancelScope] = {}
        self._clock: trio.abc.Clock | _NotOpen = _NotOpen()
        self._pump_until_ms = 0  # time at which the pump advances the core, at the latest
        self._stale = False  # True: the core has input since it was advanced last
        self._nursery_manager: Any = None
        self._nursery: trio.Nursery | None = None
        watch(self)

    async def __aenter__(self) -> "Client":
        self._core.require_open()
        if self._nursery is not None:
            raise RuntimeError("the client is open already")
        try:
            self._clock = trio.lowlevel.current_clock()
        except RuntimeError:
            raise NeedsTrio() from None
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        self._core.now_ms = self._now_ms()
        self._nursery.start_soon(self._pump)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> bool | None:
        assert self._nursery is not None
        if isinstance(self._core.ended, Forked):
            # The run and its epoll are the parent's: this process must not wait on them.
            self._nursery.cancel_scope.cancel()
            return None
        unsent = self._core.unsent()
        failure = self._core.close("the client was closed")
        self._notify()
        self._nursery.cancel_scope.cancel()
        # Raise the exception of the body itself instead of the exception group that the nursery
        # would put around it.
        mine = error is not None and isinstance(error, Exception)
        given = (None, None, None) if mine else (kind, error, trace)
        suppressed = bool(await self._nursery_manager.__aexit__(*given)) and not mine
        note_failure(error, failure, unsent)
        return suppressed

    @property
    def closed(self) -> bool:
        """True if the client has ended: its block was left, or a forked process inherited it."""
        return self._core.ended is not None

    def __repr__(self) -> str:
        return self._core.describe("multiraft.client")

    def __del__(self) -> None:
        if hasattr(self, "_core"):  # else the constructor has raised
            self._warn_unsent("the client was garbage-collected")

    def _warn_unsent(self, why: str) -> None:
        """Warn of records that an open client holds and has never sent."""
        self._core.warn_unsent(why)

    def _inherited(self, error: Forked) -> None:
        """End the client in a child process (see ``_lifecycle.py``), without touching the parent's
        run or connections."""
        self._core.inherited(error)
        for talk in self._sockets.values():
            talk.discard()

    # ---- topics ----

    create_topic = async_method(_operations.create_topic)
    delete_topic = async_method(_operations.delete_topic)
    add_partitions = async_method(_operations.add_partitions)
    list_topics = async_method(_operations.list_topics)
    describe_topic = async_method(_operations.describe_topic)
    topic_metadata = async_method(_operations.topic_metadata)
    list_offsets = async_method(_operations.list_offsets)
    offsets_at = async_method(_operations.offsets_at)
    delete_records = async_method(_record_deletion.delete_records)
    alter_settings = async_method(_topic_settings.alter_settings)
    describe_settings = async_method(_topic_settings.describe_settings)
    topic_sizes = async_method(_sizes.topic_sizes)
    partition_sizes = async_method(_sizes.partition_sizes)

    # ---- cluster, groups, nodes ----

    catch_up = async_method(_operations.catch_up)
    cluster_status = async_method(_operations.cluster_status)
    group_list = async_method(_operations.group_list)
    group_transfer = async_method(_operations.group_transfer)
    group_members = async_method(_operations.group_members)
    group_replica = async_method(_operations.group_replica)
    group_recover = async_method(_operations.group_recover)
    group_describe = async_method(_operations.group_describe)
    node_status = async_method(_operations.node_status)
    join_cluster = async_method(_operations.join_cluster)
    node_list = async_method(_operations.node_list)
    node_describe = async_method(_operations.node_describe)
    remove_node = async_method(_operations.remove_node)
    scrub_node = async_method(_operations.scrub_node)
    control_cleaner = async_method(_operations.control_cleaner)

    # ---- placement, plans, sinks ----

    explain_placement = async_method(_placements.explain_placement)
    topic_pool_size = async_method(_placements.topic_pool_size)
    partition_replicas = async_method(_placements.partition_replicas)
    switch_partition = async_method(_placements.switch_partition)
    pool_grow = async_method(_placements.pool_grow)
    pool_status = async_method(_placements.pool_status)
    plan_request = async_method(_plans.plan_request)
    group_loads = async_method(_plans.group_loads)
    partition_loads = async_method(_plans.partition_loads)
    sink_request = async_method(_operations.sink_request)

    # ---- data ----

    def producer(self, **settings: Unpack[ProducerOptions]) -> Producer:
        """Return a producer of this client; use it with ``async with``, whose end flushes it.

            async with client.producer(compression="zstd") as producer:
                await producer.send(Record("flights", b"UA 1545", key=b"UA"))

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
        return Producer(self, settings_of(ProducerSettings, "producer", settings))

    def consume(self, topic: str, partition: int | None = None, start: Start = "earliest",
                until_end: bool = False, **settings: Unpack[ConsumerOptions]) -> "Consumer":
        """Return a consumer of ``topic``: of one ``partition``, or of all (None).

            async for batch in client.consume("flights", until_end=True):
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
        return Consumer(self, settings_of(ConsumerSettings, "consume", settings), topic, partition,
                        start, until_end)

    # ---- the driver ----

    async def _run(self, operation: Operation[_Result]) -> _Result:
        """Run an operation of the client.  Raises ``Closed`` or ``Forked`` when it has ended."""
        self._require_open()
        return await self._drive(operation)

    async def _drive(self, operation: Operation[_Result]) -> _Result:
        """Run ``operation`` to its end in this task, step by step, and return its result.  It is a
        checkpoint, unless it succeeds without a step."""
        self._core.now_ms = self._now_ms()
        step = None
        try:
            step = operation.send(None)
            while True:
                try:
                    outcome = await self._perform(step)
                except MultiRaftError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(outcome)
        except StopIteration as end:
            return end.value
        except (MultiRaftError, TypeError, ValueError):
            if step is None:
                await self._checkpoint()
            raise
        finally:
            operation.close()

    async def _perform(self, step: Step) -> Any:
        """Carry out one step, which may wait, and return its result: that of an ``Exchange``, else
        None."""
        match step:
            case Turn():
                self._work()
                await self._checkpoint()
            case Until():
                await self._until(step.condition)
            case WaitFor():
                if not step.signal.is_set:
                    await parked(step.signal)
            case Exchange():
                self._require_open()  # another task may have closed the client
                return await self._exchange(step)
            case Pause():
                self._require_open()
                await trio.sleep(step.ms / 1000)
                self._core.now_ms = self._now_ms()
        return None

    async def _exchange(self, step: Exchange) -> Any:
        outcomes, event = [], trio.Event()

        def done(outcome: object) -> None:
            outcomes.append(outcome)
            event.set()

        self._core.network.request(step.address, step.request, (), step.timeout_ms, done,
                                   self._now_ms())
        self._work()
        await event.wait()
        self._core.now_ms = self._now_ms()
        return outcomes[0]

    def _now_ms(self) -> int:
        """Return the time of trio's clock, in milliseconds."""
        return int(self._clock.current_time() * 1000)

    def _require_open(self) -> None:
        """Raise ``Closed`` or ``Forked`` when the client has ended or was not entered."""
        self._core.require_open()
        if self._nursery is None:
            self._clock.current_time()

    async def _checkpoint(self) -> None:
        """Let other tasks run, and a cancellation take effect (trio's checkpoint).  Raises
        ``Forked`` in a child process, which must not wait on the parent's run."""
        if isinstance(self._core.ended, Forked):
            self._core.require_open()
        await trio.lowlevel.checkpoint()

    def _notify(self) -> None:
        """Wake the tasks that wait in ``_until``, so that they evaluate their conditions."""
        if self._changed:
            self._changed.unpark_all()

    def _wake(self) -> None:
        """Have the pump task advance the core soon, because it has new input; ``_work`` does it in
        the calling task."""
        self._stale = True
        self._wake_event.set()

    def _work(self) -> None:
        """Advance the core now, in the calling task, because it has new input (a record of the
        application, bytes of a node).  ``_wake`` leaves that to the pump task."""
        due_ms = self._advance()
        if due_ms < self._pump_until_ms:
            self._wake_event.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Advance the core and wait until ``condition`` holds for its state; return at once if it
        holds already.  Raises ``Closed`` or ``Forked`` when the client ends first."""
        if not condition():
            self._require_open()
            self._work()
            while not condition():
                self._require_open()
                await self._changed.park()

    def _advance(self) -> int:
        """Advance the core, send its output, and return the time of its next deadline."""
        self._stale = False
        self._core.advance(self._now_ms())
        if self._core.network.changed:
            self._serve_links()
        self._notify()
        due_ms = self._core.next_deadline_ms()
        return NEVER_MS if due_ms is None else due_ms

    async def _pump(self) -> None:
        while True:
            self._wake_event = trio.Event()
            self._pump_until_ms = due_ms = self._advance()
            if due_ms == NEVER_MS:
                await self._wake_event.wait()
            elif due_ms <= self._now_ms():
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_at(due_ms / 1000):
                    await self._wake_event.wait()

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
                    assert self._nursery is not None
                    self._nursery.start_soon(self._serve, link)

    async def _serve(self, link: Link) -> None:
        """Run one connection, from connect to close, as a task of its own; the link of a connection
        that fails is broken."""
        with self._scopes[link]:
            try:
                sock = await self._connect(link)
                if sock is not None:
                    with sock:
                        await self._talk(link, sock)
            finally:
                del self._scopes[link]
                self._sockets.pop(link, None)
        self._wake()

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
            why = f"no connection in {duration(timeout_ms)}"
        except OSError as error:
            causes = getattr(error.__cause__, "exceptions", (error,))  # one for each address tried
            why = f"cannot connect: {'; '.join(map(str, causes))}"
        except UnicodeError as error:  # a name that no resolver can be asked for
            why = f"cannot connect: {error}"
        except ConfigError as error:
            why = str(error)
        self._core.network.broken(link, why, self._now_ms())
        return None

    async def _talk(self, link: Link, sock: socket.socket | TlsSocket) -> None:
        link.connected()
        talk = self._sockets[link] = LinkSocket(self, link, sock)
        talk.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.wait_and_send)
            await talk.receive()
            nursery.cancel_scope.cancel()

    def _lost(self, link: Link, error: OSError) -> None:
        """Report a broken connection to the core, which closes the link, and wake the pump task."""
        self._core.network.broken(link, f"connection lost: {error}", self._now_ms())
        self._wake()


class Consumer(BaseConsumer, AsyncIterator):
    """Consumer of a topic; ``Client.consume`` makes it.  ``async for batch in consumer`` yields
    ``FetchedBatch`` values, in offset order within a partition and in no order between partitions.
    Offsets are not stored by the cluster: keep ``positions`` to resume."""

    def __init__(self, client: Client, settings: ConsumerSettings, topic: str,
                 partition: int | None, start: Start, until_end: bool):
        self._client = client
        self._core = ConsumerCore(
            client._core, client._core.consumer(settings, topic, partition, start, until_end),
            client._now_ms, client._notify)

    if not TYPE_CHECKING:  # type checkers know that it is missing

        def __iter__(self):
            raise NeedsTrio("use `async for` under trio; for plain `for` take the client of "
                            "multiraft.client.blocking")

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> FetchedBatch:
        await self._client._checkpoint()
        await self._client._until(self._core.is_ready)
        batch = self._core.take()
        if batch is None:
            raise StopAsyncIteration
        self._client._wake()
        return batch
