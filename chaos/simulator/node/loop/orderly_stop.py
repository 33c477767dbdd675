"""The stop of one boot in order, by the product's steps (``node.replicas.orderly_stop``).

Contract.  ``begin`` has the leaderships transferred while the node serves.  Then its frames wait,
open requests are answered as ambiguous, the disk completes its last call, and the last checkpoint
is written.  A crash may strike at any time, also between the file operations of that checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.node.loop.applier import Applier
from chaos.simulator.node.loop.checkpoints import Checkpoints
from chaos.simulator.node.machine.coroutines import Future, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from multiraft.raft.multi_raft import MultiRaft
from node.errors import DiskFailed
from node.replicas.drain_leadership import LeadershipDrain
from node.replicas.orderly_stop import OrderlyStop

#: Longest time for the transfers.
STOP_MS = 5_000
#: Interval at which a busy disk is checked, in seconds.
IDLE_PAUSE_S = 0.001


class NodeStop:
    """Stop of one boot."""

    stopping = False  # requests that arrive later wait in the queue of frames, and are lost

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 fail_points: FailPoints, raft: MultiRaft, worker: DiskWorker,
                 checkpoints: Checkpoints, applier: Applier, ended: Callable[[], None]):
        """``ended`` ends the process."""
        self._env = env
        self._process = process
        self._fail_points = fail_points
        self._worker = worker
        self._checkpoints = checkpoints
        self._ended = ended
        self._has_begun = False
        drain = LeadershipDrain(raft, self, rounds.request, self, lambda: env.now_ms)
        self._steps = OrderlyStop(raft, drain, lambda: None, self, applier, rounds,
                                  self._write_changes, self, STOP_MS)

    def begin(self) -> None:
        """Begin the stop; no-op when it has begun."""
        if self._has_begun:
            return
        self._has_begun = True
        start(self._run(), self._process.later)

    async def _run(self) -> None:
        await self._steps.run()
        self._worker.stop()
        while not self._worker.is_idle or self._checkpoints.is_writing:
            await self.wait(IDLE_PAUSE_S)
        self._fail_points.strike_in_files()
        try:
            self._checkpoints.writer.write_last()
        except DiskFailed as error:
            assert isinstance(error.__cause__, OSError), "a disk fails with an error"
            self._worker.end(error.__cause__)
            return
        self._fail_points.files_done()
        self._ended()

    # ---- what the steps await and report ---------------------------------------------------

    async def wait(self, timeout_s: float) -> None:
        """Wait for ``timeout_s``."""
        passed = Future()
        self._process.later(int(timeout_s * 1e6), passed.set_result)
        await passed

    async def _write_changes(self) -> None:
        """Write nothing: the trace has each change already."""

    def info(self, event: str, extra: dict[str, Any]) -> None:
        """Write a log event of the product to the trace."""
        self._env.trace_line(event, " ".join(f"{key}={value}" for key, value in extra.items()))
