"""A failing seed made smaller: fewer groups, nodes, faults, less time, as long as it still fails.

Contract.  ``shrink`` returns the smallest variant found that fails in the same way (the same
invariant, the same kind of error) within a budget of real seconds, and its ``Result``; at worst
what it was given.  Every candidate is run; nothing is assumed.

Theory.  Delta debugging (Zeller & Hildebrandt, 2002) over parameters instead of inputs: in a seeded
world a smaller variant is another world, so a step is a guess, and only a run tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.simulator.runner.batch_runner import run_one
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import Result


def way_of(failure: str) -> str:
    """What two failures that are the same have in common: error and invariant, without figures."""
    return ":".join(failure.split("\n", 1)[0].split(":")[:2 if failure.startswith("Viol") else 1])


def shrink(result: Result, variant: Variant, budget_seconds: float,
           run: Callable[[int, Variant], Result] = run_one) -> tuple[Variant, Result]:
    """The smallest variant of a failed seed, and how it fails."""
    deadline = time.monotonic() + budget_seconds
    way, progress = way_of(result.failure), True
    while progress:
        progress = False
        for candidate in variant.smaller(result.seed, result.simulated_ms):
            if time.monotonic() >= deadline:
                return variant, result
            found = run(result.seed, candidate)
            if found.failure and way_of(found.failure) == way:
                variant, result, progress = candidate, found, True
                break
    return variant, result
