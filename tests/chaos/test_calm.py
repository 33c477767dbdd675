"""What must not happen to a cluster that nobody hurts, and to one in which one disk is slow."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.simulator.nemesis import SLOW_DISK_FACTOR
from chaos.simulator.parameters import Parameters
from chaos.simulator.variant import Variant
from chaos.simulator.world import WARM_UP_MS, World

#: All groups have elected by then, and what elections began has been handed over.
SETTLE_MS = 10_000
CALM_MS, END_MS = 120_000, 10_000


def calm(seed: int, **sizes: int) -> Parameters:
    """No fault, no lost frame, no disk that stalls."""
    drawn = Variant(faults=(), calm_network=True, **sizes).parameters(seed)
    return dataclasses.replace(drawn, disk=dataclasses.replace(drawn.disk, stall=0.0))


def started(parameters: Parameters) -> World:
    """A world whose clients have been at it until nothing changes any more."""
    running = World(parameters)
    for node in running.nodes.values():
        node.start()
    running.run_for(WARM_UP_MS)
    running.workload.start()
    running.nemesis.start()
    running.run_for(SETTLE_MS)
    return running


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_without_a_fault_no_leader_changes_and_everything_is_acknowledged(seed):
    running = started(calm(seed))
    changes, acked = running.witness.leader_changes, running.workload.acked
    running.run_for(CALM_MS)
    assert running.witness.leader_changes == changes
    assert running.workload.acked > acked
    running.workload.stop()
    running.run_for(END_MS)
    assert running.workload.open_appends == 0, running.workload.open_summary()
    assert +running.faults == {}
    assert sum(node.crashes for node in running.nodes.values()) == 0


#: A write takes 0.1 to 0.2 s on the slow disk, 2 to 4 ms on the others.
WRITE_MIN_US, WRITE_SPREAD_US = 2_000, 2_000
WINDOW_MS, WINDOWS = 10_000, 6


def alike(seed: int) -> Parameters:
    """Three nodes, twelve groups that all have as much to do, disks of the same speed."""
    parameters = calm(seed, nodes=3, groups=12)
    disk = dataclasses.replace(parameters.disk, write_min_us=WRITE_MIN_US,
                               write_spread_us=WRITE_SPREAD_US)
    load = dataclasses.replace(parameters.workload, skew=1.0, appends_per_second=20.0,
                               burst_interval_ms=1_000)
    return dataclasses.replace(parameters, disk=disk, workload=load)


def spread_leaders(running: World) -> None:
    """Each node leads a third of the groups."""
    for node in running.nodes.values():
        for group in node.led_groups():
            if group and 1 + group % 3 != node.node:
                node._raft.transfer(group, 1 + group % 3)
        node.request_round()
    running.run_for(SETTLE_MS)
    for number, node in running.nodes.items():
        assert {group for group in node.led_groups() if group} == {
            group for group in running.witness.groups if group and 1 + group % 3 == number}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_slow_disk_under_a_third_of_the_leaders_slows_their_groups_alone(seed):
    running = started(alike(seed))
    spread_leaders(running)
    slow, groups = running.nodes[1], running.witness.groups
    led = {*slow.led_groups(), 0}
    changes = running.witness.leader_changes
    slow.slow_disk(SLOW_DISK_FACTOR)
    for _ in range(WINDOWS):
        before = {number: group.commit for number, group in groups.items()}
        running.run_for(WINDOW_MS)
        still = [number for number, group in groups.items() if group.commit == before[number]]
        assert not {*still} - led, f"groups {still} acknowledge nothing for {WINDOW_MS} ms"
    # Each of its groups may go to a better node, once.
    assert running.witness.leader_changes - changes <= len(led)
    running.workload.stop()
    running.run_for(END_MS)
    assert running.workload.open_appends == 0, running.workload.open_summary()
