"""Records without a key for a topic with compaction, from clients of Kafka."""

from __future__ import annotations

import pytest

from multiraft.codec import layout
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ProduceRequest
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from multiraft.wire.messages import KEYLESS_NAMED_MAX
from tests.node.clients.test_key_checks import Gate, batch_of, slow
from tests.node.harness import in_trio, until
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka

#: First versions with errors of single records, and with ids of topics.
RECORD_ERRORS_SINCE, IDS_SINCE = 8, 13


async def create(client: KafkaClient, name: str = "t", **settings: str):
    config = CreateTopicsRequest.CreatableTopicConfig
    made = await client.create(name, configs=[
        config(name=key.replace("_", "."), value=value)
        for key, value in {"cleanup_policy": "compact", **settings}.items()])
    assert not made.error_code, made
    return made


def appends(topic, *batches: bytes, version: int = 13) -> ProduceRequest:
    """Return a request with a batch for partition 0, 1, ... of a topic."""
    named = {"topic_id": topic.topic_id} if version >= IDS_SINCE else {"name": topic.name}
    return ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[
        ProduceRequest.TopicProduceData(**named, partition_data=[
            ProduceRequest.PartitionProduceData(index=index, records=bytes(data))
            for index, data in enumerate(batches)])])


async def produced(client: KafkaClient, topic, data: bytes, version: int = 13):
    answer = await client.ask(ApiKey.PRODUCE, appends(topic, data, version=version), version)
    return answer.responses[0].partition_responses[0]


@in_trio
@pytest.mark.parametrize("version, make", [
    (3, batch_of), (7, slow), (8, batch_of), (8, slow), (12, slow), (13, batch_of), (13, slow)])
async def test_a_record_without_a_key_is_named_in_the_error_of_its_batch(tmp_path, version, make):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await create(client)
        refused = await produced(client, topic, make(b"a", None, b"", None), version)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        if version >= RECORD_ERRORS_SINCE:
            assert [each.batch_index for each in refused.record_errors] == [1, 3]
            assert {"without a key" in each.batch_index_error_message
                    for each in refused.record_errors} == {True}
            assert "2 of 4 records have no key" in refused.error_message
        taken = await produced(client, topic, make(b"a", b""), version)
        assert (taken.error_code, taken.base_offset, taken.record_errors) == (0, 0, [])


@in_trio
async def test_the_errors_of_records_are_those_of_their_partition_and_bounded(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        made = await client.create("t", 3, configs=[CreateTopicsRequest.CreatableTopicConfig(
            name="cleanup.policy", value="compact,delete")])
        answer = await client.ask(ApiKey.PRODUCE, appends(
            made, batch_of(b"k"), batch_of(*[None] * 50), slow(b"k", None)))
        parts = answer.responses[0].partition_responses
        assert [part.error_code for part in parts] == [0, 87, 87]
        assert [[each.batch_index for each in part.record_errors] for part in parts] == [
            [], [*range(KEYLESS_NAMED_MAX)], [1]]


@in_trio
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_what_cannot_be_read_or_is_too_large_has_an_error_that_ends_repetitions(tmp_path,
                                                                                      codec):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await create(client, max_message_bytes="5000")
        refused = await produced(client, topic, batch_of(b"k", codec=codec, block=b"wrong" * 9))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert "cannot be read" in refused.error_message
        refused = await produced(client, topic, batch_of(b"k", codec=codec, value=bytes(90_000)))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "the limit is 80000" in refused.error_message


@in_trio
async def test_an_append_without_acks_closes_the_connection(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await create(client)
        await client.produce(topic.topic_id, slow(None), acks=0)
        assert await client.stream.receive_some() == b""


@in_trio
async def test_batches_of_an_idempotent_producer_keep_their_order_and_sequences(tmp_path,
                                                                               monkeypatch):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic, gate = await create(client), Gate(node, monkeypatch)
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(
            transactional_id=None))
        producer = identity.producer_id, identity.producer_epoch
        makes = (slow, batch_of, batch_of, slow, batch_of)
        for sequence, make in enumerate(makes):
            await client.begin(ApiKey.PRODUCE, appends(
                topic, make(b"k", producer=(*producer, sequence))))
        await until(lambda: node.clients.produce_handler._key_checks.count == len(makes))
        gate.opened.set()
        for offset in range(len(makes)):
            part = (await client.answer()).responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (0, offset)
        for make in (batch_of, slow):  # a refused batch takes no sequence
            bad = make(None, producer=(*producer, len(makes)))
            assert (await produced(client, topic, bad)).error_code == ErrorCode.INVALID_RECORD
        good = batch_of(b"k", producer=(*producer, len(makes)))
        assert (await produced(client, topic, good)).base_offset == len(makes)


@in_trio
async def test_a_transactional_bit_is_refused_before_keys_are_looked_at(tmp_path):
    data = batch_of(None)
    data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.ATTRIBUTE_TRANSACTIONAL
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await create(client)
        assert (await produced(client, topic, data)).error_code == (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
