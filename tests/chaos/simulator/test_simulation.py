"""Simulations of smoke seeds and pinned seeds, and determinism: equal seeds give equal digests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.simulator import simulation
from chaos.simulator.env.parameters import Parameters

ROOT = Path(__file__).parents[3]
PINNED = [int(line.split()[0]) for line in (Path(__file__).parent / "seeds.txt").read_text()
          .splitlines() if line and not line.startswith("#")]
#: Simulated seconds of faults, of a smoke seed and of a pinned one; the command uses 300 s.
SMOKE_SAFETY_MS = 8_000
PINNED_SAFETY_MS = 60_000
SMOKE_SEEDS = range(1, 26)


def test_marks_and_faults_of_the_smoke_seeds_are_real():
    """Runs without crashes or leader changes would prove nothing, so their sums have minimums."""
    results = [
        simulation.run(Parameters.draw(seed, safety_ms=SMOKE_SAFETY_MS)) for seed in SMOKE_SEEDS
    ]
    assert [f"seed {result.seed}: {result.failure}" for result in results if result.failure] == []
    assert sum(result.acked for result in results) > 1000
    assert sum(result.reads for result in results) > 200
    assert sum(result.crashes for result in results) > 30
    assert sum(result.leader_changes for result in results) > 100  # first leaders are none
    assert sum(result.event_counts["log_truncated"] for result in results) > 0
    assert sum(result.event_counts["trust_revoked"] for result in results) > 0
    assert len({kind for result in results for kind in result.faults}) >= 15
    assert sum(result.event_counts["entries compacted"] > 0 for result in results) > 10
    assert sum(result.faults["group-snapshot-installed"] > 0 for result in results) > 6
    assert sum(result.event_counts["records copied"] for result in results) > 100


def test_most_seeds_compact_groups_with_partitions_by_limits_of_their_own():
    drawn = [Parameters.draw(seed).compaction for seed in range(200)]
    assert 5 < drawn.count(None) < 40
    limits = [each for each in drawn if each is not None]
    for kept in ("kept_bytes", "newest_bytes", "node_newest_bytes"):
        values = {getattr(each, kept) for each in limits}
        assert min(values) == 0 and max(values) > 1 << 20


@pytest.mark.parametrize("seed", PINNED)
def test_pinned_seed_holds(seed):
    result = simulation.run(Parameters.draw(seed, safety_ms=PINNED_SAFETY_MS))
    assert result.failure == ""


def digest_of(seed: int, hash_seed: str) -> str:
    program = ("from chaos.simulator import simulation\n"
               "from chaos.simulator.env.parameters import Parameters\n"
               f"result = simulation.run(Parameters.draw({seed}, safety_ms=15000))\n"
               "print(result.digest, result.failure, sorted(result.faults.items()),\n"
               "      sorted(result.event_counts.items()), result.crashes)\n")
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment,
                              capture_output=True, text=True, check=True)
    return finished.stdout


def test_one_seed_gives_one_trace_whatever_the_hash_seed():
    first = digest_of(3, "0")
    assert first == digest_of(3, "4711")
    assert first != digest_of(4, "0")


def test_given_sizes_shift_nothing_else():
    drawn, given = Parameters.draw(7), Parameters.draw(7, nodes=3, groups=5)
    assert (given.nodes, given.groups) == (3, 5)
    assert (given.network, given.disk, given.workload) == (drawn.network, drawn.disk,
                                                           drawn.workload)
