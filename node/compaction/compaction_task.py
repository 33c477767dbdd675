"""The task that runs the passes of compaction by key in a node.

Contract.  ``run`` begins a pass each ``interval_ms`` until cancelled.  The steps of a pass take
their share of the loop's turns, so a pass delays no request by more than a step.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from node.compaction.compaction_pass import CompactionPasses, Proposed
from node.compaction.generation_reports import GenerationReports
from node.loop.block_reads import BlockReads
from node.loop.steps import ROWS_PER_STEP


class CompactionTask:
    """The driver of one node's ``CompactionPasses``."""

    def __init__(self, passes: CompactionPasses, reports: GenerationReports, blocks: BlockReads,
                 interval_ms: int, wall_ms: Callable[[], int],
                 take_turn: Callable[[int], Awaitable[None]], request_round: Callable[[], None]):
        self._passes = passes
        self._reports = reports
        self._blocks = blocks
        self._interval_ms = interval_ms
        self._wall_ms = wall_ms
        self._take_turn = take_turn
        self._request_round = request_round

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            for _ in self._passes.steps(self._wall_ms()):
                self._request_round()  # for what the step proposed
                wanted = self._passes.reader.wanted_block
                if wanted is not None and await self._blocks.read(wanted):
                    self._passes.reader.wanted_block = None
                await self._take_turn(ROWS_PER_STEP)
            await self._reports.ask()
            await trio.sleep(self._interval_ms / 1000)


def report_proposal(log: logging.Logger, proposed: Proposed) -> None:
    """Log a COMPACT that was proposed."""
    generation, up_to, tombstones_below = proposed.compaction
    log.debug("compaction_proposed", extra={
        "group": proposed.group, "partition": proposed.partition, "generation": generation,
        "up_to": up_to, "tombstones_below": tombstones_below,
        "dirty_bytes": proposed.dirty_bytes})
