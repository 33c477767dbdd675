"""Clients of Kafka that name their rack read from a replica there (KIP-392)."""

from __future__ import annotations

import pytest
import trio

from multiraft.core import split_batches
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from tests.e2e.test_kafka_earlier_epochs import appended, kafka, node_of
from tests.e2e.world import steady, wait_for
from tests.node.kafka.kafka_client import fetch_request, joined

SHAPE = {"nodes": 3, "groups": 2, "factor": 3, "configure": steady}
RECORDS = 6


@pytest.fixture(scope="module")
def topic(world) -> str:
    """A topic with records, in a cluster of one node for each rack."""
    with world.client() as client:
        client.create_topic("racks", 1)

    async def fill() -> None:
        for at in range(0, RECORDS, 2):
            await appended(world, "racks", 1_000 + at, 1_001 + at)

    trio.run(fill)
    return "racks"


async def fetched(world, topic: str, node: int, rack: str, offset: int = 0, wait_ms: int = 0,
                  epoch: int = -1):
    """Return the result of a fetch at one node by a client in ``rack``."""
    async with kafka(world, node) as client:
        request = fetch_request((await client.metadata(topic)).topics[0].topic_id, offset, wait_ms,
                                epoch)
        request.rack_id = rack
        return (await client.ask(ApiKey.FETCH, request)).responses[0].partitions[0]


def racks_of(world) -> dict[int, str]:
    with world.client() as client:
        return {node.id: node.rack for node in client.cluster_status().nodes}


def test_the_leader_names_the_replica_of_the_rack_and_that_one_serves(world, topic):
    async def run() -> None:
        leader, racks = node_of(world, topic), racks_of(world)
        for node, rack in racks.items():
            named = await fetched(world, topic, leader, rack, wait_ms=30_000)
            assert (named.error_code, named.high_watermark) == (0, RECORDS)
            if node == leader:
                assert named.preferred_read_replica == -1 and joined(named.records)
                continue
            assert named.preferred_read_replica == node and not joined(named.records)
            read = await fetched(world, topic, node, rack, wait_ms=30_000)
            assert (read.error_code, read.preferred_read_replica) == (0, -1)
            assert len(split_batches(joined(read.records))) == RECORDS // 2

    trio.run(run)


def test_clients_without_a_rack_and_of_unknown_ones_are_served_by_the_leader_alone(world, topic):
    async def run() -> None:
        leader = node_of(world, topic)
        for rack in ("", "nowhere"):
            read = await fetched(world, topic, leader, rack)
            assert read.preferred_read_replica == -1 and joined(read.records)
        other = next(node for node in racks_of(world) if node != leader)
        assert (await fetched(world, topic, other, "")).error_code == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER)

    trio.run(run)


def test_a_replica_compares_the_leader_epoch(world, topic):
    async def run() -> None:
        leader, racks = node_of(world, topic), racks_of(world)
        other = next(node for node in racks if node != leader)
        async with kafka(world, leader) as client:
            epoch = (await client.metadata(topic)).topics[0].partitions[0].leader_epoch
        for named, error in ((epoch, 0), (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
                             (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            read = await fetched(world, topic, other, racks[other], epoch=named)
            assert read.error_code == error

    trio.run(run)


def test_the_leader_serves_the_rack_of_a_node_that_is_down(world, topic):
    leader, racks = node_of(world, topic), racks_of(world)
    # Node 1 is asked for the leader.
    other = next(node for node in racks if node not in (1, leader))
    world.kill(other)

    def served() -> bool:
        read = trio.run(fetched, world, topic, node_of(world, topic), racks[other])
        return read.preferred_read_replica == -1 and bool(joined(read.records))

    wait_for(served, "the leader serves the rack of the node that is down")
    world.launch(other)
    wait_for(lambda: trio.run(fetched, world, topic, node_of(world, topic),
                              racks[other]).preferred_read_replica == other,
             "the replica is named again")
