"""The checkers and the simulator watch each other: what seeds do passes the checkers, and a bug
that clients can see is found by them too."""

from __future__ import annotations

import pytest

from chaos.checkers import Verdict, check
from chaos.simulator import planted, world
from chaos.simulator.invariants import ALL
from chaos.simulator.parameters import Parameters
from chaos.simulator.recording import Recording

SAFETY_MS = 8_000
#: Bugs that a client can see, and what the checkers call what it sees.
VISIBLE = {
    "reader-sees-uncommitted": {"A1", "A17"},
    "unknown-producer-anywhere": {"A23"},
    "window-lost-on-restart": {"A2", "A23"},
}
SEEDS_MAX = 40


def recorded(parameters: Parameters) -> tuple[world.Result, Verdict]:
    recording = Recording()
    result = world.run(parameters, history=recording)
    return result, check(recording.finish())


#: Seeds in whose histories the checkers saw plain appends twice, when the network doubled them.
DOUBLED = (134, 146, 147)


@pytest.mark.parametrize("seed", (*range(1, 7), *DOUBLED))
def test_the_history_of_a_seed_passes(seed):
    result, verdict = recorded(Parameters.draw(seed, safety_ms=SAFETY_MS))
    assert result.failure == ""
    assert verdict.anomalies == []
    assert verdict.checked["acknowledged_commit"] >= result.acked > 0
    assert verdict.checked["lost_commit"] == 0
    assert verdict.checked["records_read"] > 0


def test_the_history_changes_nothing():
    parameters = Parameters.draw(3, safety_ms=3_000)
    assert world.run(parameters).digest == world.run(parameters, history=Recording()).digest




@pytest.mark.parametrize("name", sorted(VISIBLE))
def test_a_visible_bug_is_found_from_the_history_alone(name, monkeypatch):
    """Without the simulator's invariants, which would end the run before a client sees it."""
    for kind in ALL:
        monkeypatch.setattr(kind, "require", lambda *_: None)
    for seed in range(1, SEEDS_MAX + 1):
        with planted.planted(name):
            _, verdict = recorded(Parameters.draw(seed, nodes=3, groups=3, safety_ms=15_000))
        if VISIBLE[name] & {found.id for found in verdict.anomalies}:
            return
    pytest.fail(f"{name} was not found in the histories of {SEEDS_MAX} seeds")
