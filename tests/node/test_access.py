"""Permissions: every handler of both ports asks, once for each topic, before it does anything."""

import pytest

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ProduceRequest
from multiraft.kafka.messages.delete_topics import DeleteTopicsRequest
from multiraft.wire import messages as wire
from multiraft.wire.errors import Code
from multiraft.wire.messages import BatchPart, Fetch, FetchPart, Produce
from node.access import ANONYMOUS, Operation, Principal, ResourceKind, authorize, principal_of
from node.admin.permissions import NEEDS
from tests.certificates import Authority
from tests.node.harness import Client, batch, in_trio, serving
from tests.node.kafka.kafka_client import KafkaClient, fetch_request, joined, serving_kafka
from tests.node.kafka.test_kafka_versions import SERVED, error_codes, requests
from tests.wire.test_connection import EXCHANGES
from tests.wire.test_tls import pair

#: Handlers that ask topic by topic.
BY_TOPIC = {wire.Produce, wire.Fetch, wire.ListOffsets, wire.ReportCorruption}
DENIED = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
          ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
          ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
#: What a request for something that does not exist may be answered with, without a permission.
ABSENT = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
          ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION}


class Rules:
    """Access rules that allow nothing, or nothing but some operations, and record what they are
    asked."""

    def __init__(self, node, *allowed: Operation):
        self.asked: list = []
        self._allowed = allowed
        node.clients.sessions.authorize = self

    def __call__(self, principal, operation, kind, name) -> bool:
        assert principal is ANONYMOUS and type(kind) is ResourceKind and type(name) is str
        self.asked.append((operation, kind, name))
        return operation in self._allowed


def test_every_request_of_native_clients_is_in_a_table():
    assert {shape.kind for shape in wire.REQUESTS.values()} == (
        {*NEEDS, wire.CreateTopic} | BY_TOPIC)


def native_requests(incarnation: int) -> list:
    """Return a request of every kind, with its payload; partitions are those of a topic."""
    found = []
    for request, _ in EXCHANGES:
        rows = getattr(request, "partitions", None)
        if type(rows) is tuple:
            request = request._replace(partitions=tuple(
                row._replace(incarnation=incarnation) for row in rows))
        elif hasattr(request, "incarnation") and type(request).__name__ not in (
                "DeleteTopic", "AddPartitions", "AlterSettings", "RecoverGroup"):
            request = request._replace(incarnation=incarnation)
        if request != wire.Metadata():  # nodes are for everyone
            found.append((request, b""))
    data = bytes(batch(b"v"))
    return [*found, (Produce("commit", 9_000, (BatchPart(incarnation, len(data)),)), data),
            (Fetch((FetchPart(incarnation, 0, 99),), wait_max_ms=60_000), b"")]


@in_trio
async def test_native_requests_without_permission_are_refused_and_change_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        incarnation = await client.create("t")
        await client.produce(incarnation, b"before")
        version, rules = node.metadata.log.state.version, Rules(node)
        for request, payload in native_requests(incarnation):
            rules.asked.clear()
            answer = await client.ask(request, *([payload] if payload else ()))
            codes = {answer.code} if answer.code else {
                row.code for row in answer.reply.results}
            assert codes == {Code.NOT_AUTHORIZED}, request
            assert rules.asked, request
        assert node.metadata.log.state.version == version
        node.clients.sessions.authorize = authorize
        assert (await client.produce(incarnation, b"after")).base_offset == 1


@in_trio
@pytest.mark.parametrize("key", [ApiKey(key) for key in SERVED if key != ApiKey.API_VERSIONS])
async def test_requests_of_kafka_without_permission_are_refused_and_change_nothing(tmp_path, key):
    first, last = APIS[key].served
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(b"before"))
        version, rules = node.metadata.log.state.version, Rules(node)
        for number in range(first, last + 1):
            asked = requests(key, number, topic.topic_id)
            if key is ApiKey.DELETE_TOPICS and number >= 6:
                asked.append(DeleteTopicsRequest(timeout_ms=9_000, topics=[
                    DeleteTopicsRequest.DeleteTopicState(topic_id=topic.topic_id)]))
            for request in asked:
                rules.asked.clear()
                answer = await client.ask(key, request, number)
                codes = set(error_codes(answer)) - {0}
                if key is ApiKey.METADATA and not request.topics:
                    assert not answer.topics and rules.asked
                elif key is ApiKey.FIND_COORDINATOR and request.key_type > 1:
                    assert codes == {ErrorCode.INVALID_REQUEST}
                else:
                    assert codes & DENIED and codes <= DENIED | ABSENT, (number, codes)
                    assert rules.asked
        assert node.metadata.log.state.version == version
        node.clients.sessions.authorize = authorize
        produced = await client.produce(topic.topic_id, batch(b"after"))
        assert produced.base_offset == 1


@in_trio
async def test_an_append_without_acks_and_without_permission_closes_the_connection(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        Rules(node)
        await client.produce(topic.topic_id, batch(b"v"), acks=0)
        assert await client.stream.receive_some() == b""


@in_trio
async def test_a_request_asks_once_for_a_topic_whatever_it_names_of_it(tmp_path):
    everything = tuple(Operation)
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await Client.open(node) as native):
        topic = await client.create("t", 3)
        first = (await native.ask(wire.Metadata(("t",)))).reply.topics[0].incarnation
        rules, data = Rules(node, *everything), bytes(batch(b"v", b"w"))
        produced = await native.ask(Produce("commit", 9_000, tuple(
            BatchPart(first + at, len(data)) for at in range(3))), data * 3)
        assert not any(row.code for row in produced.reply.results)
        assert rules.asked == [(Operation.WRITE, ResourceKind.TOPIC, "t")]
        rules.asked.clear()
        await native.ask(Fetch(tuple(FetchPart(first + at, 0, 999) for at in range(3))))
        await native.ask(Fetch((FetchPart(first, 2, 999),), bytes_min=1, wait_max_ms=20))
        assert rules.asked == [(Operation.READ, ResourceKind.TOPIC, "t")] * 2
        rules.asked.clear()
        await client.ask(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[
            ProduceRequest.TopicProduceData(topic_id=topic.topic_id, partition_data=[
                ProduceRequest.PartitionProduceData(index=at, records=data)
                for at in range(3)])]))
        await client.ask(ApiKey.FETCH, fetch_request(topic.topic_id, 0))
        assert rules.asked == [(Operation.WRITE, ResourceKind.TOPIC, "t"),
                               (Operation.READ, ResourceKind.TOPIC, "t")]


@in_trio
async def test_a_time_is_found_with_the_permission_to_describe_only(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(b"v"))
        Rules(node, Operation.DESCRIBE)
        assert (await client.offset("t", 0)).offset == 0
        read = await client.fetch(topic.topic_id, 0, wait_ms=60_000)
        assert read.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not joined(read.records)


@in_trio
async def test_topics_without_permission_are_left_out_of_a_list_of_all(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        for name in ("mine", "other"):
            await client.create(name)
        assert [topic.name for topic in (await client.metadata()).topics] == ["mine", "other"]
        node.clients.sessions.authorize = lambda principal, operation, kind, name: name == "mine"
        assert [topic.name for topic in (await client.metadata()).topics] == ["mine"]


def test_everything_is_allowed_until_there_are_rules():
    assert authorize(ANONYMOUS, Operation.DELETE, ResourceKind.TOPIC, "t") is True


@pytest.mark.parametrize("common_name, dns_names, expected", [
    ("", (), ANONYMOUS), ("ada", ("host",), Principal("ada")),
    ("", ("host", "more"), Principal("host"))])
def test_a_client_with_a_certificate_is_the_user_that_it_names(common_name, dns_names, expected):
    assert principal_of(common_name, dns_names) == expected
    assert str(expected).startswith("User:")


def test_the_names_of_a_certificate_come_from_the_handshake(tmp_path):
    client, server = pair(Authority(tmp_path))
    with client, server:
        found = principal_of(server.peer_common_name, server.peer_names)
        assert found == Principal("node-2.example.org")
