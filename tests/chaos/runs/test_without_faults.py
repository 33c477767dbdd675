"""Clusters without faults, and one with a slow disk: no anomaly, no lost throughput, steady
leaders.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from chaos.checkers import check
from chaos.checkers.checker import CheckerLimits
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.faults.disks_and_clocks import SLOW_DISK_FACTOR
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import WARM_UP_MS, Simulation

#: All groups have elected by then, and leadership transfers after elections are done.
SETTLE_MS = 10_000
END_MS = 10_000
#: Parts of a run that are compared.
PARTS = 6
#: The consumer's reads: less than is appended meanwhile, so that most is unread in the end.
CONSUMER, READ_INTERVAL_US, UNREAD_MIN = 1, 5_000_000, 0.5
#: Longest time without an acknowledgement where there are no faults, the pauses of clients
#: included.
AVAILABLE_US = 10_000_000


def calm(seed: int, **sizes: int) -> Parameters:
    """Return parameters without faults, lost frames or disk stalls."""
    drawn = Variant(faults=(), calm_network=True, **sizes).parameters(seed)
    return dataclasses.replace(drawn, disk=dataclasses.replace(drawn.disk, stall=0.0))


def started(parameters: Parameters, history: Recording | None = None) -> Simulation:
    """Run a world with its clients until its state is steady."""
    running = Simulation(parameters, history=history)
    for node in running.nodes.values():
        node.start()
    running.run_for(WARM_UP_MS)
    running.workload.start()
    running.nemesis.start()
    running.run_for(SETTLE_MS)
    return running


class Calm(Recording):
    """A history in which nothing excuses an anomaly: it records no fault."""

    def _nemesis(self, on: bool) -> None:
        pass


class Consumer:
    """Consumer that reads all partitions in turn, each from its position, of all its replicas in
    turn; slowly, so that it falls behind all the time."""

    def __init__(self, running: Simulation):
        self._running = running
        self._group_of = {partition: group for group, partitions
                          in running.workload.partitions.items() for partition in partitions}
        self._positions = dict.fromkeys(self._group_of, 0)
        self._turns = itertools.cycle(self._positions)
        self._reads = 0
        self._slowly()

    def _slowly(self) -> None:
        self._read(next(self._turns))
        self._running.queue.after(READ_INTERVAL_US, self._slowly)

    def _read(self, partition: int) -> bool:
        """Read some KB of a partition; return True if there were records."""
        group, at = self._group_of[partition], self._positions[partition]
        voters = self._running.voters[group]
        node = self._running.nodes[voters[self._reads // len(self._positions) % len(voters)]]
        self._reads += 1
        self._positions[partition] = node.boot.clients.read(CONSUMER, group, partition, at)
        return self._positions[partition] > at

    def catch_up(self) -> None:
        """Read all remaining records."""
        for partition in self._positions:
            while self._read(partition):
                pass

    def unread(self) -> float:
        """Return the share of committed records that it has not read."""
        committed = sum(
            partition.next_offset
            for group in self._running.state_checker.groups.values()
            for partition in group.partitions.values()
        )
        return 1 - sum(self._positions.values()) / committed


def work_on(running: Simulation, minutes: int) -> None:
    """Run steady load: in no part of the time much less is acknowledged than in the first one."""
    workload, paces = running.workload, []
    for _ in range(PARTS):
        acked = workload.acked
        running.run_for(minutes * 60_000 // PARTS)
        paces.append(workload.acked - acked)
    assert min(paces) > paces[0] / 2, paces


#: Half an hour of the one with the most partitions, because each of them is a topic to the
#: checkers.
@pytest.mark.parametrize("seed, minutes", [(1, 6), (2, 6), (3, 6), (4, 30)])
def test_without_a_fault_no_leader_changes_and_the_checkers_find_nothing(seed, minutes):
    recording, parameters = Calm(), calm(seed)
    running = started(parameters, recording)
    consumer = Consumer(running)
    changes = running.state_checker.leader_changes
    work_on(running, minutes)
    assert running.state_checker.leader_changes == changes
    assert consumer.unread() > UNREAD_MIN
    running.workload.stop()
    running.run_for(END_MS)
    assert running.workload.open_appends == 0, running.workload.open_summary()
    consumer.catch_up()
    assert consumer.unread() == 0
    # From here on a consumer reads all records, from the first one on, on every node.
    recording.all_healed = True
    everybody = running.minority.healthy_nodes
    running.converge(everybody)
    running.check_quiescence(everybody)
    assert +running.faults == {}
    assert sum(node.env.counters.crashes for node in running.nodes.values()) == 0
    verdict = check(recording.finish(), CheckerLimits(
        nodes=parameters.nodes, copies=parameters.replication_factor, available_us=AVAILABLE_US))
    assert verdict.anomalies == []
    assert verdict.checked["acknowledged_commit"] == running.workload.acked


#: A write takes 0.1 to 0.2 s on the slow disk, 2 to 4 ms on the others.
WRITE_MIN_US, WRITE_SPREAD_US = 2_000, 2_000
WINDOW_MS, WINDOWS = 10_000, 6


def alike(seed: int) -> Parameters:
    """Return parameters with three nodes, twelve groups of equal load, disks of the same speed."""
    parameters = calm(seed, nodes=3, groups=12)
    disk = dataclasses.replace(parameters.disk, write_min_us=WRITE_MIN_US,
                               write_spread_us=WRITE_SPREAD_US)
    load = dataclasses.replace(parameters.workload, skew=1.0, appends_per_second=20.0,
                               burst_interval_ms=1_000)
    return dataclasses.replace(parameters, disk=disk, workload=load)


def spread_leaders(running: Simulation) -> None:
    """Make each node lead a third of the groups."""
    for node in running.nodes.values():
        for group in node.view.led_groups():
            if group and 1 + group % 3 != node.node:
                node.boot.raft.transfer(group, 1 + group % 3)
        node.boot.rounds.request()
    running.run_for(SETTLE_MS)
    for number, node in running.nodes.items():
        assert {group for group in node.view.led_groups() if group} == {
            group for group in running.state_checker.groups if group and 1 + group % 3 == number}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_slow_disk_under_a_third_of_the_leaders_slows_their_groups_alone(seed):
    running = started(alike(seed))
    spread_leaders(running)
    slow, groups = running.nodes[1], running.state_checker.groups
    led = {*slow.view.led_groups(), 0}
    changes = running.state_checker.leader_changes
    slow.disk.slow_down(SLOW_DISK_FACTOR)
    for _ in range(WINDOWS):
        before = {number: group.commit for number, group in groups.items()}
        running.run_for(WINDOW_MS)
        still = [number for number, group in groups.items() if group.commit == before[number]]
        assert not {*still} - led, f"groups {still} acknowledge nothing for {WINDOW_MS} ms"
    # Each of its groups may move to a better node, once.
    assert running.state_checker.leader_changes - changes <= len(led)
    running.workload.stop()
    running.run_for(END_MS)
    assert running.workload.open_appends == 0, running.workload.open_summary()


def test_readers_go_on_where_they_were_and_jump_back_now_and_then():
    running, offsets = started(calm(1)), []
    was_read = running.workload.was_read

    def told(group, read) -> None:
        offsets.append((read.reader, read.partition, read.offset))
        was_read(group, read)

    running.workload.was_read = told
    running.run_for(60_000)
    by_reader: dict[tuple[int, int], list[int]] = {}
    for reader, partition, offset in offsets:
        by_reader.setdefault((reader, partition), []).append(offset)
    steps = [b - a for found in by_reader.values() for a, b in itertools.pairwise(found)]
    assert sum(step > 0 for step in steps) > 20, "where there is something new they go on"
    assert 0 < sum(step < 0 for step in steps) < len(steps) / 10, "some go back"
