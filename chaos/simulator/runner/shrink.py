"""Shrinking of a failed seed: fewer groups, nodes and faults, less time, while it still fails.

Contract.  ``shrink`` returns the smallest variant found that fails in the same way (the same
invariant, the same kind of error), and its ``Result``.  The search ends after a budget of real
seconds.  Without a smaller variant it returns its arguments.  Every candidate is run.

Theory.  Delta debugging (Zeller & Hildebrandt, 2002) over parameters instead of inputs.  A smaller
variant of a seed is another simulation, so only a run shows whether it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.simulator.runner.batch_runner import run_one
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import Result


def kind_of_failure(failure: str) -> str:
    """Return the error and invariant of a failure without figures, equal for failures of the same
    kind.
    """
    return ":".join(failure.split("\n", 1)[0].split(":")[:2 if failure.startswith("Viol") else 1])


def shrink(result: Result, variant: Variant, budget_seconds: float,
           run: Callable[[int, Variant], Result] = run_one) -> tuple[Variant, Result]:
    """Return the smallest variant found within ``budget_seconds`` that fails in the same way, and
    its result. Without one, ``variant`` and ``result`` are returned. ``run`` runs each
    candidate."""
    deadline = time.monotonic() + budget_seconds
    kind, progress = kind_of_failure(result.failure), True
    while progress:
        progress = False
        for candidate in variant.smaller(result.seed, result.simulated_ms):
            if time.monotonic() >= deadline:
                return variant, result
            found = run(result.seed, candidate)
            if found.failure and kind_of_failure(found.failure) == kind:
                variant, result, progress = candidate, found, True
                break
    return variant, result
