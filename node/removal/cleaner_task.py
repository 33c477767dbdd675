"""The task of a node's cleaner: asks at intervals what is due, and lets appends go first.

Contract. ``run`` calls ``SegmentCleaner.clean_due`` at intervals. ``pause`` and ``resume`` serve an
operator, until the node stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.storage.cold.cleaner_pace import CleanerPace
from node.loop.scrub import PATIENCE_S, POLL_S
from node.removal.segment_cleaner import SegmentCleaner

if TYPE_CHECKING:
    from multiraft.storage.errors import CorruptRange, StorageError
    from multiraft.storage.store import Store
    from node.loop.disk_space import Space
    from node.loop.turns import Turns
    from node.loop.write_gather import WriteGather

#: Interval at which due work is asked for, in seconds; asking is O(1).
ASK_S = 1.0


class CleanerTask:
    """The driver of one node's cleaner."""

    def __init__(self, store: Store, disk: WriteGather, turns: Turns, space: Space | None,
                 damaged: Callable[[StorageError], None], log: logging.Logger,
                 bytes_per_second: int, memory_bytes: int):
        """``damaged`` is called with each record that could not be copied; ``bytes_per_second``: of
        reads and writes of copies, 0 = none until ``resume`` names a pace; ``memory_bytes``: of
        compactions by key."""
        self.cleaner = SegmentCleaner(store, trio.to_thread.run_sync, turns.take,
                                      trio.current_time, self._sleep_until,
                                      CleanerPace(bytes_per_second), self, space, memory_bytes)
        self._disk = disk
        self._damaged = damaged
        self._log = log
        self._changed = trio.Event()

    async def run(self) -> None:
        """Clean what is due, until cancelled. Raises ``DiskFailed`` for an error of the disk other
        than a lack of space."""
        while True:
            await trio.sleep(ASK_S)
            await self.cleaner.clean_due()

    async def _sleep_until(self, due_s: float) -> None:
        """Sleep until ``due_s`` or a change of the pace, and then until no write is in flight, at
        most ``PATIENCE_S``."""
        self._changed = trio.Event()
        with trio.move_on_at(due_s):
            await self._changed.wait()
        with trio.move_on_after(PATIENCE_S):
            while not self._disk.idle:
                await trio.sleep(POLL_S)

    def pause(self) -> None:
        """Begin no further step of a copy until ``resume``."""
        self.cleaner.pace.pause()
        self._changed.set()
        self._log.info("cleaner_paused")

    def resume(self, bytes_per_second: int = 0) -> bool:
        """Continue, at another pace if ``bytes_per_second`` is not 0. Return False, and stay
        paused, if no pace is configured either."""
        is_running = self.cleaner.pace.resume(bytes_per_second)
        self._changed.set()
        if is_running:
            self._log.info("cleaner_resumed",
                           extra={"bytes_per_second": self.cleaner.pace.bytes_per_second})
        return is_running

    # ---- reports -------------------------------------------------------------------------------

    def copied(self, sources: int, records: int, size: int) -> None:
        """Log a cold segment that was written."""
        self._log.info("cold_segment_written",
                       extra={"segments": sources, "records": records, "bytes": size})

    def failed(self, why: str) -> None:
        """Log a copy that failed."""
        self._log.warning("cold_segment_failed", extra={"reason": why})

    def compacted(self, group: int, partition: int, generation: int, size: int) -> None:
        """Log a compaction that was carried out."""
        self._log.info("partition_compacted", extra={
            "group": group, "partition": partition, "generation": generation, "bytes": size})

    def damaged(self, error: CorruptRange) -> None:
        """Have a record repaired that could not be copied."""
        self._damaged(error)
