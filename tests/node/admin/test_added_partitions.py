"""Requests that add partitions to a topic, at a real node: judged, done once, used, kept."""

from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Fetch,
    FetchPart,
    Metadata,
)
from multiraft.wire.placements import ExplainPlacement
from multiraft.wire.sizes import PartitionSizes
from node.metadata.commands import RegisterNode
from node.observability.load_records import TOPIC
from tests.node.harness import Client, in_trio, serving

NONCE = bytes(range(16))


async def incarnations(client, name):
    [topic] = (await client.ask(Metadata((name,)))).reply.topics
    return [row.incarnation for row in topic.partitions]


@in_trio
async def test_added_partitions_take_records_and_outlive_a_restart(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        first = await client.create("t", 2)
        other = await client.create("u", 2)
        answer = await client.ask(AddPartitions("t", 4))
        assert answer.code == Code.OK
        [*_, third, fourth] = [row.incarnation for row in answer.reply.topic.partitions]
        assert await incarnations(client, "t") == [first, first + 1, other + 2, other + 3]
        assert (await client.produce(fourth, b"new")).base_offset == 0
        assert (await client.produce(other + 1, b"other")).base_offset == 0
        read = (await client.ask(Fetch((FetchPart(fourth, 0, 9_000), FetchPart(third, 0, 9_000)),
                                       wait_max_ms=0))).reply
        assert [(row.code, row.high_watermark) for row in read.results] == [(0, 1), (0, 0)]
        rows = (await client.ask(ExplainPlacement("t", 0, 10))).reply.partitions
        assert [row.incarnation for row in rows] == await incarnations(client, "t")
        assert all(row.epoch_history[0].group == row.hashed_group for row in rows)
        sizes = (await client.ask(PartitionSizes("t", 2, 2))).reply.partitions
        assert [(row.partition, row.end) for row in sizes if row.end] == [(3, 1)]
    async with serving(tmp_path) as node, await Client.open(node) as client:
        assert await incarnations(client, "t") == [first, first + 1, third, fourth]
        assert (await client.produce(fourth, b"again")).base_offset == 1
        assert (await client.ask(DeleteTopic("t"))).code == Code.OK
        assert (await client.produce(fourth, b"gone")).code == Code.UNKNOWN_PARTITION


@in_trio
async def test_a_repetition_adds_nothing_twice(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        for _ in range(2):
            answer = await client.ask(AddPartitions("t", 3, nonce=NONCE))
            assert answer.code == Code.OK and len(answer.reply.topic.partitions) == 3
        answer = await client.ask(AddPartitions("t", 3, nonce=bytes(16)))
        assert answer.code == Code.INVALID_PARTITIONS
        assert node.metadata.log.state.partitions_count == 3


@in_trio
async def test_refusals_say_why_and_change_nothing(tmp_path):
    async with serving(tmp_path, partitions_max=8, partitions_per_topic_max=5) as node, \
            await Client.open(node) as client:
        incarnation = await client.create("t", 3)
        await client.create("u", 2)
        await client.create(TOPIC)
        version = node.metadata.log.state.version
        for request, code, says in (
                (AddPartitions("t", 3), Code.INVALID_PARTITIONS, "has 3 partitions: 3 would not"),
                (AddPartitions("t", 1), Code.INVALID_PARTITIONS, "none can be taken away"),
                (AddPartitions("t", 0), Code.INVALID_PARTITIONS, "0 would not be more"),
                (AddPartitions("t", 6), Code.LIMIT_EXCEEDED, "partitions_per_topic_max is 5"),
                (AddPartitions("u", 5), Code.LIMIT_EXCEEDED, "partitions_max is 8"),
                (AddPartitions("none", 4), Code.UNKNOWN_TOPIC, "'none'"),
                (AddPartitions("t", 4, incarnation + 99), Code.UNKNOWN_TOPIC, "incarnation"),
                (AddPartitions(TOPIC, 4), Code.INVALID_REQUEST, "internal topic")):
            for asked in (request, request._replace(dry_run=True)):
                answer = await client.ask(asked)
                assert answer.code == code and says in answer.error.text, answer
        answer = await client.ask(AddPartitions("t", 4, incarnation, dry_run=True))
        assert answer.code == Code.OK and len(answer.reply.topic.partitions) == 3
        assert node.metadata.log.state.version == version
        assert (await client.ask(AddPartitions("t", 5, incarnation))).code == Code.OK
        assert (await client.ask(AddPartitions("u", 3))).code == Code.LIMIT_EXCEEDED


@in_trio
async def test_a_node_of_an_earlier_release_has_to_be_upgraded_first(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        old = node.metadata.log.state.node(1)._replace(
            id=2, incarnation=5, boot_epoch=1, client_address="h:1", peer_address="h:2",
            version="0.1.0")
        assert (await node.metadata.log.propose(RegisterNode(old, True))).code == Code.OK
        answer = await client.ask(AddPartitions("t", 2))
        assert answer.code == Code.UNSUPPORTED and "upgrade node 2 (0.1.0)" in answer.error.text


async def both(client, *requests):
    """Send requests at a time and return their codes, in their order."""
    numbers = [await client.begin(request) for request in requests]
    codes = {}
    for _ in numbers:
        answer = await client.event()
        codes[answer.id] = answer.code
    return [codes[number] for number in numbers]


@in_trio
async def test_of_two_additions_at_a_time_each_is_judged_by_what_is_there(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t", 2)
        fewer, more = await both(client, AddPartitions("t", 3), AddPartitions("t", 4))
        assert more == Code.OK and fewer in (Code.OK, Code.INVALID_PARTITIONS)
        assert len(await incarnations(client, "t")) == 4
        state = node.metadata.log.state
        state._check()
        assert state.next_incarnation == 5


@in_trio
async def test_creations_and_additions_in_progress_count(tmp_path):
    async with serving(tmp_path, partitions_max=4, partitions_per_topic_max=4) as node, \
            await Client.open(node) as client:
        await client.create("t")
        codes = await both(client, AddPartitions("t", 4), CreateTopic("u"))
        assert sorted(codes) == [Code.OK, Code.LIMIT_EXCEEDED]
