"""Seeds that nobody has run before, for a while: each ``make test`` looks somewhere else.

``MULTIRAFT_FRESH_SEEDS_SECONDS`` sets for how long (180), ``MULTIRAFT_FRESH_SEEDS_FIRST`` which
seed comes first (drawn).  What was run is in the summary; a failing seed comes with the command
that replays it.
"""

from __future__ import annotations

import os

from chaos.simulator import campaign
from chaos.simulator.counting import Totals
from chaos.simulator.shrink import shrink
from chaos.simulator.variant import Variant

SECONDS = float(os.environ.get("MULTIRAFT_FRESH_SEEDS_SECONDS", "180"))
FIRST = os.environ.get("MULTIRAFT_FRESH_SEEDS_FIRST", "")
JOBS = os.cpu_count() or 1
#: Time to look for a smaller variant of a seed that failed.
SHRINK_SECONDS = 60.0


def test_fresh_seeds_hold(say):
    first = int(FIRST) if FIRST else campaign.fresh_seed()
    totals, failures, variant = Totals(), [], Variant()
    seeds = campaign.numbers(first, None, SECONDS / 60)
    for result in campaign.run_seeds(seeds, variant, JOBS):
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
