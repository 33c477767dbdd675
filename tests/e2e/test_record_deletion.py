"""Records that are deleted on request: on every replica, with another leader, and after a
restart."""

from __future__ import annotations

import pytest

from multiraft.client import DeletedRecords, Record
from multiraft.wire.errors import Code, OffsetOutOfRange
from multiraft.wire.messages import ANY, EARLIEST, Fetch, FetchPart, ListOffsets, OffsetQuery
from tests.e2e.world import World, wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3}
RECORDS, BEFORE = 20, 13


def filled(world: World, topic: str) -> int:
    """Create a topic with some records, and return the incarnation of its partition."""
    with world.client() as client:
        client.create_topic(topic)
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send_nowait(Record(topic, b"%d" % number))
            producer.flush()
        return client.topic_metadata(topic).partitions[0].incarnation


def begins_at(world: World, node: int, incarnation: int) -> int:
    """Return the first offset of a partition by the replica on one node."""
    with world.session(node) as session:
        answer = session.reply(ListOffsets((OffsetQuery(incarnation, EARLIEST),), False))
        return answer.results[0].offset


def read(world: World, topic: str) -> list[int]:
    with world.client() as client:
        with pytest.raises(OffsetOutOfRange):
            list(client.consume(topic, 0, BEFORE - 1, until_end=True))
        return [int(record.value) for batch in client.consume(topic, 0, "earliest", until_end=True)
                for record in batch]


def check(world: World, topic: str, incarnation: int) -> None:
    """Check that every replica has deleted the same records, and no other."""
    for node in world.ids():
        wait_for(lambda node=node: begins_at(world, node, incarnation) == BEFORE,
                 f"node {node} has applied the log start")
        with world.session(node) as session:
            [gone] = session.reply(Fetch((FetchPart(incarnation, BEFORE - 1, 1 << 20),),
                                         replica=ANY)).results
        assert (gone.code, gone.error.start_offset) == (Code.OFFSET_OUT_OF_RANGE, BEFORE)
    assert read(world, topic) == list(range(BEFORE, RECORDS))


def test_records_stay_deleted_on_every_replica_with_another_leader_and_after_restarts(world):
    topic = "deleted"
    incarnation = filled(world, topic)
    with world.client() as client:
        assert client.delete_records(topic, {0: BEFORE}) == {0: DeletedRecords(BEFORE)}
    check(world, topic, incarnation)
    leader = world.leader_of(topic)
    world.kill(leader)
    other = next(node for node in world.ids() if node != leader)
    wait_for(lambda: world.leader_of(topic, other) not in (0, leader), "another node leads")
    assert begins_at(world, world.leader_of(topic, other), incarnation) == BEFORE
    with world.client(other) as client:
        assert client.delete_records(topic, {0: BEFORE}) == {0: DeletedRecords(BEFORE)}
    world.dev.start(leader)
    check(world, topic, incarnation)
    for node in world.ids():
        world.kill(node)
    world.dev.up()
    check(world, topic, incarnation)


def test_a_topic_of_the_same_name_begins_anew_after_its_predecessor_is_deleted(world):
    incarnation = filled(world, "again")
    with world.client() as client:
        client.delete_topic("again")
        second = filled(world, "again")
        assert second > incarnation
        assert client.list_offsets("again")[0] == (0, RECORDS)
        assert client.delete_records("again", {0: -1}) == {0: DeletedRecords(RECORDS)}
