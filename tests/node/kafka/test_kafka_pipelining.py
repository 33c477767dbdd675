"""Requests that a client of Kafka sends ahead: they wait, in bounded memory, and are answered in
order."""

import pytest
import trio
import trio.testing

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import FetchRequest, MetadataRequest
from multiraft.kafka.messages.find_coordinator import FindCoordinatorRequest
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from node.kafka.expected_answers import ALL_TOPICS_BYTES, expected_bytes
from tests.node.harness import Client, batch, in_trio, until
from tests.node.kafka.kafka_client import (
    KafkaClient,
    fetch_request,
    joined,
    request,
    serving_kafka,
)


def the_session(node):
    """Return the session of the only connection."""
    (connection,) = node.kafka.connections.open
    return connection.session


@in_trio
async def test_thousands_of_requests_behind_a_long_poll_are_held_some_at_a_time(tmp_path):
    count, in_flight_max = 3_000, 64
    async with (serving_kafka(tmp_path, requests_in_flight_max=in_flight_max) as node,
                await KafkaClient.open(node) as client, trio.open_nursery() as nursery):
        topic = await client.create("t")
        await client.metadata()
        session = the_session(node)
        one = len(await raw_answer(client))
        most = 0

        async def send() -> None:
            await client.begin(ApiKey.FETCH, fetch_request(topic.topic_id, 0, wait_ms=30_000))
            for _ in range(count):
                await client.begin(ApiKey.METADATA, MetadataRequest(topics=None))

        nursery.start_soon(send)
        await until(lambda: session.stream.in_flight == in_flight_max and session.paused)
        await until(lambda: session.stream.held_bytes == (in_flight_max - 1) * one)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert session.stream.in_flight == in_flight_max, "no more is read"
        async with await KafkaClient.open(node) as other:
            await other.produce(topic.topic_id, batch(b"ends the poll"))
        fetched = (await client.answer()).responses[0].partitions[0]
        assert b"ends the poll" in joined(fetched.records)
        for _ in range(count):
            assert [each.name for each in (await client.answer()).topics] == ["t"]
            most = max(most, session.stream.held_bytes)
        assert most <= (in_flight_max - 1) * one
        assert not node.kafka.connections.closed_by_error
        assert (session.stream.in_flight, session.stream.answer_bytes) == (0, 0)


async def raw_answer(client: KafkaClient) -> bytes:
    """Return an answer with the metadata of all topics as it is on the wire."""
    await client.begin(ApiKey.METADATA, MetadataRequest(topics=None))
    client._sent.pop()
    length = await client._take(4)
    return length + await client._take(int.from_bytes(length))


@in_trio
async def test_the_bytes_of_held_answers_stop_the_reading(tmp_path):
    answer_bytes_max, size, count = 4 << 20, 1 << 20, 40
    async with (serving_kafka(tmp_path, connection_answer_bytes_max=answer_bytes_max) as node,
                await KafkaClient.open(node) as client, trio.open_nursery() as nursery):
        full = await client.create("full")
        awaited = await client.create("awaited")
        await client.produce(full.topic_id, batch(bytes(size)))
        session = the_session(node)

        async def send() -> None:
            await client.begin(ApiKey.FETCH, fetch_request(awaited.topic_id, 0, wait_ms=30_000))
            for _ in range(count):
                await client.begin(ApiKey.FETCH, fetch_request(full.topic_id, 0))

        nursery.start_soon(send)
        await until(lambda: session.paused)
        await trio.testing.wait_all_tasks_blocked(0.05)
        # The long poll alone may return more than the limit: nothing is read behind it.
        assert (session.stream.in_flight, session.stream.held_bytes) == (1, 0)
        async with await KafkaClient.open(node) as other:
            await other.produce(awaited.topic_id, batch(b"v"))
        assert b"v" in joined((await client.answer()).responses[0].partitions[0].records)
        for _ in range(count):
            part = (await client.answer()).responses[0].partitions[0]
            assert len(joined(part.records)) > size
        assert not node.kafka.connections.closed_by_error


@in_trio
async def test_a_client_that_reads_late_is_not_disconnected_for_requests_sent_ahead(tmp_path):
    """All answers together exceed the send buffer, whose limit would end the connection."""
    size, count = 1 << 20, 100
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                trio.open_nursery() as nursery):
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(bytes(size)))
        session, limits = the_session(node), node.config.limits
        assert size * count > limits.connection_send_buffer_bytes_max

        async def send() -> None:
            for _ in range(count):
                await client.begin(ApiKey.FETCH, fetch_request(topic.topic_id, 0))

        nursery.start_soon(send)
        await until(lambda: session.paused and session.is_full)
        await trio.testing.wait_all_tasks_blocked(0.05)
        unread = session.outbox.size + session.stream.answer_bytes
        assert limits.connection_answer_bytes_max < unread
        assert unread < limits.connection_send_buffer_bytes_max
        for _ in range(count):
            assert len(joined((await client.answer()).responses[0].partitions[0].records)) > size
        assert not node.kafka.connections.closed_by_error


@pytest.mark.parametrize("asked, expected", [
    (0, BATCH_BYTES_MAX), (-1, BATCH_BYTES_MAX), (100, BATCH_BYTES_MAX + 100),
    (50 << 20, BATCH_BYTES_MAX + (7 << 20))])
def test_a_fetch_may_return_what_it_asks_for_and_one_more_batch(asked, expected):
    fetch = request(ApiKey.FETCH, FetchRequest(max_bytes=asked, topics=[]))
    assert expected_bytes(7 << 20, fetch) == expected


def test_answers_about_all_topics_are_large():
    assert expected_bytes(1, request(ApiKey.METADATA, MetadataRequest())) == ALL_TOPICS_BYTES
    assert expected_bytes(1, request(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest())) == 0


class Gate:
    """The metadata leader, which answers once it is opened."""

    def __init__(self, node, monkeypatch):
        self.asked = 0
        self.opened = trio.Event()
        real = node.peers.passed_on_requests._requests.ask

        async def held(request):
            self.asked += 1
            await self.opened.wait()
            return await real(request)

        monkeypatch.setattr(node.peers.passed_on_requests._requests, "ask", held)


IDENTITY = InitProducerIdRequest(transactional_id=None)


@in_trio
async def test_one_connection_takes_few_of_the_tasks(tmp_path, monkeypatch):
    tasks_max, count = 4, 20
    async with (serving_kafka(tmp_path, connection_tasks_max=tasks_max) as node,
                await KafkaClient.open(node) as client, await KafkaClient.open(node) as other,
                await Client.open(node) as native):
        gate = Gate(node, monkeypatch)
        await other.metadata()
        for _ in range(count):
            await client.begin(ApiKey.INIT_PRODUCER_ID, IDENTITY)
        await until(lambda: gate.asked == tasks_max)
        await other.begin(ApiKey.INIT_PRODUCER_ID, IDENTITY)
        await until(lambda: gate.asked == tasks_max + 1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert gate.asked == node.kafka.tasks.in_progress == tasks_max + 1
        await native.create("t")  # the other port has tasks of its own
        gate.opened.set()
        found = [(await client.answer()).producer_id for _ in range(count)]
        found.append((await other.answer()).producer_id)
        assert min(found) >= 0 and len(set(found)) == count + 1
        assert node.kafka.tasks.in_progress == 0


@in_trio
async def test_too_many_requests_with_the_metadata_leader_are_refused_to_be_repeated(
        tmp_path, monkeypatch):
    async with (serving_kafka(tmp_path, passed_on_requests_max=1) as node,
                await KafkaClient.open(node) as client, await KafkaClient.open(node) as other):
        gate = Gate(node, monkeypatch)
        await client.begin(ApiKey.INIT_PRODUCER_ID, IDENTITY)
        await until(lambda: gate.asked)
        refused = await other.ask(ApiKey.INIT_PRODUCER_ID, IDENTITY)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await other.create("t")).error_code == ErrorCode.REQUEST_TIMED_OUT
        gate.opened.set()
        assert (await client.answer()).error_code == 0
        assert (await other.create("t")).error_code == 0
