"""The liveness thread: leases over real sockets, and every way in which they must end."""

import functools
import logging
import os
import selectors
import socket
import threading
from types import SimpleNamespace

import pytest
import trio

from multiraft.liveness.store_liveness import (
    HeartbeatResponse,
    LeaseEventKind,
    StoreLiveness,
)
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import FrameReader, encode_frame
from multiraft.wire.messages import Hello, Welcome, welcome_header
from node.clock import monotonic_ms
from node.errors import LivenessFailed
from node.peers import liveness_thread as liveness_module
from node.peers.handshake import Introduction
from node.peers.lease_events import LeaseEvents
from node.peers.liveness_thread import (
    LIVENESS_LIMITS,
    LivenessThread,
    decode_response,
    encode_response,
)
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.node.harness import connected_pair, in_trio, until
from tests.ports import free_port

LEASE_MS = 300
#: For tests in which no lease may end by itself, however slow the machine is.
LONG_MS = 600_000
INTERVAL_MS = 40
CLUSTER = bytes(16)


class Side:
    """One node's thread, its port, and a loop that answers nudges as long as the test lets it."""

    def __init__(self, node: int, peer: int, port: int, peer_port: int, lease_ms: int = LEASE_MS):
        self.disk = SimpleNamespace(busy_since_ms=None)
        machine = StoreLiveness(node, 1, lease_ms, INTERVAL_MS)
        self.peer = peer
        self.welcome = b"".join(encode_frame(welcome_header(Welcome(CLUSTER, node, 1))))
        introduction = functools.partial(Introduction, Security(SecurityConfig(), CLUSTER),
                                         Hello("liveness", CLUSTER, node, 1))
        self.thread = LivenessThread(machine, introduction, 200, 200, self.disk)
        self.thread.add(peer, "127.0.0.1", peer_port)
        self.listening = socket.create_server(("127.0.0.1", port))
        self.listening.setblocking(False)
        self.alive = True
        self.scope = trio.CancelScope()
        self.served = trio.Event()
        self.events: list = []

    def state(self, *kinds: LeaseEventKind) -> LeaseEventKind | None:
        """Return the last event of these kinds."""
        return next((event.kind for event in reversed(self.events) if event.kind in kinds), None)

    @property
    def holds(self) -> bool:
        """True if the other node supports this one."""
        return self.state(LeaseEventKind.HELD, LeaseEventKind.LOST) is LeaseEventKind.HELD

    @property
    def grants(self) -> bool:
        """True if this node supports the other one."""
        return self.state(LeaseEventKind.GRANTED,
                          LeaseEventKind.WITHDRAWN) is LeaseEventKind.GRANTED

    async def serve(self) -> None:
        """Run the rest of the node, until ``end``."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.loop)
                nursery.start_soon(self.listen)
        self.served.set()

    async def end(self) -> None:
        """End the process: its port refuses connections, and every connection breaks."""
        self.scope.cancel()
        await self.served.wait()
        self.close()

    async def loop(self) -> None:
        """Run the node's loop, as far as the thread sees it."""
        while True:
            await trio.lowlevel.wait_readable(self.thread.wake_fd)
            os.eventfd_read(self.thread.wake_fd)
            if self.alive:
                self.thread.loop_seen_ms = monotonic_ms()
            while self.thread.events:
                self.events.append(self.thread.events.popleft())

    async def listen(self) -> None:
        """Accept every connection on the peer port as the peer's, and read its hello."""
        while True:
            await trio.lowlevel.wait_readable(self.listening)
            sock, _ = self.listening.accept()
            try:
                reader = await self.greeted(sock)
            except BaseException:  # the test ends during the handshake
                sock.close()
                raise
            self.thread.adopt(self.peer, sock, reader)

    async def greeted(self, sock: socket.socket) -> FrameReader:
        """Read the hello of an accepted connection, answer it, and return the reader."""
        sock.setblocking(False)
        reader = FrameReader(LIVENESS_LIMITS)
        while reader.next_frame() is None:
            await trio.lowlevel.wait_readable(sock)
            count = sock.recv_into(reader.buffer_for_receive())
            if not count:
                break
            reader.received(count)
        sock.send(self.welcome)
        return reader

    def close(self) -> None:
        self.thread.stop()
        self.listening.close()


class Pair:
    """Two nodes that exchange heartbeats."""

    def __init__(self, lease_ms: int = LEASE_MS):
        self._lease_ms = lease_ms

    async def __aenter__(self) -> "Pair":
        one, two = free_port(), free_port()
        self.sides = self.one, self.two = (Side(1, 2, one, two, self._lease_ms),
                                           Side(2, 1, two, one, self._lease_ms))
        self._nursery_context = trio.open_nursery()
        self.nursery = await self._nursery_context.__aenter__()
        for side in self.sides:
            self.nursery.start_soon(side.serve)
            side.thread.start()
        await until(lambda: all(side.holds and side.grants for side in self.sides), "leases")
        return self

    async def __aexit__(self, *raised) -> None:
        self.nursery.cancel_scope.cancel()
        await self._nursery_context.__aexit__(*raised)
        for side in self.sides:
            side.close()


async def next_turn(thread: LivenessThread) -> None:
    """Wait until the thread has begun another turn."""
    before_us = thread.probed_us
    await until(lambda: thread.probed_us > before_us, "a turn of the thread")


@in_trio
async def test_two_nodes_support_each_other_until_one_is_gone():
    async with Pair() as pair:
        await pair.two.end()
        await until(lambda: not pair.one.holds and not pair.one.grants)


def ended(side: Side) -> bool:
    """True if the thread has ended the leases of its peer."""
    return not side.holds and not side.grants


@in_trio
async def test_a_process_that_ended_is_not_waited_for():
    async with Pair(LONG_MS) as pair:
        await pair.two.end()
        await until(lambda: ended(pair.one), "the leases of a process that ended")


@in_trio
async def test_a_stop_that_was_announced_is_told_from_a_crash():
    async with Pair(LONG_MS) as pair:
        thread = pair.one.thread
        assert not thread.has_announced_stop(2, 1)
        pair.two.thread.announce_stop()
        await until(lambda: thread.has_announced_stop(2, 1), "the announcement")
        assert not thread.has_announced_stop(2, 2), "a later start is not announced"
        assert pair.one.holds and pair.one.grants, "it serves until it ends"
        assert not thread.is_refusing(2)
        await pair.two.end()
        await until(lambda: ended(pair.one))
        assert thread.is_refusing(2)


@in_trio
async def test_a_stop_is_announced_also_on_a_link_that_is_made_later():
    async with Pair(LONG_MS) as pair:
        thread = pair.one.thread
        link = pair.two.thread._dialled[1]
        # The broken link is found in the same turn in which the announcement is sent, or before.
        link.sock.shutdown(socket.SHUT_RDWR)
        pair.two.thread.announce_stop()
        await until(lambda: pair.two.thread._dialled.get(1) not in (None, link), "a new link")
        await until(lambda: thread.has_announced_stop(2, 1), "the announcement")


@in_trio
async def test_the_round_trip_of_each_answered_heartbeat_is_measured():
    async with Pair(LONG_MS) as pair:
        thread = pair.one.thread
        await until(lambda: 2 in thread.round_trips and sum(thread.round_trips[2].counts) >= 3)
        assert thread.round_trips[2].total_us > 0
        thread.remove(2)
        await until(lambda: not thread.round_trips, "a removed node has no round trip")


def received(sock: socket.socket, reader: FrameReader) -> dict:
    """Return the header of the next frame; blocks."""
    while (frame := reader.next_frame()) is None:
        count = sock.recv_into(reader.buffer_for_receive())
        assert count, "the connection ended"
        reader.received(count)
    return frame.header


def test_round_trips_above_the_heartbeat_interval_are_measured_and_each_once():
    """The peer answers each heartbeat only when the next ones have arrived."""
    late = 3
    with socket.create_server(("127.0.0.1", 0)) as listening:
        side = Side(1, 2, free_port(), listening.getsockname()[1], LONG_MS)
        # There is no loop that answers the nudges.
        side.thread._loop_stall_ms_max = LONG_MS
        side.thread.start()
        sock, _ = listening.accept()
        with sock:
            reader = FrameReader(LIVENESS_LIMITS)
            assert received(sock, reader)["class"] == "liveness"
            sock.sendall(b"".join(encode_frame(welcome_header(Welcome(CLUSTER, 2, 1)))))
            sequences = [received(sock, reader)["heartbeat"][1] for _ in range(late)]
            for sequence in sequences + sequences[:1]:  # the last one is a duplicate
                sock.sendall(b"".join(encode_frame({"response": [1, 1, sequence, 0]})))
            version = side.thread._liveness._peers[2].sequence_sent + 1
            while received(sock, reader)["heartbeat"][1] <= version:
                pass  # by then the thread has read all responses
            trips = side.thread.round_trips[2]
            assert sum(trips.counts) == late
            assert trips.total_us >= (late - 1) * INTERVAL_MS * 1_000
        side.close()


@in_trio
async def test_a_stall_of_this_node_is_remembered_with_its_time():
    async with Pair(LONG_MS) as pair:
        thread = pair.one.thread
        thread._loop_stall_ms_max = LONG_MS  # a busy machine is no stall here
        begin_ms = monotonic_ms()
        assert thread.own_stall_since(begin_ms) == ""
        pair.one.disk.busy_since_ms = begin_ms - 1_000
        await until(lambda: thread.own_stall_since(begin_ms) == "disk", "the stall")
        pair.one.disk.busy_since_ms = None
        for _turn in range(2):
            await next_turn(thread)
        end_ms = monotonic_ms()
        assert thread.own_stall_since(end_ms) == ""
        assert thread.own_stall_since(begin_ms) == "disk"
        pair.one.alive = False
        thread._loop_stall_ms_max = 200
        await until(lambda: thread.own_stall_since(end_ms) == "event loop", "the stall")


def test_a_thread_that_ran_late_remembers_that_the_process_stalled():
    side = Side(1, 2, free_port(), free_port())
    thread = side.thread
    thread._note_lateness(10_000, 10_000 + thread._loop_stall_ms_max)
    assert thread.own_stall_since(0) == ""
    thread._note_lateness(10_000, 10_001 + thread._loop_stall_ms_max)
    assert thread.own_stall_since(10_000) == "process"
    side.close()


@in_trio
async def test_a_broken_connection_alone_ends_no_lease():
    async with Pair(LONG_MS) as pair:
        before = len(pair.one.events)
        link = pair.one.thread._dialled[2]
        link.sock.shutdown(socket.SHUT_RDWR)
        await until(lambda: pair.one.thread._dialled.get(2) not in (None, link), "a new link")
        await until(lambda: pair.one.thread._dialled[2].answered)
        assert len(pair.one.events) == before


@in_trio
async def test_a_refusal_alone_ends_no_lease():
    async with Pair(LONG_MS) as pair:
        await until(lambda: pair.one.thread._adopted.get(2), "the other direction")
        pair.two.scope.cancel()
        await pair.two.served.wait()
        pair.two.listening.close()
        pair.two.thread._loop_stall_ms_max = 1 << 40  # its nudges are no longer answered
        pair.one.thread._dialled[2].sock.shutdown(socket.SHUT_RDWR)
        await until(lambda: 2 in pair.one.thread._refused, "a refusal")
        assert pair.one.grants and 2 in pair.one.thread._adopted


@in_trio
async def test_a_loop_that_hangs_ends_the_leases_and_they_return_with_it():
    async with Pair() as pair:
        pair.two.alive = False
        await until(lambda: not pair.one.holds and not pair.one.grants)
        await until(lambda: not pair.two.holds and not pair.two.grants)
        pair.two.alive = True
        await until(lambda: all(side.holds and side.grants for side in pair.sides))


@in_trio
async def test_a_disk_that_hangs_ends_the_leases_and_they_return_with_it():
    async with Pair() as pair:
        # On a busy machine a lease may also run out by itself, and the loop may seem to hang.
        pair.one.thread._loop_stall_ms_max = 1 << 40
        pair.one.disk.busy_since_ms = monotonic_ms() - 1_000
        for _turn in range(2):  # the first turn may have begun before the stall
            await next_turn(pair.one.thread)
        assert not pair.one.thread._liveness._healthy
        await until(lambda: not pair.two.holds and not pair.two.grants)
        pair.one.disk.busy_since_ms = None
        await until(lambda: all(side.holds and side.grants for side in pair.sides))


@in_trio
async def test_digests_and_versions_reach_the_other_side():
    async with Pair(LONG_MS) as pair:
        pair.one.thread.published = ({2: 99}, {}, 7)
        await until(lambda: pair.two.state(LeaseEventKind.DIGEST_MISMATCH))
        assert any(event.kind is LeaseEventKind.LEADING_VERSION and event.value == 7
                   for event in pair.two.events)


@in_trio
async def test_hostile_frames_end_their_connection_and_the_leases_live_on():
    async with Pair(LONG_MS) as pair:
        for header in ({"heartbeat": [1]}, {"heartbeat": "?"}, {}, {"heartbeat": [None] * 4},
                       {"stopping": "?"}, {"stopping": True}):
            near, far = connected_pair()
            pair.one.thread.adopt(3, near, FrameReader(LIVENESS_LIMITS))
            far.setblocking(True)
            far.sendall(b"".join(encode_frame(header)))
            assert await trio.to_thread.run_sync(far.recv, 1) == b""
            far.close()
        assert pair.one.thread.failure is None
        before = len(pair.one.events)
        pair.two.thread.published = ({}, {}, 5)
        await until(lambda: len(pair.one.events) > before)
        assert pair.one.holds


@in_trio
async def test_clocks_that_differ_by_more_than_a_minute_are_far_on_both_nodes():
    async with Pair(LONG_MS) as pair:
        skews = [side.thread.clock_skew for side in pair.sides]
        await until(lambda: all(skew.skew_ms is not None for skew in skews), "a comparison")
        assert not any(skew.is_far for skew in skews)
        machine = pair.two.thread._liveness
        machine.set_clock = lambda now_ms, clock_ms: StoreLiveness.set_clock(
            machine, now_ms, clock_ms + 90_000)
        await until(lambda: all(skew.is_far for skew in skews), "far clocks")
        assert skews[1].skew_ms > 60_000 and skews[0].skew_ms < -60_000
        del machine.set_clock
        await until(lambda: not any(skew.is_far for skew in skews), "clocks that are set")


@in_trio
async def test_a_far_clock_is_logged_once_per_change(caplog):
    side = Side(1, 2, free_port(), free_port())
    skew = side.thread.clock_skew
    turns = []
    events = LeaseEvents(None, side.thread,
                         SimpleNamespace(probe=lambda file, idle_ms: turns.append(file)),
                         lambda: None, 0, 10_000, logging.getLogger("test"))

    async def three_turns() -> None:
        for _ in range(3):
            turns.clear()
            os.eventfd_write(side.thread.wake_fd, 1)
            await until(lambda: turns)

    caplog.set_level(logging.INFO, "test")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.run)
            for offset_ms in (0, -75_000, -76_000, 4):
                skew.hear(2, offset_ms)
                skew.compare()
                await three_turns()
            nursery.cancel_scope.cancel()
    finally:
        side.close()
    assert [(each.levelname, each.getMessage(), each.skew_ms) for each in caplog.records] == [
        ("WARNING", "clock_skew_found", 75_000), ("INFO", "clock_skew_ended", -4)]


def test_a_response_is_read_with_and_without_a_clock():
    with_clock = HeartbeatResponse(1, 2, 3, 0, 1_700_000_000_000)
    header = encode_response(with_clock)
    assert header == {"response": [1, 2, 3, 0], "clock_ms": 1_700_000_000_000}
    assert decode_response(header) == with_clock
    without = with_clock._replace(clock_ms=0)
    assert encode_response(without) == {"response": [1, 2, 3, 0]}
    assert decode_response({"response": [1, 2, 3, 0]}) == without


@pytest.mark.parametrize("header", [
    {"response": [1, 2, 3, 0], "clock_ms": -1},
    {"response": [1, 2, 3, 0], "clock_ms": 1 << 63},
    {"response": [1, 2, 3, 0], "clock_ms": "?"},
    {"response": [1, 2, 3, 0], "clock_ms": True},
    {"response": [1, 2, 3, 0, 1_700_000_000_000]},
    {"clock_ms": 1},
])
def test_a_malformed_clock_is_refused(header):
    with pytest.raises(RemoteProtocolError):
        decode_response(header)


@in_trio
async def test_what_came_with_the_hello_is_not_lost():
    async with Pair() as pair:
        near, far = connected_pair()
        with far:
            reader = FrameReader(LIVENESS_LIMITS)
            heartbeat = b"".join(encode_frame({"heartbeat": [1, 1 << 30, 0, 0]}))
            reader.buffer_for_receive()[:len(heartbeat)] = heartbeat
            reader.received(len(heartbeat))
            pair.one.thread.adopt(2, near, reader)
            await trio.lowlevel.wait_readable(far)
            assert b"response" in far.recv(100)


@in_trio
async def test_a_newer_link_of_a_peer_replaces_the_older_one():
    async with Pair(LONG_MS) as pair:
        ends = []
        for _ in range(20):
            near, far = connected_pair()
            pair.one.thread.adopt(3, near, FrameReader(LIVENESS_LIMITS))
            ends.append(far)
        for far in ends[:-1]:
            await trio.lowlevel.wait_readable(far)
            assert far.recv(1) == b""
        assert len(pair.one.thread._adopted) == 2
        for far in ends:
            far.close()


@in_trio
async def test_a_peer_that_says_nothing_is_dialled_anew():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as silent:
        silent.setblocking(False)
        side = Side(1, 2, free_port(), port)
        side.thread.start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(side.loop)
                accepted = []
                while len(accepted) < 2:
                    await trio.lowlevel.wait_readable(silent)
                    accepted.append(silent.accept()[0])
                nursery.cancel_scope.cancel()
        finally:
            side.close()
            for sock in accepted:
                sock.close()


@in_trio
async def test_running_out_of_descriptors_is_survived(monkeypatch):
    side = Side(1, 2, free_port(), free_port())
    tried = threading.Event()

    def exhausted(*_):
        tried.set()
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(liveness_module, "socket", SimpleNamespace(
        socket=exhausted, AF_INET=socket.AF_INET, SOCK_STREAM=socket.SOCK_STREAM))
    side.thread.start()
    try:
        await until(tried.is_set)
        assert side.thread.failure is None
    finally:
        monkeypatch.undo()
        side.close()


def test_a_link_is_left_alone_that_was_closed_in_the_turn_that_finds_it_connected():
    """A peer moves while it is being dialled; one ``select`` reports both."""
    side = Side(1, 2, free_port(), free_port())
    thread = side.thread
    thread._dial(2, "127.0.0.1", free_port())
    link = thread._dialled[2]
    thread._move(2, ("127.0.0.1", free_port()))
    thread._ready(link, selectors.EVENT_WRITE)
    assert 2 not in thread._dialled
    side.close()


@in_trio
async def test_a_thread_that_dies_stops_the_node():
    side = Side(1, 2, free_port(), free_port())
    defect = ZeroDivisionError("a defect")

    def failing(now_ms):
        raise defect

    side.thread._tick = failing
    events = LeaseEvents(None, side.thread, SimpleNamespace(probe=lambda file, idle_ms: None),
                         lambda: None, 0, 10_000, logging.getLogger("test"))
    side.thread.start()
    try:
        with pytest.raises(LivenessFailed) as raised:
            await events.run()
        assert raised.value.__cause__ is defect
    finally:
        side.close()
