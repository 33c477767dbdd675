"""Blocking calls of one boot on its disk, one after the other, in virtual time.

Contract.  A call returns at once and takes effect on the disk when its virtual time has passed;
filesystem.py describes the effects of a crash meanwhile.  While the disk hangs, that time does not
pass.  The caller learns of the end in its process (``done``), so a paused one learns of it later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from chaos.simulator.node.machine.coroutines import Future

if TYPE_CHECKING:
    from chaos.simulator.node.machine.env import NodeEnv
    from chaos.simulator.node.machine.fail_points import FailPoints
    from chaos.simulator.node.machine.process import ProcessScheduler
    from chaos.simulator.node.machine.simulated_disk import SimulatedDisk


class Operation(NamedTuple):
    """One blocking call."""

    work: Callable[[], object]
    is_unseen: bool  # its bytes cannot be read before its end
    completed: Callable[[OSError | None], None]  # called when its effects are on the disk
    done: Callable[[OSError | None], None]  # called in the process


class DiskOperations:
    """Queue of the blocking calls of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, disk: SimulatedDisk,
                 fail_points: FailPoints):
        self._env = env
        self._process = process
        self._disk = disk
        self._filesystem = disk.filesystem
        self._fail_points = fail_points
        self._waiting: deque[Operation] = deque()
        self._is_busy = False
        self._is_over = False
        self._hung: tuple[Operation, OSError | None] | None = None  # waits for ``release``

    @property
    def is_idle(self) -> bool:
        """True if no call is under way."""
        return not self._is_busy

    def submit(self, operation: Operation) -> None:
        """Queue a call; it begins at once on an idle disk."""
        self._waiting.append(operation)
        self._begin_next()

    def run(self, work: Callable[[], None]) -> Future:
        """Queue a call, and return the future of its end; awaiting it raises the ``OSError`` of the
        call."""
        ended = Future()
        self.submit(Operation(work, False, _nothing,
                              lambda error: ended.set_result(None, error)))
        return ended

    def end(self) -> None:
        """Begin no call from now on: the process ends."""
        self._is_over = True

    def release(self) -> None:
        """Let a completion that waited for a hung disk, if any, take effect now."""
        hung, self._hung = self._hung, None
        if hung is not None:
            self._complete(*hung)

    def _begin_next(self) -> None:
        if self._is_busy or self._is_over or not self._waiting:
            return
        operation = self._waiting.popleft()
        self._is_busy = True
        self._filesystem.begin(operation.is_unseen)
        failed = None
        try:
            operation.work()
        except OSError as error:
            failed = error
        latency_us = self._latency_us()
        self._fail_points.disk_began(latency_us)
        self._process.after_disk(latency_us, self._complete, operation, failed)

    def _latency_us(self) -> int:
        parameters = self._env.parameters.disk
        latency = parameters.write_min_us + int(self._env.rng.random() * parameters.write_spread_us)
        if self._env.faulty and self._env.rng.random() < parameters.stall:
            latency += parameters.stall_us
        return latency * self._disk.factor

    def _complete(self, operation: Operation, failed: OSError | None) -> None:
        """Make the effects of the call durable, also while the process is paused, and schedule its
        end in the process. While the disk hangs, keep it for ``release``."""
        if self._disk.hangs:
            self._hung = (operation, failed)
            return
        self._filesystem.complete()
        operation.completed(failed)
        self._process.later(0, self._done, operation, failed)

    def _done(self, operation: Operation, failed: OSError | None) -> None:
        self._is_busy = False
        operation.done(failed)
        self._begin_next()


def _nothing(_failed: OSError | None) -> None:
    """Do nothing: the state checker hears of writes only."""
