"""Removal of records and segments in one boot, by the product's steps, in virtual time.

Contract.  ``trim``, ``remover`` and ``cleaner`` are those of the node.  They are asked each
interval; their steps are apart by a millisecond, so that anything may happen in between, a crash
included.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.disk.disk_worker import DiskTask, DiskWorker
from chaos.simulator.node.machine.coroutines import Future
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from multiraft.storage.cold.cleaner_pace import CleanerPace
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from node.removal.record_trim import RecordTrim
from node.removal.removal_steps import RemovalSteps
from node.removal.segment_cleaner import SegmentCleaner
from node.removal.segment_remover import SegmentRemover
from node.replicas.log_compaction import LogCompaction

#: Interval at which due work is asked for; a node asks every second.
ASK_US = 500_000
#: Pace of the cleaner: a segment of a run has a few kilobytes.
BYTES_PER_SECOND = 1 << 20
#: Virtual time between two steps.
STEP_US = 1_000


class Removal:
    """Task that removes records and segments of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, store: Store, worker: DiskWorker,
                 guard: DiskSpaceGuard, compaction: LogCompaction, required: Callable[[], None],
                 found: Callable[[CorruptRange], None]):
        """``required()`` has the checkpoint written that the remover may have required; ``found``
        takes damage that the cleaner has read."""
        self.trim = RecordTrim(store)
        self.remover = SegmentRemover(store, worker.operations.run, self._take_turn,
                                      lambda: env.now_ms, self._sleep, guard, self._report)
        self._steps = RemovalSteps(store, self.trim, self.remover, self._take_turn, guard,
                                   compaction)
        self._compaction = compaction
        self.cleaner = SegmentCleaner(store, worker.operations.run, self._take_turn,
                                      lambda: env.now_ms / 1000, self._sleep_until,
                                      CleanerPace(BYTES_PER_SECOND), self, guard)
        self.damaged = found
        self._env = env
        self._process = process
        self._required = required
        self._task = DiskTask(process, self._run, worker.end)

    def note_applied(self, group: int) -> None:
        """Note that entries of a group were applied."""
        self.trim.note(group)
        self._compaction.note(group)

    def begin(self) -> None:
        """Ask for due work from now on, until this boot ends."""
        self._process.later(ASK_US, self._ask)

    def _ask(self) -> None:
        self._task.wake()
        self._process.later(ASK_US, self._ask)

    async def _run(self) -> None:
        before = self._compaction.entries_compacted
        await self._steps.give_back()
        self._env.event_counts["entries compacted"] += self._compaction.entries_compacted - before
        await self.cleaner.clean_due()
        self._required()

    async def _take_turn(self, _rows: int) -> None:
        turn = Future()
        self._process.later(STEP_US, turn.set_result)
        await turn

    async def _sleep(self, seconds: float) -> None:
        await self._sleep_until(self._env.now_ms / 1000 + seconds)

    async def _sleep_until(self, due_s: float) -> None:
        turn = Future()
        self._process.later(max(STEP_US, int(due_s * 1e6) - self._env.now_ms * 1000),
                            turn.set_result)
        await turn

    # ---- reports -------------------------------------------------------------------------------

    def _report(self, segments: int, _size: int) -> None:
        self._env.event_counts["segments removed"] += segments

    def copied(self, sources: int, _records: int, _size: int) -> None:
        """Count the segments whose records were copied."""
        self._env.event_counts["segments copied"] += sources

    def compacted(self, _group: int, _partition: int, _generation: int, _size: int) -> None:
        """Count a compaction by key that was carried out."""
        self._env.event_counts["partitions compacted"] += 1

    def failed(self, _why: str) -> None:
        """Count a copy that failed."""
        self._env.event_counts["copies failed"] += 1
