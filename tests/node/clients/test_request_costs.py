"""The cost of requests: counted before the work is done, and the work is done in turns.

Work is counted in rows between two turns of the loop: no test here measures a time.
"""

from __future__ import annotations

import contextlib

import trio

from multiraft.wire.connection import RequestEvent
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    LATEST,
    TIMESTAMP,
    BatchPart,
    ClusterStatus,
    CreateTopic,
    DeleteTopic,
    Fetch,
    FetchPart,
    ListGroups,
    ListOffsets,
    ListTopics,
    Metadata,
    OffsetQuery,
    Produce,
)
from multiraft.wire.nodes import DescribeNode, ListNodes
from multiraft.wire.placements import ExplainPlacement
from node.clients.fetch import WaitingFetch
from tests.node.harness import Client, batch, in_trio, serving, until

WIDE = 2_000
#: Room that was given in the turn before is used beside that of the turn: twice ``turn_rows_max``,
#: each time with the rest of a step.
ROWS_IN_A_TURN_MAX = 2 * (256 + 128)


class Turn(trio.abc.Instrument):
    """A counter of calls of a function between two turns of the loop."""

    def __init__(self, owner, name: str):
        self.most = self.total = self._now = 0
        inner = getattr(owner, name)

        def counted(*args):
            self._now += 1
            self.total += 1
            self.most = max(self.most, self._now)
            return inner(*args)

        setattr(owner, name, counted)

    def after_io_wait(self, _timeout: float) -> None:
        """Begin a turn of the loop."""
        self._now = 0


@contextlib.contextmanager
def counting(owner, name: str):
    """Yield a counter of the calls of ``owner.name`` per turn of the loop."""
    turn = Turn(owner, name)
    trio.lowlevel.add_instrument(turn)
    try:
        yield turn
    finally:
        trio.lowlevel.remove_instrument(turn)


@in_trio
async def test_a_name_that_is_given_many_times_is_answered_once(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        incarnation = await client.create("orders", 3)
        reply = (await client.ask(Metadata(("orders", "none") * 500))).reply
        assert [topic.incarnation for topic in reply.topics] == [incarnation]
        assert reply.missing == ("none",)


@in_trio
async def test_metadata_of_too_many_partitions_are_refused_before_any_row_is_made(tmp_path):
    async with (serving(tmp_path, metadata_rows_max=10_000) as node,
                await Client.open(node) as client):
        names = tuple(f"wide-{number}" for number in range(6))
        for name in names:
            await client.create(name, WIDE)
        with counting(node.core.status, "leader_hint") as turn:
            answer = await client.ask(Metadata(names))
        assert (answer.code, answer.error.limit, answer.error.value) == (
            Code.LIMIT_EXCEEDED, 10_000, 6 * WIDE)
        assert turn.total < 100
        assert len((await client.ask(Metadata(names[:5]))).reply.topics) == 5


@in_trio
async def test_wide_answers_are_made_in_turns_of_few_rows_whoever_asks(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(serving(tmp_path))
        clients = [await stack.enter_async_context(await Client.open(node)) for _ in range(4)]
        await clients[0].create("wide", WIDE)
        for request in (Metadata(("wide",)), ExplainPlacement("wide"), ListTopics(),
                        ClusterStatus(), ListGroups(), ListNodes(), DescribeNode(1)):
            with counting(node.core.status, "leader_hint") as turn:
                for client in clients:
                    for _ in range(3):
                        await client.begin(request)
                for client in clients:
                    for _ in range(3):
                        assert (await client.event()).code == Code.OK
            assert turn.most <= ROWS_IN_A_TURN_MAX, request


async def wide_topic(client: Client) -> list[int]:
    """Return the incarnations of many partitions."""
    first = await client.create("wide", WIDE)
    return list(range(first, first + WIDE))


@in_trio
async def test_data_requests_of_many_partitions_are_looked_at_in_turns(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partitions = await wide_topic(client)
        ends = tuple(OffsetQuery(partition, LATEST) for partition in partitions)
        times = tuple(OffsetQuery(partition, TIMESTAMP, 5) for partition in partitions)
        parts = tuple(FetchPart(partition, 0, 1000) for partition in partitions)
        for request in (ListOffsets(ends), ListOffsets(times), ListOffsets(ends, False),
                        Fetch(parts), Fetch(tuple(part._replace(offset=7) for part in parts))):
            node.metadata.directory._locations.clear()
            with counting(node.metadata.directory, "locate") as turn:
                answer = await client.ask(request)
            assert answer.code == Code.OK and turn.total >= WIDE, request
            assert turn.most <= ROWS_IN_A_TURN_MAX, request


@in_trio
async def test_a_request_of_many_batches_is_proposed_in_turns_with_rounds_in_between(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partitions = await wide_topic(client)
        one = bytes(batch(b"x"))
        rounds = node.driver.rounds.rounds
        with counting(node.core, "propose_batch") as turn:
            answer = await client.ask(
                Produce("commit", 30_000, tuple(BatchPart(partition, len(one))
                                                for partition in partitions)), one * WIDE)
        assert {(row.code, row.base_offset) for row in answer.reply.results} == {(Code.OK, 0)}
        assert turn.total == WIDE and turn.most <= 128
        assert node.driver.rounds.rounds - rounds >= WIDE // 128


@in_trio
async def test_batches_of_two_requests_stay_in_order_though_the_first_takes_turns(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        [partition] = [await client.create("narrow")]
        one = bytes(batch(b"x"))
        for count in (500, 1):
            await client.begin(Produce("commit", 30_000, (BatchPart(partition, len(one)),) * count),
                               one * count)
        replies = [await client.event(), await client.event()]
        offsets = [row.base_offset for answer in sorted(replies) for row in answer.reply.results]
        assert offsets == list(range(501))


@in_trio
async def test_the_long_polls_that_a_commit_wakes_are_looked_at_some_in_a_round(tmp_path):
    polls = 250
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partitions = await wide_topic(client)
        parts = tuple(FetchPart(partition, 0, 1000) for partition in partitions[:100])
        for _ in range(polls):
            await client.begin(Fetch(parts, wait_max_ms=25_000))
        await until(lambda: len(node.reads.fetch_handler._deadlines) == polls)
        async with await Client.open(node) as writer:
            with counting(node.metadata.directory, "locate") as turn:
                await writer.produce(partitions[3], b"x")
                answers = [await client.event() for _ in range(polls)]
        assert all(answer.reply.results[3].length for answer in answers)
        assert turn.total >= 100 * polls and turn.most <= 3 * ROWS_IN_A_TURN_MAX


@in_trio
async def test_what_is_committed_while_a_wide_fetch_is_looked_at_is_not_missed(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partitions = await wide_topic(client)
        steps = node.reads.fetch_handler._process(WaitingFetch(
            Fetch(tuple(FetchPart(partition, 0, 1000) for partition in partitions),
                  wait_max_ms=20_000), Answers(), 0, 1 << 60, 1, 0))
        next(steps)  # the first partition was read, and had nothing
        async with await Client.open(node) as writer:
            await writer.produce(partitions[0], b"x")
        for _ in steps:
            pass
        await until(lambda: Answers.last)
        [reply, _payload] = Answers.last
        assert reply.results[0].length and reply.results[0].high_watermark == 1
        handler = node.reads.fetch_handler
        assert not handler._fetches_in_steps and not handler._committed


class Answers:
    """The reply callback of a fetch that no client sent."""

    last: tuple = ()
    session = None
    is_authorized = True

    def __call__(self, *answer):
        Answers.last = answer


@in_trio
async def test_commands_of_the_metadata_are_applied_a_few_in_a_round(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        ranges: list[int] = []
        apply = node.metadata.log.apply

        def recorded(first: int, last: int) -> None:
            ranges.append(last + 1 - first)
            apply(first, last)

        node.metadata.log.apply = recorded
        for number in range(40):
            await client.begin(CreateTopic(f"topic-{number}"))
        answers = [await client.event() for _ in range(40)]
        assert {answer.code for answer in answers} == {Code.OK}
        assert sum(ranges) == 40 and max(ranges) <= 4


@in_trio
async def test_of_commands_that_place_many_partitions_one_is_under_way(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        under_way: list[int] = []
        propose = node.metadata.log.propose

        async def recorded(command):
            under_way.append(len(node.metadata.log._waiting) + 1)
            return await propose(command)

        node.metadata.log.propose = recorded
        for number in range(5):
            await client.begin(CreateTopic(f"wide-{number}", WIDE))
        for _ in range(5):
            assert (await client.event()).code == Code.OK
        for number in range(5):
            await client.begin(DeleteTopic(f"wide-{number}"))
        for _ in range(5):
            assert (await client.event()).code == Code.OK
        assert under_way == [1] * 10


@in_trio
async def test_nothing_more_is_done_for_a_connection_that_is_gone(tmp_path):
    async with serving(tmp_path) as node:
        async with await Client.open(node) as client:
            await wide_topic(client)
        asked = 200
        with counting(node.core.status, "leader_hint") as turn:
            async with await Client.open(node) as client:
                await client.say(*[buffer for number in range(asked) for buffer in
                                   client.machine.send(RequestEvent(number, Metadata(("wide",))))])
                await until(lambda: turn.total > WIDE)
            await until(lambda: not node.clients.connections.open
                        and not node.admin.requests._tasks.in_progress)
        assert turn.total < asked * WIDE // 2
        assert not node.admin.requests._tasks._scopes
        await until(lambda: not node.env.turns.waiting)


@in_trio
async def test_batches_of_a_request_are_appended_though_its_connection_is_gone(tmp_path):
    async with serving(tmp_path) as node:
        async with await Client.open(node) as client:
            partitions = await wide_topic(client)
            one = bytes(batch(b"x"))
            await client.begin(
                Produce("commit", 30_000, tuple(BatchPart(partition, len(one))
                                                for partition in partitions)), one * WIDE)
            await until(lambda: node.clients.produce_handler.batches)
        await until(lambda: node.clients.produce_handler.batches == WIDE)
        await until(lambda: not node.clients.sessions.budget.bytes)
