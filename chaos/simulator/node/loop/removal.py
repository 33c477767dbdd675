"""Removal of records and segments in one boot, by the product's steps, in virtual time.

Contract.  ``trim`` and ``remover`` are those of the node.  They are asked each interval; their
steps are apart by a millisecond, so that anything may happen in between, a crash included.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.disk.disk_worker import DiskTask, DiskWorker
from chaos.simulator.node.machine.coroutines import Future
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.store import Store
from node.loop.record_trim import RecordTrim
from node.loop.removal_steps import RemovalSteps
from node.loop.segment_remover import SegmentRemover

#: Interval at which due work is asked for; a node asks every second.
ASK_US = 500_000
#: Virtual time between two steps.
STEP_US = 1_000


class Removal:
    """Task that removes records and segments of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, store: Store, worker: DiskWorker,
                 guard: DiskSpaceGuard, required: Callable[[], None]):
        """``required()`` has the checkpoint written that the remover may have required."""
        self.trim = RecordTrim(store)
        self.remover = SegmentRemover(store, worker.operations.run, self._take_turn,
                                      lambda: env.now_ms, guard, self._report)
        self._steps = RemovalSteps(store, self.trim, self.remover, self._take_turn, guard)
        self._env = env
        self._process = process
        self._required = required
        self._task = DiskTask(process, self._run, worker.end)

    def begin(self) -> None:
        """Ask for due work from now on, until this boot ends."""
        self._process.later(ASK_US, self._ask)

    def _ask(self) -> None:
        self._task.wake()
        self._process.later(ASK_US, self._ask)

    async def _run(self) -> None:
        await self._steps.give_back()
        self._required()

    async def _take_turn(self, _rows: int) -> None:
        turn = Future()
        self._process.later(STEP_US, turn.set_result)
        await turn

    def _report(self, segments: int, _size: int) -> None:
        self._env.event_counts["segments removed"] += segments
