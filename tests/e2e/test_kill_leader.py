"""Nodes die under load: acknowledged records are read back once, in order, from every serving
node."""

from __future__ import annotations

import contextlib

import pytest
import trio

from multiraft.client import Client, RequestError, blocking
from tests.e2e.load import Load, verify
from tests.e2e.world import POLL_S, WAIT_S

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
PARTITIONS = 3
#: Enough that every partition has batches in flight at the kill.
SOME = 500


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


async def under_load(world, topic: str, during) -> None:
    """Produce to ``topic`` while ``during(load, leader)`` runs; then compare."""
    async with Client(world.addresses) as client:
        await client.create_topic(topic, PARTITIONS)
        load = Load(client, topic, PARTITIONS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.acknowledged_more(SOME)
            leader = await trio.to_thread.run_sync(world.leader_of, topic)
            await during(client, load, leader)
            await load.acknowledged_more(SOME, partition=0)
            load.stop()
        assert not load.account.refused, "the client retries what was definitely refused"
        await verify(client, load.account)
    async with Client(world.addresses) as fresh:
        await verify(fresh, load.account)


def test_the_leader_is_killed_and_comes_back(world):
    async def during(client, load, leader):
        await trio.to_thread.run_sync(world.dev.kill, leader)
        await load.acknowledged_more(SOME, partition=0)
        other = next(node for node in world.ids() if node != leader)
        assert await trio.to_thread.run_sync(world.leader_of, load.account.topic, other) != leader
        await trio.to_thread.run_sync(world.dev.start, leader)

    trio.run(under_load, world, "leader-killed", during)


def test_a_follower_is_killed_and_nobody_waits_for_it(world):
    async def during(client, load, leader):
        follower = next(node for node in world.ids() if node != leader)
        await trio.to_thread.run_sync(world.dev.kill, follower)
        await load.acknowledged_more(SOME, partition=0)
        await trio.to_thread.run_sync(world.dev.start, follower)

    trio.run(under_load, world, "follower-killed", during)


def test_a_leader_that_is_stopped_in_order_hands_over(world):
    async def during(client, load, leader):
        await trio.to_thread.run_sync(world.dev.stop, leader)
        await load.acknowledged_more(SOME, partition=0)
        await trio.to_thread.run_sync(world.dev.start, leader)

    trio.run(under_load, world, "leader-stopped", during)


def test_every_node_is_killed_and_nothing_acknowledged_is_gone(world):
    async def during(client, load, leader):
        for node in world.ids():
            await trio.to_thread.run_sync(world.dev.kill, node)
        await trio.to_thread.run_sync(world.dev.up)

    trio.run(under_load, world, "all-killed", during)


def test_the_returned_node_can_lead_with_everything_it_missed(world):
    async def scenario():
        async with Client(world.addresses) as client:
            await client.create_topic("caught-up", 1)
            load = Load(client, "caught-up", 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                absent = await trio.to_thread.run_sync(world.leader_of, "caught-up")
                await trio.to_thread.run_sync(world.dev.kill, absent)
                await load.acknowledged_more(SOME)
                await trio.to_thread.run_sync(world.dev.start, absent)
                load.stop()
            group = (await client.describe_topic("caught-up")).partitions[0].group

            async def leads() -> bool:
                """Request the transfer again: a transfer to a member that cannot catch up in time
                is given up."""
                with contextlib.suppress(RequestError):
                    return (await client.group_transfer(group, absent)).leader == absent
                return False
            with trio.fail_after(WAIT_S):
                while not await leads():
                    await trio.sleep(POLL_S)
            await verify(client, load.account)

    trio.run(scenario)


def test_an_idle_cluster_serves_what_only_its_disks_have(world):
    values = [b"%05d" % number + b"x" * 1000 for number in range(3000)]
    with blocking.Client(world.addresses) as client:
        client.create_topic("cold", 1)
        with client.producer() as producer:
            producer.send_many("cold", values)
    for node in world.ids():
        world.dev.kill(node)
    world.dev.up()
    with blocking.Client(world.addresses) as client:
        read = [record.value for batch in client.consume("cold", until_end=True)
                for record in batch]
    assert read == values
