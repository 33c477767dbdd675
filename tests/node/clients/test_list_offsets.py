"""List offsets at a real node: confirmations of leadership, timestamps, metadata that are not
applied yet."""

import trio

from multiraft.core import BatchBuilder
from multiraft.errors import NotLeader, QueueFull
from multiraft.raft.ready import ReadReady
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    TIMESTAMP,
    BatchPart,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
    Produce,
)
from node.clients import read_index
from tests.node.harness import Client, in_trio, serving, until

NO_SUCH = 77


def offsets(*queries: OffsetQuery, linearizable: bool = True) -> ListOffsets:
    return ListOffsets(queries, linearizable)


async def answered(client: Client, request: ListOffsets) -> list[tuple[int, int]]:
    """Return (code, offset) of each result."""
    return [(row.code, row.offset) for row in (await client.ask(request)).reply.results]


async def produce_at(client: Client, topic: int, *stamps: int) -> None:
    """Append one batch of records with these timestamps."""
    builder = BatchBuilder(1 << 20)
    for stamp in stamps:
        assert builder.append(stamp, None, b"x")
    data = builder.build()
    answer = await client.ask(Produce("commit", 5_000, (BatchPart(topic, len(data)),)), data)
    assert answer.reply.results[0].code == Code.OK


def unconfirmed(node) -> list:
    """Let no majority answer this node from now on. Return the list of (group, token) that it
    requests."""
    asked: list = []
    node.core.read_index = lambda group, token: asked.append((group, token))
    return asked


@in_trio
async def test_the_ends_of_a_partition_and_the_batch_of_a_time(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await produce_at(client, topic, 10, 20)
        await produce_at(client, topic, 30, 25)
        for linearizable in (True, False):
            request = offsets(
                OffsetQuery(topic, EARLIEST), OffsetQuery(topic, LATEST),
                *[OffsetQuery(topic, TIMESTAMP, stamp) for stamp in (0, 20, 21, 30, 31)],
                linearizable=linearizable)
            assert await answered(client, request) == [
                (0, 0), (0, 4), (0, 0), (0, 0), (0, 2), (0, 2), (0, -1)]


@in_trio
async def test_nothing_certain_is_said_before_a_majority_confirms(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await produce_at(client, topic, 10)
        asked = unconfirmed(node)
        assert await answered(client, offsets(OffsetQuery(topic, EARLIEST))) == [(0, 0)]
        assert await answered(client, offsets(OffsetQuery(topic, LATEST),
                                              linearizable=False)) == [(0, 1)]
        assert asked == [], "neither of these has to be confirmed"
        await client.begin(offsets(OffsetQuery(topic, LATEST), OffsetQuery(topic, TIMESTAMP, 0)))
        await until(lambda: asked)
        assert len(asked) == 1, "one question for all of a group"
        [(group, token)] = asked
        node.reads.read_index_requests.ready([ReadReady(group, token, 1)])
        node.request_round()
        assert [row.offset for row in (await client.event()).reply.results] == [1, 0]


@in_trio
async def test_a_confirmation_waits_until_what_it_covers_is_applied(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await produce_at(client, topic, 10)
        asked = unconfirmed(node)
        await client.begin(offsets(OffsetQuery(topic, LATEST)))
        await until(lambda: asked)
        [(group, token)] = asked
        applied = node.store.partition_states[group].applied_index
        node.reads.read_index_requests.ready([ReadReady(group, token, applied + 1)])
        assert node.reads.read_index_requests.confirmed == 0
        async with await Client.open(node) as writer:
            await produce_at(writer, topic, 20)
        assert [row.offset for row in (await client.event()).reply.results] == [2]


@in_trio
async def test_a_leader_that_nobody_confirms_says_nothing_certain(tmp_path, monkeypatch):
    monkeypatch.setattr(read_index, "CONFIRM_MS_MAX", 30)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await produce_at(client, topic, 10)
        unconfirmed(node)
        request = offsets(OffsetQuery(topic, LATEST), OffsetQuery(topic, EARLIEST))
        assert await answered(client, request) == [(Code.OFFSET_NOT_AVAILABLE, -1), (0, 0)]
        fetch = Fetch((FetchPart(topic, 9, 1 << 20),), wait_max_ms=10)
        answer = await client.ask(fetch)
        assert answer.reply.results[0].code == Code.OFFSET_NOT_AVAILABLE, (
            "a leader that was replaced while it slept would make the client reset")
        assert (
            not node.reads.read_index_requests.waiting
            and not node.reads.read_index_requests._by_group
        )
        assert node.reads.read_index_requests.earliest_ms == read_index.NEVER_MS


@in_trio
async def test_a_deposed_leader_lets_go_of_those_who_wait(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        asked = unconfirmed(node)
        await client.begin(offsets(OffsetQuery(topic, LATEST)))
        await until(lambda: asked)
        node.reads.read_index_requests.lost(asked[0][0])
        node.request_round()
        [row] = (await client.event()).reply.results
        assert row.code == Code.OFFSET_NOT_AVAILABLE


@in_trio
async def test_what_cannot_be_asked_is_answered_at_once(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for error in (NotLeader(1), QueueFull("pending_reads_max", 1, 2)):
            def refuse(group, token, error=error):
                raise error
            node.core.read_index = refuse
            assert await answered(client, offsets(OffsetQuery(topic, LATEST))) == [
                (Code.OFFSET_NOT_AVAILABLE, -1)]


@in_trio
async def test_a_node_that_is_behind_waits_for_the_metadata_its_client_has_seen(tmp_path,
                                                                               monkeypatch):
    monkeypatch.setattr("node.clients.metadata_wait.METADATA_WAIT_S", 60.0)
    async with (serving(tmp_path) as node, await Client.open(node) as reader,
                await Client.open(node) as writer):
        seen = node.metadata.log.state.version + 1
        first = await writer.create("t")
        ahead = node.metadata.log.state.version + 1
        assert ahead > seen, "the next topic comes with this index"
        await reader.begin(offsets(OffsetQuery(first + 1, LATEST)), seen_index=ahead)
        await reader.begin(Fetch((FetchPart(first + 1, 0, 100),)), seen_index=ahead)
        await until(lambda: node.reads.background.tasks == 2, "both wait")
        assert await writer.create("u") == first + 1
        answers = [await reader.event() for _ in range(2)]
        assert {answer.reply.results[0].code for answer in answers} == {Code.OK}
        assert node.reads.background.tasks == 0


@in_trio
async def test_waiting_for_metadata_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("node.clients.metadata_wait.METADATA_WAIT_S", 0.02)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        ahead = node.metadata.log.state.version + 5
        with trio.fail_after(30):
            answer = await client.ask(offsets(OffsetQuery(NO_SUCH, LATEST)), seen_index=ahead)
        assert answer.reply.results[0].code == Code.STALE_METADATA
