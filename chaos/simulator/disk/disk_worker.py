"""Disk worker of a simulated node: the product's gathering of writes on a simulated disk.

Contract.  ``node.loop.write_gather`` decides what is written, synced and probed, and when;
``node.loop.segment_files`` creates and indexes segments.  This module is what ``DiskWorker`` is to
a node: it executes their calls in virtual time (``operations``), and wakes the tasks.  A failed
write ends the node.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from chaos.simulator.disk.operations import DiskOperations, Operation
from chaos.simulator.node.machine.coroutines import start
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.io_jobs import StagedWrite
from node.errors import DiskFailed
from node.loop.segment_files import SegmentFiles
from node.loop.write_gather import PROBE_BYTES, WriteGather

if TYPE_CHECKING:
    from chaos.simulator.node.loop.observed_store import ObservedStore
    from chaos.simulator.node.machine.env import NodeEnv
    from chaos.simulator.node.machine.fail_points import FailPoints
    from chaos.simulator.node.machine.process import ProcessScheduler
    from chaos.simulator.node.machine.simulated_disk import SimulatedDisk
    from multiraft.storage.errors import CorruptRange

#: While a write takes longer, the node sends no liveness support.
DISK_STALL_MS_MAX = 1000
#: After this time without a write a probe block is written, so that a hung disk is noticed.
PROBE_MS = 500
PROBE_FILE = "/data/probe"
PROBE = bytes(PROBE_BYTES)


class WorkerOwner(Protocol):
    """The boot, as its disk worker uses it."""

    def wrote(self, staged: list[StagedWrite]) -> bool:
        """Handle the completion of writes, in the process. Return True if a round is due."""

    def request_round(self) -> None:
        """Request a round."""

    def damage_found(self, error: CorruptRange) -> None:
        """Have a record repaired that cannot be read."""

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start."""


class DiskWorker:
    """Worker of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, disk: SimulatedDisk,
                 store: ObservedStore, guard: DiskSpaceGuard, fail_points: FailPoints,
                 owner: WorkerOwner):
        self._env = env
        self._process = process
        self._filesystem = disk.filesystem
        self._store = store
        self._owner = owner
        self._flush_us = env.parameters.disk.flush_interval_ms * 500
        self._flush_waits = False
        self._writes_queued = 0
        self._is_over = False
        self._probe_file = disk.filesystem.open(PROBE_FILE).fileno()
        self.operations = DiskOperations(env, process, disk, fail_points)
        self.gather = WriteGather(store, self, self._on_durable, lambda: env.now_ms,
                                  self._wake_prepare, self._wake_seal,
                                  env.parameters.disk.flush_interval_ms)
        files = SegmentFiles(store.store, self.gather, self.operations.run, _nothing, guard,
                             report_damage=owner.damage_found)
        self._prepare = DiskTask(process, files.prepare, self.end)
        self._seal = DiskTask(process, files.seal, self.end)

    def _wake_prepare(self) -> None:
        self._prepare.wake()

    def _wake_seal(self) -> None:
        self._seal.wake()

    def is_stalled(self, now_ms: int) -> bool:
        """True if the disk has owed a completion for more than ``DISK_STALL_MS_MAX``."""
        since_ms = self.gather.busy_since_ms
        return since_ms is not None and now_ms - since_ms > DISK_STALL_MS_MAX

    def probe(self) -> None:
        """Write the probe block if nothing was written for ``PROBE_MS``."""
        self.gather.probe(self._probe_file, PROBE_MS)

    @property
    def is_idle(self) -> bool:
        """True if no call is under way."""
        return self.operations.is_idle

    def end(self, error: OSError) -> None:
        """End this worker and its node, because of a disk error."""
        self.stop()
        self._owner.disk_failed(error)

    def stop(self) -> None:
        """Begin no call from now on, and process no completion: the process ends."""
        self._is_over = True
        self.operations.end()
        self.gather.end()

    # ---- queue of the gathering ------------------------------------------------------------

    def submit(self, file_number: int, buffers: list, position: int, sync: bool,
               token: int) -> None:
        """Queue a gathered write, as ``core.DiskQueue`` does."""
        file, size = self._filesystem.descriptors[file_number], sum(map(len, buffers))

        def work() -> None:
            if size:
                file.write(buffers, position, sync)
            else:
                file.sync()

        self._writes_queued += 1
        is_unseen = size > 0 and self._env.rng.random() < 0.5
        self.operations.submit(Operation(work, is_unseen, self._completed,
                                         lambda error: self._written(error, token, size)))

    def _completed(self, failed: OSError | None) -> None:
        self._writes_queued -= 1
        if failed is not None:
            self._store.failed()
        elif not self._writes_queued:
            self._store.durable(self.gather.is_synced)

    def _written(self, error: OSError | None, token: int, size: int) -> None:
        """Handle the end of a queued write, in the process."""
        if self._is_over:
            return
        number = 0 if error is None else error.errno or errno.EIO
        try:
            is_due = self.gather.collect([(token, number, size, 0)])
        except DiskFailed:
            assert error is not None, "a write failed without an error"
            self.end(error)
            return
        if is_due:
            self._owner.request_round()

    def _on_durable(self, staged: list[StagedWrite]) -> bool:
        is_due = self._owner.wrote(staged)
        self._flush_later()
        return is_due

    # ---- relaxed durability ----------------------------------------------------------------

    def _flush_later(self) -> None:
        """Call the gathering's ``flush`` every half interval, while bytes are unsynced."""
        if not self._flush_waits and not self.gather.is_synced:
            self._flush_waits = True
            self._process.later(self._flush_us, self._flush)

    def _flush(self) -> None:
        self._flush_waits = False
        self.gather.flush()
        self._flush_later()


class DiskTask:
    """Task of one boot: runs a coroutine of the product whenever it is woken, one at a time."""

    def __init__(self, process: ProcessScheduler, run: Callable[[], Coroutine[Any, None, None]],
                 fail: Callable[[OSError], None]):
        """``fail`` handles the error of a disk that ends the node."""
        self._process = process
        self._run = run
        self._fail = fail
        self._is_running = self._is_due = False

    def wake(self) -> None:
        """Run the coroutine soon, or once more if it runs."""
        self._is_due = True
        if not self._is_running:
            self._is_running = True
            self._process.later(0, self._begin)

    def _begin(self) -> None:
        self._is_due = False
        start(self._guarded(), self._process.later, self._ended)

    async def _guarded(self) -> None:
        try:
            await self._run()
        except DiskFailed as error:
            assert isinstance(error.__cause__, OSError), "a disk fails with an error"
            self._fail(error.__cause__)

    def _ended(self, _value: object, error: Exception | None) -> None:
        if error is not None:
            raise error
        self._is_running = False
        if self._is_due:
            self.wake()


def _nothing() -> None:
    """Do nothing: virtual time has no thread to yield to."""
