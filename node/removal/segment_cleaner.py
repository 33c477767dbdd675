"""The cleaner of a node: its work in turns of the loop, and copies of records at a limited pace.

Contract. ``clean_due`` is called at intervals, one call at a time. It does what is due on the loop
in turns, unlinks files and copies at most one cold segment, through ``run_blocking``. Which
segments are copied, and when a copy counts, is decided by ``multiraft.storage.cold``.

Invariants. A copy that fails leaves nothing but its sources as they were. On a full disk the
reserve is released only for a copy that ends with more free space than before.

Theory. Appends go first: a step reads or writes at most a megabyte, and waits for the pace before.
At a pace of 100 MiB/s and more, some steps share one call of a thread: the two changes of threads
for each took two thirds as long as the steps, on a machine with other work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from multiraft.storage.cold import cleaning_policy
from multiraft.storage.disk_space import is_full
from multiraft.storage.errors import CorruptFile
from node.errors import EXHAUSTED_PAUSE_S, DiskFailed, is_exhausted
from node.loop.segment_files import RunBlocking
from node.loop.steps import ROWS_PER_STEP
from node.removal.partition_compactor import MEMORY_BYTES, PartitionCompactor
from node.removal.segment_remover import SLICE_PAUSE_S, may_pause

if TYPE_CHECKING:
    from multiraft.storage.cold.cleaner import Cleaner
    from multiraft.storage.cold.cleaner_pace import CleanerPace
    from multiraft.storage.cold.cleaning_policy import Sources
    from multiraft.storage.cold.copy_job import CopyJob
    from multiraft.storage.cold.source_survey import SurveyJob
    from multiraft.storage.compaction.compactor import Compactor
    from multiraft.storage.errors import CorruptRange

#: Pause after a copy that failed because of the disk's space or contents, in seconds.
RETRY_S = 10.0
#: Interval at which work on the loop is done while a copy waits, in seconds.
WORK_S = 1.0
#: Checkpoints that have to fit into the disk beside a copy from the reserve: two are written, each
#: in two files, before the sources go.
CHECKPOINT_FILES = 4


class Store(Protocol):
    """The store's part in the work of the cleaner."""

    cleaner: Cleaner
    compactor: Compactor

    @property
    def checkpoint_bytes(self) -> int: ...

    def require_checkpoints(self, frees_space: bool = False) -> None: ...


class Space(Protocol):
    """The guard of the disk's space (``multiraft.storage.disk_space``)."""

    @property
    def full(self) -> bool: ...

    @property
    def free(self) -> int: ...

    @property
    def low_bytes(self) -> int: ...

    @property
    def reserved(self) -> int: ...

    def release_reserve(self) -> bool: ...


class Reports(Protocol):
    """Receiver of what the cleaner did."""

    def copied(self, sources: int, records: int, size: int) -> None:
        """Take the segments that were sources, and the records and bytes that were copied."""

    def failed(self, why: str) -> None:
        """Take the reason of a copy that failed."""

    def damaged(self, error: CorruptRange) -> None:
        """Take the error of a record that could not be copied."""

    def compacted(self, group: int, partition: int, generation: int, size: int) -> None:
        """Take a compaction that was carried out, and the bytes of batches that it examined."""


class SegmentCleaner:
    """Cleaner of one node's segments."""

    def __init__(self, store: Store, run_blocking: RunBlocking,
                 take_turn: Callable[[int], Awaitable[None]], now_s: Callable[[], float],
                 sleep_until: Callable[[float], Awaitable[None]], pace: CleanerPace,
                 reports: Reports, space: Space | None = None,
                 memory_bytes: int = MEMORY_BYTES):
        """``sleep_until(s)`` may return earlier, as after a change of the ``pace``; ``space``: the
        guard that knows a full disk, or None; ``memory_bytes``: of compactions by key."""
        self.pace = pace
        self.copying: CopyJob | None = None
        self.copied_segments = 0  # sources of complete copies, since the start
        self.copied_records = 0
        self.copied_bytes = 0
        self._cleaner = store.cleaner
        self._store = store
        self._run_blocking = run_blocking
        self._take_turn = take_turn
        self._now_s = now_s
        self._sleep_until = sleep_until
        self._reports = reports
        self._space = space
        self._not_before_s = float("-inf")  # after a copy that failed
        self.compactor = PartitionCompactor(store, self, take_turn, now_s, reports, memory_bytes)

    async def clean_due(self) -> None:
        """Do the work that is due, and copy one cold segment if that is worth it, has space, and
        the cleaner is not paused. Raises ``DiskFailed`` for an error of the disk other than a lack
        of space."""
        await self._work()
        if self._now_s() < self._not_before_s:
            return
        await self._unlink()
        if not self.pace.is_paused:
            await self._survey_due()
            if not await self.compactor.compact_due():
                await self._copy_next()

    async def _work(self) -> None:
        while self._cleaner.work():
            await self._take_turn(ROWS_PER_STEP)

    async def _unlink(self) -> None:
        while (job := self._cleaner.removal_job()) is not None:
            try:
                await self._run_blocking(job.execute)
                while job.has_blocks:
                    if may_pause(self._space):
                        await self._sleep_until(self._now_s() + SLICE_PAUSE_S)
                    await self._run_blocking(job.free)
            except OSError as error:
                self._cleaner.removal_failed()
                # A file system that copies on write needs space to free some.
                if not self._is_passing(error):
                    raise DiskFailed(f"a cold segment could not be unlinked: {error}") from error
                self._not_before_s = self._now_s() + RETRY_S
                return
            self._cleaner.removed(job)

    async def _survey_due(self) -> None:
        """Find out how many records of segments are live of which memory has no places."""
        while not self.pace.is_paused and (job := self._cleaner.survey_job()) is not None:
            await self.wait()
            await self.survey(job)
            self._cleaner.surveyed(job)

    async def survey(self, job: SurveyJob) -> None:
        """Execute a survey. Raises ``DiskFailed`` for an error of the disk."""
        try:
            await self.blocking(job.read)
            for _ in self._cleaner.take_bounds(job):
                await self._take_turn(ROWS_PER_STEP)
            await self.blocking(job.select)
        except OSError as error:
            raise DiskFailed(f"an index file could not be read: {error}") from error
        self.pace.done(job.bytes, self._now_s())

    async def _copy_next(self) -> None:
        sources = self._cleaner.choose(is_short=self._space is not None and self._space.full)
        if not sources.segments or not self.has_space(sources):
            return
        await self._take_turn(ROWS_PER_STEP)
        surveys = self._cleaner.surveys(sources)
        for survey in surveys:
            await self.wait()
            await self.survey(survey)
        job = self._cleaner.copy_job(sources, surveys)
        if job is None:
            return
        await self.copy(job)

    async def copy(self, job: CopyJob) -> bool:
        """Carry out a copy. Return False if it failed, or a record could not be read. Raises
        ``DiskFailed``."""
        self.copying = job
        try:
            return await self._copy(job)
        finally:
            self.copying = None

    def has_space(self, sources: Sources) -> bool:
        """Return True if the copy of ``sources`` has its space; release the reserve if that is
        needed for it."""
        space = self._space
        if space is None:
            return True
        found = cleaning_policy.space_for(
            sources, space.free, space.low_bytes, space.reserved,
            CHECKPOINT_FILES * self._store.checkpoint_bytes, self._cleaner.waiting)
        if found is cleaning_policy.Space.RESERVE and space.reserved:
            return space.release_reserve()
        return found is not cleaning_policy.Space.NONE

    async def _copy(self, job: CopyJob) -> bool:
        try:
            while not job.is_done:
                await self.wait()
                self.pace.done(await self._steps(job), self._now_s())
        except (OSError, CorruptFile) as error:
            await self._abandon(job, error)
            return False
        damaged = self._cleaner.copied(job)
        for damage in damaged:
            self._reports.damaged(damage)
        if job.contents is not None:
            self.copied_segments += len(job.sources)
            self.copied_records += job.contents.records
            self.copied_bytes += job.bytes_to_copy
            self._reports.copied(len(job.sources), job.contents.records, job.bytes_to_copy)
        return not damaged

    async def _steps(self, job: CopyJob) -> int:
        """Do the steps of one burst, fewer if the cleaner is paused meanwhile. Return their bytes.
        """
        before, burst_bytes = job.bytes, self.pace.burst_bytes

        def steps() -> None:
            job.step()
            while not (job.is_done or self.pace.is_paused or job.bytes - before >= burst_bytes):
                job.step()

        await self.blocking(steps)
        return job.bytes - before

    async def blocking(self, call: Callable[[], None]) -> None:
        """Run ``call`` on a thread, again after a pause while file descriptors are short."""
        while True:
            try:
                await self._run_blocking(call)
                return
            except OSError as error:
                if not is_exhausted(error):
                    raise
            await self._sleep_until(self._now_s() + EXHAUSTED_PAUSE_S)

    async def wait(self) -> None:
        """Wait until the pace lets the next step begin; do the work that is due meanwhile."""
        while (due_s := self.pace.due_s(self._now_s())) > self._now_s():
            await self._work()
            await self._sleep_until(min(due_s, self._now_s() + WORK_S))

    async def _abandon(self, job: CopyJob, error: OSError | CorruptFile) -> None:
        """End a job that failed. Raises ``DiskFailed`` unless the disk is full, or did not return
        what was written: the sources have all records."""
        self._cleaner.copy_failed(job)
        if isinstance(error, OSError) and not self._is_passing(error):
            raise DiskFailed(f"records could not be copied: {error}") from error
        self._not_before_s = self._now_s() + RETRY_S
        self._reports.failed(str(error))
        try:
            await self._run_blocking(job.abandon)
        except OSError as failure:
            if not self._is_passing(failure):
                raise DiskFailed(f"an unfinished cold segment could not be removed: {failure}"
                                 ) from failure

    def _is_passing(self, error: OSError) -> bool:
        return self._space is not None and is_full(error)
