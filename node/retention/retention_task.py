"""The task that runs the passes of retention in a node.

Contract.  ``run`` begins a pass each ``interval_ms`` until cancelled.  The steps of a pass take
their share of the loop's turns, so a pass delays no request by more than a step.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from node.loop.steps import ROWS_PER_STEP
from node.retention.retention_pass import RetentionPasses


class RetentionTask:
    """The driver of one node's ``RetentionPasses``."""

    def __init__(self, passes: RetentionPasses, interval_ms: int, wall_ms: Callable[[], int],
                 take_turn: Callable[[int], Awaitable[None]], request_round: Callable[[], None]):
        self._passes = passes
        self._interval_ms = interval_ms
        self._wall_ms = wall_ms
        self._take_turn = take_turn
        self._request_round = request_round

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            for _ in self._passes.steps(self._wall_ms()):
                self._request_round()  # for what the step proposed
                await self._take_turn(ROWS_PER_STEP)
            self._request_round()
            await trio.sleep(self._interval_ms / 1000)


def report_pause(log: logging.Logger, reason: str, is_paused: bool) -> None:
    """Log that retention pauses for a reason, or continues."""
    if is_paused:
        log.warning("retention_paused", extra={"reason": reason})
    else:
        log.info("retention_resumed", extra={"reason": reason})
