"""Reads from real nodes: any replica, never a stale end, times, damage, half-closed sockets."""

from __future__ import annotations

import itertools
import os
import signal
import socket

import pytest

from multiraft.client import OffsetRange, Record, Timestamp, blocking
from multiraft.wire import Code
from multiraft.wire.messages import (
    LATEST,
    BatchPart,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
    Produce,
)
from tests.e2e import raw
from tests.e2e.world import steady, wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


@pytest.fixture
def topic(world, request) -> str:
    """Return a topic of this test's own, known to every node."""
    name = request.node.name.replace("[", "-").replace("]", "")
    world.create(name)
    for node in world.ids():
        world.leader_of(name, node)
    return name


def fill(world, topic: str, count: int) -> list[bytes]:
    """Append that many records, one batch each."""
    values = [b"%s %d" % (topic.encode(), number) for number in range(count)]
    with blocking.Client(world.addresses) as client, client.producer() as producer:
        for value in values:
            producer.send(Record(topic, value)).wait()
    return values


def followers(world, topic: str) -> list[int]:
    """Return the nodes that do not lead the topic's partition."""
    leader = world.leader_of(topic)
    return [node for node in world.ids() if node != leader]


def read(batches) -> list[bytes]:
    return [record.value for batch in batches for record in batch.records()]


# ---- replicas ------------------------------------------------------------------------------------


def test_every_replica_serves_all_that_is_committed_and_a_quiet_one_knows_how_much_that_is(
        world, topic):
    values = fill(world, topic, 20)
    for node in followers(world, topic):
        with world.session(node) as session:
            incarnation = session.partition(topic).incarnation
            assert session.fetch(incarnation, 0)[0].code == Code.NOT_LEADER
            # No further append follows: the follower has to learn the commit index from the commit
            # notice.
            wait_for(lambda s=session, i=incarnation:
                     s.fetch(i, 0, replica="any")[0].high_watermark == len(values),
                     f"node {node} knows how far the partition is committed")
            result, data = session.fetch(incarnation, 0, replica="any")
            assert all(value in data for value in values)
            assert session.fetch(incarnation, len(values), replica="any")[0].code == Code.OK
            beyond = session.fetch(incarnation, len(values) + 1, replica="any")[0]
            assert beyond.code == Code.OFFSET_NOT_AVAILABLE, "it cannot know that there is no more"


def test_a_long_poll_at_a_follower_ends_with_the_next_commit(world, topic):
    [node, _other] = followers(world, topic)
    with world.session(node) as session:
        incarnation = session.partition(topic).incarnation
        number = session.begin(Fetch((FetchPart(incarnation, 0, 1 << 20),), 1, 1 << 20, 15_000,
                                     "any"))
        fill(world, topic, 1)
        answer = session.event()
        assert answer.id == number
        assert answer.reply.results[0].high_watermark == 1


def test_a_client_reads_from_its_rack_and_past_a_node_that_is_gone(world, topic):
    values = fill(world, topic, 30)
    near = followers(world, topic)[0]
    with blocking.Client(world.addresses) as client:
        rack = next(node.rack for node in client.cluster_status().nodes if node.id == near)
        before = client.node_status(world.address(near)).status["bytes_fetched"]
        nearest = {"prefer": "nearest", "rack": rack, "partition_bytes_max": 200}
        consumer = client.consume(topic, until_end=True, **nearest)
        first = next(iter(consumer))
        assert client.node_status(world.address(near)).status["bytes_fetched"] > before
        world.dev.kill(near)
        assert read([first, *consumer]) == values


def test_what_is_committed_is_readable_without_a_majority(world, topic):
    values = fill(world, topic, 10)
    survivor = followers(world, topic)[0]
    with world.session(survivor) as session:
        incarnation = session.partition(topic).incarnation
        wait_for(lambda: session.fetch(incarnation, 0, replica="any")[0].high_watermark == 10,
                 "the survivor knows how far the partition is committed")
    with blocking.Client(world.addresses) as client:
        client.list_topics()
        for node in world.ids():
            if node != survivor:
                world.dev.kill(node)
        batches = itertools.islice(client.consume(topic, 0, 0), 10)
        assert read(batches) == values


# ---- the end -------------------------------------------------------------------------------------


def test_a_leader_that_slept_through_its_replacement_never_answers_a_stale_end(world, topic):
    fill(world, topic, 5)
    old = world.leader_of(topic)
    other = next(node for node in world.ids() if node != old)
    with world.session(old) as session:
        incarnation = session.partition(topic).incarnation
        assert session.offsets(incarnation) == (0, 5)
        world.signal(old, signal.SIGSTOP)
        try:
            wait_for(lambda: world.leader_of(topic, other) != old, "somebody else leads")
            with world.session(world.leader_of(topic, other)) as new:
                wait_for(lambda: new.produce(incarnation, raw.batch(*[b"new"] * 7)).code == Code.OK,
                         "the new leader takes appends")
            session.begin(ListOffsets((OffsetQuery(incarnation, LATEST),)))
            session.begin(Fetch((FetchPart(incarnation, 12, 1 << 20),)))
        finally:
            world.signal(old, signal.SIGCONT)
        results = [session.event().reply.results[0] for _ in range(2)]
    ends = [row for row in results if hasattr(row, "offset")]
    assert len(ends) == 1 and (ends[0].code != Code.OK or ends[0].offset == 12), ends
    assert all(row.code != Code.OFFSET_OUT_OF_RANGE for row in results), (
        "12 is the end, which the old leader did not know: its client must not reset")


def test_the_end_holds_everything_that_was_acknowledged_before_it_was_asked_for(world, topic):
    with blocking.Client(world.addresses) as client, client.producer() as producer:
        for count in range(1, 30):
            producer.send(Record(topic, b"x")).wait()
            if count % 10 == 0:
                client.group_transfer(client.describe_topic(topic).partitions[0].group)
            assert client.list_offsets(topic) == {0: OffsetRange(0, count)}


# ---- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_time_is_found_to_the_record(world, topic, compression):
    start = 1_700_000_000_000
    stamps = [start + 10 * number for number in range(100)]
    with blocking.Client(world.addresses) as client:
        with client.producer(compression=compression, linger_ms=10_000) as producer:
            for at, stamp in enumerate(stamps):
                producer.send(Record(topic, b"%d" % stamp, timestamp_ms=stamp))
                if at % 25 == 24:
                    producer.flush()
        for at in (0, 1, 24, 25, 60, 99):
            assert client.offsets_at(topic, stamps[at] - 9) == {0: at}
            found = read(client.consume(topic, start=Timestamp(stamps[at] - 9), until_end=True))
            assert found == [b"%d" % stamp for stamp in stamps[at:]]
        assert client.offsets_at(topic, stamps[-1] + 1) == {0: None}


# ---- damage --------------------------------------------------------------------------------------


def test_a_damaged_replica_is_not_read_and_the_others_are(world, topic):
    values = fill(world, topic, 10)
    near = followers(world, topic)[0]
    world.dev.stop(near)
    world.dev.start(near)  # a restarted node reads from its journal
    leader = world.leader_of(topic)
    with world.session(leader) as session, world.session(near) as rotten:
        incarnation = session.partition(topic).incarnation
        wait_for(lambda: rotten.fetch(incarnation, 10, replica="any")[0].code == Code.OK,
                 "the replica has caught up")
        rot(world.segments(near), values[4])
        with blocking.Client(world.addresses) as client:
            rack = next(node.rack for node in client.cluster_status().nodes if node.id == near)
            found = read(client.consume(topic, until_end=True, prefer="nearest", rack=rack))
        assert found == values
        assert session.fetch(incarnation, 0)[0].code == Code.OK
        wait_for(lambda: rotten.fetch(incarnation, 0, replica="any")[0].code != Code.OK
                 or values[4] in rotten.fetch(incarnation, 0, replica="any")[1],
                 "the replica serves nothing, or what was repaired")


def rot(segments, value: bytes) -> None:
    """Change one byte of ``value`` in a journal."""
    [path] = [path for path in segments if value in path.read_bytes()]
    at = path.read_bytes().index(value)
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), bytes([value[0] ^ 1]), at)


# ---- half a connection ---------------------------------------------------------------------------


def test_a_client_that_says_no_more_gets_its_answers(world, topic):
    with world.leader_session(topic) as session:
        incarnation = session.partition(topic).incarnation
        batch = raw.batch(b"last words")
        session.begin(Produce("commit", raw.PRODUCE_MS, (BatchPart(incarnation, len(batch)),)),
                      bytes(batch))
        session.begin(Fetch((FetchPart(incarnation, 1, 1 << 20),), wait_max_ms=30_000))
        session.socket.shutdown(socket.SHUT_WR)
        codes = {session.event().reply.results[0].code for _ in range(2)}
        assert codes == {Code.OK}
        assert session.closed_by_node()
