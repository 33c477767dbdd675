"""The task that gives the space of removed records back.

Contract. ``run`` asks at intervals what is due. Records leave the record stores in turns of the
loop (``node.loop.record_trim``), and segments without records leave the disk
(``node.loop.segment_remover``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from node.loop.record_trim import RecordTrim
from node.loop.segment_remover import SegmentRemover
from node.loop.steps import ROWS_PER_STEP

#: Interval at which due work is asked for, in seconds; asking is O(1).
ASK_S = 1.0


class RemovalTask:
    """The driver of one node's removal of records and segments."""

    def __init__(self, trim: RecordTrim, remover: SegmentRemover,
                 take_turn: Callable[[int], Awaitable[None]]):
        self._trim = trim
        self._remover = remover
        self._take_turn = take_turn

    async def run(self) -> None:
        """Remove what is due, until cancelled. Raises ``DiskFailed`` for an error of the disk other
        than a lack of space."""
        while True:
            await trio.sleep(ASK_S)
            for _ in self._trim.steps():
                await self._take_turn(ROWS_PER_STEP)
            await self._remover.remove_due()


def report_removal(log: logging.Logger, segments: int, size: int) -> None:
    """Log that files of removed segments were unlinked."""
    log.info("segments_removed", extra={"segments": segments, "bytes": size})
