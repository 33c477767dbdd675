"""Partitions that are added to a topic, as producers and consumers of both clients meet them."""

from __future__ import annotations

import pytest

from multiraft.client import NetworkLimits, Record, Timestamp
from multiraft.client._metadata import MetadataCache
from multiraft.wire import errors, messages
from tests.client.scripts import once, values_of

#: A client that asks for the metadata of topics in use every 50 ms at the latest.
OFTEN = NetworkLimits(metadata_refresh_ms=50)


@pytest.fixture
def client(driver, cluster):
    with driver.client(cluster.servers(), client_id="test", limits=OFTEN) as opened:
        yield opened


@pytest.fixture
def other(driver, cluster):
    """Another client, which adds partitions and appends to them."""
    with driver.client(cluster.servers(), client_id="other") as opened:
        yield opened


def append(client, partition, *values):
    with client.producer() as producer:
        for value in values:
            producer.send_nowait(Record("a", value, partition=partition)).wait()


def test_partitions_are_added_and_only_checked(client):
    made = client.create_topic("a", partitions=2)
    checked = client.add_partitions("a", 4, dry_run=True)
    assert checked.partitions == made.partitions
    grown = client.add_partitions("a", 4)
    assert grown.partitions[:2] == made.partitions and len(grown.partitions) == 4
    for partitions in (4, 1):
        with pytest.raises(errors.InvalidPartitions) as caught:
            client.add_partitions("a", partitions)
        assert caught.value.detail.value == 4
    with pytest.raises(errors.UnknownTopic):
        client.add_partitions("none", 4)
    assert len(client.topic_metadata("a").partitions) == 4


@pytest.mark.parametrize("verdict", ["cut-after", "ambiguous"])
def test_a_lost_answer_adds_nothing_twice(client, cluster, verdict):
    client.create_topic("a")
    cluster.script = once("add_partitions", verdict)
    assert len(client.add_partitions("a", 3).partitions) == 3
    asked = [request for _, request in cluster.requests
             if isinstance(request, messages.AddPartitions)]
    assert len(asked) == 2 and asked[0] == asked[1]


@pytest.mark.parametrize("start", ["earliest", "latest", 0, Timestamp(1 << 50), {0: "latest"}])
def test_a_consumer_reads_an_added_partition_from_its_first_record(client, other, start):
    client.create_topic("a")
    consumer = client.consume("a", start=start, wait_max_ms=20)
    append(client, 0, b"first")
    if start in ("earliest", 0):
        assert values_of([next(consumer)]) == [b"first"]
    other.add_partitions("a", 3)
    append(other, 2, b"before it is known", b"and another")
    read = set()
    while not {b"before it is known", b"and another"} <= read:
        read |= set(values_of([next(consumer)]))
    append(other, 1, b"later")
    while b"later" not in read:
        read |= set(values_of([next(consumer)]))
    assert consumer.positions()[2] == 2 and consumer.positions()[1] == 1
    consumer.close()


def test_a_consumer_that_began_before_reads_each_record_once(client, other):
    client.create_topic("a", partitions=2)
    consumer = client.consume("a", wait_max_ms=20)
    values = []
    for partitions in (2, 3, 5):
        if partitions > 2:
            other.add_partitions("a", partitions)
        for partition in range(partitions):
            values.append(b"%d/%d" % (partitions, partition))
            append(other, partition, values[-1])
    read = []
    while len(read) < len(values):
        read += values_of([next(consumer)])
    assert sorted(read) == sorted(values)
    consumer.close()


def test_a_reader_with_an_end_reads_the_partitions_that_the_topic_had(client, other):
    client.create_topic("a")
    append(client, 0, b"old")
    consumer = client.consume("a", until_end=True)
    assert next(consumer).count == 1
    other.add_partitions("a", 2)
    append(other, 1, b"new")
    client.topic_metadata("a")
    assert list(consumer) == []
    assert values_of(other.consume("a", until_end=True)).count(b"new") == 1


def test_a_consumer_of_one_partition_reads_that_one(client, other):
    client.create_topic("a")
    consumer = client.consume("a", 0, wait_max_ms=20)
    append(client, 0, b"0")
    assert values_of([next(consumer)]) == [b"0"]
    other.add_partitions("a", 2)
    append(other, 1, b"1")
    client.topic_metadata("a")
    append(other, 0, b"2")
    assert values_of([next(consumer)]) == [b"2"]
    assert list(consumer.positions()) == [0]
    consumer.close()


def test_a_consumer_waits_for_a_partition_that_was_added_a_moment_ago(client, other):
    client.create_topic("a")
    client.topic_metadata("a")
    other.add_partitions("a", 3)
    append(other, 2, b"x")
    assert values_of([next(client.consume("a", 2))]) == [b"x"]
    resumed = client.consume("a", start={0: 0, 1: 0, 2: 0})
    assert values_of([next(resumed)]) == [b"x"]
    with pytest.raises(errors.UnknownPartition, match="partitions 0..2, not 3"):
        list(client.consume("a", 3))


def test_a_producer_uses_added_partitions(client, other, cluster):
    client.create_topic("a")
    with client.producer(batch_bytes=300) as producer:
        producer.send_nowait(Record("a", b"x")).wait()
        other.add_partitions("a", 4)
        while not all(part.next_offset for part in cluster.topics["a"]):
            producer.send_nowait(Record("a", b"x")).wait()
        keys = {b"k%d" % number for number in range(32)}
        for key in keys:
            producer.send_nowait(Record("a", b"keyed", key=key)).wait()
    assert all(any(record.key for batch in client.consume("a", part.number, until_end=True)
                   for record in batch.records()) for part in cluster.topics["a"])


def test_a_partition_that_a_producer_does_not_know_is_looked_for(client, other):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"x")).wait()
        other.add_partitions("a", 2)
        sent = False
        while not sent:  # its metadata are requested when the first one is refused
            try:
                sent = producer.send_nowait(Record("a", b"y", partition=1)).wait().offset == 0
            except errors.UnknownPartition:
                client.list_topics()


def test_an_answer_of_a_node_that_lags_behind_takes_no_partition_away(client, cluster):
    client.create_topic("a")
    before = cluster._topic_metadata("a")
    client.add_partitions("a", 3)
    client.topic_metadata("a")
    real, cluster._topic_metadata = cluster._topic_metadata, lambda name: before
    consumer = client.consume("a", wait_max_ms=20)
    assert len(client.topic_metadata("a").partitions) == 1, "the answer itself is passed on"
    cluster._topic_metadata = real
    append(client, 2, b"x")
    assert values_of([next(consumer)]) == [b"x"]
    consumer.close()


def test_only_topics_in_use_are_asked_for_again():
    cache = MetadataCache()
    for name in ("a", "b"):
        cache.apply((name,), messages.MetadataReply(bytes(16), (), (
            messages.TopicMetadata(name, bytes(16), 1 + (name == "b"), ()),)), 0)
    cache.used["a"] = cache.used["gone"] = None
    cache.want_used()
    assert cache.wanted() == ("a",) and not cache.used
    cache.want_used()
    assert cache.wanted() == ("a",)
