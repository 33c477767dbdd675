"""The clock of the core between rounds: messages are stamped with the pass of the event loop in
which they arrive.

Contract. A trio instrument that sets the core's time once per pass, before any task runs. It runs
no timers; rounds do (``MultiRaft.tick``).

Theory. Messages are stepped between rounds, and a node whose groups are all quiesced runs no round
while nothing happens. Without this instrument, the first message after such a pause would be
stamped with the time of the last round, and every timer that it sets would be due at once: a
candidate would give up the election that it has just begun, and a leader the transfer that it was
just asked for.
"""

from __future__ import annotations

from typing import Protocol

import trio

from node.clock import monotonic_ms


class Core(Protocol):
    """The consensus core, which reads no clock itself."""

    def set_now(self, now_ms: int) -> None:
        """Set the time of all following calls to ``now_ms``."""


class LoopTime(trio.abc.Instrument):
    """Instrument for ``trio.run`` that sets the core's time in each pass of the event loop."""

    def __init__(self, core: Core):
        self._core = core

    def after_io_wait(self, timeout: float) -> None:
        """Set the core's time at the begin of a pass of the event loop."""
        self._core.set_now(monotonic_ms())
