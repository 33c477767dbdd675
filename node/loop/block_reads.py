"""Reads of blocks of index files, for look-ups in the store that lack one.

Contract. ``look_up`` and ``read`` await blocking work through ``run_blocking``: a thread on a node.
A look-up is made again once its block is in memory, until it lacks none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from multiraft.storage.errors import BlockNotCached, CorruptRange
from node.errors import is_exhausted, journal_unreadable
from node.loop.segment_files import RunBlocking

if TYPE_CHECKING:
    from multiraft.storage.store import Store

T = TypeVar("T")

#: Blocks that one look-up reads at most. None of the node's looks up more batches than 1,000 blocks
#: have; more than that would no longer be in memory when the look-up is made again.
BLOCKS_PER_LOOK_UP = 512


class BlockReads:
    """Reader of the blocks that look-ups lack."""

    def __init__(self, store: Store, run_blocking: RunBlocking,
                 damaged: Callable[[CorruptRange], None]):
        """``damaged`` is called with damage that a read finds."""
        self._store = store
        self._run_blocking = run_blocking
        self._damaged = damaged

    async def look_up(self, look_up: Callable[[], T]) -> T | None:
        """Return what ``look_up`` returns; None if a block that it needs cannot be read now. Raises
        ``DiskFailed`` if the disk cannot be read, and what ``look_up`` raises."""
        for _ in range(BLOCKS_PER_LOOK_UP):
            try:
                return look_up()
            except BlockNotCached as error:
                if not await self.read(error):
                    return None
        return None

    async def read(self, error: BlockNotCached) -> bool:
        """Read the block that a look-up lacked. Return False if it is damaged and its segment too,
        or no file can be opened now. Raises ``DiskFailed`` if the disk cannot be read."""
        job = self._store.block_job(error)
        try:
            await self._run_blocking(job.execute)
        except CorruptRange as damage:
            self._damaged(damage)
            return False
        except OSError as failure:
            if not is_exhausted(failure):
                raise journal_unreadable(failure) from failure
            return False
        self._store.block_read(job)
        return True
