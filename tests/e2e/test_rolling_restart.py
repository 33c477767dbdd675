"""`/readyz` as a rolling restart uses it: a ready node has all records that were acknowledged
meanwhile.  Also restarts that do not wait for nodes (S40).
"""

from __future__ import annotations

import pytest
import trio

from admin_cli.status.cluster_facts import cluster_status
from multiraft.client import Client, blocking
from multiraft.client.blocking import Record
from tests.e2e.load import Load, verify
from tests.e2e.readiness import is_ready, readiness, served_everywhere
from tests.e2e.world import wait_for

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
RECORDS = 2_000
SOME = 300
#: Partitions with appends meanwhile: most groups have one.
PARTITIONS = 16
#: A restart that does not wait may leave no majority; all partitions are served again within this
#: time after the last node.
SERVED_S_MAX = 60.0
#: Repetitions, because an interruption at a bad moment is a matter of chance.
HURRIES = 3


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


def append(world, topic: str, count: int) -> None:
    """Append so many records and wait for their acknowledgement."""
    with blocking.Client(world.addresses) as client, client.producer() as producer:
        for number in range(count):
            producer.send(Record(topic, str(number).encode()))


def commits(world, node: int) -> dict[int, int]:
    """Return group -> commit index on a node."""
    with blocking.Client([world.address(node)]) as client:
        return {row.group: client.group_describe(row.group, world.address(node)).commit
                for row in client.group_list()}


def test_whoever_is_ready_again_has_what_was_committed_while_it_was_away(world):
    world.create("rolling", 4)
    for node in world.ids():
        for each in world.ids():
            wait_for(lambda each=each: is_ready(world, each), f"node {each} is ready")
        world.dev.stop(node)
        assert readiness(world, node)[0] == 0
        append(world, "rolling", RECORDS)
        committed: dict[int, int] = {}
        for other in set(world.ids()) - {node}:
            for group, index in commits(world, other).items():
                committed[group] = max(index, committed.get(group, 0))
        world.dev.start(node)
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready again")
        caught_up = commits(world, node)
        lacking = {group: (index, caught_up[group]) for group, index in committed.items()
                   if caught_up[group] < index}
        assert not lacking, f"node {node} called itself ready"


def test_without_a_majority_nobody_is_ready_and_the_reason_says_why(world):
    for node in world.ids():
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready")
    world.dev.kill(2)
    world.dev.kill(3)
    status, answer = wait_for(
        lambda: (said := readiness(world, 1))[1].get("leaderless") == 9 and said,
        "node 1 knows no leader of any group")
    assert status == 503
    assert "no leader is known" in answer["reason"]


def test_without_a_majority_the_status_reports_every_group_that_readyz_counts(world):
    """Each node leads some groups, so the node that is left remembers leaders that are dead."""
    for node in world.ids():
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready")
    with blocking.Client(world.addresses) as client:
        for row in client.group_list():
            client.group_transfer(row.group, 1 + row.group % 3)
    world.dev.kill(2)
    world.dev.kill(3)
    _status, answer = wait_for(
        lambda: (said := readiness(world, 1))[1].get("leaderless") == 9 and said,
        "node 1 knows no leader of any group")
    with blocking.Client([world.address(1)]) as client:
        facts = cluster_status(client)
        believed = {row.leader for row in client.group_list()}
    assert believed == {0}, "node 1 names no leader whose node is down"
    assert facts["leaderless_groups"] == list(range(answer["leaderless"]))
    assert facts["metadata_leader"] is None
    assert [node["leads"] for node in facts["nodes"]] == [0, 0, 0]
    [reason] = [need["text"] for need in facts["needs_attention"]
                if need["problem"] == "node_not_ready"]
    assert reason == f"node 1 is not ready: {answer['reason']}"


# ---- without waiting -------------------------------------------------------------------------


def restart_all_at_once(world) -> None:
    """Stop each node as soon as the start of the previous one was requested."""
    for node in world.ids():
        world.dev.stop(node)
        world.launch(node)


def test_nodes_that_are_restarted_without_waiting_lose_nothing_and_serve_again(world):
    async def main():
        async with Client(world.addresses) as client:
            await client.create_topic("hurried", PARTITIONS)
            load = Load(client, "hurried", PARTITIONS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                for _ in range(HURRIES):
                    await trio.to_thread.run_sync(restart_all_at_once, world)
                    with trio.fail_after(SERVED_S_MAX):
                        await served_everywhere(load, PARTITIONS)
                load.stop()
            await verify(client, load.account)

    trio.run(main)
    for node in world.ids():
        wait_for(lambda node=node: is_ready(world, node), f"node {node} has everything again")
