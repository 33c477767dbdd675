"""Metrics of the port for Kafka's clients, as a scrape shows them."""

import re

import pytest

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from node.kafka.port_counts import _ROWS, _WHOLE, REASONS, PortCounts
from node.observability import metrics
from tests.node.harness import batch, in_trio, until
from tests.node.kafka.kafka_client import KafkaClient, fetch_request, serving_kafka
from tests.node.kafka.test_kafka_versions import SERVED, error_codes, requests


async def scraped(node) -> dict[str, float]:
    """Return series of the port -> value, as a scrape shows them."""
    sample = node.status.statistics.sample(await node.admin.group_health.fresh())
    text = metrics.render(node.life, sample, "")[1].decode()
    return {name: float(value) for name, value in re.findall(
        r"^multiraft_kafka_(\S+) (\S+)$", text, re.MULTILINE)}


@in_trio
async def test_a_scrape_shows_what_clients_asked_and_received(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        quiet = await scraped(node)
        assert quiet['requests_total{api="FETCH"}'] == quiet["sent_bytes_total"] == 0
        assert not [name for name in quiet if name.startswith("errors_total")]
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(bytes(100_000)))
        await client.fetch(topic.topic_id, 0)
        for _ in range(2):
            assert (await client.offset("other", -1)).error_code == 3
        assert (await client.create("t")).error_code == 36
        found = await scraped(node)
        assert {name: found[f'requests_total{{api="{name}"}}'] for name in (
            "PRODUCE", "FETCH", "LIST_OFFSETS", "CREATE_TOPICS", "METADATA")} == {
            "PRODUCE": 1, "FETCH": 1, "LIST_OFFSETS": 2, "CREATE_TOPICS": 2, "METADATA": 0}
        assert {name: count for name, count in found.items() if name.startswith("errors_")} == {
            'errors_total{error="UNKNOWN_TOPIC_OR_PARTITION"}': 2,
            'errors_total{error="TOPIC_ALREADY_EXISTS"}': 1}
        assert 100_000 < found["received_bytes_total"] < 110_000
        assert 100_000 < found["sent_bytes_total"] < 110_000
        assert (found["connections"], found["connections_accepted_total"]) == (1, 1)


@in_trio
async def test_a_scrape_shows_the_answers_that_wait(tmp_path):
    async with (serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client,
                await KafkaClient.open(node) as other):
        topic = await client.create("t")
        await client.begin(ApiKey.FETCH, fetch_request(topic.topic_id, 0, wait_ms=60_000))
        for _ in range(3):
            await client.begin(ApiKey.API_VERSIONS, ApiVersionsRequest())
        await until(lambda: sum(
            connection.session.stream.held for connection in node.kafka.connections.open) == 3)
        found = await scraped(node)
        assert found["held_answers"] == 3 and found["held_bytes"] > 100
        await other.produce(topic.topic_id, batch(b"v"))
        for _ in range(4):
            await client.answer()
        found = await scraped(node)
        assert (found["held_answers"], found["held_bytes"], found["connections"]) == (0, 0, 2)
        assert found["requests_waiting"] == found["requests_passed_on"] == 0


@in_trio
@pytest.mark.parametrize("data, reason", [
    (b"\x00\x00\x00\x0a\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff", "unsupported"),
    (b"\x00\x00\x00\x0a\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff", "unsupported"),
    (b"\x00\x00\x00\x09\x00\x03\x00\x0d\x00\x00\x00\x01\xff", "malformed"),
    (b"\xff\xff\xff\xff", "malformed"),
])
async def test_a_scrape_shows_why_connections_were_closed(tmp_path, data, reason):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.stream.send_all(data)
        assert await client.stream.receive_some() == b""
        await until(lambda: node.kafka.connections.closed_by_error == 1)
        found = await scraped(node)
        assert {name: found[f'connections_closed_total{{reason="{name}"}}']
                for name in (*REASONS, "other")} == {
            **dict.fromkeys((*REASONS, "other"), 0), reason: 1}


@in_trio
async def test_a_failed_append_without_acks_closes_for_another_reason(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.produce(b"?" * 16, batch(b"v"), acks=0)
        assert await client.stream.receive_some() == b""
        await until(lambda: node.kafka.connections.closed_by_error == 1)
        assert (await scraped(node))['connections_closed_total{reason="other"}'] == 1


@in_trio
@pytest.mark.parametrize("key", [ApiKey(key) for key in SERVED])
async def test_errors_of_every_api_are_counted_wherever_a_response_has_them(tmp_path, key):
    first, last = APIS[key].served
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        node.clients.sessions.stopping = True
        for version in (first, last):
            for request in requests(key, version, topic.topic_id):
                if key is ApiKey.METADATA and not request.topics:
                    continue  # closes the connection
                counts = node.kafka.requests.counts
                counts.errors.clear()
                found = [code for code in error_codes(await client.ask(key, request, version))
                         if code]
                if key is ApiKey.DESCRIBE_LOG_DIRS and version == last:
                    found.remove(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the response repeats it
                assert sum(counts.errors.values()) == len(found) > 0, (version, found)
        node.clients.sessions.stopping = False


def test_every_api_has_its_places_for_errors():
    assert set(SERVED) == {*_ROWS, *_WHOLE}


def test_an_unknown_version_of_a_request_counts_as_an_error():
    counts = PortCounts()
    counts.answered(ApiKey.API_VERSIONS, None, 10)
    assert counts.errors == {ErrorCode.UNSUPPORTED_VERSION: 1} and counts.sent_bytes == 10
