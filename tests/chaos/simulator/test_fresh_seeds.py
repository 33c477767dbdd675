"""Fresh seeds, for a limited time: each commit's ``make test`` runs other ones.

The first seed follows from the commit, so that a second test run of a commit runs the same seeds,
and a failure is reproducible.  Outside of a repository it is drawn at random.
``MULTIRAFT_FRESH_SEEDS_SECONDS`` sets the time in seconds (180), ``MULTIRAFT_FRESH_SEEDS_FIRST``
the first seed.  The seeds that ran are in the summary; a failing seed comes with the command that
replays it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from chaos.simulator.runner import batch_runner
from chaos.simulator.runner.coverage import Totals
from chaos.simulator.runner.shrink import shrink
from chaos.simulator.runner.variant import Variant

SECONDS = float(os.environ.get("MULTIRAFT_FRESH_SEEDS_SECONDS", "180"))
FIRST = os.environ.get("MULTIRAFT_FRESH_SEEDS_FIRST", "")
#: One process, because the other tests run beside these.
JOBS = max(1, (os.cpu_count() or 1) // 2)
#: Time to look for a smaller variant of a seed that failed.
SHRINK_SECONDS = 60.0


def first_seed() -> int:
    """Return the given seed, or that of the commit, or a random one."""
    if FIRST:
        return int(FIRST)
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent,
                              capture_output=True, text=True)
    except FileNotFoundError:  # no git
        return batch_runner.fresh_seed()
    if head.returncode:
        return batch_runner.fresh_seed()
    return int(head.stdout, 16) % batch_runner.FRESH_BELOW


def test_fresh_seeds_hold(say):
    first = first_seed()
    totals, failures, variant = Totals(), [], Variant()
    seeds = batch_runner.numbers(first, None, SECONDS / 60)
    for result in batch_runner.run_seeds(seeds, variant, JOBS):
        totals.add(result)
        if result.failure:
            failures.append(result)
            break
    say(f"seeds {first} to {first + totals.seeds - 1}, {JOBS} at a time")
    for line in totals.lines():
        say(line)
    for result in failures:
        smaller, _ = shrink(result, variant, SHRINK_SECONDS)
        say(f"FAILED  {result.failure}")
        say(f"replay:   {variant.replay(result.seed)}")
        say(f"smallest: {smaller.replay(result.seed)}")
    assert [variant.replay(result.seed) for result in failures] == []
    assert totals.counting > 0, "no seed counted: the time was too short, or the seeds are weak"
