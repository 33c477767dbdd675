"""The limit of a topic's batches at a real node: enforced, changed while the node serves."""

from __future__ import annotations

from multiraft.core import BatchBuilder
from multiraft.wire.errors import Code
from multiraft.wire.messages import BatchPart, CreateTopic, InitProducer, Produce
from multiraft.wire.settings import AlterSettings, SettingChange
from tests.node.harness import Client, batch, in_trio, serving

SMALL, LARGE = bytes(100), bytes(1_000)
LIMIT = 500


async def limit(client: Client, topic: str, value: int | None) -> None:
    change = SettingChange("max.message.bytes", None if value is None else str(value))
    answer = await client.ask(AlterSettings(topic, (change,)))
    assert answer.code == Code.OK, answer


async def codes(client: Client, partition: int) -> list[Code]:
    """Return the outcomes of a small and of a large batch."""
    return [(await client.produce(partition, value)).code for value in (SMALL, LARGE)]


BOTH, ONE = [Code.OK, Code.OK], [Code.OK, Code.BATCH_TOO_LARGE]


@in_trio
async def test_a_batch_over_the_limit_is_refused_with_limit_and_size(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        settings = (("max.message.bytes", str(LIMIT)),)
        created = await client.ask(CreateTopic("t", settings=settings))
        partition = created.reply.topic.incarnation
        refused = await client.produce(partition, LARGE)
        assert refused.code == Code.BATCH_TOO_LARGE
        assert (refused.error.limit, refused.error.value) == (LIMIT, len(batch(LARGE)))
        assert "max.message.bytes=500" in refused.error.text
        assert (await client.produce(partition, SMALL)).base_offset == 0


@in_trio
async def test_the_limit_is_inclusive(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        await limit(client, "t", len(batch(LARGE)))
        assert await codes(client, partition) == BOTH
        await limit(client, "t", len(batch(LARGE)) - 1)
        assert await codes(client, partition) == ONE


@in_trio
async def test_a_change_holds_at_once_for_the_topic_or_for_all(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, other = await client.create("t"), await client.create("u")
        assert await codes(client, partition) == BOTH
        await limit(client, "", LIMIT)
        assert await codes(client, partition) == await codes(client, other) == ONE
        await limit(client, "t", 5_000)
        assert (await codes(client, partition), await codes(client, other)) == (BOTH, ONE)
        await limit(client, "t", None)
        await limit(client, "", None)
        assert await codes(client, partition) == await codes(client, other) == BOTH


@in_trio
async def test_the_default_of_the_cluster_does_not_stop_internal_topics(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("__metrics")
        await limit(client, "", LIMIT)
        assert await codes(client, partition) == BOTH
        await limit(client, "__metrics", LIMIT)
        assert await codes(client, partition) == ONE


@in_trio
async def test_each_batch_of_a_request_is_judged_by_its_own_topic(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partitions = [await client.create("t"), await client.create("u")]
        await limit(client, "t", LIMIT)
        data = [batch(LARGE) for _ in partitions]
        answer = await client.ask(Produce("commit", 15_000, tuple(
            BatchPart(partition, len(each)) for partition, each
            in zip(partitions, data, strict=True))), *data)
        assert [result.code for result in answer.reply.results] == [Code.BATCH_TOO_LARGE, Code.OK]


@in_trio
async def test_a_batch_that_is_in_the_log_is_not_refused_as_if_it_were_not(tmp_path):
    """The answer to it was lost, and then the limit was lowered."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        producer, epoch = (await client.ask(InitProducer())).reply

        async def append(sequence):
            builder = BatchBuilder(1 << 20)
            assert builder.append(1, None, LARGE)
            data = builder.build(producer, epoch, sequence)
            request = Produce("commit", 15_000, (BatchPart(partition, len(data)),))
            return (await client.ask(request, data)).reply.results[0]

        assert (await append(0)).base_offset == 0
        await limit(client, "t", LIMIT)
        repeated = await append(0)
        assert (repeated.code, repeated.base_offset) == (Code.OK, 0)
        assert (await append(1)).code == Code.BATCH_TOO_LARGE
        assert (await append(5)).code == Code.BATCH_TOO_LARGE
