"""The task that gives the space of removed records back.

Contract. ``run`` asks at intervals what is due, and takes turns of the loop for it: at most one
step of ``node.loop.record_trim`` in each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from node.loop.record_trim import RecordTrim
from node.loop.steps import ROWS_PER_STEP

#: Interval at which due work is asked for, in seconds; asking is O(1).
ASK_S = 1.0


class RemovalTask:
    """The driver of one node's removal of records."""

    def __init__(self, trim: RecordTrim, take_turn: Callable[[int], Awaitable[None]]):
        self._trim = trim
        self._take_turn = take_turn

    async def run(self) -> None:
        """Remove what is due, until cancelled."""
        while True:
            await trio.sleep(ASK_S)
            for _ in self._trim.steps():
                await self._take_turn(ROWS_PER_STEP)
