"""A rolling restart in the middle of a rebalance (S40): the plan continues, and nothing is lost."""

from __future__ import annotations

import json

import trio
from click.testing import CliRunner, Result

from admin_cli.main import cli
from multiraft.client import Client, blocking
from multiraft.client.blocking import Record
from multiraft.wire.plans import PlanStatus
from tests.e2e.load import Load, verify
from tests.e2e.readiness import is_ready, served_everywhere
from tests.e2e.world import wait_for

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
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
