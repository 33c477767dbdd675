"""Checkpoints: captured on the loop and written by a thread, so that recovery scans little journal.

Contract. One checkpoint is written at a time. ``run`` writes one whenever the store reports that
enough journal was added since the last. ``write_last`` writes one at a clean stop. ``write_now``
writes one synchronously, for a caller that holds ``alone`` and needs it before the loop continues.
A checkpoint that cannot be written stops the node like any other failed write, unless the disk is
full: then ``run`` and ``write_last`` do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.storage.chunked_cbor import Encoded
from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.loop.disk_space import Space, is_full
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.checkpoint import CheckpointJob
    from multiraft.storage.store import Store

#: Interval at which the store is asked for a due checkpoint, in seconds; asking is O(1).
ASK_S = 1.0
#: Pause after a checkpoint that the disk had no space for, in seconds.
DISK_FULL_RETRY_S = 10.0


class Snapshottable(Protocol):
    """State that a checkpoint takes along."""

    def snapshot(self) -> object: ...


class MetadataSource(Protocol):
    """The log of the metadata group."""

    @property
    def state(self) -> Snapshottable: ...


class Checkpoints:
    """Writer of one node's checkpoints."""

    def __init__(self, store: Store, core: MultiRaft, metadata_log: MetadataSource,
                 space: Space | None = None):
        self._space = space
        self._store = store
        self._core = core
        self._metadata_log = metadata_log
        self.written = 0
        #: Held while a checkpoint is written.
        self.alone = trio.Lock()
        #: Applied index of the metadata group in the last checkpoint.
        self.metadata_applied = _applied(store)
        #: Notified when ``run`` has written a checkpoint.
        self.completed = Subscribers()

    async def run(self) -> None:
        """Write a checkpoint whenever the store reports one as due, until cancelled. After a full
        disk, retry ``DISK_FULL_RETRY_S`` later. Raises ``DiskFailed`` for any other error of the
        disk."""
        while True:
            await trio.sleep(ASK_S)
            async with self.alone:
                if self._store.checkpoint_due and not await self._write():
                    await trio.sleep(DISK_FULL_RETRY_S)

    def write_now(self, metadata: Encoded | None = None) -> None:
        """Write a checkpoint before the loop continues, using the disk reserve if no other space is
        left. ``metadata``: the encoded state of the metadata group, if the caller has it. Raises
        ``DiskFailed`` if it cannot be written."""
        job, applied = self._capture(metadata)
        try:
            try:
                job.execute()
            except OSError as error:
                if self._space is None or not is_full(error) or not self._space.release_reserve():
                    raise
                job.execute()
        except OSError as error:
            raise DiskFailed(f"a checkpoint could not be written: {error}") from error
        self._written(job, applied)

    async def _write(self) -> bool:
        """Write a checkpoint on a thread and notify ``completed``. Return False if the disk had no
        space for it. Raises ``DiskFailed`` for any other error."""
        job, applied = self._capture()
        try:
            await trio.to_thread.run_sync(job.execute)
        except OSError as error:
            if not self._is_disk_full(error):
                raise DiskFailed(f"a checkpoint could not be written: {error}") from error
            return False
        self._written(job, applied)
        self.completed.notify()
        return True

    def write_last(self) -> None:
        """Write a checkpoint at a clean stop, when no task runs any longer. On a full disk write
        none, so that the next start replays more. Raises ``DiskFailed`` for any other error."""
        job, applied = self._capture()
        try:
            job.execute()
        except OSError as error:
            if not self._is_disk_full(error):
                raise DiskFailed(f"the last checkpoint could not be written: {error}") from error
            return  # no space: the next start replays more of the journal
        self._written(job, applied)

    def _written(self, job: CheckpointJob, applied: int) -> None:
        self._store.checkpointed(job)
        self.written += 1
        self.metadata_applied = applied

    def _is_disk_full(self, error: OSError) -> bool:
        """Return True if ``error`` is a full disk, after refusing records from now on. A checkpoint
        only shortens recovery, so it can wait for space."""
        if self._space is None or not is_full(error):
            return False
        self._store.checkpoint_failed()
        self._space.refuse_records()
        return True

    def _capture(self, metadata: Encoded | None = None) -> tuple[CheckpointJob, int]:
        """Return a job that writes the present state of all groups, and the applied index of the
        metadata group in that state."""
        status = self._core.status
        commits = {group: status.commit_index(group) for group in status.groups()}
        job = self._store.checkpoint_job(
            commits, self._metadata_log.state.snapshot() if metadata is None else metadata)
        return job, _applied(self._store)


def _applied(store: Store) -> int:
    """Return the applied index of the metadata group on this node; 0 = this node has no replica of
    it."""
    tail = store.partition_states.get(METADATA_GROUP)
    return tail.applied_index if tail is not None else 0
