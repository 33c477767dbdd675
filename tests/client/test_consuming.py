"""What a consumer sees, through both drivers, against nodes that follow a script."""

from __future__ import annotations

import pytest

from multiraft.client import Record
from multiraft.errors import ConfigError, CorruptBatch
from multiraft.wire import errors, messages
from tests.client.scripts import once, values_of


def fill(client, name="a", partitions=1, count=100, batch_bytes=300) -> list[bytes]:
    client.create_topic(name, partitions=partitions)
    values = [b"%04d" % number for number in range(count)]
    with client.producer(batch_bytes=batch_bytes) as producer:
        producer.send_many(name, values)
    return values


def test_until_end_reads_everything_once(client, cluster):
    values = fill(client, partitions=3)
    read = values_of(client.consume("a", until_end=True))
    assert sorted(read) == values


def test_an_empty_topic_ends_at_once(client):
    client.create_topic("a")
    assert list(client.consume("a", until_end=True)) == []


def test_an_offset_inside_a_batch_starts_there(client, cluster):
    values = fill(client)
    assert cluster.topics["a"][0].log[1][0] > 5, "offset 5 is inside the first batch"
    batches = list(client.consume("a", 0, 5, until_end=True))
    assert batches[0].base_offset == 5
    assert values_of(batches) == values[5:]


def test_latest_starts_after_what_is_there(client, cluster):
    fill(client, count=10)
    consumer = client.consume("a", 0, "latest")
    with client.producer() as producer:
        consumer_batches = iter(consumer)
        while consumer.position(0) is None:
            client.list_topics()
        producer.send_nowait(Record("a", b"new")).wait()
    assert next(consumer_batches).records()[0].offset == 10
    assert consumer.position(0) == 11


def test_a_follower_waits_for_new_records(client, cluster):
    fill(client, count=3)
    consumer = client.consume("a", wait_max_ms=50)
    assert next(consumer).count == 3
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"4th")).wait()
    assert next(consumer).records()[0].value == b"4th"
    consumer.close()


def test_an_offset_out_of_range_is_an_error_with_the_range(client, cluster):
    fill(client, count=10)
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        list(client.consume("a", 0, 11, until_end=False))
    assert caught.value.detail.end_offset == 10


def test_earliest_follows_a_log_start_that_moved_meanwhile(client, cluster):
    values = fill(client)
    part = cluster.topics["a"][0]

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch):
            part.start_offset, cluster.script = part.log[1][0], None
        return None

    cluster.script = script
    assert values_of(client.consume("a", until_end=True)) == values[part.log[1][0]:]


def test_a_consumer_follows_a_leader_change(client, cluster):
    values = fill(client, count=400)
    part = cluster.topics["a"][0]
    fetched = []

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch):
            fetched.append(node)
            if len(fetched) == 2:
                cluster.leaders[part.group] = part.group % 3 + 1
        return None

    cluster.script = script
    read = values_of(client.consume("a", until_end=True, partition_bytes_max=600))
    assert read == values


@pytest.mark.parametrize("verdict", ["cut", "drop"])
def test_a_consumer_survives_a_lost_fetch(client, cluster, verdict):
    values = fill(client)
    cluster.script = once("fetch", verdict)
    read = values_of(client.consume("a", until_end=True, request_timeout_ms=200))
    assert read == values


def test_a_damaged_batch_is_asked_for_again_and_never_passed_on(client, cluster):
    values = fill(client)
    part = cluster.topics["a"][0]
    intact = list(part.log)

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch):
            if part.log == intact:
                base, data = part.log[0]
                part.log[0] = (base, data[:-1] + bytes([data[-1] ^ 1]))
            else:
                part.log[:] = intact
                cluster.script = None
        return None

    cluster.script = script
    assert values_of(client.consume("a", until_end=True)) == values


def test_a_batch_that_stays_damaged_is_an_error(client, cluster):
    fill(client)
    part = cluster.topics["a"][0]
    base, data = part.log[0]
    part.log[0] = (base, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptBatch):
        list(client.consume("a", until_end=True))


def test_consuming_a_missing_topic_or_partition_is_an_error(client, cluster):
    client.create_topic("a")
    with pytest.raises(errors.UnknownTopic):
        list(client.consume("nope", until_end=True))
    with pytest.raises(errors.UnknownPartition):
        list(client.consume("a", 3, until_end=True))


def test_a_topic_deleted_while_it_is_read_is_an_error(client, world, cluster):
    fill(client, count=3)
    consumer = client.consume("a", wait_max_ms=50)
    next(consumer)
    world.call(cluster.topics.pop, "a")
    with pytest.raises(errors.UnknownPartition):
        next(consumer)


@pytest.mark.parametrize("start", ["middle", -1, 1.5, None, True])
def test_a_start_that_is_none_is_a_config_error(client, start):
    with pytest.raises(ConfigError, match="start"):
        client.consume("a", start=start)
