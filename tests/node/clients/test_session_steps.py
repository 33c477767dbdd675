"""The session of a client without socket, task or event loop: limits, order, stop and end."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    State,
)
from multiraft.wire.errors import Code
from multiraft.wire.frames import WireLimits
from multiraft.wire.messages import BatchPart, Fetch, FetchPart, FetchReply, Produce, ProduceReply
from node.clients.native_requests import NativeRequests
from node.clients.produce import Appends
from node.clients.session import Session, Sessions
from node.limits import Limits


class Requests:
    """Requests of one client as values, and the replies to it."""

    held_bytes = answer_bytes = 0

    def __init__(self, *requests, in_flight_max: int = 100):
        self.limits = WireLimits(in_flight_max=in_flight_max)
        self.reader = SimpleNamespace(header_bytes=0)
        self.state = State.OPEN
        self.arrived: deque = deque()
        self.open: set[int] = set()
        self.number = 0
        for request in requests:
            self.add(request)

    @property
    def in_flight(self) -> int:
        return len(self.open)

    def add(self, request) -> None:
        self.number += 1
        self.arrived.append(RequestEvent(self.number, request, 5))

    def end(self) -> None:
        self.arrived.append(ConnectionClosed())

    def next_event(self):
        if len(self.open) >= self.limits.in_flight_max:
            return PAUSED
        if not self.arrived:
            return NEED_DATA
        event = self.arrived.popleft()
        if isinstance(event, ConnectionClosed):
            self.state = State.CLOSED
        elif not (type(event.request) is Produce and event.request.acks == "none"):
            self.open.add(event.id)
        return event

    def send(self, event: ResponseEvent, payload=()) -> list:
        self.open.remove(event.id)
        return [event]


class Replies:
    """The outbox of a client, which holds values."""

    def __init__(self):
        self.queued: list = []
        self.sent: list = []
        self.size = 0

    def push(self, buffers: list) -> None:
        self.queued += buffers

    def flush(self) -> None:
        self.sent += self.queued
        self.queued = []


class World:
    """A session and its surroundings, all of which record what is asked of them."""

    def __init__(self, *requests, stream: Requests | None = None, in_flight_max: int = 100,
                 **limits):
        self.handled: list = []  # (request, its answer)
        self.calls: list[str] = []
        self.steps: list = []
        self.remaining: object = None  # what the produce handler returns
        handler = SimpleNamespace(handle=self.handle, forget=self.note("forget"),
                                  answer_long_polls=self.note("answer long polls"))
        self.sessions = Sessions(
            directory=SimpleNamespace(metadata_index=7), limits=Limits(**limits),
            request_round=self.note("round"),
            turns=SimpleNamespace(start=lambda owner, steps: self.steps.append(steps)))
        native = NativeRequests(
            self.sessions, produce_handler=handler, fetch_handler=handler, offsets=handler,
            corruption_reports=handler,
            admin=SimpleNamespace(handle=None, forget=self.note("cancel")),
            batch_bytes_max=1 << 20, cluster_id=bytes(16), node=1, boot_epoch=1,
            loop=SimpleNamespace(yield_due=False))
        self.stream = stream or Requests(*requests, in_flight_max=in_flight_max)
        self.replies = Replies()
        self.session = Session(self.sessions, native, self.stream, self.replies, SimpleNamespace(
            wake=self.note("wake"), read_again=self.note("again"), shut_down=self.note("shut"),
            note_peer=self.note("peer")))
        self.session.rows_left = 1_000

    def note(self, name: str):
        return lambda *_: self.calls.append(name)

    def handle(self, request, answer, seen_index):
        assert seen_index == 5
        self.handled.append((request, answer))
        return self.remaining if type(request) is Appends else None

    def codes(self) -> list[int]:
        self.sessions.flush()
        return [event.code for event in self.replies.sent]


class OrderedRequests(Requests):
    """Requests whose replies leave in the order of the requests, as Kafka's: later ones are
    held."""

    def __init__(self, *requests):
        super().__init__(*requests)
        self.held: dict[int, ResponseEvent] = {}
        self.next = 1

    @property
    def held_bytes(self) -> int:
        return HELD_BYTES * len(self.held)

    def send(self, event: ResponseEvent, payload=()) -> list:
        self.held[event.id] = event
        released = []
        while self.next in self.held:
            released += super().send(self.held.pop(self.next))
            self.next += 1
        return released


HELD_BYTES = 50


def append(size: int = 10, acks: str = "commit") -> Produce:
    return Produce(acks, 1_000, (BatchPart(1, size),), bytes(size))


FETCH = Fetch((FetchPart(1, 0, 100),))


def test_requests_are_handled_in_order_and_each_reply_waits_for_the_end_of_the_round():
    world = World(append(), FETCH, append())
    assert world.session.take_events()
    assert [type(request) for request, _ in world.handled] == [Appends, Fetch, Appends]
    world.handled[2][1](ProduceReply(()))
    assert world.replies.sent == []
    world.sessions.flush()
    [reply] = world.replies.sent
    assert (reply.id, reply.metadata_index) == (3, 7)


def test_a_limit_in_flight_pauses_until_a_reply_and_keeps_the_order():
    world = World(append(), append(), append(), in_flight_max=2)
    world.session.take_events()
    assert len(world.handled) == 2 and world.session.paused and world.session.is_full
    world.calls.clear()
    world.handled[0][1](ProduceReply(()))
    assert world.calls == ["wake"] and not world.session.is_full
    assert world.session.resume(100)
    assert len(world.handled) == 3
    world.handled[1][1](ProduceReply(()))
    assert not world.session.resume(100) and not world.session.paused


def test_bytes_in_flight_pause_the_session_and_count_for_the_whole_node():
    world = World(append(800), append(300), append(10), connection_bytes_in_flight_max=1_000)
    world.session.take_events()
    assert len(world.handled) == 2 and world.session.paused
    assert world.sessions.budget.bytes == 1_100 and world.sessions.budget.requests == 2
    world.handled[1][1](ProduceReply(()))
    assert world.sessions.budget.bytes == 800 and world.session.resume(100)
    assert len(world.handled) == 3


def test_a_turn_without_rows_leaves_the_rest_to_the_next_one():
    world = World(*[append() for _ in range(5)])
    world.session.rows_left = 10
    world.session.take_events()
    assert len(world.handled) == 2 and world.session.has_deferred and world.calls == ["again"]
    world.session.rows_left = 1_000
    world.session.take_events()
    assert len(world.handled) == 5 and not world.session.has_deferred


def test_a_request_in_steps_holds_back_the_next_one_of_its_session():
    world = World(append(), FETCH)
    world.remaining = iter([None, None])
    world.session.take_events()
    assert len(world.handled) == 1 and world.session.is_full
    for _ in world.steps.pop():
        assert len(world.handled) == 1
    assert world.calls.count("round") == 3 and not world.session.is_full
    world.session.resume(100)
    assert len(world.handled) == 2


def test_a_stopping_node_refuses_before_it_works_and_answers_what_is_under_way():
    world = World(append())
    world.session.take_events()
    world.sessions.stopping = True
    for request in (append(), append(acks="none"), FETCH):
        world.stream.add(request)
    world.session.take_events()
    world.handled[0][1](ProduceReply(()))
    assert len(world.handled) == 1
    assert world.codes() == [Code.SHUTTING_DOWN, Code.SHUTTING_DOWN, Code.OK]
    assert world.sessions.budget.requests == world.sessions.budget.bytes == 0


@pytest.mark.parametrize("budget", [{"node_requests_in_flight_max": 2},
                                    {"node_bytes_in_flight_max": 15}])
def test_a_node_at_a_limit_of_all_connections_refuses_definitely(budget):
    world = World(append(), append(), append())
    for name, value in budget.items():
        setattr(world.sessions.budget, {"node_requests_in_flight_max": "requests_max",
                                        "node_bytes_in_flight_max": "bytes_max"}[name], value)
    world.session.take_events()
    assert len(world.handled) == 2
    assert world.codes() == [Code.QUEUE_FULL]


def test_replies_that_the_stream_holds_count_as_unsent_until_they_leave():
    world = World(stream=OrderedRequests(append(), FETCH, FETCH, append()))
    world.session.take_events()
    unsent = []
    for at in (1, 3, 0, 2):
        world.handled[at][1](ProduceReply(()) if at in (0, 3) else FetchReply(()))
        world.sessions.flush()
        unsent.append(world.sessions.budget.unsent)
    assert unsent == [HELD_BYTES, 2 * HELD_BYTES, HELD_BYTES, 0]
    assert [event.id for event in world.replies.sent] == [1, 2, 3, 4]


def test_what_a_stream_holds_is_released_with_its_session():
    world = World(stream=OrderedRequests(append(), FETCH))
    world.session.take_events()
    world.handled[1][1](FetchReply(()))
    world.sessions.flush()
    assert world.sessions.budget.unsent == HELD_BYTES
    world.session.release()
    assert world.sessions.budget.unsent == 0


def test_the_batches_of_a_request_are_views_of_its_payload_that_are_made_when_they_are_needed():
    payload = memoryview(bytearray(b"abcdef"))
    request = Produce("leader", 1_000, (BatchPart(7, 2), BatchPart(8, 0), BatchPart(7, 4)), payload)
    world = World(request)
    world.session.take_events()
    [(appends, _)] = world.handled
    assert (appends.batch_count, appends.acks, appends.timeout_ms) == (3, "leader", 1_000)
    assert iter(appends.batches) is appends.batches, "an iterator: nothing is sliced before"
    batches = list(appends.batches)
    assert batches == [(7, b"ab"), (8, b""), (7, b"cdef")]
    assert all(batch.obj is payload.obj and not batch.readonly for _, batch in batches)


def test_a_client_that_ended_its_side_gets_its_replies_and_its_long_polls_are_answered():
    world = World(append())
    world.stream.end()
    world.session.take_events()
    assert world.session.is_over
    world.session.half_close()
    assert world.calls.count("answer long polls") == 1
    world.handled[0][1](ProduceReply(()))
    assert world.codes() == [Code.OK] and "wake" in world.calls


def test_a_session_that_is_gone_leaves_no_count_behind_when_its_appends_end():
    world = World(append(100), FETCH)
    world.session.take_events()
    world.session.release()
    assert "forget" in world.calls and "cancel" in world.calls
    assert world.sessions.budget.requests == 0 and world.sessions.budget.bytes == 100
    world.handled[0][1](ProduceReply(()))
    assert world.sessions.budget.bytes == world.sessions.budget.requests == 0
    assert world.codes() == []
