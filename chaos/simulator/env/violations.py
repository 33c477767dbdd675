"""Exceptions that end a run as failed."""

from __future__ import annotations


class Livelock(AssertionError):
    """The queue does not drain: events schedule events while time does not pass."""


class Violation(AssertionError):
    """An invariant does not hold.  ``invariant`` is its name."""

    def __init__(self, invariant: str, text: str):
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
