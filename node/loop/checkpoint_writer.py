"""The writing of checkpoints: when one is due, what a full disk does, and what follows.

Contract. ``write_if_due`` is called at intervals, and writes a checkpoint when enough journal was
added since the last. ``write_last`` writes one at a clean stop. ``write_now`` writes one before the
loop continues. One checkpoint is written at a time: the caller sees to that.

A checkpoint that cannot be written stops the node like any other failed write, unless the disk is
full. Then ``write_if_due`` and ``write_last`` do without it, and records are refused. The reserve
is used by ``write_now`` and ``write_installed``, without which their callers cannot continue, and
by ``write_if_due`` while segments or Raft logs wait for the checkpoint: without it no space would
return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from multiraft.storage.chunked_cbor import Encoded
from multiraft.storage.disk_space import is_full
from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.loop.segment_files import RunBlocking, Space
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.checkpoint import CheckpointJob
    from multiraft.storage.store import Store

#: Index files that are read after a checkpoint, one or two milliseconds of a processor each. The
#: journal grows by a segment or two between checkpoints.
SUMMARIES_PER_CHECKPOINT = 64

#: Pause after a checkpoint that the disk had no space for, in milliseconds.
DISK_FULL_RETRY_MS = 10_000


class Snapshottable(Protocol):
    """State that a checkpoint takes along."""

    def snapshot(self) -> object: ...


class MetadataSource(Protocol):
    """The log of the metadata group."""

    @property
    def state(self) -> Snapshottable: ...


class CheckpointWriter:
    """Writer of one node's checkpoints."""

    def __init__(self, store: Store, core: MultiRaft, metadata_log: MetadataSource,
                 run_blocking: RunBlocking, now_ms: Callable[[], int], space: Space | None = None):
        """``run_blocking`` executes what ``write_if_due`` writes. ``space``: the guard to notify of
        a full disk, or None."""
        self._store = store
        self._core = core
        self._metadata_log = metadata_log
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._space = space
        self._not_before_ms = now_ms()
        self.written = 0
        #: Applied index of the metadata group in the last checkpoint.
        self.metadata_applied = _applied(store)
        #: Notified when ``write_if_due`` or ``write_installed`` has written a checkpoint.
        self.completed = Subscribers()

    @property
    def is_due(self) -> bool:
        """True if ``write_if_due`` would write. O(1)."""
        return self._store.checkpoint_due and self._now_ms() >= self._not_before_ms

    async def write_if_due(self) -> None:
        """Write a checkpoint if the store reports one as due, and notify ``completed``. If the disk
        has no space for it, write none for ``DISK_FULL_RETRY_MS``. Raises ``DiskFailed`` for any
        other error of the disk."""
        if not self.is_due:
            return
        job, applied = self._capture()
        try:
            await self._execute(job)
        except OSError as error:
            if not self._is_disk_full(error):
                raise DiskFailed(f"a checkpoint could not be written: {error}") from error
            self._not_before_ms = self._now_ms() + DISK_FULL_RETRY_MS
            return
        self._written(job, applied)
        self.completed.notify()
        await self._release_memory()

    async def _release_memory(self) -> None:
        """Have index files answer for the records in memory that they can. Raises ``DiskFailed`` if
        the disk cannot be read."""
        for _ in range(SUMMARIES_PER_CHECKPOINT):
            job = self._store.summary_job()
            if job is None:
                return
            try:
                await self._run_blocking(job.execute)
            except OSError as error:
                raise DiskFailed(f"an index file could not be read: {error}") from error
            for _ in self._store.release(job):
                await self._run_blocking(_give_way)

    async def _execute(self, job: CheckpointJob) -> None:
        """Execute a job off the loop; again with the reserve released if the disk is full and files
        can be unlinked once the checkpoint is written. Raises ``OSError``."""
        try:
            await self._run_blocking(job.execute)
        except OSError as error:
            if (self._space is None or not is_full(error) or not self._store.checkpoint_frees_space
                    or not self._space.release_reserve()):
                raise
            await self._run_blocking(job.execute)

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

    async def write_installed(self, pause: Callable[[float], Awaitable[Any]]) -> None:
        """Write a checkpoint with the snapshots that were installed in the store, and notify
        ``completed``. The replicas of these groups wait for it. So a full disk is answered with the
        reserve, and then with another attempt every ``DISK_FULL_RETRY_MS``, after a ``pause``.
        Raises ``DiskFailed`` for any other error of the disk."""
        while True:
            job, applied = self._capture()
            try:
                await self._run_blocking(job.execute)
                break
            except OSError as error:
                if not self._is_disk_full(error):
                    raise DiskFailed(f"a checkpoint could not be written: {error}") from error
            if self._space is None or not self._space.release_reserve():
                await pause(DISK_FULL_RETRY_MS / 1000)
        self._written(job, applied)
        self.completed.notify()

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


def _give_way() -> None:
    """Do nothing, while the loop does something else."""


def _applied(store: Store) -> int:
    """Return the applied index of the metadata group on this node; 0 = this node has no replica of
    it."""
    tail = store.partition_states.get(METADATA_GROUP)
    return tail.applied_index if tail is not None else 0
