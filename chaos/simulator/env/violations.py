"""What ends a run that does not hold."""

from __future__ import annotations


class Livelock(AssertionError):
    """The queue does not drain: events breed events without time passing."""


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str):
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
