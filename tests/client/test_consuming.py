"""Consumers of both clients against nodes that follow a script."""

from __future__ import annotations

import pytest

from multiraft.client import Record, Timestamp
from multiraft.errors import ConfigError, CorruptBatch
from multiraft.wire import errors, messages
from multiraft.wire.connection import ResponseEvent
from tests.client.fake_cluster import CLUSTER
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


def delete_below(cluster, batch: int, topic: str = "a", partition: int = 0) -> int:
    """Delete the records before a batch of a partition; return the log start."""
    part = cluster.topics[topic][partition]
    part.start_offset = part.log[batch][0]
    return part.start_offset


def test_a_deleted_offset_is_an_error_that_says_which_offsets_are_gone(client, cluster):
    fill(client)
    begin, [part] = delete_below(cluster, 2), cluster.topics["a"]
    for until_end in (True, False):
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            list(client.consume("a", 0, 1, until_end=until_end))
        assert str(caught.value) == (
            f"offsets 1 to {begin - 1} of a/0 were deleted; the log begins at {begin}, and its end "
            f"is {part.next_offset}")
        detail = caught.value.detail
        assert (detail.start_offset, detail.end_offset) == (begin, part.next_offset)
    with pytest.raises(errors.OffsetOutOfRange, match=f"^offset {begin - 1} of a/0 was deleted"):
        list(client.consume("a", 0, begin - 1, until_end=True))


@pytest.mark.parametrize("until_end", [True, False])
def test_a_consumer_that_resets_to_the_earliest_offset_goes_on_and_names_the_gap(
        client, cluster, until_end):
    values = fill(client)
    begin = delete_below(cluster, 2)
    consumer = client.consume("a", 0, 1, until_end=until_end, offset_reset="earliest")
    found = []
    while len(found) < len(values) - begin:
        found += [record.value for record in next(consumer)]
    assert found == values[begin:]
    assert consumer.gaps == (("a", 0, 1, begin),)
    assert str(consumer.gaps[0]) == (
        f"offsets 1 to {begin - 1} of a/0 were deleted; the log begins at {begin}")
    assert consumer.position(0) == len(values)
    consumer.close()


def test_a_deletion_that_overtakes_a_reader_is_a_gap_after_what_it_has_fetched(client, cluster):
    values = fill(client)
    [part] = cluster.topics["a"]
    consumer = client.consume("a", 0, 0, until_end=True, offset_reset="earliest",
                              partition_bytes_max=1)
    found = [record.value for record in next(consumer)]
    after = part.log[1][0]
    assert consumer.position(0) == after
    begin = delete_below(cluster, 3)
    found += [record.value for batch in consumer for record in batch]
    gap, = consumer.gaps
    assert gap.end_offset == begin and gap.start_offset >= after
    assert found == values[:gap.start_offset] + values[begin:]


def test_a_consumer_that_resets_to_the_latest_offset_goes_on_at_the_end(client, cluster):
    values = fill(client)
    begin = delete_below(cluster, 2)
    consumer = client.consume("a", 0, 1, offset_reset="latest", until_end=True)
    assert list(consumer) == []
    assert consumer.gaps == (("a", 0, 1, begin),) and consumer.position(0) == len(values)


def test_an_offset_beyond_the_end_is_an_error_with_every_reset(client, cluster):
    fill(client, count=10)
    for reset in ("none", "earliest", "latest"):
        for until_end in (True, False):
            with pytest.raises(errors.OffsetOutOfRange, match="offset 11 is outside of its"):
                list(client.consume("a", 0, 11, until_end=until_end, offset_reset=reset))


def test_a_range_that_is_deleted_up_to_its_end_leaves_nothing_to_read(client, cluster):
    values = fill(client)
    [part] = cluster.topics["a"]
    part.start_offset = part.next_offset
    consumer = client.consume("a", 0, 3, until_end=True, offset_reset="earliest")
    assert list(consumer) == [] and consumer.gaps == (("a", 0, 3, len(values)),)


def test_a_log_start_within_a_batch_hides_the_records_below_it(client, cluster):
    values = fill(client)
    [part] = cluster.topics["a"]
    part.start_offset = part.log[1][0] + 1
    consumer = client.consume("a", 0, "earliest", until_end=True)
    records = [record for batch in consumer for record in batch]
    assert [record.offset for record in records] == [*range(part.start_offset, len(values))]
    assert consumer.gaps == ()


def test_a_reset_that_does_not_exist_is_named(client):
    with pytest.raises(ConfigError, match="offset_reset='smallest'"):
        client.consume("a", offset_reset="smallest")


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


def test_a_start_beyond_the_end_is_an_error_with_the_range_and_no_silence(client, cluster):
    fill(client, count=10)
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        list(client.consume("a", 0, 11, until_end=True))
    assert (caught.value.detail.start_offset, caught.value.detail.end_offset) == (0, 10)
    assert list(client.consume("a", 0, 10, until_end=True)) == []


# ---- from a time ---------------------------------------------------------------------------------


def fill_times(client, batches, compression="none") -> list[int]:
    """Append one batch per list of timestamps.  Returns all timestamps by offset."""
    client.create_topic("a")
    with client.producer(compression=compression, linger_ms=10_000) as producer:
        for batch in batches:
            for stamp in batch:
                producer.send_nowait(Record("a", b"at %d" % stamp, timestamp_ms=stamp))
            producer.flush()
    return [stamp for batch in batches for stamp in batch]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_time_begins_at_its_very_record(client, cluster, compression):
    stamps = fill_times(client, [[10, 20, 30], [40, 50, 60]], compression)
    assert len(cluster.topics["a"][0].log) == 2
    for wanted in (0, 10, 11, 30, 31, 45, 60):
        first = next(at for at, stamp in enumerate(stamps) if stamp >= wanted)
        batches = list(client.consume("a", start=Timestamp(wanted), until_end=True))
        assert values_of(batches) == [b"at %d" % stamp for stamp in stamps[first:]], wanted
        assert batches[0].base_offset == first
        assert client.offsets_at("a", wanted) == {0: first}
    assert list(client.consume("a", start=Timestamp(61), until_end=True)) == []
    assert client.offsets_at("a", 61) == {0: None}


def test_a_time_that_lies_ahead_begins_at_the_end(client, cluster):
    fill_times(client, [[10, 20]])
    consumer = client.consume("a", start=Timestamp(1_000), wait_max_ms=50)
    with client.producer() as producer:
        batches = iter(consumer)
        while consumer.position(0) is None:
            client.list_topics()
        producer.send_nowait(Record("a", b"new", timestamp_ms=500)).wait()
    assert next(batches).records()[0].offset == 2


def test_from_a_time_on_everything_is_read_whatever_its_own_time_is(client, cluster):
    stamps = fill_times(client, [[10, 90, 20], [30], [95]])
    read = values_of(client.consume("a", start=Timestamp(50), until_end=True))
    assert read == [b"at %d" % stamp for stamp in stamps[1:]]


def test_a_node_may_name_a_batch_that_is_too_early(client, cluster):
    """At the log start it cannot rule out that later batches are older."""
    stamps = fill_times(client, [[10], [20], [30, 70], [95]])
    part = cluster.topics["a"][0]
    part.first_at = lambda timestamp_ms: 1
    read = values_of(client.consume("a", start=Timestamp(60), until_end=True))
    assert read == [b"at %d" % stamp for stamp in stamps[3:]]
    assert client.offsets_at("a", 60) == {0: 3}


# ---- replicas ------------------------------------------------------------------------------------


def fetchers(cluster) -> set[int]:
    """Return the nodes that got fetches."""
    return {node for node, request in cluster.requests if isinstance(request, messages.Fetch)}


def test_the_nearest_replica_is_the_one_in_the_same_rack(client, cluster):
    values = fill(client)
    leader = cluster.leaders[cluster.topics["a"][0].group]
    near = leader % 3 + 1
    read = values_of(client.consume("a", until_end=True, prefer="nearest", rack=f"r{near}"))
    assert read == values
    assert fetchers(cluster) == {near}


def test_without_a_replica_in_the_rack_the_leader_is_asked(client, cluster):
    values = fill(client)
    read = values_of(client.consume("a", until_end=True, prefer="nearest", rack="elsewhere"))
    assert read == values
    assert fetchers(cluster) == {cluster.leaders[cluster.topics["a"][0].group]}


def test_a_replica_that_is_behind_is_left_for_the_leader(client, world, cluster):
    values = fill(client)
    leader = cluster.leaders[cluster.topics["a"][0].group]
    near = leader % 3 + 1
    cluster.behind[near] = cluster.topics["a"][0].log[1][0] - 1
    read = values_of(client.consume("a", until_end=True, prefer="nearest", rack=f"r{near}",
                                    partition_bytes_max=300))
    assert read == values
    assert fetchers(cluster) == {near, leader}


def test_reading_goes_on_without_a_leader(client, world, cluster):
    values = fill(client, count=400)
    part = cluster.topics["a"][0]
    leader = cluster.leaders[part.group]
    consumer = iter(client.consume("a", until_end=True, partition_bytes_max=600))
    read = [next(consumer)]
    world.call(cluster.close, leader)
    cluster.leaders[part.group] = 0
    read += list(consumer)
    assert values_of(read) == values
    assert len(fetchers(cluster)) > 1


def test_a_damaged_copy_is_complained_of_and_read_elsewhere(client, cluster):
    values = fill(client, count=400)
    leader = cluster.leaders[cluster.topics["a"][0].group]
    cluster.rotten.add(leader)
    read = values_of(client.consume("a", until_end=True, partition_bytes_max=600))
    assert read == values
    complaints = [(node, request) for node, request in cluster.requests
                  if isinstance(request, messages.ReportCorruption)]
    part = cluster.topics["a"][0]
    assert complaints and {node for node, _ in complaints} == {leader}
    assert {request.incarnation for _, request in complaints} == {part.incarnation}
    assert complaints[0][1].offset in [base for base, _ in part.log], "the damaged batch is named"


def test_when_every_copy_is_damaged_what_is_intact_before_is_still_given(client, cluster):
    values = fill(client)
    part = cluster.topics["a"][0]
    base, data = part.log[-1]
    part.log[-1] = (base, data[:-1] + bytes([data[-1] ^ 1]))
    read = []
    with pytest.raises(CorruptBatch):
        for batch in client.consume("a", until_end=True):
            read += values_of([batch])
    assert read == values[:base]
    assert len(fetchers(cluster)) == 3, "every replica was asked"


def test_a_topic_that_one_node_has_not_heard_of_is_read_through_it(driver, cluster):
    """A client that has seen no metadata index believes a node that lags behind."""
    cluster.add_topic("a")

    def script(node, event, connection):
        request = event.request
        if isinstance(request, messages.Metadata) and event.metadata_index < cluster.metadata_index:
            return ResponseEvent(event.id, messages.MetadataReply(
                CLUSTER, tuple(messages.NodeAddress(node, address, "")
                               for node, address in cluster.addresses.items()), (),
                tuple(request.topics)))
        return None

    cluster.script = script
    with driver.client(cluster.servers()[:1]) as client:
        assert list(client.consume("a", until_end=True)) == []
    with driver.client(cluster.servers()[:1]) as client:
        assert client.describe_topic("a").name == "a"


@pytest.mark.parametrize("settings", [{"prefer": "fastest"}, {"prefer": ""}])
def test_a_preference_that_is_none_is_a_config_error(client, settings):
    with pytest.raises(ConfigError, match="prefer"):
        client.consume("a", **settings)


@pytest.mark.parametrize("start", ["middle", -1, 1.5, None, True, 1 << 63, Timestamp(-1),
                                   Timestamp("now")])
def test_a_start_that_is_none_is_a_config_error(client, start):
    with pytest.raises(ConfigError, match="start"):
        client.consume("a", start=start)
