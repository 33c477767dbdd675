"""Power losses with relaxed durability: only unsynced records may be lost."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from chaos.planted.bug import Bug, Seeds, planted
from chaos.simulator import simulation
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.oracle.invariants import PromisedLoss
from chaos.simulator.simulation import Simulation

FAULTS = ("power-loss", "transfer", "isolate-leader", "kill", "cluster-power")


def relaxed(seed: int) -> Parameters:
    drawn = Parameters.draw(seed, groups=4, safety_ms=20_000)
    return dataclasses.replace(drawn, faults=FAULTS, fault_interval_ms=1000,
                               fault_duration_ms=300, disk=dataclasses.replace(
                                   drawn.disk, flush_interval_ms=(20, 500)[seed % 2]))


def failures(bug: Bug, seeds: Iterable[int] = range(1, 25)) -> Iterator[str]:
    """Yield the failure of one seed after the other."""
    with planted(bug):
        for seed in seeds:
            yield simulation.run(relaxed(seed)).failure


def test_a_loss_of_power_takes_records_and_the_cluster_goes_on():
    forgotten = losses = 0
    lines: list[str] = []
    for seed in range(8, 40):  # a third of the seeds loses some, because few records are unsynced
        running = Simulation(relaxed(seed), lines.append)
        with contextlib.suppress(PromisedLoss):
            running.run()
        losses += running.event_counts["relaxed power loss"]
        forgotten += sum(len(replica.forgotten) for group in running.state_checker.groups.values()
                         for replica in group.replicas.values())
    assert losses > 100 and forgotten > 30
    believed = [line for line in lines
                if " member_changed " in line and line.endswith(" lost_entries")]
    assert len(believed) > 10, "leaders that had not heard of the new life take its word"


def test_the_only_voter_of_a_group_is_spared():
    """The voter is a majority by itself: its acknowledged, unsynced records would be gone for good.
    """
    for seed in range(1, 4):
        assert not simulation.run(dataclasses.replace(relaxed(seed), replication_factor=1)).failure


def test_a_leader_that_does_not_believe_a_member_that_forgot_is_noticed():
    """The leader counts what the member had acknowledged, and sends it nothing.

    It does so both when the member reports a shorter log and when the member restarts.
    """
    bug = Bug("forgetful-is-not-fed", "chaos.simulator.env.limits", "raft_config",
              "accept_lost_entries=parameters.disk.flush_interval_ms > 0",
              "accept_lost_entries=False", "", Seeds())
    # One seed in sixteen shows the bug.
    assert any("Liveness" in failure for failure in failures(bug, range(10, 90)))


def test_whoever_does_not_sync_what_is_more_than_records_is_noticed():
    bug = Bug(
        "votes-wait-for-their-sync",
        "node.loop.write_gather",
        "WriteGather._sync_is_due",
        "not all(staged.records_only for staged in self._in_flight)\n            or ",
        "",
        "",
        Seeds(),
    )
    assert any(failure for failure in failures(bug))


def test_whoever_lets_records_wait_for_ever_loses_more_than_is_promised():
    """Records that were reported as synced must survive, so a disk that does not sync is found."""
    bug = Bug("flush-does-nothing", "chaos.simulator.disk.filesystem", "SimulatedFilesystem.sync",
              "self._effect(Inode.flush, inode)",
              "self._effect(Inode.flush, inode) if self.syncs % 3 else None", "", Seeds())
    assert any("DurableSurvives" in failure or "NothingIsDamaged" in failure
               for failure in failures(bug))
