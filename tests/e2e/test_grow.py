"""The cluster changes its nodes: one joins and gets replicas, one dies and is replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import trio

from admin_cli.development import dev_state
from multiraft.client import blocking
from multiraft.wire.errors import InvalidRequest, NodeRemoved
from tests.e2e.test_kill_leader import SOME, under_load
from tests.e2e.test_nodes import data, init, node_rows, still_serves
from tests.e2e.world import ROOT, run_node, steady, wait_for

STORY = True
SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}
TOPIC = "kept"
VALUES = [b"%05d" % number for number in range(500)]
COMMAND_S = 300.0


def multiraft(world, *words: str) -> subprocess.CompletedProcess:
    """Run the command as a user runs it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT),
                   "MULTIRAFT_SERVERS": ",".join(world.addresses)}
    return subprocess.run([sys.executable, "-m", "admin_cli", *words], capture_output=True,
                          text=True, timeout=COMMAND_S, env=environment)


def answer(world, *words: str):
    """Return the JSON of a command which must succeed."""
    done = multiraft(world, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(world) -> list[bytes]:
    with blocking.Client(world.addresses) as client:
        return [record.value for batch in client.consume(TOPIC, until_end=True)
                for record in batch]


@pytest.fixture(scope="module", autouse=True)
def records(world):
    with blocking.Client(world.addresses) as client:
        client.create_topic(TOPIC, 4)
        with client.producer() as producer:
            producer.send_many(TOPIC, VALUES)
    yield
    assert sorted(read(world)) == VALUES


def members(world, group: int) -> set[int]:
    """Return the recorded voters of a group: every node gives the same answer in the end."""
    with blocking.Client(world.addresses) as client:
        return {*client.group_list()[group].voters}


def test_a_node_joins_and_every_other_one_hears_of_it(world):
    assert world.dev.add() == 4
    for asked in world.ids():
        def up(asked=asked):
            with blocking.Client([world.address(asked)]) as client:
                rows = {row.node.id: row for row in client.node_list().nodes}
            return 4 in rows and rows[4].state == "up" and rows[4].node.boot_epoch
        wait_for(up, f"node {asked} sees node 4")
    described = answer(world, "node", "describe", "4")
    assert (described["voter_of"], described["learner_of"]) == ([], [0])
    still_serves(world, "with-four")
    world.dev.stop(4)
    world.dev.start(4)
    wait_for(lambda: node_rows(world)[4].node.boot_epoch > described["boot_epoch"]
             and node_rows(world)[4].state == "up", "it comes back as the node it was")


def test_a_group_moves_to_the_new_node_and_it_can_lead(world):
    moved = answer(world, "group", "move", "1", "--from", "1", "--to", "4")
    assert {2, 3, 4} == {*moved["voters"]}
    wait_for(lambda: members(world, 1) == {2, 3, 4}, "it is recorded")
    # A transfer that takes too long is given up.
    wait_for(lambda: answer(world, "group", "transfer", "1", "4")["leader"] == 4, "node 4 leads")
    assert sorted(read(world)) == VALUES
    back = answer(world, "group", "move", "1", "--from", "4", "--to", "1")
    assert {1, 2, 3} == {*back["voters"]}


def test_groups_in_which_the_new_node_votes_already_are_left_alone_and_named(world):
    refused = multiraft(world, "node", "replace", "1", "2", "--yes", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["moved"] == []
    assert {row["group"] for row in json.loads(refused.stdout)["skipped"]} == {0, 1, 2, 3, 4}
    assert "node 2 is a voter of it already" in refused.stderr and "--to OTHER" in refused.stderr
    assert multiraft(world, "node", "replace", "1", "9").returncode == 4
    assert multiraft(world, "node", "replace", "1", "1").returncode == 2


def test_a_dead_node_is_replaced_and_never_comes_back(world):
    wait_for(lambda: node_rows(world)[3].node.incarnation, "node 3 is registered")
    world.dev.kill(3)
    refused = multiraft(world, "node", "remove", "3", "--yes")
    assert refused.returncode == 1
    assert "member of 5 groups" in refused.stderr and "node replace 3" in refused.stderr
    dry = answer(world, "node", "replace", "3", "4")
    assert (dry["would_move"], dry["moved"], dry["dry_run"]) == ([1, 2, 3, 4, 0], [], True)
    assert all(3 in members(world, group) for group in range(5)), "nothing was moved"
    replaced = answer(world, "node", "replace", "3", "4", "--yes")
    assert (sorted(replaced["moved"]), replaced["skipped"]) == ([0, 1, 2, 3, 4], [])
    again = answer(world, "node", "replace", "3", "4", "--yes")
    assert again["moved"] == [], "nothing is left to do"
    for group in range(5):
        assert 3 not in members(world, group)
    assert sorted(read(world)) == VALUES
    assert answer(world, "node", "remove", "3") == {"removed": None, "dry_run": True}
    assert answer(world, "node", "list")["removed"] == []
    assert answer(world, "node", "remove", "3", "--yes")["removed"] == 3
    assert answer(world, "node", "list")["removed"] == [3]
    wait_for(lambda: 3 not in node_rows(world), "everybody has heard")
    ended = run_node(world.config(3))
    assert ended.returncode == 3, ended.stderr
    assert "was removed from the cluster" in ended.stderr
    assert "under another id" in ended.stderr
    still_serves(world, "without-three")


def test_the_machine_of_a_lost_node_comes_back_as_a_new_node(world):
    """The same addresses, an empty disk, no id: it gets the next free one."""
    shutil.rmtree(data(world, 3))
    path = dev_state.config_path(world.dev.directory, 5)
    path.parent.mkdir()
    text = world.config(3).read_text()
    node_table = text[text.index("[node]"):text.index("[cluster]")]
    path.write_text(node_table.replace("id = 3\n", ""))
    servers = ",".join(world.address(node) for node in (1, 2, 4))
    anew = init(path, "--join", servers)
    assert anew.returncode == 0, anew.stderr
    assert "node 5 of cluster" in anew.stderr
    record = world.dev.record
    row = record.node(3)
    row.id, row.wanted = 5, dev_state.STOP
    dev_state.save(world.dev.directory, record)
    world.dev.start(5)
    wait_for(lambda: node_rows(world)[5].state == "up", "node 5 is there")
    replaced = answer(world, "node", "replace", "4", "5", "--yes")
    assert sorted(replaced["moved"]) == [0, 1, 2, 3, 4]
    assert sorted(read(world)) == VALUES


def test_a_living_node_that_is_removed_ends_by_itself(world):
    assert answer(world, "node", "remove", "4", "--yes")["removed"] == 4
    wait_for(lambda: next(row.state for row in world.dev.status() if row.id == 4) == "removed",
             "node 4 has ended")
    assert "was removed from the cluster" in world.logs()


def test_nobody_joins_under_an_id_that_was_removed(world):
    path = world.config(1).with_name("again.toml")
    text = world.config(1).read_text()
    node_table = text[text.index("[node]"):text.index("[cluster]")]
    path.write_text(node_table.replace("id = 1\n", "id = 3\n").replace('"data"', '"fresh"'))
    refused = init(path, "--join", world.address(1))
    assert refused.returncode == 3
    assert "ids are never used again" in refused.stderr
    with blocking.Client(world.addresses) as client:
        with pytest.raises(NodeRemoved):
            row = client.node_list().nodes[0].node
            client.join_cluster(row._replace(id=3, incarnation=9))


@pytest.mark.parametrize("name", ["client_address", "peer_address"])
def test_nobody_joins_with_an_address_that_others_cannot_connect_to(world, name):
    with blocking.Client(world.addresses) as client:
        row = client.node_list().nodes[0].node._replace(id=0, incarnation=9, boot_epoch=0)
        with pytest.raises(InvalidRequest, match="no separate listen address"):
            client.join_cluster(row._replace(**{name: "0.0.0.0:9101"}))


def test_a_node_is_replaced_under_load_and_nothing_acknowledged_is_lost(world):
    new = world.dev.add()

    async def during(_client, load, _leader):
        replaced = await trio.to_thread.run_sync(answer, world, "node", "replace", "1", str(new),
                                                "--yes")
        assert sorted(replaced["moved"]) == [0, 1, 2, 3, 4]
        await load.acknowledged_more(SOME, partition=0)
        removed = await trio.to_thread.run_sync(answer, world, "node", "remove", "1", "--yes")
        assert removed["removed"] == 1
        await load.acknowledged_more(SOME, partition=0)

    trio.run(under_load, world, "moving", during)
    wait_for(lambda: 1 not in node_rows(world), "everybody has heard")
