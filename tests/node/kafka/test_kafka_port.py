"""The port for Kafka's clients, at a real node."""

import pytest
import trio

from multiraft import core
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import FetchRequest, ProduceRequest
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.delete_topics import DeleteTopicsRequest
from multiraft.kafka.messages.find_coordinator import FindCoordinatorRequest
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from multiraft.wire.messages import PARTITIONS_PER_REQUEST_MAX
from tests.node.harness import Client, batch, in_trio, until
from tests.node.kafka.kafka_client import KafkaClient, fetch_request, joined, serving_kafka


@in_trio
async def test_records_are_appended_and_read(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t", 3)
        assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 3, 1)
        results = [await client.produce(topic.topic_id, batch(*[b"v"] * count), acks=acks)
                   for count, acks in ((1, -1), (3, 1), (2, -1))]
        assert [(result.error_code, result.base_offset, result.log_start_offset)
                for result in results] == [(0, 0, 0), (0, 1, 0), (0, 4, 0)]
        read = await client.fetch(topic.topic_id, 0)
        assert (read.error_code, read.high_watermark, read.last_stable_offset) == (0, 6, 6)
        headers, data = [], memoryview(joined(read.records))
        while data:
            headers.append(core.batch_header(data))
            data = data[headers[-1].total_bytes:]
        assert [header.base_offset for header in headers] == [0, 1, 4]


@in_trio
async def test_a_record_appended_without_acks_is_read(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        assert await client.produce(topic.topic_id, batch(b"silent"), acks=0) is None
        read = await client.fetch(topic.topic_id, 0, wait_ms=10_000)
        assert b"silent" in joined(read.records)


@in_trio
async def test_a_failed_append_without_acks_closes_the_connection(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.produce(b"?" * 16, batch(b"v"), acks=0)
        assert await client.stream.receive_some() == b""
        assert node.kafka.connections.closed_by_error == 1


@in_trio
async def test_both_ports_have_the_same_records(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as kafka,
                await Client.open(node) as native):
        incarnation = await native.create("t")
        assert (await native.produce(incarnation, b"native")).base_offset == 0
        topic = (await kafka.metadata("t")).topics[0]
        assert (await kafka.produce(topic.topic_id, batch(b"kafka"))).base_offset == 1
        read = joined((await kafka.fetch(topic.topic_id, 0)).records)
        assert b"native" in read and b"kafka" in read


@in_trio
@pytest.mark.parametrize("change, error", [
    (lambda data: data.__setitem__(slice(16, 17), b"\1"),
     ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (lambda data: data.__setitem__(slice(22, 23), b"\x10"),
     ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (lambda data: data.__setitem__(slice(-1, None), b"?"), ErrorCode.CORRUPT_MESSAGE),
    (lambda data: data.extend(batch(b"second")), ErrorCode.INVALID_RECORD),
    (lambda data: data.clear(), ErrorCode.INVALID_RECORD),
    (lambda data: data.__delitem__(slice(-2, None)), ErrorCode.INVALID_RECORD),
])
async def test_records_that_cannot_be_appended_have_kafkas_error(tmp_path, change, error):
    data = batch(b"v")
    change(data)
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        refused = await client.produce(topic.topic_id, data)
        assert (refused.error_code, refused.base_offset) == (error, -1)
        assert refused.error_message
        assert (await client.produce(topic.topic_id, batch(b"v"))).base_offset == 0


@in_trio
async def test_partitions_that_do_not_exist_are_refused(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        assert (await client.produce(topic.topic_id, batch(b"v"), partition=1)).error_code == 3
        assert (await client.produce(b"?" * 16, batch(b"v"))).error_code == 100
        assert (await client.fetch(topic.topic_id, 0, partition=-1)).error_code == 3
        assert (await client.fetch(b"?" * 16, 0, wait_ms=60_000)).error_code == 100
        assert (await client.offset("other", -1)).error_code == 3


@in_trio
async def test_acks_and_transactions_that_are_unknown_are_refused(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        assert (await client.produce(topic.topic_id, batch(b"v"), acks=2)).error_code == 21
        assert (await client.produce(topic.topic_id, batch(b"v"),
                                     transactional_id="x")).error_code == 53
        coordinator = await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(
            key_type=1, coordinator_keys=["x", "y"]))
        assert [(each.key, each.error_code) for each in coordinator.coordinators] == [
            ("x", 53), ("y", 53)]
        assert "no transactions" in coordinator.coordinators[0].error_message
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID,
                                    InitProducerIdRequest(transactional_id="x"))
        assert identity.error_code == 53
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(
            transactional_id=None, producer_id=-5))
        assert identity.error_code == 42


@in_trio
async def test_an_idempotent_producer_is_granted_an_identity(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID,
                                    InitProducerIdRequest(transactional_id=None))
        assert identity.error_code == 0 and identity.producer_id >= 0
        assert identity.producer_epoch == 0
        topic = await client.create("t")
        builder = core.BatchBuilder(1 << 20)
        assert builder.append(1, None, b"v")
        data = bytes(builder.build(identity.producer_id, 0, 0))
        for _ in range(2):  # the second is a repetition
            assert (await client.produce(topic.topic_id, data)).base_offset == 0


@in_trio
@pytest.mark.parametrize("fields", [
    {"producer_id": 3}, {"producer_epoch": 3}, {"transactional_id": ""}])
async def test_an_identity_is_asked_for_with_id_and_epoch_or_none_of_them(tmp_path, fields):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(
            **{"transactional_id": None, **fields}))
        assert identity.error_code == ErrorCode.INVALID_REQUEST
        assert (identity.producer_id, identity.producer_epoch) == (-1, -1)


def identified(producer: int, epoch: int, sequence: int) -> bytes:
    """Return a batch of an idempotent producer."""
    builder = core.BatchBuilder(1 << 20)
    assert builder.append(1, None, b"v")
    return bytes(builder.build(producer, epoch, sequence))


@in_trio
async def test_an_epoch_that_a_producer_raised_by_itself_is_granted(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        producer = (await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(
            transactional_id=None))).producer_id
        for offset, epoch in enumerate((0, 1, 7)):
            data, results = identified(producer, epoch, 0), []
            with trio.fail_after(10):
                while not results or results[-1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    results.append(await client.produce(topic.topic_id, data))
            assert (results[-1].error_code, results[-1].base_offset) == (0, offset)
            assert (len(results) > 1) == (epoch > 0)
        fenced = await client.produce(topic.topic_id, identified(producer, 6, 0))
        assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert node.metadata.directory.highest_epoch(producer) == 7
        await client.produce(topic.topic_id, identified(producer, 8, 5))
        assert node.metadata.directory.highest_epoch(producer) == 7  # not the first of its epoch


@in_trio
async def test_an_identity_that_was_never_granted_is_refused_with_the_log_start(
        tmp_path, monkeypatch):
    monkeypatch.setattr("node.clients.producer_ids.METADATA_WAIT_S", 0)
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        refused = await client.produce(topic.topic_id, identified(99, 0, 0))
        assert (refused.error_code, refused.log_start_offset) == (
            ErrorCode.UNKNOWN_PRODUCER_ID, 0)


@in_trio
async def test_without_acks_the_other_batches_are_appended_before_the_connection_closes(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        data = bytes(batch(b"v"))
        await client.begin(ApiKey.PRODUCE, ProduceRequest(acks=0, timeout_ms=15_000, topic_data=[
            ProduceRequest.TopicProduceData(topic_id=topic.topic_id, partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=data)
                for index in (0, 1)])]), answered=False)
        assert await client.stream.receive_some() == b""
        async with await KafkaClient.open(node) as other:
            assert b"v" in joined((await other.fetch(topic.topic_id, 0, wait_ms=10_000)).records)


@in_trio
async def test_zstd_is_refused_in_versions_that_do_not_have_it(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        data = batch(b"v")
        data[22] |= 4
        for version, error in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
                               (7, ErrorCode.CORRUPT_MESSAGE)):  # its checksum
            answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(
                acks=-1, timeout_ms=15_000, topic_data=[ProduceRequest.TopicProduceData(
                    name="t", partition_data=[ProduceRequest.PartitionProduceData(
                        index=0, records=bytes(data))])]), version)
            assert answer.responses[0].partition_responses[0].error_code == error


@in_trio
async def test_a_request_that_gives_no_time_is_decided_all_the_same(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        created = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(timeout_ms=0, topics=[
            CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1,
                                               replication_factor=-1)]))
        assert created.topics[0].error_code in (0, ErrorCode.REQUEST_TIMED_OUT)
        await until(lambda: node.metadata.log.state.topic("t") is not None)


@in_trio
async def test_answers_leave_in_the_order_of_requests(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.begin(ApiKey.FETCH, fetch_request(topic.topic_id, 0, wait_ms=60_000))
        await client.begin(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[
            ProduceRequest.TopicProduceData(topic_id=topic.topic_id, partition_data=[
                ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(b"v")))])]))
        fetched = (await client.answer()).responses[0].partitions[0]
        assert b"v" in joined(fetched.records)
        produced = await client.answer()
        assert produced.responses[0].partition_responses[0].base_offset == 0


@in_trio
async def test_a_leader_epoch_that_is_not_the_present_one_is_refused(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        epoch = (await client.metadata("t")).topics[0].partitions[0].leader_epoch
        assert epoch > 0
        assert (await client.fetch(topic.topic_id, 0, epoch=epoch)).error_code == 0
        assert (await client.fetch(topic.topic_id, 0, epoch=epoch - 1)).error_code == 74
        assert (await client.fetch(topic.topic_id, 0, epoch=epoch + 1)).error_code == 75
        assert (await client.offset("t", -1, epoch=epoch - 1)).error_code == 74


@in_trio
async def test_offsets_are_exact_to_the_record(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        for first in (10, 20, 30):
            builder = core.BatchBuilder(1 << 20)
            for at in range(5):
                assert builder.append(first + at, None, b"v")
            await client.produce(topic.topic_id, builder.build())
        assert (await client.offset("t", -2)).offset == 0
        assert (await client.offset("t", -1)).offset == 15
        for time, offset, found in ((0, 0, 10), (12, 2, 12), (15, 5, 20), (33, 13, 33),
                                    (35, -1, -1)):
            result = await client.offset("t", time)
            assert (result.error_code, result.offset, result.timestamp) == (0, offset, found)


@in_trio
async def test_versions_name_the_apis_that_have_a_handler(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        versions = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(
            client_software_name="test", client_software_version="1"))
        assert {each.api_key: each.max_version for each in versions.api_keys} == {
            0: 13, 1: 17, 2: 10, 3: 13, 10: 6, 18: 5, 19: 7, 20: 6, 21: 2, 22: 4, 23: 4, 29: 3,
            32: 4, 33: 2, 35: 4, 37: 3, 44: 1, 60: 2}


@in_trio
async def test_a_client_that_means_another_cluster_or_node_has_to_begin_anew(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        own = node.config.cluster_id.hex()
        for cluster, number, error in (
                (own, 1, 0), (None, -1, 0), (own, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
                ("f" * 32, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
                (own, -1, ErrorCode.INVALID_REQUEST), (None, 1, ErrorCode.INVALID_REQUEST)):
            versions = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(
                cluster_id=cluster, node_id=number))
            assert versions.error_code == error
            assert bool(versions.api_keys) == (not error)


@in_trio
async def test_a_setting_of_a_new_topic_has_a_value(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        setting = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=None)
        refused = await client.create("t", configs=[setting])
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert (await client.metadata()).topics == []


@in_trio
async def test_topics_are_described_and_deleted(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        created = await client.create("t", 2)
        assert {each.name for each in created.configs} >= {"retention.ms", "cleanup.policy"}
        assert (await client.create("t")).error_code == 36
        assert (await client.create("a/b")).error_code == 17
        everything = await client.metadata(include_topic_authorized_operations=True)
        assert [(each.node_id, each.port) for each in everything.brokers] == [
            (1, node.config.kafka.listen_address().port)]
        assert everything.controller_id == 1
        topic, = everything.topics
        assert topic.name == "t" and topic.topic_authorized_operations == 3576
        assert [(each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
                for each in topic.partitions] == [(0, 1, [1], [1]), (1, 1, [1], [1])]
        assert (await client.metadata("other")).topics[0].error_code == 3
        deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=[
            DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=created.topic_id),
            DeleteTopicsRequest.DeleteTopicState(name="other")], timeout_ms=10_000))
        assert [(each.name, each.error_code) for each in deleted.responses] == [
            ("t", 0), ("other", 3)]
        assert (await client.metadata()).topics == []


@in_trio
async def test_topics_that_a_deletion_names_twice_or_in_no_clear_way_stay(tmp_path):
    state = DeleteTopicsRequest.DeleteTopicState
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic_id = (await client.create("t")).topic_id
        for wrong in ([state(name="t"), state(name="t")], [state(name="t", topic_id=topic_id)],
                      [state(name="t"), state(topic_id=topic_id)],
                      [state(topic_id=topic_id), state(topic_id=topic_id)], [state()]):
            deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(
                topics=[*wrong, state(name="other")], timeout_ms=10_000))
            codes = [each.error_code for each in deleted.responses]
            assert codes == [*[ErrorCode.INVALID_REQUEST] * len(wrong), 3]
        assert [each.name for each in (await client.metadata()).topics] == ["t"]
        twice = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(
            topic_names=["t", "t"], timeout_ms=10_000), 5)
        assert [each.error_code for each in twice.responses] == [ErrorCode.INVALID_REQUEST] * 2


@in_trio
async def test_topics_are_created_when_they_are_named_if_the_configuration_says_so(tmp_path):
    kafka = {"auto_create_topics": True, "num_partitions": 4}
    async with serving_kafka(tmp_path, kafka) as node, await KafkaClient.open(node) as client:
        assert (await client.metadata("t", allow_auto_topic_creation=False)).topics[
            0].error_code == 3
        assert (await client.metadata("t")).topics[0].error_code == 5
        topic = (await client.metadata("t")).topics[0]
        assert topic.error_code == 0 and len(topic.partitions) == 4


@in_trio
async def test_a_client_has_no_handshake_to_send_in_time(tmp_path):
    async with (serving_kafka(tmp_path, hello_timeout_ms=50) as node,
                await KafkaClient.open(node) as client):
        with trio.move_on_after(0.3):
            assert await client.stream.receive_some()
        assert (await client.create("t")).error_code == 0


@in_trio
async def test_more_partitions_than_an_answer_has_room_for_are_refused(tmp_path):
    limits = {"metadata_rows_max": 8, "partitions_per_topic_max": 8}
    async with serving_kafka(tmp_path, **limits) as node, await KafkaClient.open(node) as client:
        for name in "ab":
            await client.create(name, 5)
        assert len((await client.metadata("a", "a")).topics) == 1
        both = (await client.metadata("a", "b")).topics
        assert [(each.name, each.error_code) for each in both] == [("a", 44), ("b", 44)]
        with pytest.raises(EOFError):
            await client.metadata()


@in_trio
async def test_metadata_of_all_topics_are_never_empty_because_of_an_error(tmp_path, monkeypatch):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        monkeypatch.setattr("node.clients.request_tasks.ADMIN_REQUESTS_MAX", 0)
        assert (await client.metadata("t")).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(EOFError):
            await client.metadata()


@in_trio
async def test_a_request_that_names_too_many_partitions_closes_the_connection(tmp_path):
    async with serving_kafka(tmp_path) as node:
        for count in (PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX + 1):
            asked = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(
                topic_id=b"?" * 16, partitions=[FetchRequest.FetchPartition(partition=at)
                                                for at in range(count)])])
            async with await KafkaClient.open(node) as client:
                if count > PARTITIONS_PER_REQUEST_MAX:
                    with pytest.raises(EOFError):
                        await client.ask(ApiKey.FETCH, asked)
                else:
                    topic, = (await client.ask(ApiKey.FETCH, asked)).responses
                    assert len(topic.partitions) == count


@in_trio
async def test_connections_from_an_address_count_at_both_ports_together(tmp_path):
    async with (serving_kafka(tmp_path, connections_per_address_max=2) as node,
                await KafkaClient.open(node) as kafka, await Client.open(node) as native):
        await kafka.metadata()
        await native.create("t")
        async with await KafkaClient.open(node) as third:
            assert await third.stream.receive_some() == b""
        address = node.config.node.client_address
        async with await trio.open_tcp_stream(address.host, address.port) as third:
            assert await third.receive_some() == b""
        assert node.status.client_connections.rejected == 2
