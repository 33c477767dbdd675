"""The first second of a cluster, before the metadata know an incarnation."""

from __future__ import annotations

import json
import shutil

import pytest

from multiraft.storage.filesystem import RealFilesystem
from node.peers.registry import read
from tests.e2e.test_nodes import data, init, still_serves
from tests.e2e.world import UP_S, World, run_node, wait_for


@pytest.fixture
def world(tmp_path):
    """Return three nodes that have never run."""
    made = World.created(tmp_path / "dev", 3, 4, 3)
    yield made
    made.dev.down()


def spawn(world, *nodes: int) -> None:
    """Start nodes without waiting for them."""
    record = world.dev.record
    for node in nodes:
        world.dev._spawn(record, record.node(node))


def facts(world, node: int):
    return read(RealFilesystem(), str(data(world, node)))


def test_a_node_that_is_wiped_before_the_cluster_began_is_bound_already(world):
    spawn(world, 1, 3)
    wait_for(lambda: facts(world, 1).bound.get(3) and facts(world, 3).bound.get(1),
             "both have bound each other")
    assert not facts(world, 1).admitted and not facts(world, 3).admitted, "one of three is missing"
    world.dev.kill(3)
    shutil.rmtree(data(world, 3))
    assert init(world.config(3)).returncode == 0
    ended = run_node(world.config(3))
    assert ended.returncode == 3, ended.stderr
    assert "a wiped node can rejoin only as a new one" in ended.stderr


def test_a_cluster_begins_when_its_nodes_have_met_and_then_needs_a_majority_only(world):
    spawn(world, 1, 2)
    wait_for(lambda: facts(world, 1).bound.get(2) and facts(world, 2).bound.get(1),
             "two have met")
    with pytest.raises(LookupError, match="does not know the metadata"):
        world.groups(1)
    spawn(world, 3)
    world.dev.up(UP_S)
    wait_for(lambda: all(facts(world, node).admitted for node in (1, 2, 3)), "all are admitted")
    for node in (1, 2, 3):
        world.dev.kill(node)
    spawn(world, 1, 2)
    wait_for(lambda: {row.leader for row in world.groups(1)} & {1, 2}, "two of three elect")
    spawn(world, 3)
    world.dev.up(UP_S)
    still_serves(world, "begun")
    for node in (1, 2, 3):
        identity = json.loads((data(world, node) / "node.json").read_text())
        assert identity["boot_epoch"] == 2
