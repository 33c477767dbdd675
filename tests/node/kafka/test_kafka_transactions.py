"""Records that were staged in transactions, as Kafka's clients read them."""

import secrets

import pytest
import trio

from multiraft import core
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ListOffsetsRequest
from multiraft.wire.messages import DeleteRecords, RecordDeletion
from multiraft.wire.sinks import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    TopicEnds,
    producer_identity,
)
from node.kafka import list_offsets
from node.kafka.staged_records import StagedRecords
from tests.node.clients.test_staged_batches import append, opened, staged
from tests.node.harness import Client, batch, in_trio
from tests.node.kafka.kafka_client import KafkaClient, joined, serving_kafka
from tests.node.kafka.test_kafka_epochs import timed


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


async def asked(client: KafkaClient, isolation: int, *times: int) -> list:
    """Return the results for partition 0 of topic ``t`` at an isolation level, one for each
    time."""
    request = ListOffsetsRequest
    found = (await client.ask(ApiKey.LIST_OFFSETS, request(
        isolation_level=isolation, topics=[request.ListOffsetsTopic(name="t", partitions=[
            request.ListOffsetsPartition(partition_index=0, timestamp=time) for time in times])])))
    results = found.topics[0].partitions
    assert [result.error_code for result in results] == [0] * len(times)
    return results


async def end(client: KafkaClient, isolation: int) -> int:
    """Return the end of partition 0 of topic ``t`` at an isolation level."""
    result, = await asked(client, isolation, -1)
    return result.offset


async def of_times(client: KafkaClient, isolation: int, *times: int) -> list[tuple[int, int]]:
    """Return offset and time of what is found for each time."""
    return [(result.offset, result.timestamp)
            for result in await asked(client, isolation, *times)]


def staged_at(time_ms: int, sink: int, txn: int, sequence: int = 0) -> bytearray:
    """Return a staged batch with a record of this time."""
    data = timed(time_ms)
    data[22] |= 0x10
    core.stamp_producer(data, *producer_identity(sink, txn, 0, 0), sequence)
    return data


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


NONE = (-1, -1)


@in_trio
@pytest.mark.parametrize("decision", [CommitTransaction, AbortTransaction])
async def test_a_time_finds_no_record_behind_the_last_stable_offset(tmp_path, decision):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        await append(native, incarnation, timed(10))
        sink, txn = await began(native, incarnation, 1)
        await append(native, incarnation, timed(20))
        times = (5, 11, 21, 31, -3)
        unstaged = [(0, 10), (1, 20), NONE, NONE, (1, 20)]
        assert await of_times(kafka, 1, *times) == unstaged, "nothing is staged yet"
        assert (await append(native, incarnation, staged_at(30, sink, txn))).base_offset == 2
        await append(native, incarnation, timed(40))
        every = [(0, 10), (1, 20), (2, 30), (3, 40), (3, 40)]
        assert await of_times(kafka, 0, *times) == every
        assert await of_times(kafka, 1, *times) == [(0, 10), (1, 20), NONE, NONE, NONE]
        left_out = (await asked(kafka, 1, 21))[0]
        assert left_out.leader_epoch == -1
        assert [found.offset for found in await asked(kafka, 1, -2, -4, -1)] == [0, 0, 2]
        await native.ask(decision(sink, txn, 0) if decision is CommitTransaction
                         else decision(sink, txn))
        assert await of_times(kafka, 1, *times) == every


@in_trio
async def test_the_begin_is_named_though_it_is_not_stable(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        sink, txn = await began(native, incarnation, 0)
        await append(native, incarnation, staged_at(10, sink, txn))
        assert [found.offset for found in await asked(kafka, 1, -2, -4, -1, 0)] == [0, 0, 0, -1]


@in_trio
@pytest.mark.parametrize("time, expected", [(-1, 1), (15, -1), (5, 0)])
async def test_a_transaction_that_is_opened_during_a_request_is_not_missed(
        tmp_path, monkeypatch, time, expected):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        await append(native, incarnation, timed(10))
        look_up = list_offsets.OffsetRequests._look_up

        async def opened_before(self, *arguments):
            sink, txn = await began(native, incarnation, 1)
            await append(native, incarnation, staged_at(20, sink, txn))
            await look_up(self, *arguments)

        monkeypatch.setattr(list_offsets.OffsetRequests, "_look_up", opened_before)
        assert (await asked(kafka, 1, time))[0].offset == expected


@in_trio
async def test_a_record_further_than_the_search_goes_is_not_named(tmp_path, monkeypatch):
    monkeypatch.setattr(list_offsets, "SEARCH_BYTES", 1)  # a batch for each read
    monkeypatch.setattr(list_offsets, "SEARCH_READS_MAX", 2)
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        await began(native, incarnation, 0)
        for time in (10, 20, 30):
            await append(native, incarnation, timed(time))
        assert await end(kafka, 1) == 2
        assert await of_times(kafka, 1, 10, 20, 30) == [(0, 10), (1, 20), NONE]
        assert await of_times(kafka, 0, 10, 20, 30) == [(0, 10), (1, 20), (2, 30)]


@in_trio
async def test_an_error_while_looking_for_open_transactions_names_no_record(
        tmp_path, monkeypatch):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        await began(native, incarnation, 0)
        await append(native, incarnation, timed(10))

        async def refused(self, *arguments):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER

        monkeypatch.setattr(list_offsets.OffsetRequests, "_last_stable", refused)
        for time in (5, -3, -1):
            response = await kafka.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(
                isolation_level=1, topics=[ListOffsetsRequest.ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=0, timestamp=time)])]))
            found = response.topics[0].partitions[0]
            assert (found.error_code, found.offset, found.timestamp) == (6, -1, -1)
