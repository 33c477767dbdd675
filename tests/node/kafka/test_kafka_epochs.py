"""Leader epochs and the largest time, asked for in Kafka's protocol at a real node."""

import pytest
import trio

from multiraft import core
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import ListOffsetsRequest
from multiraft.wire.errors import Code
from multiraft.wire.messages import OPS, DeleteRecords, RecordDeletion
from node.clients import read_index
from node.clients.leader_epochs import end_of
from node.earlier_epochs.earlier_reads import EarlierReads
from node.kafka import list_offsets
from tests.node.clients.test_list_offsets import unconfirmed
from tests.node.clients.test_switched_partition import switch
from tests.node.harness import Client, batch, in_trio, until
from tests.node.kafka.kafka_client import KafkaClient, joined, serving_kafka


async def elect(node, name: str) -> int:
    """Have the node lead the partition of a topic in a later term, and return the leader epoch."""
    incarnation = node.metadata.log.state.topic(name).incarnation
    group = node.metadata.directory.locate(incarnation).group
    term = node.core.status.leader_hint(group)[1]
    node.core.resign(group, "a test")
    node.request_round()
    await until(lambda: node.core.status.has_applied_in_term(group)
                and node.core.status.leader_hint(group)[1] > term, "leads again")
    return node.metadata.directory.locate(incarnation).epoch_history[-1].leader_epoch_base + (
        node.core.status.leader_hint(group)[1])


def stamps(records) -> list[tuple[int, int]]:
    """Return (base offset, leader epoch) of batches."""
    found, data = [], memoryview(joined(records))
    while data:
        header = core.batch_header(data)
        found.append((header.base_offset, header.leader_epoch))
        data = data[header.total_bytes:]
    return found


def timed(*times: int) -> bytearray:
    """Return a batch of records with these times."""
    builder = core.BatchBuilder(1 << 20)
    for time in times:
        assert builder.append(time, None, b"v")
    return builder.build()


async def delete(client, partition: int, before: int) -> None:
    """Delete the records of a partition before an offset."""
    answer = await client.ask(DeleteRecords((RecordDeletion(partition, before),), 5_000))
    assert answer.reply.results[0].code == Code.OK


@pytest.mark.parametrize("asked,expected", [
    (-1, (-1, -1)), (0, (0, 10)), (3, (3, 20)), (4, (3, 20)), (5, (5, 40)), (7, (7, 50)),
    (8, (7, 50)), (9, (9, 50)), (10, (-1, -1))])
def test_an_epoch_ends_where_the_next_one_begins(asked, expected):
    assert end_of([(3, 10), (5, 20), (7, 40)], asked, 9, 50) == expected


def test_an_epoch_without_known_batches_ends_at_the_end():
    assert [end_of([], asked, 2, 50) for asked in (0, 2, 3)] == [(0, 50), (2, 50), (-1, -1)]


@in_trio
async def test_epochs_end_where_the_next_leader_began(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        epochs = []
        for count in (2, 3):
            epochs.append(await elect(node, "t"))
            await client.produce(topic.topic_id, batch(*[b"v"] * count))
        idle = await elect(node, "t")
        assert stamps((await client.fetch(topic.topic_id, 0)).records) == [
            (0, epochs[0]), (2, epochs[1])]
        for asked, epoch, end in ((epochs[0], epochs[0], 2), (epochs[1], epochs[1], 5),
                                  (idle, idle, 5), (idle + 1, -1, -1), (0, 0, 0)):
            found = await client.epoch_end("t", asked, idle)
            assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, end)
        assert (await client.epoch_end("t", epochs[0], idle - 1)).error_code == 74
        assert (await client.epoch_end("t", epochs[0], idle + 1)).error_code == 75
        assert (await client.epoch_end("other", 0)).error_code == 3


@in_trio
async def test_offsets_have_the_leader_epoch_of_their_record(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        epochs = []
        for time in (10, 20):
            epochs.append(await elect(node, "t"))
            await client.produce(topic.topic_id, timed(time))
        idle = await elect(node, "t")
        for time, expected in ((-2, epochs[0]), (-4, epochs[0]), (10, epochs[0]), (20, epochs[1]),
                               (-3, epochs[1]), (-1, idle), (-5, -1), (30, -1)):
            assert (await client.offset("t", time)).leader_epoch == expected, time


@in_trio
async def test_no_end_is_named_before_a_majority_confirms_the_leader(tmp_path, monkeypatch):
    monkeypatch.setattr(read_index, "CONFIRM_MS_MAX", 30)
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(b"v"))
        asked = unconfirmed(node)
        found = await client.epoch_end("t", 1)
        assert asked and (found.error_code, found.end_offset) == (6, -1)


@in_trio
async def test_no_epoch_ends_too_early_in_a_partition_that_was_switched(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await Client.open(node) as native):
        topic = await client.create("t")
        incarnation = node.metadata.log.state.topic("t").incarnation
        for _ in range(3):
            await client.produce(topic.topic_id, batch(b"v", b"v"))
            await switch(node, native, incarnation)
        batches = stamps((await client.fetch(topic.topic_id, 0)).records)
        batches += stamps((await client.fetch(topic.topic_id, 2)).records)
        batches += stamps((await client.fetch(topic.topic_id, 4)).records)
        known = dict((epoch, base + 2) for base, epoch in batches)
        assert len(known) == 3
        for epoch, end in known.items():
            found = await client.epoch_end("t", epoch)
            assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, end)
        # Without the replica of the earlier group, the end is later, and never earlier.
        place = node.metadata.directory.locate(incarnation)
        left = {place.group: node.store.partition_states[place.group]}
        epochs = node.kafka.requests._handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH].handle.__self__
        epochs._leader_epochs._partition_states = left
        for epoch, end in known.items():
            found = await client.epoch_end("t", epoch)
            assert found.error_code == 0 and found.end_offset >= end


@in_trio
async def test_the_first_record_with_the_largest_time_is_found(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        empty = await client.offset("t", -3)
        assert (empty.error_code, empty.offset, empty.timestamp) == (0, -1, -1)
        for times in ((10, 5), (7, 40, 40, 3), (40, 9), (1,)):
            await client.produce(topic.topic_id, timed(*times))
        found = await client.offset("t", -3)
        assert (found.error_code, found.offset, found.timestamp) == (0, 3, 40)


@in_trio
async def test_the_largest_time_is_that_of_a_record_that_exists(tmp_path, monkeypatch):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await Client.open(node) as native):
        topic = await client.create("t")
        for times in ((99, 50), (7, 20), (30, 30), (9, 8)):
            await client.produce(topic.topic_id, timed(*times))
        incarnation = node.metadata.log.state.topic("t").incarnation
        for log_start, offset, time in ((1, 1, 50), (2, 4, 30), (5, 5, 30), (6, 6, 9), (8, -1, -1)):
            await delete(native, incarnation, log_start)
            found = await client.offset("t", -3)
            assert (found.error_code, found.offset, found.timestamp) == (0, offset, time)


@in_trio
async def test_the_search_for_the_largest_time_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(list_offsets, "SEARCH_BYTES", 1)  # one batch for each read
    monkeypatch.setattr(list_offsets, "SEARCH_READS_MAX", 2)
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await Client.open(node) as native):
        topic = await client.create("t")
        for time in (99, 7, 20, 30):
            await client.produce(topic.topic_id, timed(time))
        assert (await client.offset("t", -3)).offset == 0
        await delete(native, node.metadata.log.state.topic("t").incarnation, 1)
        found = await client.offset("t", -3)
        assert (found.offset, found.timestamp) == (2, 20)


@in_trio
async def test_numbers_in_place_of_a_time_exist_from_a_version_on(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, timed(5))
        for time, since, offset in ((-1, 1, 1), (-2, 1, 0), (-3, 7, 0), (-4, 8, 0), (-5, 9, -1)):
            for version in range(1, 11):
                response = await client.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(topics=[
                    ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=0, timestamp=time)])]), version)
                found = response.topics[0].partitions[0]
                assert (found.error_code, found.offset) == (
                    (0, offset) if version >= since else (35, -1))
        assert (await client.offset("t", -6)).error_code == 35


@in_trio
async def test_no_largest_time_is_named_while_records_are_lacking(tmp_path, monkeypatch):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, timed(5))
        monkeypatch.setattr(node.store, "is_complete", lambda group: False)
        assert (await client.offset("t", -3)).error_code == 78


async def asked_for_times(client, *times: int, version: int = 10) -> list:
    """Return the results of a ListOffsets of partition 0, one for each time."""
    response = await client.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(topics=[
        ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=time)
            for time in times])]), version)
    return response.topics[0].partitions


@in_trio
@pytest.mark.parametrize("silent, times", [("list_offsets", (5, -3)), ("fetch", (5, 6))])
@pytest.mark.parametrize("version, error", [(10, 78), (4, 5)])
async def test_searches_in_earlier_epochs_end_with_an_error_in_time(
        tmp_path, monkeypatch, silent, times, version, error):
    """No replica of the earlier epoch answers what finds a batch, or what reads it; the last epoch
    is answered, and what the client asks again later."""
    if version < 7:
        times = tuple(abs(time) for time in times)
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await Client.open(node) as native):
        topic = await client.create("t")
        await client.produce(topic.topic_id, timed(5, 9))
        await switch(node, native, node.metadata.log.state.topic("t").incarnation)
        await client.produce(topic.topic_id, timed(7))
        begun, ask = [], EarlierReads._request

        async def request(self, session, node, handler, message):
            if OPS[type(message)] == silent:
                begun.append(message)
                await trio.sleep_forever()
            return await ask(self, session, node, handler, message)

        with monkeypatch.context() as patched:
            patched.setattr(list_offsets, "EARLIER_S_MAX", 0.2)
            patched.setattr(EarlierReads, "_request", request)
            with trio.fail_after(8):
                found = await asked_for_times(client, *times, -1, version=version)
            assert [(each.error_code, each.offset) for each in found] == [
                *[(error, -1)] * len(times), (0, 3)]
            assert len(begun) == 1, "the second search has no time left"
        assert [each.offset for each in await asked_for_times(client, 5, 7, -3)] == [0, 1, 1]
