"""Nodes die under load: acknowledged records are read back once, in order, from every serving
node."""

from __future__ import annotations

import contextlib
import json

import pytest
import trio

from multiraft.client import Client, RequestError, blocking
from tests.e2e.load import Load, verify
from tests.e2e.readiness import is_ready
from tests.e2e.world import POLL_S, WAIT_S, wait_for

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


# ---- the log of the others ---------------------------------------------------------------------


def all_ready(world) -> None:
    """Wait until every replica of every node knows its leader."""
    wait_for(lambda: all(is_ready(world, node) for node in world.ids()), "all nodes ready")


def lines_since(world, node: int, begin: int, *events: str) -> list[dict]:
    """Return the lines of these events in a node's log, from line number ``begin`` on."""
    lines = map(json.loads, world.log_lines(node)[begin:])
    return [line for line in lines if line.get("event") in events]


def test_the_log_says_which_node_was_lost_and_which_groups_moved_because_of_it(world):
    all_ready(world)
    rows = world.groups(1)
    victim = max(world.ids(), key=lambda node: sum(row.leader == node for row in rows))
    led = [row.group for row in rows if row.leader == victim]
    begin = {node: len(world.log_lines(node)) for node in world.ids() if node != victim}
    world.dev.kill(victim)
    for node in begin:
        wait_for(lambda node=node: lines_since(world, node, begin[node], "node_lost"), "the loss")
        [lost] = lines_since(world, node, begin[node], "node_lost")
        assert (lost["level"], lost["peer"]) == ("warning", victim)
        assert lost["reason"].startswith("its process ended")

    def moved() -> list[dict]:
        return [line for node in begin
                for line in lines_since(world, node, begin[node], "leadership_changed")
                if line["leader_before"] == victim]

    wait_for(lambda: sum(line["groups"] for line in moved()) >= len(led), "the moves")
    assert sorted(group for line in moved() for group in line["group_ids"]) == sorted(led)
    assert {line["reason"] for line in moved()} == {f"node {victim} is down"}
    world.dev.start(victim)
    for node in begin:
        [returned] = wait_for(
            lambda node=node: lines_since(world, node, begin[node], "node_returned"), "the return")
        assert (returned["peer"], returned["down_ms"] > 0) == (victim, True)


def test_the_log_tells_a_stop_in_order_from_a_crash_and_a_start_warns_of_nothing(world):
    all_ready(world)
    begin = {node: len(world.log_lines(node)) for node in world.ids()}
    world.dev.stop(2)
    wait_for(lambda: lines_since(world, 1, begin[1], "peer_stopped"), "the stop")
    world.dev.start(2)
    all_ready(world)
    for node in world.ids():
        assert not lines_since(world, node, begin[node], "node_lost", "quorum_lost")


def test_the_log_says_that_majorities_are_lost_in_one_line(world):
    all_ready(world)
    begin = len(world.log_lines(1))
    world.dev.kill(2)
    world.dev.kill(3)
    [lost] = wait_for(lambda: lines_since(world, 1, begin, "quorum_lost"), "the lost majorities")
    assert (lost["level"], lost["groups"], lost["peers"]) == (
        "warning", SHAPE["groups"] + 1, [2, 3])
    world.dev.up()
    [regained] = wait_for(lambda: [line for line in lines_since(world, 1, begin, "quorum_regained")
                                   if not line["groups_remaining"]], "their return")
    assert regained["groups"] <= SHAPE["groups"] + 1
