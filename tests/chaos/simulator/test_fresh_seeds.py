"""Seeds that nobody has run before, for a while: each commit's ``make test`` looks somewhere else.

The first seed follows from the commit, so that whoever tests a commit again tests the same, and a
red run is red again; outside of a repository it is drawn.  ``MULTIRAFT_FRESH_SEEDS_SECONDS`` sets
for how long (180), ``MULTIRAFT_FRESH_SEEDS_FIRST`` which seed comes first.  What was run is in the
summary; a failing seed comes with the command that replays it.
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
#: The other tests go on beside these.
JOBS = max(1, (os.cpu_count() or 1) // 2)
#: Time to look for a smaller variant of a seed that failed.
SHRINK_SECONDS = 60.0


def first_seed() -> int:
    """As told, else that of the commit, else any."""
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
