"""The task that gives the space of removed records back.

Contract. ``run`` asks at intervals what is due; ``node.removal.removal_steps`` carries it out.
"""

from __future__ import annotations

import logging

import trio

from node.removal.removal_steps import RemovalSteps

#: Interval at which due work is asked for, in seconds; asking is O(1).
ASK_S = 1.0


class RemovalTask:
    """The driver of one node's removal of records and segments."""

    def __init__(self, steps: RemovalSteps):
        self._steps = steps

    async def run(self) -> None:
        """Give space back until cancelled. Raises ``DiskFailed`` for an error of the disk other
        than a lack of space."""
        while True:
            await trio.sleep(ASK_S)
            await self._steps.give_back()


def report_removal(log: logging.Logger, segments: int, size: int) -> None:
    """Log that files of removed segments were unlinked."""
    log.info("segments_removed", extra={"segments": segments, "bytes": size})
