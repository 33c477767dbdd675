"""CreatePartitions at a real node: what is added, what is refused, and what clients see then."""

import pytest
import trio

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import MetadataRequest
from multiraft.kafka.messages.create_partitions import CreatePartitionsRequest
from multiraft.wire.errors import AmbiguousOutcome
from node.observability.load_records import TOPIC
from tests.node.harness import batch, in_trio
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka

VERSIONS = range(4)


def grown(name, count, assignments=None):
    return CreatePartitionsRequest.CreatePartitionsTopic(
        name=name, count=count, assignments=None if assignments is None else [
            CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=brokers)
            for brokers in assignments])


async def add(client, *topics, version=3, **fields):
    """Return name -> result."""
    response = await client.ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(
        topics=list(topics), **{"timeout_ms": 15_000, **fields}), version)
    assert response.throttle_time_ms == 0
    assert len({row.name for row in response.results}) == len(response.results)
    return {row.name: row for row in response.results}


async def partitions_of(client, name):
    response = await client.ask(ApiKey.METADATA, MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)]))
    return [row.partition_index for row in response.topics[0].partitions]


@in_trio
@pytest.mark.parametrize("version", VERSIONS)
async def test_partitions_are_added_in_each_version(tmp_path, version):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.create("u")
        checked = await add(client, grown("t", 3), version=version, validate_only=True)
        assert (checked["t"].error_code, checked["t"].error_message) == (0, None)
        assert await partitions_of(client, "t") == [0]
        found = await add(client, grown("t", 3), grown("u", 2), version=version)
        assert {name: row.error_code for name, row in found.items()} == {"t": 0, "u": 0}
        assert await partitions_of(client, "t") == [0, 1, 2]
        for partition in range(3):
            result = await client.produce(topic.topic_id, batch(b"v"), partition=partition)
            assert (result.error_code, result.base_offset) == (0, 0)


@in_trio
@pytest.mark.parametrize("only", [False, True])
async def test_refusals_have_kafka_s_errors_and_change_nothing(tmp_path, only):
    limits = {"partitions_max": 8, "partitions_per_topic_max": 6}
    async with serving_kafka(tmp_path, **limits) as node, await KafkaClient.open(node) as client:
        await client.create("t", 3)
        await client.create("u", 2)
        await client.create(TOPIC)
        version = node.metadata.log.state.version
        for asked, error, says in (
                (grown("t", 3), ErrorCode.INVALID_PARTITIONS, "has 3 partitions"),
                (grown("t", 2), ErrorCode.INVALID_PARTITIONS, "none can be taken away"),
                (grown("t", -1), ErrorCode.INVALID_PARTITIONS, "has 3 partitions"),
                (grown("t", 7), ErrorCode.POLICY_VIOLATION, "partitions_per_topic_max is 6"),
                (grown("t", (1 << 31) - 1), ErrorCode.POLICY_VIOLATION, "partitions_per_topic"),
                (grown("u", 5), ErrorCode.POLICY_VIOLATION, "partitions_max is 8"),
                (grown("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
                (grown("", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
                (grown(TOPIC, 9), ErrorCode.POLICY_VIOLATION, "internal topic"),
                (grown("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "by the cluster"),
                (grown("t", 4, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "by the cluster"),
                (grown("none", 4, [[1]]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none")):
            [row] = (await add(client, asked, validate_only=only)).values()
            assert row.error_code == error and says in row.error_message, row
        assert node.metadata.log.state.version == version


@in_trio
async def test_a_topic_that_a_request_names_twice_stays_as_it_is(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        await client.create("u")
        found = await add(client, grown("t", 2), grown("u", 2), grown("t", 3))
        assert found["t"].error_code == ErrorCode.INVALID_REQUEST
        assert found["u"].error_code == 0
        assert await partitions_of(client, "t") == [0]


@in_trio
async def test_what_is_not_decided_in_time_is_said_to_be_open(tmp_path, monkeypatch):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")

        async def never(request):
            await trio.sleep_forever()

        asker = node.peers.passed_on_requests
        monkeypatch.setattr(asker, "ask", never)
        found = await add(client, grown("t", 2), timeout_ms=1)
        assert found["t"].error_code == ErrorCode.REQUEST_TIMED_OUT

        async def lost(request):
            raise AmbiguousOutcome("lost")

        monkeypatch.setattr(asker, "ask", lost)
        found = await add(client, grown("t", 2))
        assert found["t"].error_code == ErrorCode.REQUEST_TIMED_OUT
