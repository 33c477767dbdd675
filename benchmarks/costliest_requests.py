"""The costliest request of each operation beside a bystander's appends: the effect of one client on
others.

Contract.  Three nodes; the node that leads the metadata also leads the bystander's partition, and
gets all requests.  For each operation one connection sends the largest request that is accepted,
again and again, with as many unanswered as allowed.  Meanwhile another process appends one record
after the other; it also does so before, for a quarter of the time.  A row has the size and duration
of the request, and the latencies of the bystander's appends; a lease that ends meanwhile is counted
in the logs of the nodes.

Theory.  Requests are sent as bytes that were encoded once, and only the id and code of an answer
are read: a hostile client does no more either.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

from admin_cli.dev_cluster import DevCluster
from benchmarks.failover import cluster
from benchmarks.figures import say
from benchmarks.prober import call
from benchmarks.processes import BenchmarkError
from multiraft.core import BatchBuilder, decode_header
from multiraft.types import METADATA_GROUP
from multiraft.wire import messages as wire
from multiraft.wire import nodes as node_messages
from multiraft.wire import placements, plans, pool, sinks
from multiraft.wire.errors import Code
from multiraft.wire.frames import encode_frame
from multiraft.wire.members import GroupMembers, RecoverGroup

GROUPS = 64
WIDE_TOPICS = 5
PARTITIONS = 10_000
NARROW_TOPICS = 1_000
BYSTANDER = "bystander"
#: Pause between a bystander's appends: some hundred in a second.
PAUSE_S = 0.003
#: Unanswered requests of one connection, where no limit asks for fewer.
WINDOW = 64
#: Unanswered requests that change state and are refused beside others of their kind.
WINDOW_OF_CHANGES = 8
SCRAPERS = 8
SETTLED_S = 60.0
ANSWER_S = 60.0
#: Limit of a bystander's p99: so much, or so many times its value without the requests.
TARGET_MS = 50.0
TARGET_RATIO = 3.0


class Costly(NamedTuple):
    """One operation.  ``frames(id)``: the bytes of a request with that id."""

    name: str
    frames: Callable[[int], bytes]
    window: int = WINDOW


class Row(NamedTuple):
    """Measurements of one operation."""

    name: str
    request_bytes: int
    answers: int
    refused: Counter  # code of the refusal -> answers
    ms_per_request: float
    before_p50: float
    before_p99: float
    beside_p50: float
    beside_p99: float
    leases_ended: int

    @property
    def target_ms(self) -> float:
        """Return the limit of the p99."""
        return max(TARGET_MS, TARGET_RATIO * self.before_p99)

    @property
    def holds(self) -> bool:
        """Return True if the p99 is within the limit, and no lease has ended."""
        return self.beside_p99 <= self.target_ms and not self.leases_ended

    def as_text(self) -> str:
        """Return the row as one line."""
        refused = ", ".join(f"{count:,} x {_code_name(code)}"
                            for code, count in self.refused.most_common())
        return (f"{self.name:18s} {self.request_bytes:>10,} B {self.answers:>7,} answers "
                f"({refused or 'none'} refused) {self.ms_per_request:>9.2f} ms each; bystander p50 "
                f"{self.before_p50:.1f} -> {self.beside_p50:.1f} ms, p99 {self.before_p99:.1f} -> "
                f"{self.beside_p99:.1f} ms, {self.leases_ended} leases ended: "
                f"{'holds' if self.holds else 'MISSED'}")


def measure(directory: Path, seconds: float, only: list[str] | None = None) -> list[Row]:
    """Return a row for each operation, or for those named.  Raises ``BenchmarkError``."""
    with cluster(directory, GROUPS, namespaces=False) as dev:
        rows = []
        world = World(dev)
        for costly in chosen(list(world.operations()), only or []):
            rows.append(world.beside(costly, seconds))
            say(rows[-1].as_text())
        return rows


def chosen(operations: list[Costly], only: list[str]) -> list[Costly]:
    """Return the operations named, or all of them.  Raises ``BenchmarkError`` for another name."""
    names = [costly.name for costly in operations]
    for name in only:
        if name not in names:
            raise BenchmarkError(f"no operation is called {name!r}; there are: {'; '.join(names)}")
    return [costly for costly in operations if not only or costly.name in only]


class World:
    """The cluster with its topics."""

    def __init__(self, dev: DevCluster):
        self._dev = dev
        addresses = {node.id: node.client_address for node in dev.record.nodes}
        status = call(dev.addresses[0], wire.ClusterStatus())
        if not status.metadata_leader:
            raise BenchmarkError("the metadata group has no leader")
        self.node = status.metadata_leader
        self.cluster = status.cluster
        self.address = addresses[self.node]
        self.wide = [call(self.address, wire.CreateTopic(f"wide-{number}", PARTITIONS), ANSWER_S)
                     .topic for number in range(WIDE_TOPICS)]
        for number in range(NARROW_TOPICS):
            call(self.address, wire.CreateTopic(f"narrow-{number}"), ANSWER_S)
        own = call(self.address, wire.CreateTopic(BYSTANDER)).topic.partitions[0]
        self.bystander = own.incarnation
        self._group = own.group
        self._addresses = addresses
        self._lead(self._group)

    def _lead(self, group: int) -> None:
        """Transfer leadership of ``group`` to the node that gets the requests.  Raises
        ``BenchmarkError``."""
        give_up = time.monotonic() + SETTLED_S
        while time.monotonic() < give_up:
            [row] = call(self.address, wire.ListGroups(group, 1)).groups
            if row.leader == self.node:
                return
            if row.leader:
                with contextlib.suppress(BenchmarkError):
                    call(self._addresses[row.leader],
                         wire.TransferLeadership(group, self.node))
            time.sleep(PAUSE_S)
        raise BenchmarkError(f"group {group} is not led by node {self.node}")

    # ---- measuring ------------------------------------------------------------------------------

    def beside(self, costly: Costly, seconds: float) -> Row:
        """Measure the bystander alone, then beside one connection that sends."""
        for group in (METADATA_GROUP, self._group):  # an earlier operation may have moved them
            self._lead(group)
        before = self._appends(seconds / 4, lambda: time.sleep(seconds / 4))
        leases = self._leases_ended()
        sent: list[tuple[int, Counter, float]] = []
        work = self._work(costly)
        beside = self._appends(seconds, lambda: sent.append(work(time.monotonic() + seconds)))
        answers, refused, took_s = sent[0]
        return Row(costly.name, len(costly.frames(1)), answers, refused,
                   1000 * took_s / max(1, answers), percentile(before, 50), percentile(before, 99),
                   percentile(beside, 50), percentile(beside, 99),
                   self._leases_ended() - leases)

    def _work(self, costly: Costly) -> Callable[[float], tuple[int, Counter, float]]:
        """Return the function that sends the requests of ``costly`` until a time."""
        if costly.name.startswith("http "):
            return lambda until: self._scrape(costly.frames(1), until)
        if costly.name == "peer hello":
            return lambda until: self._refused_peers(costly.frames(1), until)
        return lambda until: Sender(self.address, costly).run(until)

    def _appends(self, seconds: float, meanwhile: Callable[[], object]) -> list[float]:
        """Return the milliseconds of each append that the bystander made."""
        context = multiprocessing.get_context("fork")
        near, far = context.Pipe()
        process = context.Process(target=append, args=(self.address, self.bystander, far))
        process.start()
        try:
            meanwhile()
            near.send("stop")
            if not near.poll(ANSWER_S):
                raise BenchmarkError(f"the bystander's append is not answered in {ANSWER_S} s")
            return near.recv()
        finally:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()

    def _leases_ended(self) -> int:
        """Return the number of leases that were lost so far, from the logs of all nodes."""
        return sum(b'"support_lost"' in line
                   for path in self._dev.directory.glob("node-*/*.log")
                   for line in path.read_bytes().splitlines())

    # ---- operations -----------------------------------------------------------------------------

    def operations(self) -> Iterator[Costly]:
        """Return the costliest accepted request of each operation."""
        partitions = [row.incarnation for row in self.wide[0].partitions]
        led = [row.incarnation for topic in self.wide for row in topic.partitions
               if row.leader == self.node][:PARTITIONS]
        yield Costly("hello", lambda _id: hello(), 1)
        yield self._of(wire.Metadata(tuple(topic.name for topic in self.wide)))
        yield self._of(wire.Metadata(("wide-0",) * 1000), "metadata, repeated")
        one = one_batch()
        yield self._of(wire.Produce("commit", 30_000, tuple(
            wire.BatchPart(partition, len(one)) for partition in led)), payload=one * len(led),
            window=2)
        yield self._of(wire.Produce("commit", 30_000, (wire.BatchPart(led[0], len(one)),)),
                       "produce, small", payload=one)
        yield self._of(wire.Fetch(tuple(wire.FetchPart(partition, 0, 1 << 20)
                                        for partition in led)), window=8)
        yield self._of(wire.Fetch(tuple(wire.FetchPart(partition, 1 << 40, 1 << 20)
                                        for partition in led)), "fetch, beyond", window=8)
        yield self._of(wire.Fetch((wire.FetchPart(led[0], 0, 1),)), "fetch, small")
        yield self._of(wire.ListOffsets(tuple(
            wire.OffsetQuery(partition, wire.TIMESTAMP, 5) for partition in led)), window=8)
        yield self._of(wire.ReportCorruption(led[0], 0))
        yield Costly("create, delete", self._changing(), WINDOW_OF_CHANGES)
        yield self._of(wire.ListTopics())
        yield self._of(wire.InitProducer())
        yield self._of(wire.ClusterStatus())
        yield self._of(wire.ListGroups())
        yield self._of(wire.TransferLeadership(self._group, self.node))
        yield self._of(wire.NodeStatus())
        yield self._of(wire.GroupDescribe(1))
        yield self._of(GroupMembers(self._group))
        yield self._of(node_messages.ListNodes())
        yield self._of(node_messages.DescribeNode(self.node))
        yield self._of(placements.ExplainPlacement("wide-0"))
        yield self._of(placements.PartitionReplicas(partitions[0]))
        yield self._of(placements.SwitchPartition(partitions[0], 99, 1))
        yield self._of(plans.PlacementFacts())
        yield self._of(plans.GroupLoads())
        yield self._of(plans.PartitionLoads(tuple(range(1, GROUPS + 1))))
        yield self._of(plans.PlanStatus())
        yield self._of(self._plan(), window=WINDOW_OF_CHANGES)
        yield self._of(pool.GrowPool(1 << 15, dry_run=True), window=WINDOW_OF_CHANGES)
        yield self._of(pool.PoolStatus())
        yield self._of(sinks.TransactionStates(
            tuple(sinks.TransactionRef(1 + number, 1) for number in range(1000))))
        yield self._of(sinks.SinkList())
        yield self._of(sinks.StagedTopics())
        yield self._of(sinks.BeginTransaction("sink", 1, bytes(16), (sinks.TopicEnds(
            self.wide[0].incarnation, (0,) * PARTITIONS),)), window=WINDOW_OF_CHANGES)
        yield Costly("header", lambda number: b"".join(encode_frame(
            {"id": number, "op": "none", "x": [[]] * ((1 << 17) - 2)})), 2)
        yield from self._administration()
        yield Costly("peer hello", lambda _id: self._foreign_hello())
        for path in ("/metrics", "/readyz"):
            yield Costly(f"http {path}", lambda _id, path=path: (
                f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()), SCRAPERS)

    def _administration(self) -> Iterator[Costly]:
        """Yield administrative requests that are refused, or that ask for the existing state."""
        yield self._of(sinks.ResolveTransactions(
            tuple(sinks.TransactionRef(1 + number, 1)
                  for number in range(sinks.RESOLVED_PER_REQUEST_MAX)), void=False),
            window=WINDOW_OF_CHANGES)
        yield self._of(sinks.CommitTransaction(1, 1, 1, tuple(
            sinks.Winner(task, 1) for task in range(sinks.WINNERS_PER_TRANSACTION_MAX))),
            window=WINDOW_OF_CHANGES)
        yield self._of(sinks.AbortTransaction(1, 1), window=WINDOW_OF_CHANGES)
        yield self._of(RecoverGroup(1, self.node, 1), window=WINDOW_OF_CHANGES)
        yield self._of(node_messages.JoinCluster(node_messages.NodeRow(
            self.node, 1, 1, self.address, self.address, "", 1, "bench", 0)),
            window=WINDOW_OF_CHANGES)
        yield self._of(node_messages.RemoveNode(1 << 30), window=WINDOW_OF_CHANGES)
        yield self._of(node_messages.ScrubNode(self.node, 1 << 30), window=WINDOW_OF_CHANGES)
        yield self._of(node_messages.ControlCleaner(self.node, node_messages.RESUME, 1 << 24),
                       window=WINDOW_OF_CHANGES)
        yield self._of(plans.ControlPlan("pause"), window=WINDOW_OF_CHANGES)
        yield self._of(plans.SetNodeState(self.node, plans.ALIVE), window=WINDOW_OF_CHANGES)

    def _foreign_hello(self) -> bytes:
        """Return the first frame of a peer of another cluster, which its node must read to refuse
        it."""
        return b"".join(encode_frame(wire.hello_header(wire.Hello(
            client_id="bench", connection="append", node=self.node, cluster=bytes(16)))))

    def _refused_peers(self, first: bytes, until: float) -> tuple[int, Counter, float]:
        """Dial the peer port again and again; each connection is refused with a frame."""
        host, port = self._dev.record.node(self.node).peer_address.rsplit(":", 1)
        began, answers = time.monotonic(), 0
        while time.monotonic() < until:
            with socket.create_connection((host, int(port)), timeout=ANSWER_S) as sock:
                sock.sendall(first)
                _exactly(sock, struct.unpack(">I", _exactly(sock, 4))[0])
            answers += 1
        return answers, Counter({Code.WRONG_CLUSTER: answers}), time.monotonic() - began

    def _plan(self) -> plans.ApplyPlan:
        """Return a plan with as many moves as allowed, of partitions that are at another epoch."""
        return plans.ApplyPlan("bench", self.cluster.hex(), "all", (1 << 62), plans.PlanLimits(
            1 << 30), tuple(plans.PlannedMove(
                seq, plans.TOPIC_SWITCH, row.incarnation, 1, 9, (row.group,), (1,), 0, 1,
                "measured", ()) for seq, row in enumerate(
                    self.wide[0].partitions[:plans.MOVES_MAX], start=1)))

    @staticmethod
    def _changing() -> Callable[[int], bytes]:
        """Yield requests that create a wide topic and delete it again, in turn."""
        numbers = itertools.count()

        def made(request_id: int) -> bytes:
            number = next(numbers)
            topic = f"changing-{number // 2 % WINDOW_OF_CHANGES}"
            return encoded(request_id, wire.CreateTopic(topic, PARTITIONS) if not number % 2
                           else wire.DeleteTopic(topic))

        return made

    @staticmethod
    def _of(request, name: str = "", payload: bytes = b"", window: int = WINDOW) -> Costly:
        return Costly(name or wire.OPS[type(request)],
                      lambda number: encoded(number, request, payload), window)

    def _scrape(self, request: bytes, until: float) -> tuple[int, Counter, float]:
        """Send ``request`` on several connections, each as fast as it is answered; a connection
        that the node ends after its thousandth answer is dialled again."""
        address = ("127.0.0.1", self._http_port())
        began, answers = time.monotonic(), 0
        socks: list[socket.socket | None] = [None] * SCRAPERS
        with contextlib.ExitStack() as stack:
            while time.monotonic() < until:
                for number, sock in enumerate(socks):
                    if sock is None:
                        sock = stack.enter_context(socket.create_connection(address, ANSWER_S))
                        socks[number] = sock
                    sock.sendall(request)
                for number, sock in enumerate(socks):
                    if not skip_http(sock):
                        sock.close()
                        socks[number] = None
                    answers += 1
        return answers, Counter(), time.monotonic() - began

    def _http_port(self) -> int:
        address = self._dev.record.node(self.node).http_address
        if not address:
            raise BenchmarkError("the development cluster has no metrics")
        return int(address.rsplit(":", 1)[1])


class Sender:
    """One connection that always has ``window`` requests unanswered."""

    def __init__(self, address: str, costly: Costly):
        self._address = address
        self._costly = costly
        self._sock = connected(address)
        self._received = bytearray()

    def run(self, until: float) -> tuple[int, Counter, float]:
        """Return answers, refusals among them, and seconds from the first request to the last
        answer; requests without an answer by then are given up."""
        if self._costly.name == "hello":
            return self._hellos(until)
        frames = {number: self._costly.frames(number)
                  for number in range(1, self._costly.window + 1)}
        changes = self._costly.name == "create, delete"
        began, answers, refused = time.monotonic(), 0, Counter()
        with self._sock, contextlib.suppress(TimeoutError):
            self._sock.sendall(b"".join(frames.values()))
            while (left := until - time.monotonic()) > 0:
                self._sock.settimeout(left)
                number, code = self._answer()
                answers += 1
                if code != 0:
                    refused[code] += 1
                if changes:
                    frames[number] = self._costly.frames(number)
                self._sock.sendall(frames[number])
        return answers, refused, time.monotonic() - began

    def _answer(self) -> tuple[int, int]:
        """Return (id, code) of the next answer."""
        length, header_bytes = struct.unpack(">II", self._take(8))
        header = self._take(header_bytes)
        self._take(length - 4 - header_bytes)
        # Its first two keys are decoded; the rest may be a megabyte of rows.
        if header_bytes <= 200:
            fields = decode_header(header, 0, header_bytes)
            return fields["id"], fields["code"]
        return _number_at(header, header.index(b"\x62id") + 3), _number_at(
            header, header.index(b"\x64code") + 5)

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            data = self._sock.recv(1 << 20)
            if not data:
                raise BenchmarkError(f"{self._costly.name}: the node has closed the connection")
            self._received += data
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _hellos(self, until: float) -> tuple[int, Counter, float]:
        """Open, greet and close connections."""
        self._sock.close()
        began, answers = time.monotonic(), 0
        while time.monotonic() < until:
            connected(self._address).close()
            answers += 1
        return answers, Counter(), time.monotonic() - began


def _code_name(code: int) -> str:
    """Return the name of a wire code, or its number if this release does not know it."""
    return Code(code).name if code in Code._value2member_map_ else str(code)


def _number_at(data: bytes, at: int) -> int:
    """Return an unsigned CBOR integer."""
    first = data[at]
    if first < 24:
        return first
    size = 1 << first - 24
    return int.from_bytes(data[at + 1:at + 1 + size], "big")


def connected(address: str) -> socket.socket:
    """Return a connection that was welcomed."""
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=ANSWER_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(hello())
    length = struct.unpack(">I", _exactly(sock, 4))[0]
    _exactly(sock, length)
    return sock


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise BenchmarkError("the node has closed the connection")
        data += more
    return data


def skip_http(sock: socket.socket) -> bool:
    """Read one answer with its body; False if the node ends the connection after it."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = sock.recv(1 << 16)
        if not more:
            raise BenchmarkError("the node has closed an HTTP connection without an answer")
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines
                  if line.startswith(b"content-length"))
    _exactly(sock, length - len(body))
    return b"connection: close" not in lines


def hello() -> bytes:
    """Return the first frame of a client."""
    return b"".join(encode_frame(wire.hello_header(wire.Hello(client_id="bench"))))


def encoded(number: int, request, payload: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    shape = wire.REQUESTS[wire.OPS[type(request)]]
    return b"".join(encode_frame({"id": number, "op": wire.OPS[type(request)],
                                  **shape.header(request)}, (payload,) if payload else ()))


def one_batch() -> bytes:
    """Return a batch of one small record."""
    builder = BatchBuilder(1000)
    builder.append(0, None, b"x")
    return bytes(builder.build())


def append(address: str, incarnation: int, pipe: Pipe) -> None:
    """Run the bystander's process: one append after the other until it is stopped."""
    took: list[float] = []
    one = one_batch()
    request = encoded(1, wire.Produce("commit", 30_000, (wire.BatchPart(incarnation, len(one)),)),
                      one)
    with connected(address) as sock:
        while not pipe.poll(PAUSE_S):
            began = time.monotonic()
            sock.sendall(request)
            _exactly(sock, struct.unpack(">I", _exactly(sock, 4))[0])
            took.append((time.monotonic() - began) * 1000)
    pipe.send(took)


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that ``percent`` of all do not exceed.  Raises
    ``BenchmarkError``."""
    if not values:
        raise BenchmarkError("the bystander has appended nothing")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
