"""Nodes that stop in order, by the product's steps, lead nothing and lose nothing."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.planted.bug import Bug, Seeds, planted
from chaos.simulator import simulation
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.node.node import SimulatedNode
from chaos.simulator.simulation import Simulation


def running() -> Simulation:
    """Return a cluster of three nodes under load, without faults."""
    drawn = Parameters.draw(3, nodes=3, groups=8, safety_ms=1000)
    made = Simulation(dataclasses.replace(drawn, faults=()))
    for node in made.nodes.values():
        node.start()
    made.run_for(simulation.WARM_UP_MS)
    made.workload.start()
    made.run_for(1000)
    return made


def finish(made: Simulation) -> None:
    """Heal everything and check convergence."""
    made.converge(made.heal())


def led_by_others(made: Simulation, node: SimulatedNode) -> set[int]:
    return {group for other in made.nodes.values() if other is not node and other.is_up
            for group in other.view.led_groups()}


def busiest_of(made: Simulation) -> SimulatedNode:
    return max(made.nodes.values(), key=lambda node: len(node.view.led_groups()))


def test_other_nodes_lead_its_groups_before_a_node_ends():
    made = running()
    node = busiest_of(made)
    groups = set(node.view.led_groups())
    assert groups and node.stop()
    led_until_end = []
    while node.alive:
        led_until_end = node.view.led_groups()
        made.run_for(1)
    assert led_until_end == []
    assert groups <= led_by_others(made, node)
    assert made.event_counts["stopped in order"] == 1
    finish(made)
    assert node.is_up


def test_the_last_checkpoint_holds_everything_that_was_applied():
    made = running()
    node = busiest_of(made)
    applied = {}
    node.stop()
    while node.alive:
        status = node.boot.raft.status
        applied = {group: status.applied_index(group) for group in status.groups()}
        made.run_for(1)
    node.start()
    while node.boot is None:
        made.run_for(1)
    restored = node.boot.store.groups
    assert {group: restored[group].applied for group in applied} == applied


def test_a_node_that_is_down_or_paused_does_not_stop_in_order():
    made = running()
    node = busiest_of(made)
    node.pause()
    assert not node.stop()
    node.resume()
    node.crash(power=False)
    assert not node.stop()


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_during_the_stop_is_one_like_others(power):
    for effects in range(1, 60, 7):
        made = running()
        node = busiest_of(made)
        node.fail_points.arm_crash(effects, power)
        assert node.stop() and node.stop()
        made.run_for(8_000)
        assert node.env.counters.crashes == 1
        finish(made)


def test_a_node_that_ends_before_its_leaderships_have_moved_is_noticed():
    bug = Bug("ends-while-it-leads", "node.replicas.orderly_stop", "OrderlyStop.run",
              "await self._drain.run(self._timeout_ms)", "pass", "", Seeds())
    made = running()
    node = busiest_of(made)
    groups = set(node.view.led_groups())
    with planted(bug):
        node.stop()
        while node.alive:
            made.run_for(1)
    assert not groups <= led_by_others(made, node)
