"""The checkpoint task: asks ``node.loop.checkpoint_writer`` at intervals, and writes on a thread.

Contract. One checkpoint is written at a time: a caller of ``write_now`` holds ``alone``. The calls
of the writer are offered here, for parts that have no need to know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from node.clock import monotonic_ms
from node.loop.checkpoint_writer import CheckpointWriter, MetadataSource
from node.loop.disk_space import Space

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Interval at which the store is asked for a due checkpoint, in seconds; asking is O(1).
ASK_S = 1.0


class Checkpoints:
    """The task that writes one node's checkpoints."""

    def __init__(self, store: Store, core: MultiRaft, metadata_log: MetadataSource,
                 space: Space | None = None):
        self._writer = writer = CheckpointWriter(
            store, core, metadata_log, trio.to_thread.run_sync, monotonic_ms, space)
        self.write_now, self.write_last = writer.write_now, writer.write_last
        self.completed = writer.completed
        #: Held while a checkpoint is written.
        self.alone = trio.Lock()

    @property
    def written(self) -> int:
        """Number of checkpoints written since the start."""
        return self._writer.written

    @property
    def metadata_applied(self) -> int:
        """Applied index of the metadata group in the last checkpoint."""
        return self._writer.metadata_applied

    async def write_installed(self) -> None:
        """Write a checkpoint with the snapshots that were installed in the store; the caller holds
        ``alone``. Raises ``DiskFailed``."""
        await self._writer.write_installed(trio.sleep)

    async def run(self) -> None:
        """Write a checkpoint whenever one is due, until cancelled. Raises ``DiskFailed`` for an
        error of the disk other than a lack of space."""
        while True:
            await trio.sleep(ASK_S)
            async with self.alone:
                await self._writer.write_if_due()
