"""Records that were staged in transactions, as Kafka's clients read them."""

import secrets

import pytest
import trio

from multiraft import core
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import ListOffsetsRequest
from multiraft.wire.messages import DeleteRecords, RecordDeletion
from multiraft.wire.sinks import AbortTransaction, BeginTransaction, CommitTransaction, TopicEnds
from node.kafka import list_offsets
from node.kafka.staged_records import StagedRecords
from tests.node.clients.test_staged_batches import append, opened, staged
from tests.node.harness import Client, batch, in_trio
from tests.node.kafka.kafka_client import KafkaClient, joined, serving_kafka


def headers(records) -> list[core.BatchHeader]:
    """Return the headers of the batches of a response."""
    found, data = [], memoryview(joined(records))
    while data:
        found.append(core.batch_header(data))
        data = data[found[-1].total_bytes:]
    return found


@in_trio
async def test_records_of_an_open_transaction_are_read_once_it_is_committed(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        topic = (await kafka.metadata("t")).topics[0]
        sink, txn = await opened(native)
        assert (await native.produce(incarnation, b"before")).base_offset == 0
        assert (await append(native, incarnation, staged(sink, txn))).base_offset == 1
        assert (await native.produce(incarnation, b"behind")).base_offset == 2
        read = await kafka.fetch(topic.topic_id, 0)
        assert [header.base_offset for header in headers(read.records)] == [0]
        assert (read.high_watermark, read.last_stable_offset) == (3, 1)
        read = await kafka.fetch(topic.topic_id, 1)
        assert (read.error_code, joined(read.records), read.last_stable_offset) == (0, b"", 1)
        results = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll, kafka, topic.topic_id, 1, results)
            await native.ask(CommitTransaction(sink, txn, 0))
        assert [header.base_offset for header in headers(results[0].records)] == [1, 2]
        assert results[0].last_stable_offset == 3


async def poll(client: KafkaClient, topic_id: bytes, offset: int, results: list) -> None:
    """Fetch until there are records, and add the result to ``results``."""
    with trio.fail_after(10):
        while True:
            read = await client.fetch(topic_id, offset, wait_ms=60_000)
            if read.records:
                results.append(read)
                return


@in_trio
async def test_records_of_a_void_transaction_are_left_out(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        topic = (await kafka.metadata("t")).topics[0]
        sink, txn = await opened(native)
        for at in range(3):
            assert (await append(native, incarnation, staged(sink, txn, at))).base_offset == at
        await native.ask(AbortTransaction(sink, txn))
        read = await kafka.fetch(topic.topic_id, 1)
        standing, = headers(read.records)  # moves the reader behind what was left out
        assert (standing.base_offset, standing.last_offset_delta, standing.count) == (1, 1, 0)
        core.verify_batch(joined(read.records))
        assert read.last_stable_offset == read.high_watermark == 3
        await native.produce(incarnation, b"behind")
        read = await kafka.fetch(topic.topic_id, 0)
        assert [header.base_offset for header in headers(read.records)] == [3]


@in_trio
async def test_the_attempt_that_counts_is_read(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        topic = (await kafka.metadata("t")).topics[0]
        sink, txn = await opened(native)
        await append(native, incarnation, staged(sink, txn, value=b"first"))
        await append(native, incarnation, staged(sink, txn, value=b"other", attempt=1))
        await native.ask(CommitTransaction(sink, txn, 0, ((0, 1),)))
        read = joined((await kafka.fetch(topic.topic_id, 0)).records)
        assert b"other" in read and b"first" not in read


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 3), (2, 4)])
@pytest.mark.parametrize("plan, expected, open_at", [
    ("pcv", "pc", -1), ("vvp", "p", -1), ("pop", "p", 1), ("vo", "0", 1), ("o", "", 0),
    ("vvv", "0", -1), ("cvcvp", "ccp", -1), ("pvoc", "p", 2),
])
def test_batches_are_judged_wherever_buffers_are_cut(monkeypatch, cuts, plan, expected, open_at):
    numbers = {"c": 1, "v": 2, "o": 3}
    verdicts = {1: True, 2: False, 3: None}
    monkeypatch.setattr(StagedRecords, "_verdict",
                        lambda self, header: verdicts[header.producer_epoch])
    batches = []
    for at, kind in enumerate(plan):
        data = batch(kind.encode()) if kind == "p" else staged(1, numbers[kind])
        core.stamp_batch(data, at, 7)
        batches.append(bytes(data))
    bounds = [0, *(cut for cut in cuts if cut < len(batches)), len(batches)]
    buffers = [b"".join(batches[a:b]) for a, b in zip(bounds, bounds[1:])]
    visible = StagedRecords(None).visible(buffers, core.staged_batches(buffers))
    found = headers(visible.buffers)
    kinds = "".join("0" if not header.count else plan[header.base_offset] for header in found)
    assert (kinds, visible.open_offset) == (expected, open_at)
    assert all(len(buffer) for buffer in visible.buffers)


async def began(client: Client, incarnation: int, *offsets: int) -> tuple[int, int]:
    """Return (sink, transaction) of a transaction that names a topic and the ends of its
    partitions."""
    reply = (await client.ask(BeginTransaction(
        "s", 0, secrets.token_bytes(16), (TopicEnds(incarnation, offsets),)))).reply
    return reply.sink, reply.transaction


async def end(client: KafkaClient, isolation: int) -> int:
    """Return the end of partition 0 of topic ``t`` at an isolation level."""
    request = ListOffsetsRequest
    found = (await client.ask(ApiKey.LIST_OFFSETS, request(
        isolation_level=isolation, topics=[request.ListOffsetsTopic(name="t", partitions=[
            request.ListOffsetsPartition(partition_index=0, timestamp=-1)])])))
    part = found.topics[0].partitions[0]
    assert part.error_code == 0
    return part.offset


@in_trio
@pytest.mark.parametrize("decision, after", [(CommitTransaction, 4), (AbortTransaction, 4)])
async def test_the_end_is_where_a_fetch_stops(tmp_path, decision, after):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        topic = (await kafka.metadata("t")).topics[0]
        await native.produce(incarnation, b"before")
        sink, txn = await began(native, incarnation, 1)
        assert (await end(kafka, 1), await end(kafka, 0)) == (1, 1), "nothing is staged yet"
        await native.produce(incarnation, b"between")
        assert (await end(kafka, 1), await end(kafka, 0)) == (2, 2)
        assert (await append(native, incarnation, staged(sink, txn))).base_offset == 2
        await native.produce(incarnation, b"behind")
        read = await kafka.fetch(topic.topic_id, 0)
        assert (await end(kafka, 1), await end(kafka, 0)) == (2, 4)
        assert read.last_stable_offset == await end(kafka, 1)
        await native.ask(decision(sink, txn, 0) if decision is CommitTransaction
                         else decision(sink, txn))
        assert (await end(kafka, 1), await end(kafka, 0)) == (after, after)


@in_trio
async def test_the_search_for_the_last_stable_offset_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(list_offsets, "SEARCH_BYTES", 1)  # a batch for each read
    monkeypatch.setattr(list_offsets, "SEARCH_READS_MAX", 2)
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        sink, txn = await began(native, incarnation, 0)
        for _ in range(3):
            await native.produce(incarnation, b"v")
        assert await end(kafka, 1) == 2, "what was read is stable; the rest is not known"
        await append(native, incarnation, staged(sink, txn))
        assert await end(kafka, 1) == 2
        monkeypatch.setattr(list_offsets, "SEARCH_READS_MAX", 9)
        assert await end(kafka, 1) == 3


@in_trio
async def test_deleted_records_are_not_searched(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        sink, txn = await began(native, incarnation, 0)
        assert (await append(native, incarnation, staged(sink, txn))).base_offset == 0
        await native.produce(incarnation, b"kept")
        assert await end(kafka, 1) == 0
        await native.ask(DeleteRecords((RecordDeletion(incarnation, 1),), 9_000))
        assert await end(kafka, 1) == 2
