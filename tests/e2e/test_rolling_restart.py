"""`/readyz` as a rolling restart uses it: a ready node has all records that were acknowledged
meanwhile.  Also rolling restarts (S40): in the middle of a rebalance, and without waiting for
nodes.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
import trio
from click.testing import CliRunner, Result

from admin_cli.main import cli
from multiraft.client import Client, blocking
from multiraft.client.blocking import Record
from multiraft.wire.plans import PlanStatus
from tests.e2e.load import Load, verify
from tests.e2e.world import WAIT_S, wait_for

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
RECORDS = 2_000
#: Bytes of the move: seconds with the throttle, so that all nodes are restarted before it is over.
VALUE, VALUES = bytes(100_000), 600
THROTTLE = 1 << 20
SOME = 300
POLICY = {"bands": [{"resource": "disk", "permille": 100, "floor": 0}], "cool_down_ms": 0}
PLAN_S = 300.0
#: Partitions with appends meanwhile: most groups have one.
PARTITIONS = 16
#: Longest time without an acknowledgement of any partition in a restart that waits: leaders are
#: transferred in a moment, and elected in one or two seconds where the transfer fails.
SILENT_S_MAX = 20.0
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


def readiness(world, node: int) -> tuple[int, dict]:
    """Return (status, answer) of a node's ``/readyz``; (0, {}) when the port is closed."""
    url = f"http://{world.dev.record.node(node).http_address}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def is_ready(world, node: int) -> bool:
    return readiness(world, node)[0] == 200


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


# ---- without waiting -------------------------------------------------------------------------


def restart_all_at_once(world) -> None:
    """Stop each node as soon as the start of the previous one was requested."""
    for node in world.ids():
        world.dev.stop(node)
        world.launch(node)


async def served_everywhere(load: Load, partitions: int) -> None:
    """Check that each partition accepts appends."""
    async with trio.open_nursery() as nursery:
        for partition in range(partitions):
            nursery.start_soon(load.acknowledged_more, 1, partition)


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


# ---- in the middle of a rebalance ------------------------------------------------------------


def rebalance(world, *words: object) -> Result:
    """Run the command, which has to succeed."""
    done = CliRunner().invoke(cli, ["rebalance", *map(str, words), "--servers",
                                    ",".join(world.addresses)])
    assert done.exit_code == 0, done.output
    return done


def status(world):
    with blocking.Client(world.addresses) as client:
        return client.plan_request(PlanStatus())


def restart_all_while_a_plan_is_carried_out(world, tmp_path) -> None:
    policy, plan = tmp_path / "policy.json", tmp_path / "plan.json"
    policy.write_text(json.dumps(POLICY))
    rebalance(world, "plan", "--policy", policy, "--window", "0.2", "--output", plan)
    rebalance(world, "apply", plan, "--yes", "--throttle", THROTTLE)
    wait_for(lambda: status(world).bytes_done, "it copies")
    for node in world.ids():
        assert status(world).state in ("running", "paused"), "restarts come too late"
        world.dev.stop(node)
        world.dev.start(node)
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready again")
    wait_for(lambda: status(world).state == "running", "it goes on by itself")
    rebalance(world, "throttle", "512MiB")
    ended = wait_for(lambda: (found := status(world)).state in ("done", "cancelled") and found,
                     "the plan is over", PLAN_S)
    assert (ended.state, dict(ended.phases)) == ("done", {"done": ended.moves_total})


def test_every_node_is_restarted_while_a_plan_moves_replicas_and_nothing_is_lost(world, tmp_path):
    world.create("stored", 16)
    with blocking.Client(world.addresses) as client, client.producer() as producer:
        for number in range(VALUES):
            producer.send(Record("stored", VALUE, partition=number % 16))
    assert world.dev.add() == 4

    async def main():
        async with Client(world.addresses) as client:
            await client.create_topic("meanwhile", PARTITIONS)
            load = Load(client, "meanwhile", PARTITIONS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                await trio.to_thread.run_sync(restart_all_while_a_plan_is_carried_out, world,
                                              tmp_path)
                await served_everywhere(load, PARTITIONS)
                load.stop()
            silent_s = load.account.silent_s
            assert max(silent_s.values()) <= SILENT_S_MAX, silent_s
            assert not load.account.refused
            await verify(client, load.account)

    trio.run(main)
    with blocking.Client(world.addresses) as client:
        found = [client.group_members(group) for group in range(1, SHAPE["groups"] + 1)]
        assert all(len(row.voters) == 3 and not row.learners for row in found), found
        assert sum(4 in row.voters for row in found) >= 3, found
        assert sum(len(batch) for batch in client.consume("stored", until_end=True)) == VALUES
