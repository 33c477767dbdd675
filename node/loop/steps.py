"""Steps of long requests: their size, and the runner of the first step.

Contract. A handler that may have much to do is an iterator: each ``next`` is a step of at most
``ROWS_PER_STEP`` rows. The first step runs at once. ``StepScheduler`` runs the others later, with
steps of other owners in between (``turns`` in the node).

Invariants. This module has no event loop, so handlers that use it can be driven without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

#: Rows per step: a row takes 1 to 10 us, so a step takes a millisecond at most.
ROWS_PER_STEP = 128


class StepScheduler(Protocol):
    """Scheduler of the steps that remain of long requests."""

    def start(self, owner: object, steps: Iterator[None]) -> None:
        """Run the steps later, one per ``next``, in turn with those of other owners. None of them
        runs inside this call."""


class StepRunner:
    """A runner of iterators: the first step at once, the remaining ones in turns."""

    def __init__(self, turns: StepScheduler, request_round: Callable[[], None]):
        self._turns = turns
        self._request_round = request_round

    def run_steps(self, owner: object, steps: Iterator[None]) -> None:
        """Run the first step now, and schedule the others for ``owner``. Each of the others, and
        the end of the iterator, requests a round, which sends the replies."""
        left = advanced(steps)
        if left is not None:
            self._turns.start(owner, self._in_turns(left))

    def _in_turns(self, steps: Iterator[None]) -> Iterator[None]:
        for _ in steps:
            self._request_round()
            yield
        self._request_round()


def advanced(steps: Iterator[None]) -> Iterator[None] | None:
    """Run the first step of ``steps``. Return ``steps``, or None if that step was the last."""
    return steps if next(steps, steps) is not steps else None


def parts(count: int, size: int = ROWS_PER_STEP) -> Iterator[range]:
    """Yield 0 .. count - 1 in ranges of at most ``size``."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))
