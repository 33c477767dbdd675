"""Checkpoints of one boot, by the product's writer (``node.loop.checkpoint_writer``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulator.disk.disk_worker import DiskTask, DiskWorker
from chaos.simulator.node.machine.coroutines import Lock
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.store import Store
from node.loop.checkpoint_writer import CheckpointWriter, MetadataSource

#: Delay from a completed write until the writer is asked; a node asks every second.
ASK_US = 100_000


class Checkpoints:
    """Task that writes the checkpoints of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, raft: MultiRaft, store: Store,
                 worker: DiskWorker, guard: DiskSpaceGuard, metadata: MetadataSource,
                 compact: Callable[[int], None]):
        """``compact(index)`` drops the commands up to the index that a checkpoint holds."""
        self.writer = CheckpointWriter(store, raft, metadata, self._run_blocking,
                                       lambda: env.now_ms, guard)
        self.writer.completed.subscribe(lambda: compact(self.writer.metadata_applied))
        self._run = worker.operations.run
        self._running = 0
        self._process = process
        self._task = DiskTask(process, self._write_if_due, worker.end)
        #: Held while a checkpoint is written.
        self.alone = Lock()
        self._is_asked = False

    @property
    def is_writing(self) -> bool:
        """True while a checkpoint is on its way to the disk: a stop waits for its thread."""
        return self._running > 0

    async def _run_blocking(self, call: Callable[[], Any]) -> Any:
        self._running += 1
        try:
            return await self._run(call)
        finally:
            self._running -= 1

    async def _write_if_due(self) -> None:
        async with self.alone:
            await self.writer.write_if_due()

    def ask_later(self) -> None:
        """Have a checkpoint written a little later if one is due then."""
        if not self._is_asked:
            self._is_asked = True
            self._process.later(ASK_US, self._ask)

    def _ask(self) -> None:
        self._is_asked = False
        if self.writer.is_due:
            self._task.wake()
