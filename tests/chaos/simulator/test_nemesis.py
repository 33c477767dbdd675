"""Counts of faults: only faults that happened are counted."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.simulator.env.parameters import FAULT_KINDS, Parameters
from chaos.simulator.faults.nemesis import FAULTS
from chaos.simulator.simulation import Simulation

#: Kinds that find no target while all nodes are down.
OF_LIVING_NODES = ("power-loss", "kill", "cluster-power", "crash-in-write", "double-crash", "pause",
                   "bit-rot", "misdirected", "rot-beside", "eio-write", "eio-sync", "eio-directory",
                   "isolate-leader", "disconnect", "members", "return", "transfer",
                   "rot-checkpoint", "rot-header", "rot-identity", "mover-crash")


def test_every_kind_of_fault_has_a_function():
    assert sorted(FAULTS) == sorted(FAULT_KINDS)


@pytest.mark.parametrize("kind", OF_LIVING_NODES)
def test_a_strike_that_finds_nothing_to_do_is_not_counted(kind):
    running = Simulation(dataclasses.replace(Parameters.draw(3, groups=2), faults=(kind,),
                                        fault_interval_ms=100))
    running.nemesis.start()  # no node was started
    running.run_for(2_000)
    assert kind in running.faults  # the nemesis has drawn it
    assert running.faults[kind] == 0


def test_failed_writes_and_syncs_are_counted_when_they_fail():
    running = Simulation(dataclasses.replace(
        Parameters.draw(3, groups=2), faults=("eio-write", "eio-sync", "eio-directory"),
        fault_interval_ms=500, safety_ms=20_000))
    running.run()
    failed = [node.disk.filesystem.faults for node in running.everyone.values()]
    assert running.faults["eio-write"] == sum(one.write_errors for one in failed) > 0
    assert (running.faults["eio-sync"] + running.faults["eio-directory"]
            == sum(one.sync_errors for one in failed) > 0)


def test_crashes_are_counted_when_they_happen():
    running = Simulation(
        dataclasses.replace(
            Parameters.draw(3, groups=2),
            faults=("crash-in-write",),
            fault_interval_ms=500,
            safety_ms=20_000,
        )
    )
    running.run()
    by_itself = running.event_counts["lives anew in its sleep"]  # one restart after the faults
    assert by_itself == 1
    assert running.faults["crash-in-write"] == sum(node.env.counters.crashes for node in
                                                   running.nodes.values()) - by_itself > 0
