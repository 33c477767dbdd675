"""Fixed ranges of many partitions, against nodes that follow a script; and batches under an
identity of the caller's choice."""

from __future__ import annotations

import pytest

from multiraft import core
from multiraft.client.blocking import Client, Record
from multiraft.client.ranges import (
    DataLost,
    Range,
    bytes_per_record,
    offset_ranges,
    read_ranges,
)
from multiraft.errors import ConfigError
from multiraft.wire import errors, messages


@pytest.fixture
def client(cluster):
    with Client(cluster.servers()) as opened:
        yield opened


def fill(client, name: str, count: int, partitions: int = 1) -> None:
    """Append small batches to each partition; each value is its offset."""
    client.create_topic(name, partitions)
    with client.producer(batch_bytes=300) as producer:
        for at in range(count):
            for partition in range(partitions):
                producer.send(Record(name, b"%04d" % at, partition=partition))


def offsets(client, ranges, **more) -> list[tuple[str, int, int]]:
    """Return the offsets that are read, cut to their ranges."""
    return [(part.topic, part.partition, record.offset)
            for part, batch in read_ranges(client, ranges, **more)
            for record in batch.records() if record.offset < part.end_offset]


def wanted(ranges) -> list[tuple[str, int, int]]:
    return [(part.topic, part.partition, offset) for part in ranges
            for offset in range(part.start_offset, part.end_offset)]


def test_each_range_is_read_from_its_start_to_its_end(client):
    fill(client, "a", 100, partitions=3)
    fill(client, "b", 40)
    ranges = [Range("a", 0, 0, 5, 95), Range("a", 2, 0, 0, 1), Range("b", 0, 0, 39, 40),
              Range("a", 1, 0, 50, 50)]
    for at_once in (1, 2, 16):
        found = offsets(client, ranges, at_once=at_once)
        assert sorted(found) == sorted(wanted(ranges))
        for part in ranges:
            mine = [offset for *name, offset in found if name == [part.topic, part.partition]]
            assert mine == sorted(mine)


def test_nothing_is_asked_for_twice_once_a_range_is_read(client, cluster):
    fill(client, "a", 100)
    assert len(offsets(client, [Range("a", 0, 0, 0, 20)])) == 20
    assert not client._core._consumers
    assert not [request for _, request in cluster.requests
                if isinstance(request, messages.ListOffsets)], "the ends are known"


def test_ranges_survive_a_leader_change(client, cluster):
    fill(client, "a", 300)
    [part] = cluster.topics["a"]
    seen = []

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch):
            seen.append(node)
            if len(seen) == 2:
                cluster.leaders[part.group] = part.group % 3 + 1
        return None

    cluster.script = script
    ranges = [Range("a", 0, part.incarnation, 10, 290)]
    assert offsets(client, ranges) == wanted(ranges)


def test_what_retention_took_is_a_loss_that_may_be_taken(client, cluster):
    fill(client, "a", 100)
    fill(client, "b", 10)
    [part] = cluster.topics["a"]
    part.start_offset = part.log[2][0]
    ranges = [Range("a", 0, 0, 3, 60), Range("b", 0, 0, 0, 10)]
    with pytest.raises(DataLost, match=rf"a/0: offsets 3..{part.start_offset - 1} are gone"):
        offsets(client, ranges)
    losses = []
    found = offsets(client, ranges, on_loss=losses.append)
    assert sorted(found) == wanted([ranges[0]._replace(start_offset=part.start_offset), ranges[1]])
    assert [loss.resumes_at for loss in losses] == [part.start_offset]
    part.start_offset = part.log[-1][0]
    losses.clear()
    assert len(offsets(client, ranges, on_loss=losses.append)) == 10, "nothing of it is left"


def test_another_life_of_a_topic_is_not_read_for_the_one_that_was_meant(client, cluster):
    fill(client, "a", 10)
    [before] = cluster.topics["a"]
    client.delete_topic("a")
    fill(client, "a", 10)
    with pytest.raises(DataLost, match="deleted and created again") as caught:
        offsets(client, [Range("a", 0, before.incarnation, 0, 10)])
    assert caught.value.resumes_at is None
    client.delete_topic("a")
    with pytest.raises(DataLost, match="does not exist"):
        offsets(client, [Range("a", 0, before.incarnation, 0, 10)])


def test_thousands_of_partitions_are_looked_up_together(client, cluster):
    for number in range(30):
        cluster.add_topic(f"t{number:02}", partitions=100)
    cluster.requests.clear()
    found = offset_ranges(client, [f"t{number:02}" for number in range(30)] + ["missing"])
    assert len(found) == 30
    assert all(len(ends) == 100 and set(ends.values()) == {(0, 0)} for _, ends in found.values())
    # Two for each of three nodes leave one for a lost answer.
    asked = [request for _, request in cluster.requests]
    assert 3 <= sum(isinstance(request, messages.ListOffsets) for request in asked) <= 6
    # Of the missing topic as often as there is time for; of all of them as often as of nodes.
    assert sum(isinstance(request, messages.Metadata) and len(request.topics) > 1
               for request in asked) <= 6


def test_sizes_come_from_the_first_batch_of_each_range(client, cluster):
    fill(client, "a", 100)
    offset_ranges(client, ["a"])
    [part] = cluster.topics["a"]
    one = Range("a", 0, part.incarnation, 0, 100)
    [size] = bytes_per_record(client, [one, one._replace(start_offset=100)]).values()
    assert size == len(part.log[0][1]) / part.log[1][0]


def test_batches_sent_again_under_one_identity_are_appended_once(cluster):
    def send(client, count: int, epoch: int = 0) -> None:
        with client.producer(identity=(1 << 62, epoch), linger_ms=60_000) as producer:
            for at in range(count):
                producer.send(Record("a", b"%d" % at, partition=0))

    with Client(cluster.servers()) as client:
        client.create_topic("a")
        send(client, 10)
    with Client(cluster.servers()) as client:
        send(client, 10)
        [part] = cluster.topics["a"]
        assert part.values() == [b"%d" % at for at in range(10)]
        send(client, 10, epoch=1)
        assert len(part.values()) == 20
        with pytest.raises((errors.ProducerFenced, errors.AmbiguousOutcome)):
            send(client, 11, epoch=0)
        assert not [request for _, request in cluster.requests
                    if isinstance(request, messages.InitProducer)]
        assert core.batch_header(part.log[0][1]).producer_id == 1 << 62


def test_a_missing_sequence_fails_a_chosen_identity_instead_of_changing_it(cluster):
    with Client(cluster.servers()) as client:
        client.create_topic("a")
        [part] = cluster.topics["a"]
        with pytest.raises((errors.OutOfOrderSequence, errors.AmbiguousOutcome)):
            with client.producer(identity=(1 << 62, 0), batch_bytes=200) as producer:
                producer.send(Record("a", b"x" * 100, partition=0)).wait()
                part.windows.clear()  # the leader has forgotten, as it may
                part.windows[1 << 62] = type("Window", (), {"epoch": 0, "recent": [(7, 1, 0)]})()
                producer.send(Record("a", b"y" * 100, partition=0)).wait()
        assert not [request for _, request in cluster.requests
                    if isinstance(request, messages.InitProducer)]


@pytest.mark.parametrize("identity", [(-1, 0), (1 << 63, 0), (1, -1), (1, 1 << 15)])
def test_an_identity_that_no_batch_can_carry_is_refused(cluster, identity):
    with Client(cluster.servers()) as client, pytest.raises(ConfigError, match="identity="):
        client.producer(identity=identity)
