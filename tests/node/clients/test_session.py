"""Client connections over real sockets, with handlers that the test controls."""

import struct
from types import SimpleNamespace

import cbor2
import pytest
import trio
import trio.testing

from multiraft.wire.connection import (
    Connection,
    ConnectionClosed,
    RequestEvent,
    Role,
    State,
)
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    EARLIEST,
    BatchPart,
    ClusterStatus,
    Fetch,
    FetchPart,
    FetchReply,
    FetchResult,
    Hello,
    ListOffsets,
    ListOffsetsReply,
    ListTopics,
    OffsetQuery,
    OffsetResult,
    Produce,
    ProduceReply,
    ProduceResult,
    Refused,
    Welcome,
)
from multiraft.wire.sinks import BeginTransaction, TopicEnds
from node.clients.client_connection import ClientConnections
from node.clients.listener import Listener
from node.clients.native_requests import NativeRequests
from node.clients.session import Sessions
from node.config import Limits
from node.loop.poller import Poller
from node.loop.turns import Turns
from tests.node.harness import HELLO, Client, attend, connected_pair, in_trio, silent_log, until

CLUSTER = bytes(range(16))
ONE_BATCH = (BatchPart(1, 10),)


class Handlers:
    """All three handlers: they keep requests until the test answers them."""

    def __init__(self):
        self.requests: list = []
        self.answers: list = []
        self.seen: list[int] = []
        self.forgotten = 0
        self.hurried = 0
        self.admin = SimpleNamespace(handle=self.handle_event, forget=lambda session: None)

    def handle(self, request, answer, seen_index=0):
        self.requests.append(request)
        self.answers.append(answer)
        self.seen.append(seen_index)

    def handle_event(self, event, answer):
        self.handle(event.request, answer, event.metadata_index)

    def handle_offsets(self, request, answer, seen_index=0):
        self.requests.append(request)
        answer(ListOffsetsReply(tuple(OffsetResult(query.incarnation, 0, 0)
                                      for query in request.partitions)))

    def retry_due(self, now_ms):
        pass

    def answer_long_polls(self, session):
        self.hurried += 1

    def forget(self, session):
        self.forgotten += 1


class ClusterView:
    """A listener with sessions, whose rounds only flush."""

    def __init__(self, **limits):
        self.handlers = Handlers()
        self.rounds = 0
        self.poller = Poller()
        self.turns = Turns(512)
        self.sessions = Sessions(
            directory=SimpleNamespace(metadata_index=42), limits=Limits(**limits),
            request_round=self.round, turns=self.turns)
        self.requests = NativeRequests(
            self.sessions, produce_handler=self.handlers, fetch_handler=self.handlers,
            offsets=SimpleNamespace(handle=self.handlers.handle_offsets),
            corruption_reports=self.handlers, admin=self.handlers.admin,
            batch_bytes_max=1 << 20, cluster_id=CLUSTER, node=7, boot_epoch=3, loop=self.poller)
        self.connections = ClientConnections(self.sessions, self.requests, self.poller, self.turns,
                                             silent_log())
        self.on_round = None

    def round(self):
        self.rounds += 1
        if self.on_round is not None:
            self.on_round()
        self.sessions.flush()

    async def connect_attended(self, nursery) -> Client:
        """Return a client after its handshake; afterwards the node handles no more arrivals."""
        async with trio.open_nursery() as attending:
            attending.start_soon(attend, self.poller, self.round)
            client = await self.connect(nursery)
            attending.cancel_scope.cancel()
        return client

    async def connect(self, nursery, hello: Hello = HELLO, buffer_bytes: int = 0) -> Client:
        """Return a client whose session runs in ``nursery``."""
        near, far = connected_pair(buffer_bytes)
        listener = Listener(near, self.connections.handle, 1)
        listener.counts.connections = 1
        nursery.start_soon(listener._handle, near)
        client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(far)))
        await client.say(*client.machine.send(hello))
        client.opened = await client.event()
        return client


def session_test(**limits):
    """Run a test with a world and one client."""

    def decorate(test):
        @in_trio
        async def run():
            world = ClusterView(**limits)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attend, world.poller, world.round)
                nursery.start_soon(world.turns.run)
                async with await world.connect(nursery) as client:
                    await test(world, client)
                nursery.cancel_scope.cancel()

        run.__name__ = test.__name__
        return run

    return decorate


async def ended(client: Client) -> bool:
    """Return True if the node ends the connection; unread bytes turn the end into a reset."""
    try:
        return isinstance(await client.event(), ConnectionClosed)
    except trio.BrokenResourceError:
        return True


@session_test()
async def test_the_welcome_says_who_answers_and_what_it_takes(world, client):
    assert isinstance(client.opened, Welcome)
    assert (client.opened.cluster, client.opened.node, client.opened.boot_epoch) == (CLUSTER, 7, 3)
    assert client.opened.in_flight_max == Limits().requests_in_flight_max
    assert client.opened.batch_bytes_max == 1 << 20


@session_test()
async def test_pipelined_requests_are_handled_in_order_and_answered_in_any(world, client):
    numbers = [await client.begin(Fetch((FetchPart(n, 0, 10),))) for n in range(3)]
    await until(lambda: len(world.handlers.answers) == 3)
    assert [request.partitions[0].incarnation for request in world.handlers.requests] == [0, 1, 2]
    for at in (2, 0, 1):
        world.handlers.answers[at](FetchReply((FetchResult(at, 0, 0, 0, 3),)), [b"abc"])
        world.round()
    answers = [await client.event() for _ in range(3)]
    assert [answer.id for answer in answers] == [numbers[2], numbers[0], numbers[1]]
    assert all(bytes(answer.reply.payload) == b"abc" for answer in answers)
    assert {answer.metadata_index for answer in answers} == {42}


@session_test()
async def test_handlers_learn_what_metadata_the_client_has_seen(world, client):
    await client.begin(Fetch(()), seen_index=9)
    await client.begin(ClusterStatus(), seen_index=11)
    await client.begin(Produce("commit", 1, ONE_BATCH), b"x" * 10, seen_index=12)
    await until(lambda: world.handlers.seen == [9, 11, 12])


@session_test(requests_in_flight_max=2)
async def test_too_many_unanswered_requests_stop_the_reading_until_one_is_answered(world, client):
    for _ in range(5):
        await client.begin(Produce("commit", 1, ONE_BATCH), b"x" * 10)
    await until(lambda: len(world.handlers.answers) == 2)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(world.handlers.answers) == 2
    for at in range(5):
        await until(lambda at=at: len(world.handlers.answers) > at)
        world.handlers.answers[at](ProduceReply((ProduceResult(0, at),)))
        world.round()
        assert (await client.event()).reply.results[0].base_offset == at


@session_test(requests_in_flight_max=2)
async def test_a_round_that_answers_everything_does_not_leave_the_session_paused(world, client):
    def answer_all():
        answers, world.handlers.answers = world.handlers.answers, []
        for answer in answers:
            answer(ProduceReply((ProduceResult(0, 0),)))

    world.on_round = answer_all
    requests = [RequestEvent(100 + n, Produce("commit", 1, ONE_BATCH)) for n in range(9)]
    await client.say(*[buffer for request in requests
                       for buffer in client.machine.send(request, [b"x" * 10])])
    assert sorted([(await client.event()).id for _ in requests]) == list(range(100, 109))


@session_test(connection_bytes_in_flight_max=32 << 20, frame_bytes_max=32 << 20)
async def test_too_many_unanswered_bytes_stop_the_reading(world, client):
    client.machine.remote_frame_bytes_max = 32 << 20
    size = 12 << 20
    request = Produce("commit", 1, (BatchPart(1, size),))
    async with trio.open_nursery() as nursery:
        async def send():
            for _ in range(4):
                await client.begin(request, bytes(size))

        nursery.start_soon(send)
        await until(lambda: len(world.handlers.answers) == 3)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(world.handlers.answers) == 3
        world.handlers.answers[0](ProduceReply((ProduceResult(0, 0),)))
        await until(lambda: len(world.handlers.answers) == 4)


@session_test()
async def test_acks_none_is_never_answered_and_holds_no_bytes(world, client):
    await client.begin(Produce("none", 1, ONE_BATCH), b"x" * 10)
    await until(lambda: world.handlers.answers)
    world.handlers.answers[0](ProduceReply((ProduceResult(0, 0),)))
    world.round()
    answer = await client.ask(ListOffsets((OffsetQuery(1, EARLIEST),)))
    assert answer.reply.results[0].offset == 0


@session_test()
async def test_an_unknown_operation_is_answered_and_the_connection_goes_on(world, client):
    header = cbor2.dumps({"id": 5, "op": "shrink_time"})
    client.machine._in_flight[5] = "list_topics"
    await client.say(struct.pack(">II", 4 + len(header), len(header)) + header)
    assert (await client.event()).code == Code.UNSUPPORTED
    assert (await client.ask(ListOffsets(()))).code == Code.OK


@session_test()
async def test_an_answer_too_large_for_a_frame_is_refused_and_the_connection_goes_on(world, client):
    long = ErrorDetail("x" * 4000)
    await client.begin(Fetch(()))
    await client.begin(Produce("commit", 1, ()))
    await until(lambda: len(world.handlers.answers) == 2)
    world.handlers.answers[0](FetchReply((FetchResult(1, 6, -1, -1, 0, long),) * 1000))
    world.handlers.answers[1](ProduceReply((ProduceResult(6, -1, long),) * 1000))
    world.round()
    assert (await client.event()).code == Code.LIMIT_EXCEEDED
    assert (await client.event()).code == Code.AMBIGUOUS, "some of it may have been appended"


@session_test()
async def test_a_client_that_ended_its_side_gets_what_it_asked_for(world, client):
    await client.begin(Produce("commit", 1, ONE_BATCH), b"x" * 10)
    await client.begin(Fetch(()))
    await client.stream.send_eof()
    await until(lambda: world.handlers.hurried == 1, "its long polls need not wait any more")
    world.handlers.answers[1](FetchReply((FetchResult(1, 0, 0, 0, 3),)), [b"abc"])
    world.round()
    assert bytes((await client.event()).reply.payload) == b"abc"
    assert world.handlers.forgotten == 0, "one answer is missing"
    world.handlers.answers[0](ProduceReply((ProduceResult(0, 0),)))
    world.round()
    assert (await client.event()).reply.results[0].code == 0
    assert await ended(client)
    assert world.handlers.forgotten == 1 and world.connections.closed_by_error == 0


@session_test(connection_send_buffer_bytes_max=64 << 20)
async def test_the_last_answer_leaves_whole_before_the_connection_ends(world, client):
    await client.begin(Fetch(()))
    await client.stream.send_eof()
    await until(lambda: world.handlers.hurried == 1)
    size = 8 << 20
    world.handlers.answers[0](FetchReply((FetchResult(1, 0, 0, 0, size),)), [bytes(size)])
    world.round()
    assert len((await client.event()).reply.payload) == size
    assert await ended(client)


@session_test(half_closed_timeout_ms=50)
async def test_what_is_not_answered_in_time_ends_with_the_connection(world, client):
    await client.begin(Produce("commit", 1, ONE_BATCH), b"x" * 10)
    await client.stream.send_eof()
    assert await ended(client)
    world.handlers.answers.pop()(ProduceReply((ProduceResult(0, 0),)))
    world.round()
    assert world.handlers.forgotten == 1 and world.connections.closed_by_error == 0


@session_test()
async def test_what_is_left_to_a_task_asks_for_its_turn_and_an_append_does_not(world, client):
    world.poller.yield_due = False
    await client.begin(Produce("commit", 1000, ONE_BATCH), bytes(10))
    await until(lambda: len(world.handlers.answers) == 1)
    assert not world.poller.yield_due
    await client.begin(ListTopics())
    await until(lambda: len(world.handlers.answers) == 2)
    assert world.poller.yield_due


@session_test(connection_send_buffer_bytes_max=1 << 20)
async def test_a_client_that_does_not_read_its_answers_is_closed(world, client):
    for _ in range(40):
        await client.begin(Fetch(()))
    await until(lambda: len(world.handlers.answers) == 40)
    for answer in world.handlers.answers:
        answer(FetchReply((FetchResult(1, 0, 0, 0, 1 << 19),)), [bytes(1 << 19)])
        world.round()
    await until(lambda: world.handlers.forgotten == 1)


@session_test()
async def test_a_stopping_node_refuses_new_requests_and_answers_the_old_ones(world, client):
    await client.begin(Fetch(()))
    await until(lambda: world.handlers.answers)
    world.sessions.stopping = True
    assert (await client.ask(ListTopics())).code == Code.SHUTTING_DOWN
    world.handlers.answers[0](FetchReply(()))
    world.round()
    assert (await client.event()).code == Code.OK


@session_test()
async def test_bytes_that_are_not_the_protocol_end_the_connection(world, client):
    await client.say(struct.pack(">I", 0xFFFFFFFF))
    assert await ended(client)
    assert world.connections.closed_by_error == 1


@in_trio
@pytest.mark.parametrize(("hello", "code"), [
    (Hello(cluster=bytes(16)), Code.WRONG_CLUSTER),
    (Hello(connection="append", node=1), Code.INVALID_REQUEST),
    (Hello(version=99), Code.UNSUPPORTED),
])
async def test_a_hello_for_somebody_else_is_refused_with_the_reason(hello, code):
    world = ClusterView()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, world.poller, world.round)
        async with await world.connect(nursery, hello) as client:
            assert isinstance(client.opened, Refused)
            assert client.opened.code == code
            assert await ended(client)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_connection_without_a_hello_is_closed_in_time():
    world = ClusterView(hello_timeout_ms=20)
    near, far = connected_pair()
    with near, far:
        await world.connections.handle(near)
        assert world.handlers.forgotten == 1


# ---- the work of one connection in one turn ----


def small_requests(count: int) -> bytes:
    """Return the frames of many fetches of one partition, in one piece."""
    machine = Connection(Role.CLIENT)
    machine.send(HELLO)
    machine.state = State.OPEN
    return b"".join(b"".join(machine.send(RequestEvent(number, Fetch((FetchPart(1, 0, 1),)))))
                    for number in range(1, count + 1))


@in_trio
async def test_requests_that_arrive_together_are_handled_some_at_a_time_and_others_in_between():
    world = ClusterView(connection_turn_rows_max=50, requests_in_flight_max=65_536)
    handled: list[tuple[object, int]] = []

    def answer_at_once(request, answer, _seen_index=0):
        handled.append((answer.session, world.arrivals_polls))
        answer(FetchReply((FetchResult(1, 0, 0, 0, 0),)))

    world.arrivals_polls = 0
    poll = world.poller.poll

    def counted(wait_s=0.0):
        world.arrivals_polls += 1
        return poll(wait_s)

    world.poller.poll = counted
    world.handlers.handle = answer_at_once
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.turns.run)
        async with (await world.connect_attended(nursery) as greedy,
                    await world.connect_attended(nursery) as modest):
            await greedy.say(small_requests(400))
            await modest.say(small_requests(1))
            nursery.start_soon(attend, world.poller, world.round)
            await until(lambda: len(handled) == 401)
        nursery.cancel_scope.cancel()
    sessions = [session for session, _ in handled]
    polls = [number for _, number in handled]
    assert max(polls.count(number) for number in set(polls)) <= 11 + 1, "rows of one turn"
    other = min(set(sessions), key=sessions.count)
    assert sessions.index(other) <= 22, "the other connection is served before the rest"


@in_trio
async def test_requests_with_large_headers_are_handled_two_in_a_turn():
    """A header of 10,000 numbers takes as long to decode as a hundred small requests."""
    world = ClusterView(requests_in_flight_max=65_536)
    handled: list[int] = []
    machine = Connection(Role.CLIENT)
    machine.send(HELLO)
    machine.state = State.OPEN
    large = BeginTransaction("sink", 1, bytes(16), (TopicEnds(1, (0,) * 10_000),))
    frames = b"".join(b"".join(machine.send(RequestEvent(number, large)))
                      for number in range(1, 9))
    world.arrivals_polls = 0
    poll = world.poller.poll

    def counted(wait_s=0.0):
        world.arrivals_polls += 1
        return poll(wait_s)

    world.poller.poll = counted
    world.handlers.admin.handle = lambda event, answer: handled.append(world.arrivals_polls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.turns.run)
        async with await world.connect_attended(nursery) as client:
            await client.say(frames)
            nursery.start_soon(attend, world.poller, world.round)
            await until(lambda: len(handled) == 8)
        nursery.cancel_scope.cancel()
    assert max(handled.count(number) for number in set(handled)) <= 2


@session_test(connection_turn_rows_max=50, requests_in_flight_max=65_536)
async def test_what_is_left_of_a_turn_is_handled_though_nothing_more_arrives(world, client):
    client.machine = Connection(Role.CLIENT)
    await client.say(small_requests(300))
    await until(lambda: len(world.handlers.requests) == 300)


@session_test()
async def test_a_request_that_takes_turns_holds_up_its_own_connection_only(world, client):
    steps: list[str] = []

    def take_turns(request, answer, _seen_index=0):
        def work():
            for number in range(5):
                steps.append(f"{request.partitions[0].incarnation}.{number}")
                yield
            answer(FetchReply((FetchResult(1, 0, 0, 0, 0),)))

        return work()

    world.handlers.handle = take_turns
    for incarnation in (1, 2):
        await client.begin(Fetch((FetchPart(incarnation, 0, 1),)))
    assert [(await client.event()).id, (await client.event()).id] == [1, 2]
    assert steps == [f"{incarnation}.{number}" for incarnation in (1, 2) for number in range(5)]
