"""The compactions by key of a node: examination of partitions, and copies of what survives.

Contract. ``compact_due`` is called at intervals, between the other work of the cleaner, one call at
a time. It begins a compaction if one can be carried out, examines the partition at the cleaner's
pace, copies, and ends the compaction when checkpoints name the copies. It returns True while there
is something to copy: the cleaner chooses no sources of its own then.

Invariants. A compaction that fails leaves everything as it was, and begins anew later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from multiraft.errors import Compacted
from multiraft.storage.cold.cleaner import WAITING_MAX
from multiraft.storage.errors import CorruptFile, CorruptRange

if TYPE_CHECKING:
    from multiraft.storage.cold.cleaner import Cleaner
    from multiraft.storage.cold.cleaner_pace import CleanerPace
    from multiraft.storage.cold.cleaning_policy import Sources
    from multiraft.storage.cold.copy_job import Compaction, CopyJob
    from multiraft.storage.cold.source_survey import SurveyJob
    from multiraft.storage.compaction.compactor import Compactor
    from multiraft.storage.compaction.marking import Marking

#: Pause after a compaction that failed, in seconds.
RETRY_S = 10.0
#: Time for which copies wait for the checkpoints that are written anyway, in seconds.
CHECKPOINT_S = 30.0
#: Memory of keys and marks, in bytes, unless ``[compaction]`` in node.toml says otherwise.
MEMORY_BYTES = 128 << 20


class Store(Protocol):
    """The store's part in compactions."""

    cleaner: Cleaner
    compactor: Compactor

    def require_checkpoints(self, frees_space: bool = False) -> None: ...


class Copier(Protocol):
    """The cleaner's part: blocking steps at its pace, and copies."""

    pace: CleanerPace

    async def wait(self) -> None:
        """Wait until the pace lets the next step begin."""

    async def blocking(self, call: Callable[[], None]) -> None:
        """Run ``call`` on a thread."""

    async def survey(self, job: SurveyJob) -> None:
        """Execute a survey."""

    def has_space(self, sources: Sources) -> bool:
        """Return True if a copy of ``sources`` has its space."""

    async def copy(self, job: CopyJob) -> bool:
        """Carry out a copy; return False if it failed, or a record could not be read."""


class Reports(Protocol):
    """Receiver of what compactions did."""

    def compacted(self, group: int, partition: int, generation: int, size: int) -> None:
        """Take a compaction that was carried out, and the bytes of batches that it examined."""

    def failed(self, why: str) -> None:
        """Take the reason of a compaction that failed."""

    def damaged(self, error: CorruptRange) -> None:
        """Take the error of a record that could not be read."""


class PartitionCompactor:
    """Driver of the compactions of one node."""

    def __init__(self, store: Store, copier: Copier, take_turn: Callable[[int], Awaitable[None]],
                 now_s: Callable[[], float], reports: Reports, memory_bytes: int = MEMORY_BYTES):
        self.compactions = 0  # carried out since the start
        self._store = store
        self._copier = copier
        self._take_turn = take_turn
        self._now_s = now_s
        self._reports = reports
        self._memory_bytes = memory_bytes
        self._not_before_s = float("-inf")  # after one that failed
        self._checkpoint_s = float("inf")  # when checkpoints are required
        self._examined_bytes = 0  # for the compaction under way

    async def compact_due(self) -> bool:
        """Do what is due of a compaction. Return True while sources are left to copy."""
        compactor = self._store.compactor
        if not compactor.is_busy and not await self._begin():
            return False
        await self._copy_due()
        if compactor.is_busy and compactor.is_carried_out:
            self._finish()
        elif compactor.is_busy and self._now_s() >= self._checkpoint_s:
            self._checkpoint_s = self._now_s() + CHECKPOINT_S
            self._store.require_checkpoints()
        return compactor.is_busy and bool(compactor.sources.segments)

    async def _begin(self) -> bool:
        """Begin a compaction and examine its partition. Return False if none can be."""
        compactor = self._store.compactor
        if not compactor.waiting or self._now_s() < self._not_before_s:
            return False
        await self._take_turn(1)
        marking = compactor.next_marking(self._memory_bytes)
        if marking is None:
            return False
        try:
            await self._mark(marking)
        except CorruptRange as error:
            self._reports.damaged(error)
            self._abandon()
            return False
        except Compacted:  # the log start has passed some of its batches
            self._abandon()
            return False
        except CorruptFile as error:  # the scrub reports the segment
            self._reports.failed(str(error))
            self._abandon()
            return False
        compactor.marked()
        self._examined_bytes += marking.bytes
        self._checkpoint_s = self._now_s() + CHECKPOINT_S
        return True

    async def _mark(self, marking: Marking) -> None:
        pace = self._copier.pace

        def steps() -> None:
            before = marking.bytes
            marking.step()
            while not (marking.is_done or pace.is_paused
                       or marking.bytes - before >= pace.burst_bytes):
                marking.step()

        while not marking.is_done:
            await self._copier.wait()
            before = marking.bytes
            await self._copier.blocking(steps)
            pace.done(marking.bytes - before, self._now_s())

    async def _copy_due(self) -> None:
        """Copy what survives, as far as there is room for copies that wait for checkpoints."""
        compactor, cleaner = self._store.compactor, self._store.cleaner
        while (compaction := compactor.compaction) is not None and cleaner.waiting < WAITING_MAX:
            sources = compactor.sources
            if compactor.lacks_sources:
                self._abandon()
                return
            if not sources.segments or self._copier.pace.is_paused:
                return
            if not self._copier.has_space(sources):
                self._abandon()
                return
            if not await self._copy(sources, compaction):
                self._abandon()
                return

    async def _copy(self, sources: Sources, compaction: Compaction) -> bool:
        """Copy what survives of some segments. Return False if that failed."""
        cleaner = self._store.cleaner
        surveys = cleaner.surveys(sources, compaction)
        for survey in surveys:
            await self._copier.wait()
            await self._copier.survey(survey)
        job = cleaner.copy_job(sources, surveys, compaction)
        done = frozenset(cleaner.compacted_sources)
        if job is not None and not await self._copier.copy(job):
            return False
        written = job.written if job is not None else None
        return self._store.compactor.copied(done, written.number if written is not None else None)

    def _finish(self) -> None:
        compactor = self._store.compactor
        result = compactor.compaction
        assert result is not None
        if not compactor.finish():
            return
        self.compactions += 1
        self._reports.compacted(result.group, result.partition, result.generation,
                                self._examined_bytes)
        self._examined_bytes = 0

    def _abandon(self) -> None:
        self._store.compactor.abandon()
        self._examined_bytes = 0
        self._not_before_s = self._now_s() + RETRY_S
