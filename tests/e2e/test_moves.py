"""Replicas are moved under load, nodes that held them die, groups are recovered by force: by the
command, on real processes.
"""

from __future__ import annotations

import json

import pytest
import trio
from click.testing import CliRunner

from admin_cli.failures import ExitCode
from admin_cli.main import cli
from multiraft.client import Client, blocking
from multiraft.wire.errors import LeaderUnknown, NotLeader
from multiraft.wire.messages import ListTopics
from tests.e2e import world as worlds
from tests.e2e.load import Load, verify
from tests.e2e.world import wait_for

SHAPE = {"nodes": 5, "groups": 4, "factor": 3}
SOME = 300
#: Timeout of a request to a node about itself.
ONCE_MS = 5_000


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


def run(world, *arguments: str) -> tuple[int, dict]:
    """Return the exit code of a command, and its JSON."""
    result = CliRunner().invoke(cli, [*arguments, "--json", "--servers",
                                      ",".join(world.addresses)])
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    assert lines or result.exit_code, result.output
    return result.exit_code, json.loads(lines[-1]) if lines else {"output": result.output}


def group_of(world, topic: str) -> int:
    with blocking.Client(world.addresses) as client:
        return client.topic_metadata(topic).partitions[0].group


def test_every_replica_of_a_group_is_moved_under_load_and_nothing_is_lost(world):
    async def main():
        async with Client(world.addresses) as client:
            await client.create_topic("moving", 1)
            group = str(group_of(world, "moving"))
            load = Load(client, "moving", 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                _, before = await trio.to_thread.run_sync(run, world, "group", "members", group)
                spare = [node for node in world.ids() if node not in before["voters"]]
                for source, target in zip(before["voters"][:2], spare, strict=True):
                    code, after = await trio.to_thread.run_sync(
                        run, world, "group", "move", group, "--from", str(source), "--to",
                        str(target))
                    assert code == 0, after
                    assert target in after["voters"] and source not in after["voters"]
                    await load.acknowledged_more(SOME, partition=0)
                load.stop()
            assert set(spare) < set(after["voters"])
            await verify(client, load.account)
        for gone in before["voters"][:2]:
            world.dev.kill(gone)
        async with Client(world.addresses) as fresh:
            await verify(fresh, load.account)

    trio.run(main)


def test_members_survive_a_restart_of_all_nodes(world):
    wait_for(lambda: all(row.leader for row in world.groups(1)), "all groups are led")
    _, before = run(world, "group", "members", "1")
    spare = next(node for node in world.ids() if node not in before["voters"])
    code, _ = run(world, "group", "members", "1", "--add-learner", str(spare))
    assert code == 0
    for node in world.ids():
        world.dev.kill(node)
    world.dev.up()
    _, after = run(world, "group", "members", "1")
    assert (after["voters"], after["learners"]) == (before["voters"], [spare])


def test_a_group_without_a_majority_is_recovered_only_when_told(world):
    """Two of three voters are lost; the metadata group has neither of them."""
    wait_for(lambda: all(row.leader for row in world.groups(1)), "all groups are led")
    rows = {row.group: row for row in world.groups(1)}
    metadata_voters = set(rows[0].voters)
    group = next(row.group for row in rows.values()
                 if row.group and not metadata_voters.issuperset(row.voters))
    # Voters of the metadata group come last: at most one of them is lost.
    lost = sorted(sorted(rows[group].voters, key=metadata_voters.__contains__)[:2])
    for node in lost:
        world.dev.kill(node)
    code, said = run(world, "group", "recover", str(group))
    assert code == ExitCode.FAILED
    assert said["missing"] == lost and "incarnation" not in said
    code, said = run(world, "group", "recover", str(group), "--accept-data-loss")
    assert (code, said["incarnation"]) == (0, said["present_incarnation"] + 1)
    alone = wait_for(lambda: _led(world, group, said["incarnation"]), "the survivor leads")
    assert alone["voters"] == [said["survivor"]]
    for node in lost:
        world.dev.start(node)
    with blocking.Client(world.addresses) as client:
        for node in lost:
            wait_for(lambda node=node: _has_none(client, group, world.address(node)),
                     f"node {node} lets its replica of the earlier incarnation go")


def _led(world, group: int, incarnation: int) -> dict:
    code, found = run(world, "group", "members", str(group))
    return found if code == 0 and found["incarnation"] == incarnation else {}


def _has_none(client, group: int, address: str) -> bool:
    try:
        client.group_replica(group, address, ONCE_MS)
    except (LeaderUnknown, NotLeader):
        return True
    return False


def test_the_metadata_group_is_recovered_offline(tmp_path):
    """Two of three nodes are lost; the third continues with the metadata alone."""
    with worlds.start(tmp_path / "dev", nodes=3, groups=2, factor=3) as world:
        world.create("kept")
        with world.session(2) as session:  # a majority without it may have acknowledged the topic
            wait_for(lambda: session.reply(ListTopics()).topics, "the survivor has the topic")
        for node in world.ids():
            world.dev.kill(node)
        command = ["node", "recover-metadata", "--config", str(world.config(2))]
        refused = CliRunner().invoke(cli, command)
        assert refused.exit_code == 1 and "nothing was changed" in refused.output
        done = CliRunner().invoke(cli, [*command, "--accept-data-loss"])
        assert done.exit_code == 0, done.output
        world.dev.start(2)
        with blocking.Client([world.address(2)]) as client:
            found = wait_for(lambda: client.group_replica(0, world.address(2)).leader == 2,
                             "the survivor leads the metadata group")
            assert found
            members = client.group_members(0)
            assert (members.voters, members.incarnation) == ((2,), 2)
            assert [row.name for row in client.list_topics()
                    if not row.name.startswith("__")] == ["kept"]
        with blocking.Client([world.address(2)]) as client:
            client.group_members(0, (2,), (1,))
            world.dev.start(1)
            wait_for(lambda: client.group_replica(0, world.address(1)).incarnation == 2,
                     "node 1 follows the new incarnation")
