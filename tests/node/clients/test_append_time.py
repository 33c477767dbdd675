"""LogAppendTime at a real node: the leader's clock in a topic's batches, set while it serves."""

from __future__ import annotations

import pytest

from multiraft.codec import layout
from multiraft.core import (
    BatchBuilder,
    batch_header,
    decode_records,
    stamp_append_time,
    stamp_producer,
    verify_batch,
)
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    TIMESTAMP,
    BatchPart,
    CreateTopic,
    Fetch,
    FetchPart,
    InitProducer,
    ListOffsets,
    OffsetQuery,
    Produce,
)
from multiraft.wire.settings import AlterSettings, SettingChange
from node.clock import wall_ms
from tests.node.harness import Client, batch, in_trio, serving

SENT_MS = 1_700_000_000_000
APPENDED = (("message.timestamp.type", "LogAppendTime"),)


async def create(client: Client, name: str, settings=APPENDED) -> int:
    answer = await client.ask(CreateTopic(name, settings=settings))
    return answer.reply.topic.incarnation


async def set_type(client: Client, topic: str, value: str | None) -> None:
    change = SettingChange("message.timestamp.type", value)
    answer = await client.ask(AlterSettings(topic, (change,)))
    assert answer.code == Code.OK, answer


async def stored(client: Client, partition: int, offset: int) -> bytes:
    """Return the bytes from ``offset`` on as readers get them, batches whole."""
    part = FetchPart(partition, offset, 8 << 20)
    answer = await client.ask(Fetch((part,), 1, 8 << 20, 5_000, "leader"))
    assert answer.reply.results[0].code == Code.OK, answer
    return bytes(answer.reply.payload)


async def times(client: Client, partition: int, offset: int) -> list[int]:
    data = await stored(client, partition, offset)
    return [record.timestamp_ms for record in decode_records(
        verify_batch(data), memoryview(data)[layout.BATCH_HEADER_BYTES:])]


@in_trio
async def test_each_record_has_the_time_at_which_the_leader_appended_it(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        before = wall_ms()
        assert (await client.produce(partition, b"a", b"b")).base_offset == 0
        found = await times(client, partition, 0)
        assert found == [found[0]] * 2 and before <= found[0] <= wall_ms()
        assert batch_header(await stored(client, partition, 0)).max_timestamp_ms == found[0]


@in_trio
async def test_the_reply_has_the_time_of_each_batch_of_such_a_topic(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        node.clients.produce_handler._wall_ms = lambda: 5_000
        stamped, plain = await create(client, "t"), await client.create("u")
        data = batch(b"a")
        request = Produce("commit", 5_000, tuple(
            BatchPart(partition, len(data)) for partition in (plain, stamped, 99)))
        reply = (await client.ask(request, data, data, data)).reply
        assert [result.code for result in reply.results] == [
            Code.OK, Code.OK, Code.UNKNOWN_PARTITION]
        assert reply.log_append_times_ms == (-1, 5_000, -1)
        request = Produce("commit", 5_000, (BatchPart(plain, len(data)),))
        assert (await client.ask(request, data)).reply.log_append_times_ms is None


@in_trio
async def test_a_repetition_is_not_given_the_time_of_its_second_arrival(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        identity = (await client.ask(InitProducer())).reply
        data = batch(b"a")
        stamp_producer(data, identity.producer_id, identity.producer_epoch, 0)
        request = Produce("commit", 5_000, (BatchPart(partition, len(data)),))
        first = (await client.ask(request, data)).reply
        assert first.log_append_times_ms is not None
        again = (await client.ask(request, data)).reply
        assert again.results == first.results and again.log_append_times_ms is None


@in_trio
async def test_other_topics_keep_each_byte_of_their_producers(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await create(client, "t")
        partition = await create(client, "u", settings=())
        await client.produce(partition, b"a")
        assert (await stored(client, partition, 0))[16:] == bytes(batch(b"a"))[16:]


@in_trio
async def test_a_change_holds_for_the_next_append(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, found = await client.create("t"), []
        for offset, (topic, value) in enumerate([("t", "LogAppendTime"), ("t", "CreateTime"),
                                                 ("", "LogAppendTime"), ("t", None), ("", None)]):
            await set_type(client, topic, value)
            await client.produce(partition, b"a")
            found.append((await times(client, partition, offset))[0] > SENT_MS)
        assert found == [True, False, False, True, False]


@in_trio
async def test_the_time_is_that_of_each_append_and_may_fall(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        for offset, clock_ms in enumerate((5_000, 9_000, 7_000)):
            node.clients.produce_handler._wall_ms = lambda now=clock_ms: now
            await client.produce(partition, b"a")
            assert await times(client, partition, offset) == [clock_ms]


@in_trio
async def test_a_time_is_searched_by_the_time_of_the_append(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        for clock_ms in (5_000, 9_000):
            node.clients.produce_handler._wall_ms = lambda now=clock_ms: now
            await client.produce(partition, b"a", b"b")
        found = [(await client.ask(ListOffsets((OffsetQuery(
            partition, TIMESTAMP, time_ms),)))).reply.results[0].offset
            for time_ms in (5_000, 5_001, 9_000, SENT_MS)]
        assert found == [0, 2, 2, -1]


@in_trio
async def test_a_repetition_is_answered_with_the_batch_as_it_was_stored(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        producer, epoch = (await client.ask(InitProducer())).reply

        async def append() -> int:
            builder = BatchBuilder(1 << 20)
            assert builder.append(SENT_MS, None, b"a")
            data = builder.build(producer, epoch, 0)
            request = Produce("commit", 15_000, (BatchPart(partition, len(data)),))
            return (await client.ask(request, data)).reply.results[0].base_offset

        assert await append() == 0
        first = await stored(client, partition, 0)
        node.clients.produce_handler._wall_ms = lambda: 1
        assert await append() == 0
        assert await stored(client, partition, 0) == first


@pytest.mark.parametrize("settings", [APPENDED, ()])
@in_trio
async def test_a_producer_that_stamps_its_own_time_is_refused(tmp_path, settings):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t", settings)
        data = batch(b"a")
        stamp_append_time(data, SENT_MS)
        answer = await client.ask(Produce("commit", 15_000, (BatchPart(partition, len(data)),)),
                                  data)
        assert answer.reply.results[0].code == Code.INVALID_BATCH


@in_trio
async def test_the_largest_batch_is_stamped(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, "t")
        empty = len(batch(b""))
        data = batch(bytes(layout.BATCH_BYTES_MAX - empty - 8))
        answer = await client.ask(Produce("commit", 15_000, (BatchPart(partition, len(data)),)),
                                  data)
        assert answer.reply.results[0].code == Code.OK, (len(data), answer)
        assert (await times(client, partition, 0))[0] > SENT_MS
