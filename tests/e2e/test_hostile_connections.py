"""Hostile connections against a real node: the node stays within its limits, and a canary on
another address is not affected.

Contract.  The node's limits are small so that they are reached in seconds; strangers come from
127.0.0.2, so that their allowance per address is not the canary's.  Memory is the resident set of
the process, sampled while the strangers are connected.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import uuid

import cbor2
import pytest

from multiraft.wire import PROTOCOL_VERSION, Hello, Welcome
from multiraft.wire.messages import Fetch, FetchPart, Metadata, NodeStatus
from tests.e2e import raw
from tests.e2e import world as worlds
from tests.e2e.canary import Canary
from tests.e2e.world import POLL_S, World, await_line, wait_for

MIB = 1 << 20
#: Limits of connections per stranger's address, and of all connections.  A disk that takes seconds
#: for the flooded data is not the strangers' fault: its leader would step down, and the canary
#: would see that.
PER_ADDRESS, CONNECTIONS = 60, 100
NODE_BYTES, NODE_ANSWERS = 96 * MIB, 96 * MIB
LIMITS = f"""
[limits]
connections_max = {CONNECTIONS}
connections_per_address_max = {PER_ADDRESS}
peer_connections_max = 40
node_bytes_in_flight_max = {NODE_BYTES}
node_send_buffer_bytes_max = {NODE_ANSWERS}
connection_bytes_in_flight_max = {32 * MIB}
connection_send_buffer_bytes_max = {32 * MIB}
hello_timeout_ms = 1000
frame_timeout_ms = 2000
idle_timeout_ms = 4000
write_timeout_ms = 2000
group_stall_ms_max = 60000
"""
STRANGER = "127.0.0.2"
#: Memory of session buffers, allocator and the like beside the configured limits.
SLACK = 96 * MIB
#: Connections of a storm, and log lines that it may cost: lines of one event are bounded in each
#: window, and the rest is counted.
STORM = 1000
STORM_LINES_MAX = 200


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with worlds.start(tmp_path_factory.mktemp("hostile") / "dev", nodes=1, groups=2, factor=1,
                      configure=lambda world: world.configure(1, LIMITS)) as started:
        yield started


@pytest.fixture(autouse=True)
def canary(world):
    """Yield a canary that appends all the time, over one connection that is never lost."""
    topic = f"canary.{uuid.uuid4().hex}"
    with world.client() as client:
        client.create_topic(topic)
    with Canary(world.client(), topic) as singing:
        wait_for(lambda: singing.count or singing.failure, "the first record")
        before = singing.count
        yield singing
        wait_for(lambda: singing.count > before or singing.failure, "another record")


@pytest.fixture(autouse=True)
def strangers_leave(world, canary):
    """Wait until no stranger is connected, before the next test begins."""
    yield
    wait_for(lambda: status(world)["client_connections"] <= 2, "the strangers' places are free")


def status(world: World) -> dict:
    """Return the node's counters."""
    with world.session(1) as session:
        return session.reply(NodeStatus()).status


def resident(world: World) -> int:
    """Return the bytes of memory that the node's process has now."""
    with open(f"/proc/{world.pid(1)}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))


class Peak:
    """The highest resident set during the context."""

    def __init__(self, world: World):
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.before = self.highest = resident(world)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        """Return the growth in bytes since the start."""
        return self.highest - self.before

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            self.highest = max(self.highest, resident(self._world))


@contextlib.contextmanager
def strangers(world: World, count: int, hello: Hello | None = raw.HELLO):
    """Return connections from the strangers' address."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(raw.Session(world.address(1), hello, source=STRANGER))
               for _ in range(count)]


def ended(session: raw.Session) -> bool:
    """Return True if the node has closed this connection by now."""
    session.socket.setblocking(False)
    try:
        while session.socket.recv(65536):
            continue
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


# ---- slow and silent ---------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [b"", b"\0", raw.frame(cbor2.dumps({"op": "hello"}))[:7]])
@pytest.mark.parametrize("port", ["client", "peer"])
def test_a_hello_that_does_not_come_costs_a_second(world, opening, port):
    address = world.address(1) if port == "client" else world.peer_address(1)
    with raw.Session(address, hello=None, source=STRANGER) as session:
        session.send_bytes(opening)
        assert session.closed_by_node()


def test_a_frame_that_comes_byte_by_byte_is_cut_off(world):
    """However often a byte arrives: the frame must be complete in time.  The log leaves out lines
    of an event that was frequent, so the frame is sent until a line says why it was cut off."""
    wait_for(lambda: cut_off_byte_by_byte(world) and any(
        "a frame has been arriving" in line for line in world.log_lines(1)), "the log says why")


def cut_off_byte_by_byte(world) -> bool:
    """Send a frame byte by byte until the node ends the connection; True when it has."""
    request = raw.frame(cbor2.dumps({"id": 1, "op": "list_topics", "after": "x" * 2000}))
    with strangers(world, 1) as [session]:
        began = time.monotonic()
        sent = iter(request)
        while not ended(session):
            with contextlib.suppress(ConnectionError):
                session.socket.send(bytes([next(sent)]))
            time.sleep(POLL_S)
            assert time.monotonic() - began < 20, "it is served for ever"
    return True


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(world):
    with world.client() as client:
        client.create_topic("quiet")
    with strangers(world, 2) as [idle, waiting]:
        partition = waiting.partition("quiet").incarnation
        request = Fetch((FetchPart(partition, 0, 100),), wait_max_ms=8_000)
        answers = []
        poll = threading.Thread(target=lambda: answers.append(waiting.reply(request)))
        poll.start()
        assert idle.closed_by_node()
        assert not answers, "the long poll waits while the idle one is gone"
        poll.join()
        assert answers[0].results[0].high_watermark == 0
    await_line(world, 1, "idle for")


def test_who_does_not_read_its_answers_is_closed_and_costs_bounded_memory(world):
    """A topic of a few MiB, requested without end by clients that never read."""
    with world.client() as client:
        client.create_topic("much")
        with client.producer(batch_bytes=MIB) as producer:
            for _ in range(8):
                producer.send_many("much", [bytes(900_000)])
    with strangers(world, 30, hello=None) as sessions, Peak(world) as peak:
        for session in sessions:
            session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            session.send_bytes(*session.machine.send(raw.HELLO))
            session.opened = session.event()
            partition = session.partition("much").incarnation
            ask = {"op": "fetch", "partitions": [[partition, 0, 8 * MIB]], "bytes_max": 8 * MIB}
            session.send_bytes(*(raw.frame(cbor2.dumps({"id": number, **ask}))
                                 for number in range(100, 150)))
        waiting = list(sessions)
        def all_closed() -> bool:
            waiting[:] = [session for session in waiting
                          if status_of(session) != "closed"]
            return not waiting
        wait_for(all_closed, "everyone who does not read is closed")
    assert peak.grown < NODE_ANSWERS + SLACK, f"{peak.grown >> 20} MiB"


def status_of(session: raw.Session) -> str:
    """Return True if the kernel reports that the connection is closed, without reading from it."""
    state = session.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    established = 1
    return "open" if state == established else "closed"


# ---- many --------------------------------------------------------------------------------------


def test_one_address_leaves_room_for_others(world):
    before = status(world)["client_connections_rejected"]
    with contextlib.ExitStack() as stack:
        sockets: list[raw.Session] = []

        def crowded() -> bool:
            """Wait until so many more are connected; connections that were slow were closed for
            their silence before."""
            sockets.extend(stack.enter_context(raw.Session(world.address(1), None, source=STRANGER))
                           for _ in range(PER_ADDRESS + 15))
            return status(world)["client_connections_rejected"] >= before + 15

        wait_for(crowded, "who is too much is turned away")
        assert sum(ended(session) for session in sockets) >= 15
        with world.session(1) as another:
            assert another.reply(NodeStatus()).node == 1


def test_lengths_that_are_announced_and_never_sent_cost_no_memory(world):
    """Each announces 16 MiB: sixty times that is more than the machine has."""
    announced = struct.pack(">II", 16 * MIB - 8, 100)
    with strangers(world, 50) as sessions, Peak(world) as peak:
        for session in sessions:
            session.send_bytes(announced, bytes(300 << 10))
        wait_for(lambda: all(ended(session) for session in sessions), "all are cut off")
    assert peak.grown < NODE_BYTES + SLACK, f"{peak.grown >> 20} MiB"


def test_a_flood_of_appends_is_refused_or_taken_and_memory_stays(world):
    """Twenty connections send 8 MiB appends as fast as they can, far more than the memory
    budget."""
    with world.client() as client:
        client.create_topic("flood")
    data = bytes(raw.large_batch(4 * MIB))
    outcomes: list[int] = []

    def push() -> None:
        with raw.Session(world.address(1), source=STRANGER) as session:
            partition = session.partition("flood").incarnation
            header = {"op": "produce", "acks": "commit", "timeout_ms": 60_000,
                      "batches": [[partition, len(data)]]}
            numbers = range(1000, 1006)
            for number in numbers:
                session.machine._in_flight[number] = "produce"
                session.send_bytes(raw.frame(cbor2.dumps({"id": number, **header}), data))
            for _ in numbers:
                event = session.event()
                outcomes.append(event.code or event.reply.results[0].code)

    with Peak(world) as peak:
        threads = [threading.Thread(target=push) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 120, "every append got its answer"
    assert set(outcomes) <= {0, 14}, "taken or QUEUE_FULL"
    # The tail cache is filled meanwhile: 256 MiB, and the uncommitted limit of one group.
    assert peak.grown < NODE_BYTES + SLACK + (256 + 64) * MIB, f"{peak.grown >> 20} MiB"


def test_a_pipelining_flood_is_not_read_beyond_its_limit(world):
    """Fifty thousand requests at once: TCP stops the sender, and requests are served in order."""
    request = raw.frame(cbor2.dumps({"id": 0, "op": "metadata"}))
    with strangers(world, 1) as [session], Peak(world) as peak:
        session.socket.settimeout(raw.LIMIT_S)
        sent = threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                for number in range(50_000):
                    session.machine._in_flight[number] = "metadata"
                    session.socket.sendall(raw.frame(cbor2.dumps(
                        {"id": number, "op": "metadata"})))
            sent.set()

        sender = threading.Thread(target=send)
        sender.start()
        answered = 0
        while answered < 20_000:
            assert session.event().code == 0
            answered += 1
        session.socket.shutdown(socket.SHUT_RDWR)
        sender.join()
    assert len(request) < 64
    assert peak.grown < SLACK


def settled_lines(world: World) -> int:
    """Return the number of log lines, once all strangers so far have been handled."""
    counts = [-1, -2, -3]

    def stands_still() -> bool:
        counts.append(len(world.log_lines(1)))
        return len(set(counts[-8:])) == 1 and len(counts) > 10

    wait_for(stands_still, "the log stands still")
    return counts[-1]


# ---- storms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64,
                                     raw.frame(cbor2.dumps({"op": "hello", "class": "append",
                                                            "version": PROTOCOL_VERSION}))],
                         ids=["health checks", "another protocol", "garbage", "half a hello"])
@pytest.mark.parametrize("port", ["client", "peer"])
def test_a_storm_leaves_no_flood_in_the_log(world, opening, port):
    address = world.address(1) if port == "client" else world.peer_address(1)
    host, number = address.rsplit(":", 1)
    before, grown = settled_lines(world), resident(world)
    for _ in range(STORM):
        with contextlib.suppress(ConnectionError), socket.socket() as sock:
            sock.bind((STRANGER, 0))
            sock.connect((host, int(number)))
            sock.sendall(opening)
    settled_lines(world)
    lines = world.log_lines(1)[before:]
    assert not any("traceback" in line.lower() for line in lines)
    assert len(lines) < STORM_LINES_MAX, f"{len(lines)} lines for {STORM} connections"
    assert resident(world) - grown < SLACK


def test_clients_come_back_by_the_hundred_after_a_restart(world, canary):
    """All clients reconnect at once; each gets its welcome, again and again."""
    for _ in range(5):
        with strangers(world, PER_ADDRESS - 5) as sessions:
            assert all(isinstance(session.opened, Welcome) for session in sessions)
            assert all(session.reply(Metadata()).nodes for session in sessions)
        wait_for(lambda: status(world)["client_connections"] <= 5, "they are gone")


# ---- the log -----------------------------------------------------------------------------------


def test_text_of_strangers_forges_no_line(world):
    """Every line is one JSON object, whatever names and reasons contained."""
    forged = '\n{"level": "error", "event": "forged"}\r\n\x1b[2J\0'
    for header in ({"op": "hello", "version": PROTOCOL_VERSION, "class": "client",
                    "client_id": forged},
                   {"op": "hello", "version": PROTOCOL_VERSION, "class": forged},
                   {"op": forged}, {forged: forged}):
        for address in (world.address(1), world.peer_address(1)):
            with raw.Session(address, hello=None, source=STRANGER) as session:
                session.send_bytes(raw.frame(cbor2.dumps(header)))
                session.socket.shutdown(socket.SHUT_WR)
                assert session.closed_by_node()
    for line in world.log_lines(1):
        assert json.loads(line)["event"] != "forged"
        assert "\x1b" not in line and "\0" not in line
