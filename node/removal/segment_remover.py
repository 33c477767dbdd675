"""The removal of segments that nothing needs: when files go, and when a checkpoint names them.

Contract. ``remove_due`` is called at intervals, one call at a time. It unlinks files through
``run_blocking``, examines segments in turns of the loop, and asks for a checkpoint where removed
segments wait for one. Which segments may go is decided by ``multiraft.storage.segment_removal``.

Invariants. A checkpoint that only names segments is required only while some wait for it, so an
idle node writes none.

Blocks are freed in slices with pauses (``multiraft.storage.file_removal``), of the files of one
job per call, because other work of the caller waits: some 400 MiB/s. With little free space there
are no pauses.

Theory. Such a checkpoint costs its own size, twice. It is written at once if it gives back several
times as much, or if the disk is full, and else after a while, because the next regular checkpoint
does the same. With a full disk it takes the reserve (``node.loop.checkpoint_writer``): no space
returns before it is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from multiraft.storage.disk_space import is_full
from node.errors import DiskFailed
from node.loop.segment_files import RunBlocking
from node.loop.steps import ROWS_PER_STEP

if TYPE_CHECKING:
    from multiraft.storage.segment_removal import RemovalJob

#: A checkpoint is written for removed segments at once if they have so many times its size: as
#: much as the journal grows between two regular checkpoints.
NAMED_PER_CHECKPOINT_BYTE = 8
#: Else it is written after removed segments waited for so long, in milliseconds: an operator who
#: deleted a topic sees the space within a minute.
NAMING_DELAY_MS = 20_000
#: Pause before the blocks of a slice are freed, in seconds: several times as long as that takes.
SLICE_PAUSE_S = 0.01
#: With less free space, blocks are freed without pauses: they may be needed.
SPARE_BYTES = 4 << 30
#: Pause after files could not be unlinked because the disk is full, in milliseconds.
DISK_FULL_RETRY_MS = 10_000


class Store(Protocol):
    """The store's part in the removal of segments."""

    @property
    def is_examining(self) -> bool: ...

    @property
    def unnamed_bytes(self) -> int: ...

    @property
    def checkpoint_bytes(self) -> int: ...

    def removal_job(self) -> RemovalJob | None: ...

    def removed(self, job: RemovalJob) -> None: ...

    def removal_failed(self) -> None: ...

    def examine_again(self) -> None: ...

    def require_checkpoints(self) -> None: ...


class Space(Protocol):
    """The guard of the disk's space (``multiraft.storage.disk_space``)."""

    @property
    def full(self) -> bool: ...

    @property
    def free(self) -> int: ...


def may_pause(space: Space | None) -> bool:
    """Return True if the disk has enough space for pauses while blocks are freed."""
    return space is None or not space.full and space.free >= SPARE_BYTES


class SegmentRemover:
    """Remover of one journal's segments."""

    def __init__(self, store: Store, run_blocking: RunBlocking,
                 take_turn: Callable[[int], Awaitable[None]], now_ms: Callable[[], int],
                 pause: Callable[[float], Awaitable[None]], space: Space | None = None,
                 report: Callable[[int, int], None] = lambda _segments, _bytes: None):
        """``pause(s)`` waits; ``space``: the guard that knows a full disk, or None;
        ``report(segments, bytes)`` is called after files were unlinked."""
        self._store = store
        self._run_blocking = run_blocking
        self._take_turn = take_turn
        self._now_ms = now_ms
        self._pause = pause
        self._space = space
        self._report = report
        self._waiting_since_ms: int | None = None  # segments wait for a checkpoint
        self._not_before_ms = now_ms()
        self.segments_removed = 0  # since the start
        self.bytes_removed = 0

    async def remove_due(self) -> None:
        """Unlink the files of segments that all kept checkpoints name, examine segments as far as
        that is due, and require a checkpoint where that is worth its size. Raises ``DiskFailed``
        for an error of the disk other than a lack of space."""
        if self._is_full:
            self._store.examine_again()
        segments, size = self.segments_removed, self.bytes_removed
        while self._now_ms() >= self._not_before_ms:
            job = self._store.removal_job()
            if job is not None:
                if await self._remove(job) and may_pause(self._space):
                    break
            elif self._store.is_examining:
                await self._take_turn(ROWS_PER_STEP)
            else:
                break
        if self.segments_removed > segments:
            self._report(self.segments_removed - segments, self.bytes_removed - size)
        self._require_checkpoint()

    async def _remove(self, job: RemovalJob) -> bool:
        """Execute a job. Return True if its files had blocks to free in slices."""
        slices = 0
        try:
            await self._run_blocking(job.execute)
            while job.has_blocks:
                slices += 1
                if may_pause(self._space):
                    await self._pause(SLICE_PAUSE_S)
                await self._run_blocking(job.free)
        except OSError as error:
            self._store.removal_failed()
            # A file system that copies on write needs space to free some.
            if self._space is None or not is_full(error):
                raise DiskFailed(f"a removed segment could not be unlinked: {error}") from error
            self._not_before_ms = self._now_ms() + DISK_FULL_RETRY_MS
            return False
        self._store.removed(job)
        self.segments_removed += len(job.segments)
        self.bytes_removed += job.bytes
        return slices > 0

    def _require_checkpoint(self) -> None:
        """Require a checkpoint that names the removed segments, if enough of them wait for it."""
        waiting, now_ms = self._store.unnamed_bytes, self._now_ms()
        if not waiting:
            self._waiting_since_ms = None
            return
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        # Twice, because it is written in two files.
        if (self._is_full or now_ms - self._waiting_since_ms >= NAMING_DELAY_MS
                or waiting >= 2 * NAMED_PER_CHECKPOINT_BYTE * self._store.checkpoint_bytes):
            self._waiting_since_ms = now_ms
            self._store.require_checkpoints()

    @property
    def _is_full(self) -> bool:
        return self._space is not None and self._space.full
