"""The core's time: what arrives is dated by the turn of the loop in which it arrives.

Contract.  A trio instrument: once per turn, before any task runs.  It runs no timers; the round
loop does.

Theory.  Messages are stepped between rounds, and a node whose groups sleep has none for as long as
nothing happens.  Without this the first message after that would be dated by the round before the
silence, and every timer that it sets would be due at once: a candidate would give up the election
that it has just begun, and a leader the transfer that it was just asked for.
"""

from __future__ import annotations

from typing import Protocol

import trio

from node.clock import monotonic_ms


class Core(Protocol):
    """Who wants to know."""

    def it_is(self, now_ms: int) -> None:
        """What is said from now on is said at ``now_ms``."""


class LoopTime(trio.abc.Instrument):
    """Given to ``trio.run``."""

    def __init__(self, core: Core):
        self._core = core

    def after_io_wait(self, timeout: float) -> None:
        """A turn of the loop begins."""
        self._core.it_is(monotonic_ms())
