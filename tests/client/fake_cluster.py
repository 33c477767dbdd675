"""Fake cluster in memory that serves the client protocol and follows a script, for client tests.

It keeps a log per partition with producer state as a leader does (last five batches per producer
and partition, epochs, sequences), so that duplicates and reordering by a client are detected.  A
``script`` may inspect each request first and answer, drop, delay or damage it.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import outcome
import trio

from multiraft import core
from multiraft.errors import CodecError, CorruptBatch
from multiraft.wire import messages as m
from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    BadRequest,
    Connection,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    Role,
    answer_to,
)
from multiraft.wire.errors import Code, ErrorDetail, RemoteProtocolError
from multiraft.wire.messages import Hello, Welcome
from multiraft.wire.sinks import (
    AbortTransactionReply,
    CommitTransactionReply,
    ResolveTransactionsReply,
    SinkListReply,
    StagedTopicsReply,
    TransactionDescription,
    TransactionStatesReply,
    VoidTransactions,
)
from node.metadata.commands import AllocateProducerIds, BumpProducerEpoch
from node.metadata.producer_table import ProducerTable
from node.metadata.transaction_table import TransactionTable

CLUSTER = bytes(range(16))
TIME_LIMIT_S = 120


@dataclass
class Window:
    """State of one producer in a partition, as a leader keeps it."""

    epoch: int
    recent: list = field(default_factory=list)  # (first sequence, count, base offset), last 5


@dataclass
class Partition:
    """Log of one partition, shared by all fake nodes, as if replication were perfect."""

    topic: str
    number: int
    incarnation: int
    group: int
    log: list = field(default_factory=list)  # (base offset, bytes)
    next_offset: int = 0
    start_offset: int = 0
    windows: dict = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[int, int]:
        """Append a batch by the rules of an idempotent leader.  Returns (code, base offset)."""
        try:
            info = core.check_batch(data)
        except CorruptBatch:
            return Code.CORRUPT_BATCH, -1
        except CodecError:
            return Code.INVALID_BATCH, -1
        if info.producer_id >= 0:
            verdict = self._judge(info)
            if verdict is not None:
                return verdict
        base = self.next_offset
        copy = bytearray(data)
        core.stamp_batch(copy, base, 1)
        self.log.append((base, bytes(copy)))
        self.next_offset += info.count
        if info.producer_id >= 0:
            window = self.windows[info.producer_id]
            window.recent = [*window.recent, (info.base_sequence, info.count, base)][-5:]
        return Code.OK, base

    def _judge(self, info):
        window = self.windows.get(info.producer_id)
        if window is None:
            if info.base_sequence != 0:
                return Code.OUT_OF_ORDER_SEQUENCE, -1
            self.windows[info.producer_id] = Window(info.producer_epoch)
            return None
        if info.producer_epoch < window.epoch:
            return Code.PRODUCER_FENCED, -1
        if info.producer_epoch > window.epoch:
            if info.base_sequence != 0:
                return Code.OUT_OF_ORDER_SEQUENCE, -1
            self.windows[info.producer_id] = Window(info.producer_epoch)
            return None
        for first, count, base in window.recent:
            if (first, count) == (info.base_sequence, info.count):
                return Code.OK, base
        if window.recent:
            first, count, _ = window.recent[-1]
            if info.base_sequence != (first + count) % (1 << 31):
                return Code.OUT_OF_ORDER_SEQUENCE, -1
        return None

    def read(self, offset: int, bytes_max: int, below: int = 1 << 62) -> bytes:
        """Return whole batches from the one that contains ``offset`` on; at least one."""
        found = b""
        for base, data in self.log:
            if base >= below:
                break
            if base + core.batch_header(data).last_offset_delta < offset:
                continue
            if found and len(found) + len(data) > bytes_max:
                break
            found += data
        return found

    def first_at(self, timestamp_ms: int, begin: int = 0, below: int = 1 << 62) -> int:
        """Return the base offset of the first batch that reaches the timestamp; -1 = none."""
        return next((base for base, data in self.log if begin <= base < below
                     if core.batch_header(data).max_timestamp_ms >= timestamp_ms), -1)

    def values(self) -> list[bytes]:
        """Return the value of each record, in order (uncompressed batches only)."""
        return [record.value for _, data in self.log
                for record in core.decode_records(core.batch_header(data), data[61:])]


class FakeCluster:
    """Nodes on loopback ports, with common topics, leaders and logs.

    ``script(node, event, connection)`` sees each request before it is served and returns None
    (serve it), ``"drop"`` (no answer, ever), ``"cut"`` (close the connection, nothing done),
    ``"cut-after"`` (do it, then close without an answer), ``"ambiguous"`` (do it, then answer
    AMBIGUOUS), or a ``ResponseEvent``.
    """

    def __init__(self, nodes: int = 3):
        self.nodes = list(range(1, nodes + 1))
        #: Partitions that were switched -> (end, node) of each part before the last one.
        self.links: dict[int, list[tuple[int, int]]] = {}
        self.addresses: dict[int, str] = {}
        self.leaders: dict[int, int] = {}  # group -> node
        self.topics: dict[str, list[Partition]] = {}
        self.metadata_index = 1
        self.script = None
        self.requests: list[tuple[int, object]] = []
        self.producers = ProducerTable()
        self.producers.next_id = 1000
        self.knows_nonces = True  # False: like nodes of earlier releases
        self.nonces: dict[bytes | None, str] = {}  # of requests that created a topic
        self.sinks = TransactionTable()
        self.rotten: set[int] = set()  # nodes whose copies end with a damaged batch
        self.behind: dict[int, int] = {}  # node -> its high watermark, if it lags behind
        self.hellos: list[Hello] = []
        self._incarnation = 100
        self._listeners: dict[int, list] = {}
        self._scopes: dict[int, list[trio.CancelScope]] = {}
        self._nursery = None
        self.appended = trio.Event()

    async def start(self, nursery) -> None:
        """Open the ports of all nodes."""
        self._nursery = nursery
        for node in self.nodes:
            await self.open(node)

    async def open(self, node: int) -> None:
        """Open the port of a node, the same one after each ``close``."""
        port = int(self.addresses[node].rpartition(":")[2]) if node in self.addresses else 0
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        self.addresses[node] = "127.0.0.1:%d" % listeners[0].socket.getsockname()[1]
        scope = trio.CancelScope()
        self._scopes[node] = [scope]
        self._nursery.start_soon(self._listen, node, listeners, scope)

    def close(self, node: int) -> None:
        """Stop a node: close its port and connections."""
        for scope in self._scopes.pop(node):
            scope.cancel()

    def servers(self) -> list[str]:
        """Addresses of the nodes."""
        return list(self.addresses.values())

    def add_topic(self, name: str, partitions: int = 1, groups: int = 4) -> list[Partition]:
        """Create a topic as if by another client."""
        parts = []
        for number in range(partitions):
            self._incarnation += 1
            group = 1 + self._incarnation % groups
            self.leaders.setdefault(group, 1 + group % len(self.nodes))
            parts.append(Partition(name, number, self._incarnation, group))
        self.topics[name] = parts
        self.metadata_index += 1
        return parts

    def grow_topic(self, name: str, partitions: int) -> None:
        """Add partitions to a topic as if by another client."""
        known = self.topics[name]
        added = self.add_topic("", partitions - len(known))
        del self.topics[""]
        for number, part in enumerate(added, len(known)):
            part.topic, part.number = name, number
        self.topics[name] = known + added

    def partition(self, incarnation: int) -> Partition | None:
        """Return the partition of an incarnation."""
        for parts in self.topics.values():
            for part in parts:
                if part.incarnation == incarnation:
                    return part
        return None

    # ---- partitions that were switched ----

    def _moved(self, part: Partition, node: int, epoch: int) -> ErrorDetail | None:
        """Return MOVED if ``node`` lacks the part of a partition since that epoch; None = it has
        it."""
        links = [*self.links.get(part.incarnation, ()), (part.next_offset + 1,
                                                         self.leaders[part.group])]
        end, home = links[epoch - 1]
        if home == node:
            return None
        is_last = epoch == len(links)
        return ErrorDetail("elsewhere", home, self.addresses.get(home, ""),
                           links[epoch - 2][0] if epoch > 1 else 0, -1 if is_last else end,
                           group=100 * epoch, epoch=epoch)

    def _epoch_of(self, part: Partition, offset: int) -> int:
        """Return the epoch whose part has ``offset``."""
        return 1 + sum(end <= offset for end, _ in self.links.get(part.incarnation, ()))

    def _ends(self, part: Partition, offset: int) -> int:
        """Return the end offset of the part that has ``offset``; 0 = it is the last one."""
        ends = [end for end, _ in self.links[part.incarnation] if end > offset]
        return min(ends, default=0)

    # ---- serving ----

    async def _listen(self, node: int, listeners, scope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, node, listener, nursery)

    async def _accept(self, node: int, listener, nursery) -> None:
        async with listener:
            while True:
                stream = await listener.accept()
                nursery.start_soon(self._serve, node, stream)

    async def _serve(self, node: int, stream) -> None:
        connection = Connection(Role.SERVER)
        async with stream:
            try:
                while await self._turn(node, stream, connection):
                    pass
            except (trio.BrokenResourceError, RemoteProtocolError, ConnectionError):
                return

    async def _turn(self, node: int, stream, connection) -> bool:
        event = connection.next_event()
        if event is NEED_DATA:
            try:
                count = await stream.socket.recv_into(connection.buffer_for_receive())
            except OSError:
                return False
            connection.received(count)
            return True
        assert event is not PAUSED
        if isinstance(event, ConnectionClosed):
            return False
        if isinstance(event, Hello):
            self.hellos.append(event)
            refusal = m.refusal_of_version(event)
            answer = refusal or Welcome(CLUSTER, node, 0, 16 << 20, 8 << 20, 32)
            await self._write(stream, connection.send(answer))
            return refusal is None
        if isinstance(event, BadRequest):
            await self._write(stream, connection.send(answer_to(event)))
            return True
        return await self._answer(node, stream, connection, event)

    async def _answer(self, node: int, stream, connection, event: RequestEvent) -> bool:
        self.requests.append((node, event.request))
        verdict = self.script(node, event, connection) if self.script else None
        if verdict == "drop":
            return True
        if verdict == "cut":
            return False
        if isinstance(verdict, ResponseEvent):
            await self._write(stream, connection.send(verdict))
            return True
        op = m.OPS[type(event.request)]
        reply, payload = await getattr(self, "_" + op)(node, event.request)
        if verdict == "cut-after":
            return False
        if verdict == "ambiguous":
            reply, payload = (Code.AMBIGUOUS, ErrorDetail("the leader stepped down")), ()
        if op == "produce" and event.request.acks == "none":
            return True
        if isinstance(reply, tuple) and type(reply) is tuple:
            response = ResponseEvent(event.id, code=reply[0], error=reply[1])
        else:
            response = ResponseEvent(event.id, reply, metadata_index=self.metadata_index)
        await self._write(stream, connection.send(response, payload))
        return True

    async def _write(self, stream, buffers) -> None:
        await stream.send_all(b"".join(buffers))

    def _not_leader(self, part: Partition) -> ErrorDetail:
        leader = self.leaders[part.group]
        return ErrorDetail("not the leader", leader, self.addresses.get(leader, ""))

    def _topic_metadata(self, name: str) -> m.TopicMetadata:
        parts = self.topics[name]
        return m.TopicMetadata(name, b"%016d" % parts[0].incarnation, parts[0].incarnation, tuple(
            m.PartitionMetadata(part.number, part.incarnation, part.group,
                                self.leaders[part.group], 1, self._epoch_of(part, 1 << 62))
            for part in parts))

    async def _metadata(self, node, request):
        asked = request.topics or ()
        return m.MetadataReply(
            CLUSTER, tuple(m.NodeAddress(node, address, f"r{node}")
                           for node, address in self.addresses.items()),
            tuple(self._topic_metadata(name) for name in asked if name in self.topics),
            tuple(name for name in asked if name not in self.topics),
            tuple(m.GroupReplicas(group, tuple(self.nodes)) for group in sorted(self.leaders))), ()

    async def _produce(self, node, request):
        results, at = [], 0
        for incarnation, length in request.batches:
            data = request.payload[at:at + length]
            at += length
            part = self.partition(incarnation)
            if part is None:
                results.append(m.ProduceResult(Code.UNKNOWN_PARTITION, -1))
            elif self.leaders[part.group] != node:
                results.append(m.ProduceResult(Code.NOT_LEADER, -1, self._not_leader(part)))
            else:
                results.append(m.ProduceResult(*part.append(data)))
        self.appended.set()
        self.appended = trio.Event()
        return m.ProduceReply(tuple(results)), ()

    async def _fetch(self, node, request):
        results, payload = self._fetch_now(node, request)
        if not payload and request.wait_max_ms and all(r.code == Code.OK for r in results):
            with trio.move_on_after(request.wait_max_ms / 1000):
                await self.appended.wait()
            results, payload = self._fetch_now(node, request)
        return m.FetchReply(tuple(results)), payload

    def _fetch_now(self, node, request):
        results, payload = [], []
        for incarnation, offset, bytes_max in request.partitions:
            part = self.partition(incarnation)
            if part is None:
                results.append(m.FetchResult(incarnation, Code.UNKNOWN_PARTITION, -1, -1, 0))
            elif (part.incarnation in self.links
                  and (detail := self._moved(part, node, self._epoch_of(part, offset)))):
                results.append(m.FetchResult(incarnation, Code.MOVED, -1, -1, 0, detail))
            elif part.incarnation in self.links and self._ends(part, offset):
                data = part.read(offset, bytes_max, self._ends(part, offset))
                payload += [data] if data else []
                results.append(m.FetchResult(incarnation, Code.OK, part.next_offset,
                                             part.start_offset, len(data)))
            elif self.leaders[part.group] != node and request.replica != m.ANY:
                results.append(m.FetchResult(incarnation, Code.NOT_LEADER, -1, -1, 0,
                                             self._not_leader(part)))
            elif node in self.behind and offset > self.behind[node]:
                results.append(m.FetchResult(incarnation, Code.OFFSET_NOT_AVAILABLE, -1, -1, 0,
                                             ErrorDetail("this replica does not know so far")))
            elif not part.start_offset <= offset <= part.next_offset:
                results.append(m.FetchResult(
                    incarnation, Code.OFFSET_OUT_OF_RANGE, -1, -1, 0, ErrorDetail(
                        f"offset {offset}", start_offset=part.start_offset,
                        end_offset=part.next_offset)))
            else:
                data = part.read(offset, bytes_max)
                if node in self.rotten and data:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                payload += [data] if data else []
                results.append(m.FetchResult(incarnation, Code.OK, part.next_offset,
                                             part.start_offset, len(data)))
        return results, payload

    async def _list_offsets(self, node, request):
        results = []
        for incarnation, position, timestamp_ms, epoch in request.partitions:
            part = self.partition(incarnation)
            if part is None:
                results.append(m.OffsetResult(incarnation, Code.UNKNOWN_PARTITION, -1))
            elif incarnation in self.links and position == m.TIMESTAMP:
                results.append(self._time(part, node, timestamp_ms, max(epoch, 1)))
            elif self.leaders[part.group] != node:
                results.append(m.OffsetResult(incarnation, Code.NOT_LEADER, -1,
                                              self._not_leader(part)))
            else:
                offset = {m.EARLIEST: part.start_offset, m.LATEST: part.next_offset,
                          m.TIMESTAMP: part.first_at(timestamp_ms)}[position]
                results.append(m.OffsetResult(incarnation, Code.OK, offset))
        return m.ListOffsetsReply(tuple(results)), ()

    def _time(self, part: Partition, node: int, timestamp_ms: int, epoch: int) -> m.OffsetResult:
        """Search for a time part by part, in the parts that ``node`` has."""
        ends = [0, *(end for end, _ in self.links[part.incarnation]), 1 << 62]
        for at in range(epoch, len(ends)):
            detail = self._moved(part, node, at)
            if detail is not None:
                return m.OffsetResult(part.incarnation, Code.MOVED, -1, detail)
            found = part.first_at(timestamp_ms, ends[at - 1], ends[at])
            if found >= 0:
                return m.OffsetResult(part.incarnation, Code.OK, found)
        return m.OffsetResult(part.incarnation, Code.OK, -1)

    async def _delete_records(self, node, request):
        results = []
        for incarnation, before in request.partitions:
            part = self.partition(incarnation)
            if part is None:
                results.append(m.DeletionResult(incarnation, Code.UNKNOWN_PARTITION, -1))
            elif self.leaders[part.group] != node:
                results.append(m.DeletionResult(incarnation, Code.NOT_LEADER, -1,
                                                self._not_leader(part)))
            elif before > part.next_offset:
                results.append(m.DeletionResult(
                    incarnation, Code.OFFSET_OUT_OF_RANGE, -1,
                    ErrorDetail(start_offset=part.start_offset, end_offset=part.next_offset)))
            else:
                part.start_offset = max(part.start_offset,
                                        part.next_offset if before == -1 else before)
                results.append(m.DeletionResult(incarnation, Code.OK, part.start_offset))
        return m.DeleteRecordsReply(tuple(results)), ()

    async def _report_corruption(self, node, request):
        return m.ReportCorruptionReply(node in self.rotten), ()

    async def _create_topic(self, node, request):
        if not self.knows_nonces and request.nonce is not None:
            return (Code.INVALID_REQUEST, ErrorDetail("unknown field 'nonce'")), ()
        created = self.nonces.get(request.nonce) if request.nonce is not None else None
        if request.name in self.topics and created != request.name:
            return (Code.TOPIC_EXISTS, ErrorDetail(f"topic {request.name!r} exists")), ()
        if request.name not in self.topics:
            self.add_topic(request.name, request.partitions)
            self.nonces[request.nonce] = request.name
        return m.CreateTopicReply(self._topic_metadata(request.name)), ()

    async def _add_partitions(self, node, request):
        has = len(self.topics[request.name])
        if request.nonce not in self.nonces and request.partitions <= has:
            return (Code.INVALID_PARTITIONS, ErrorDetail(f"it has {has}", value=has)), ()
        if request.nonce not in self.nonces and not request.dry_run:
            self.grow_topic(request.name, request.partitions)
            self.nonces[request.nonce] = request.name
        return m.AddPartitionsReply(self._topic_metadata(request.name)), ()

    async def _delete_topic(self, node, request):
        if (request.name not in self.topics or request.incarnation
                != self._topic_metadata(request.name).incarnation):
            return (Code.UNKNOWN_TOPIC, ErrorDetail(f"no topic {request.name!r}")), ()
        del self.topics[request.name]
        self.metadata_index += 1
        return m.DeleteTopicReply(), ()

    async def _list_topics(self, node, request):
        names = sorted(name for name in self.topics if name > request.after)
        page = names[:min(2, request.count_max)]
        return m.ListTopicsReply(tuple(
            m.TopicSummary(name, bytes(16), self.topics[name][0].incarnation,
                           len(self.topics[name])) for name in page), len(page) < len(names)), ()

    async def _init_producer(self, node, request):
        if request.producer_id >= 0:
            result = self.producers.bump(BumpProducerEpoch(*request))
            return ((result.code, result.error) if result.code
                    else m.InitProducerReply(*result.value)), ()
        return m.InitProducerReply(self.producers.allocate(AllocateProducerIds(1)).value[0], 0), ()

    async def _cluster_status(self, node, request):
        return m.ClusterStatusReply(CLUSTER, node, tuple(
            m.NodeSummary(other, address, "", "r", "up", 4, 1)
            for other, address in self.addresses.items()), 4, 3, 1, len(self.topics),
            sum(map(len, self.topics.values()))), ()

    async def _list_groups(self, node, request):
        groups = [group for group in sorted(self.leaders) if group >= request.first][:2]
        return m.ListGroupsReply(tuple(
            m.GroupSummary(group, 1, 1, self.leaders[group], tuple(self.nodes), ())
            for group in groups), bool(groups) and groups[-1] < max(self.leaders)), ()

    async def _transfer_leadership(self, node, request):
        if self.leaders[request.group] != node:
            leader = self.leaders[request.group]
            return (Code.NOT_LEADER, ErrorDetail("", leader, self.addresses[leader])), ()
        self.leaders[request.group] = request.to
        return m.TransferLeadershipReply(request.to, 2), ()

    async def _node_status(self, node, request):
        return m.NodeStatusReply(node, {"state": "running"}), ()

    # ---- the sink ledger of the product ----

    def _changed(self, request, reply):
        result = self.sinks.apply(request)
        self.sinks._check()
        self.metadata_index += 1
        return ((result.code, result.error) if result.code else reply(result.value)), ()

    async def _begin_transaction(self, node, request):
        return self._changed(request, lambda value: value)

    async def _commit_transaction(self, node, request):
        return self._changed(request, lambda _: CommitTransactionReply())

    async def _abort_transaction(self, node, request):
        return self._changed(request, AbortTransactionReply)

    async def _transaction_states(self, node, request):
        return TransactionStatesReply(tuple(map(self.sinks.state_of, request.transactions))), ()

    async def _resolve_transactions(self, node, request):
        """Answer as the metadata leader, on each node."""
        if request.void:
            self.sinks.apply(VoidTransactions(request.transactions))
            self.sinks._check()
        return ResolveTransactionsReply(self.metadata_index, tuple(
            TransactionDescription(*self.sinks.state_of(txn)[:2], self.sinks.known_state(txn),
                    self.sinks.state_of(txn).winners, *self.sinks.named(txn), 7_000)
            for txn in request.transactions)), ()

    async def _staged_topics(self, node, request):
        return StagedTopicsReply(self.sinks.stagings, self.sinks.staged()), ()

    async def _sink_list(self, node, request):
        return SinkListReply(*self.sinks.rows(request.after, request.count_max)), ()


class ThreadedCluster:
    """``FakeCluster`` in a thread of its own; ``run`` and ``call`` execute in that thread."""

    def __init__(self, nodes: int = 3):
        self.cluster = FakeCluster(nodes)
        self._ready = threading.Event()
        self._stop: trio.Event | None = None
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._send: trio.MemorySendChannel | None = None
        self._token = None
        self._thread = threading.Thread(target=trio.run, args=(self._main,))

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._send, receive = trio.open_memory_channel(100)
        async with trio.open_nursery() as nursery:
            await self.cluster.start(nursery)
            self._ready.set()
            async for job in receive:  # one task runs them: contexts are entered and left in it
                await job()
            nursery.cancel_scope.cancel()

    def __enter__(self) -> FakeCluster:
        self._thread.start()
        assert self._ready.wait(10)
        return self.cluster

    def __exit__(self, *_) -> None:
        self._token.run_sync_soon(self._send.close)
        self._thread.join(TIME_LIMIT_S)
        assert not self._thread.is_alive()

    def run(self, fn, *args, **kwargs):
        """Call ``fn`` in the cluster's run, await its result there, and return it."""
        results: queue.SimpleQueue = queue.SimpleQueue()

        async def job() -> None:
            results.put(await outcome.acapture(_await, fn, args, kwargs))

        self._token.run_sync_soon(self._send.send_nowait, job)
        return results.get(timeout=TIME_LIMIT_S + 5).unwrap()

    def call(self, fn, *args):
        """Call a synchronous function in the cluster's thread and return its result."""
        return self.run(fn, *args)


async def _await(fn, args, kwargs):
    # Entering a client opens a nursery that outlives this call, so no scope may be around it.
    limit = math.inf if fn.__name__ in ("__aenter__", "__aexit__") else TIME_LIMIT_S
    with contextlib.nullcontext() if limit == math.inf else trio.fail_after(limit):
        result = fn(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


@contextlib.contextmanager
def unused_addresses(count: int) -> Iterator[list[str]]:
    """Yield loopback addresses without a listener.  The ports are held meanwhile: a port that is
    merely free may soon belong to another test's cluster."""
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(socket.socket()) for _ in range(count)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        yield ["127.0.0.1:%d" % port.getsockname()[1] for port in ports]


@contextlib.contextmanager
def silent_addresses(count: int) -> Iterator[list[str]]:
    """Yield loopback addresses whose listener lets the kernel accept connections and never reads,
    as a process that hangs."""
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(socket.socket()) for _ in range(count)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
            port.listen()
        yield ["127.0.0.1:%d" % port.getsockname()[1] for port in ports]
