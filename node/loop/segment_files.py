"""The files of segments: created before they are written, and indexed when they are full.

Contract. ``prepare`` runs when the gathering asks for it (``WriteGather``), one call at a time: no
write starts meanwhile. ``seal`` runs beside the writes, one call at a time; no write waits for it.
Both await blocking work through ``run_blocking``: a thread on a node, virtual time in the
simulator.

Full disk. A file that a write waits for is created without its blocks, after the reserve was
released. A file that is ahead of its use, or an index, waits for space; records are refused from
then on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from multiraft.storage.disk_space import is_full
from node.errors import DiskFailed

if TYPE_CHECKING:
    from multiraft.storage.errors import CorruptRange, IndexTooLarge
    from multiraft.storage.io_jobs import StagedWrite
    from multiraft.storage.store import Store
    from node.loop.write_gather import WriteGather

#: Number of full segments without an index, those left by a start included, above which indexing no
#: longer pauses: segments fill faster than they are indexed, and the next start would read each of
#: them whole.
SEALS_WAITING_MAX = 4

#: Runs a blocking function, and waits for its end without blocking the loop.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]

#: Takes the path of a segment, and the reason why it has no index.
ReportTooLarge = Callable[[str, "IndexTooLarge"], None]
#: Takes the error of a record that cannot be read.
ReportDamage = Callable[["CorruptRange"], None]


class Space(Protocol):
    """The guard of the disk's space (``multiraft.storage.disk_space``)."""

    def release_reserve(self) -> bool: ...

    def refuse_records(self) -> None: ...


class SegmentFiles:
    """Creator and indexer of one journal's segment files."""

    def __init__(self, store: Store, gather: WriteGather, run_blocking: RunBlocking,
                 pause: Callable[[], None], space: Space | None = None,
                 report_too_large: ReportTooLarge = lambda path, error: None,
                 report_damage: ReportDamage = lambda error: None):
        """``pause`` blocks the calling thread for a moment, in favour of the loop. ``space``: the
        guard to notify of a full disk, or None. ``report_too_large`` is called with a segment that
        stays without an index, ``report_damage`` with each record of a cold segment that is
        missing since its index file is damaged."""
        self._store = store
        self._gather = gather
        self._run_blocking = run_blocking
        self._pause = pause
        self._space = space
        self._report_too_large = report_too_large
        self._report_damage = report_damage

    async def prepare(self) -> None:
        """Create the file of a waiting write, or else the next one ahead of its use; then start the
        gathered writes. Raises ``DiskFailed`` if a file cannot be created, unless it is ahead of
        its use and the disk is full."""
        missing = self._gather.begin_creation()
        try:
            if missing is not None:
                await self._create(missing)
            elif (job := self._store.create_segment_job()) is not None:
                await self._unless_full(job.execute)
        except OSError as error:
            raise DiskFailed(f"a segment could not be prepared: {error}") from error
        self._gather.end_creation()

    async def seal(self) -> None:
        """Index the full segments. A segment whose index would be too large is reported and stays
        without one; records that cannot be read are reported. A full disk leaves the segments for
        the next call, or for the next start. Raises ``DiskFailed`` for any other error of the
        disk."""
        while (job := self._store.seal_job()) is not None:
            try:
                if not await self._unless_full(partial(job.execute, self._yield_to_writes)):
                    self._store.seal_failed(job)
                    return
                self._store.sealed(job)
                if job.too_large is not None:
                    self._report_too_large(job.segment.path, job.too_large)
                for error in self._store.repair.take_found():
                    self._report_damage(error)
            except OSError as error:
                raise DiskFailed(f"a full segment could not be indexed: {error}") from error

    def _yield_to_writes(self) -> None:
        """Pause the calling thread, which indexes, unless too many segments wait for their
        index."""
        if self._store.seals_waiting <= SEALS_WAITING_MAX:
            self._pause()

    async def _create(self, staged: StagedWrite) -> None:
        """Create the segment file that a write waits for. If the disk has no space for a whole
        segment, release the reserve and create the file unallocated."""
        try:
            await self._run_blocking(staged.create_files)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.release_reserve()
            await self._run_blocking(partial(staged.create_files, False))

    async def _unless_full(self, work: Callable[[], None]) -> bool:
        """Run postponable work. If the disk had no space for it, refuse records from now on and
        return False. Raises other ``OSError``."""
        try:
            await self._run_blocking(work)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.refuse_records()
            return False
        return True
