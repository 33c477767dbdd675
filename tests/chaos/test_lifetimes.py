"""Nodes that lose their directory: they are replaced, and refused when they come back."""

from __future__ import annotations

import dataclasses

from chaos.simulator import world
from chaos.simulator.parameters import Parameters
from chaos.simulator.world import World


def test_lost_nodes_are_replaced_and_come_back_to_a_refusal():
    found = []
    for seed in (1, 2, 6):
        parameters = dataclasses.replace(Parameters.draw(seed, groups=4, safety_ms=20_000),
                                         faults=("wipe", "kill", "transfer"),
                                         fault_interval_ms=700)
        result = world.run(parameters)
        assert not result.failure, result.failure
        assert result.marks["replaced"] == result.faults["wipe"]
        found.append(result)
    assert sum(result.faults["wipe"] for result in found) >= 5
    assert sum(result.faults["wiped-refused"] for result in found) >= 2


def wiped_world() -> tuple[World, int, int]:
    """A calm world in which a node was wiped and replaced: (world, lost, new)."""
    drawn = Parameters.draw(2, nodes=3, groups=4)
    calm = dataclasses.replace(drawn.network, loss=0.0, duplication=0.0, item_loss=0.0, reorder=0.0)
    running = World(dataclasses.replace(drawn, network=calm))
    for node in running.nodes.values():
        node.start()
    running.run_for(1_500)
    running.wipes.wipe(running.nodes[2])
    return running, 2, 4


def test_a_new_node_is_a_voter_where_the_lost_one_was():
    running, lost, new = wiped_world()
    assert not running.wipes.may_wipe(running.nodes[1])  # one at a time
    running.run_for(20_000)
    assert running.wipes.is_done
    for group in running.witness.groups.values():
        members = group.configuration()
        assert lost not in members.members() and new in members.voters
        assert group.replica(new).durable.holds(group.commit, group.committed[-1])


def test_nothing_that_the_others_say_lets_a_wiped_node_in():
    running, lost, _ = wiped_world()
    node = running.everyone[lost]
    refused = running.faults["wiped-refused"]
    for wait_ms in (100, 20_000):  # still a member of its groups, and removed from all
        running.run_for(wait_ms)
        node.start()
        running.run_for(500)
        assert not node.alive and not node.is_registered
        refused, before = running.faults["wiped-refused"], refused
        assert refused > before
