"""Every version of every API that is served: a node answers it, with a result and with an error."""

import pytest

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.hot_messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from multiraft.kafka.messages.alter_configs import AlterConfigsRequest
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.messages.create_partitions import CreatePartitionsRequest
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.delete_records import DeleteRecordsRequest
from multiraft.kafka.messages.delete_topics import DeleteTopicsRequest
from multiraft.kafka.messages.describe_acls import DescribeAclsRequest
from multiraft.kafka.messages.describe_cluster import DescribeClusterRequest
from multiraft.kafka.messages.describe_configs import DescribeConfigsRequest
from multiraft.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from multiraft.kafka.messages.find_coordinator import FindCoordinatorRequest
from multiraft.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from multiraft.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.node.harness import batch, in_trio
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka

UNKNOWN_ID = b"?" * 16


def requests(key: ApiKey, version: int, topic_id: bytes) -> list:
    """Return requests of an API in a version: about topic ``t`` and one that does not exist."""
    names = [("t", topic_id), ("other", UNKNOWN_ID)]
    if key is ApiKey.PRODUCE:
        by_id = version >= 13
        return [ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[
            ProduceRequest.TopicProduceData(
                **({"topic_id": identity} if by_id else {"name": name}), partition_data=[
                    ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(b"v")))])
            for name, identity in names])]
    if key is ApiKey.FETCH:
        by_id = version >= 13
        return [FetchRequest(max_wait_ms=10, min_bytes=1, topics=[FetchRequest.FetchTopic(
            **({"topic_id": identity} if by_id else {"topic": name}), partitions=[
                FetchRequest.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=9999)
                for at in (0, 7)]) for name, identity in names])]
    if key is ApiKey.LIST_OFFSETS:
        return [ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(
            name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(
                partition_index=0, timestamp=time) for time in (-1, -2, -3, -4, -5, 0, -9)])
            for name, _ in names])]
    if key is ApiKey.METADATA:
        asked = MetadataRequest.MetadataRequestTopic
        operations = {"include_topic_authorized_operations": True} if version >= 8 else {}
        if 8 <= version <= 10:
            operations["include_cluster_authorized_operations"] = True
        named = [asked(name=name) for name in ("t", "other", "a/b")]
        if version >= 10:
            named += [asked(name=None, topic_id=identity) for _, identity in names]
        return [MetadataRequest(topics=named, **operations),
                MetadataRequest(topics=None if version else [])]
    if key is ApiKey.FIND_COORDINATOR:
        kinds = (0, 1, 5) if version >= 1 else (0,)
        return [FindCoordinatorRequest(
            key_type=kind, **({"coordinator_keys": ["x"]} if version >= 4 else {"key": "x"}))
            for kind in kinds]
    if key in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS):
        return creations(key, version)
    if key is ApiKey.DELETE_TOPICS:
        if version >= 6:
            return [DeleteTopicsRequest(timeout_ms=9_000, topics=[
                DeleteTopicsRequest.DeleteTopicState(name="other"),
                DeleteTopicsRequest.DeleteTopicState(topic_id=UNKNOWN_ID)])]
        return [DeleteTopicsRequest(timeout_ms=9_000, topic_names=["other", "more"])]
    if key is ApiKey.INIT_PRODUCER_ID:
        return [InitProducerIdRequest(transactional_id=name) for name in (None, "x")]
    if key is ApiKey.API_VERSIONS:
        return [ApiVersionsRequest()]
    if key is ApiKey.DESCRIBE_ACLS:
        return [DescribeAclsRequest()]
    if key is ApiKey.DESCRIBE_CLUSTER:
        return [DescribeClusterRequest(include_cluster_authorized_operations=True)]
    if key in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS):
        return partition_requests(key, ["t", "other"])
    kinds = [(2, "t"), (2, "other"), (4, "1"), (9, "x")]
    request, row = {
        ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest,
                                  DescribeConfigsRequest.DescribeConfigsResource),
        ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsRequest.AlterConfigsResource),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsRequest.AlterConfigsResource)}[key]
    return [request(resources=[row(resource_type=kind, resource_name=name)
                               for kind, name in kinds])]


def creations(key: ApiKey, version: int) -> list:
    """Return requests that create topics, or add partitions to some, and that only check it."""
    if key is ApiKey.CREATE_TOPICS:
        new = CreateTopicsRequest.CreatableTopic
        rows = [new(name=name, num_partitions=1, replication_factor=1)
                for name in ("t", f"v{version}", "a/b")]
        return [CreateTopicsRequest(topics=rows, validate_only=dry) for dry in (True, False)]
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    return [CreatePartitionsRequest(timeout_ms=9_000, validate_only=dry, topics=[
        grown(name=name, count=2 + version, assignments=None) for name in ("t", "other")])
        for dry in (True, False)]


def partition_requests(key: ApiKey, names: list[str]) -> list:
    """Return requests of an API that names partitions, the same for all versions."""
    if key is ApiKey.DESCRIBE_LOG_DIRS:
        asked = DescribeLogDirsRequest.DescribableLogDirTopic
        return [DescribeLogDirsRequest(topics=None), DescribeLogDirsRequest(topics=[
            asked(topic=name, partitions=[0, 7]) for name in names])]
    if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
        return [OffsetForLeaderEpochRequest(topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=at, leader_epoch=epoch) for at in (0, 7) for epoch in (-1, 0, 99)])
            for name in names])]
    return [DeleteRecordsRequest(timeout_ms=9_000, topics=[
        DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[
            DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in names])]


SERVED = [0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 29, 32, 33, 35, 37, 44, 60]


@in_trio
@pytest.mark.parametrize("key", [ApiKey(key) for key in SERVED])
async def test_each_version_is_answered(tmp_path, key):
    first, last = APIS[key].served
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        assert key in node.kafka.requests.apis and set(node.kafka.requests.apis) == set(SERVED)
        topic = await client.create("t")
        for version in range(first, last + 1):
            for request in requests(key, version, topic.topic_id):
                assert await client.ask(key, request, version) is not None


def error_codes(message) -> list[int]:
    """Return all error codes in a response."""
    found = []
    for name in dir(message):
        value = getattr(message, name) if not name.startswith("_") else None
        if name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            for each in value:
                found += error_codes(each)
    return found


@in_trio
@pytest.mark.parametrize("key", [ApiKey(key) for key in SERVED])
async def test_each_version_is_refused_while_the_node_stops(tmp_path, key):
    first, last = APIS[key].served
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        node.clients.sessions.stopping = True
        for version in range(first, last + 1):
            for request in requests(key, version, topic.topic_id):
                if key is ApiKey.METADATA and not request.topics:
                    async with await KafkaClient.open(node) as other:
                        with pytest.raises(EOFError):
                            await other.ask(key, request, version)
                    continue
                codes = error_codes(await client.ask(key, request, version))
                # One of the whole response may be 0 where each row has its own.
                assert any(codes) and codes.count(0) <= 1, (version, codes)
        node.clients.sessions.stopping = False
