"""The simulator can fail: each planted bug is caught within a few seeds."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.simulator import planted, world
from chaos.simulator.parameters import Parameters

#: Most are caught by the first five seeds, nearly all by the first twenty: a changed system goes
#: other ways, so there is room.
SEEDS_MAX = 80
#: Mean times from one fault to the next: seeds of seconds need more than those of minutes.
INTERVALS_MS = (300, 700, 1500)
#: Sizes that only such seeds can afford.
CHECKPOINT_BYTES = (4 << 10, 16 << 10, 64 << 10)
SEGMENT_GROWTH = (1, 1, 4, 16)
#: Leaders that change the members and are cut off with what they changed.
OF_CONFIGURATIONS = ("members", "members", "return", "isolate-leader", "partition-halves",
                     "partition-one")
#: Seeds that caught rare ones, tried first: two majorities that do not overlap must both decide.
KNOWN = {"two-voters-at-once": (22,), "doubter-is-counted": (83,)}


#: Bugs in what happens when members change.
OF_MEMBERS = {
    "counts-itself-when-removed", "two-voters-at-once", "old-majority-is-not-asked",
    "configuration-when-committed", "configuration-outlives-its-entry",
    "acknowledgement-of-an-earlier-life", "tombstone-forgets-the-vote",
}


def dense(seed: int, faults: tuple[str, ...] = (), members: bool = False) -> Parameters:
    """Few groups, many faults and appends, tiny files, so that much happens to each of them."""
    parameters = Parameters.draw(seed, None if members else 3, 3, 15_000)
    disk = parameters.disk
    parameters = dataclasses.replace(
        parameters, fault_interval_ms=INTERVALS_MS[seed % 3],
        disk=dataclasses.replace(
            disk, checkpoint_bytes=CHECKPOINT_BYTES[seed // 3 % 3],
            segment_bytes_max=disk.first_segment_bytes * SEGMENT_GROWTH[seed % 4]),
        workload=dataclasses.replace(parameters.workload, appends_per_second=30.0))
    if members and seed % 2:
        return parameters.with_members()
    if members:
        return dataclasses.replace(parameters, faults=OF_CONFIGURATIONS, fault_interval_ms=150,
                                   fault_duration_ms=600)
    if not faults:
        return parameters
    return dataclasses.replace(parameters, faults=faults, fault_interval_ms=150,
                               fault_duration_ms=800)


@pytest.mark.parametrize("name", sorted(planted.BUGS))
def test_planted_bug_is_caught(name):
    for seed in (*KNOWN.get(name, ()), *range(1, SEEDS_MAX + 1)):
        with planted.planted(name):
            result = world.run(dense(seed, planted.BUGS[name].faults, name in OF_MEMBERS))
        if result.failure:
            return
    pytest.fail(f"{name} ({planted.BUGS[name].why}) was not caught by {SEEDS_MAX} seeds")


def test_planting_ends_with_its_context():
    before = planted._function(planted.BUGS["aba"]).__code__
    with planted.planted("aba"):
        assert planted._function(planted.BUGS["aba"]).__code__ is not before
    assert planted._function(planted.BUGS["aba"]).__code__ is before


def test_a_bug_whose_code_is_gone_is_an_error(monkeypatch):
    stale = planted.BUGS["aba"]._replace(old="no such text")
    monkeypatch.setitem(planted.BUGS, "stale", stale)
    with pytest.raises(planted.StaleBug):
        with planted.planted("stale"):
            pass
