"""Resuming: a start for each partition, and positions that a later consumer continues at."""

from __future__ import annotations

import json

import pytest

from multiraft.client import ConfigError, OffsetOutOfRange, Record, Timestamp, UnknownPartition

COUNTS = (20, 5, 0)


@pytest.fixture
def topic(client, cluster):
    """Topic ``a`` with ``COUNTS`` records in its partitions; record n of partition p is b"p:n"."""
    cluster.add_topic("a", partitions=len(COUNTS))
    with client.producer(batch_bytes=200) as producer:
        for partition, count in enumerate(COUNTS):
            for number in range(count):
                producer.send(Record("a", b"%d:%d" % (partition, number), partition=partition,
                                     timestamp_ms=1_000 + number))
    return "a"


def read(consumer):
    """Return the values of the rest of a consumer, by partition."""
    found = {}
    for batch in consumer:
        found.setdefault(batch.partition, []).extend(record.value for record in batch.records())
    return found


def expected(*starts):
    """Return the values from these offsets on, by partition; partitions without a record are
    left out."""
    return {partition: [b"%d:%d" % (partition, number) for number in range(start, count)]
            for partition, (start, count) in enumerate(zip(starts, COUNTS, strict=True))
            if start < count}


def test_each_partition_starts_at_its_offset(client, topic):
    assert read(client.consume(topic, start={0: 17, 1: 4, 2: 0}, until_end=True)) == expected(
        17, 4, 0)


def test_a_partition_that_is_left_out_is_read_from_its_beginning(client, topic):
    assert read(client.consume(topic, start={0: 17}, until_end=True)) == expected(17, 0, 0)
    assert read(client.consume(topic, start={}, until_end=True)) == expected(0, 0, 0)


def test_starts_of_every_kind_stand_beside_each_other(client, topic):
    starts = {0: Timestamp(1_015), 1: "latest", 2: "earliest"}
    assert read(client.consume(topic, start=starts, until_end=True)) == expected(15, 5, 0)


def test_a_later_consumer_continues_where_an_earlier_one_stopped(client, topic):
    seen = {}
    positions = {}
    for _ in range(100):
        consumer = client.consume(topic, start=positions, until_end=True)
        batch = next(iter(consumer), None)
        # As it would come back from a file; JSON has only text as keys.
        positions = {int(key): value
                     for key, value in json.loads(json.dumps(consumer.positions())).items()}
        consumer.close()
        if batch is None:
            break
        seen.setdefault(batch.partition, []).extend(record.value for record in batch.records())
    assert seen == expected(0, 0, 0), "every record once"
    assert positions == {0: 20, 1: 5, 2: 0}


def test_positions_that_are_not_known_yet_are_left_out(client, topic):
    consumer = client.consume(topic, start={0: 3})
    assert consumer.positions() == {}, "nothing was asked yet"
    consumer.close()


def test_one_partition_takes_its_own_start_of_a_mapping(client, topic):
    assert read(client.consume(topic, 1, start={0: 17, 1: 4}, until_end=True)) == {1: [b"1:4"]}


@pytest.mark.parametrize("until_end", [True, False])
def test_an_offset_beyond_the_end_names_partition_range_and_remedy(client, topic, until_end):
    with pytest.raises(OffsetOutOfRange, match=r"a/[12]: offset 17 .* 0 to [05].*"
                                               r"All 3 partitions .* start=\{0: ") as caught:
        read(client.consume(topic, start=17, until_end=until_end))
    assert (caught.value.topic, caught.value.offset) == ("a", 17)
    with pytest.raises(OffsetOutOfRange, match=r"a/1: offset 17 .* 0 to 5$"):
        read(client.consume(topic, start={1: 17}, until_end=until_end))


def test_a_partition_that_does_not_exist_is_named(client, topic):
    with pytest.raises(UnknownPartition, match=r"partition 3, .* 0\.\.2"):
        read(client.consume(topic, start={3: 0}, until_end=True))


@pytest.mark.parametrize("start, text", [
    ({"0": 17}, "numbers of partitions"), ({-1: 0}, "numbers of partitions"),
    ({0: -1}, r"start\[0\]=-1"), ({0: None}, r"start\[0\]=None"), ({0: {}}, r"start\[0\]"),
    (None, r"by partition, as in \{0: 17"), ([17], "start="), (1.5, "start=")])
def test_starts_that_are_none_are_refused(client, cluster, start, text):
    cluster.add_topic("a")
    with pytest.raises(ConfigError, match=text):
        client.consume("a", start=start)


def test_a_mapping_that_changes_later_changes_nothing(client, topic):
    starts = {0: 17, 1: 5}
    consumer = client.consume(topic, start=starts, until_end=True)
    starts.clear()
    assert read(consumer) == expected(17, 5, 0)
