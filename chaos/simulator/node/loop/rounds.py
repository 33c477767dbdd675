"""Rounds of one boot: they take the frames that have arrived, and run the product's driver.

Contract.  ``node.loop.ready_driver`` executes each ``Ready``; its ports are parts of the boot,
which report every effect to the state checker.  Each effect is one at which an armed crash may
strike (``FailPoints.arm_crash``).  This module is what ``RoundLoop`` is to a node: it runs a round
when one was requested, and at each deadline of the driver.
"""

from __future__ import annotations

from chaos.simulator.node.loop.frames import FrameHandlers
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from multiraft.raft.timers import NEVER_MS
from node.loop.ready_driver import ReadyDriver


class Rounds:
    """Rounds of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, queue: RoundQueue,
                 frames: FrameHandlers, driver: ReadyDriver):
        self._clock = env.clock
        self._process = process
        self._queue = queue
        self._frames = frames
        self._driver = driver
        self._wake_ms = NEVER_MS

    def run(self) -> None:
        """Take the frames that have arrived, and execute everything that follows from them."""
        for arrival in self._queue.take():
            self._frames.handle(arrival)
            if not self._process.is_alive:
                return  # the disk failed during the handler
        self._driver.step(self._clock.now_ms)
        if self._driver.is_due_before(self._wake_ms):
            self._schedule_wake_up()

    def _schedule_wake_up(self) -> None:
        """Schedule the next round at the driver's next deadline."""
        deadline_ms = self._wake_ms = self._driver.earliest_ms
        self._process.later(self._clock.until_us(deadline_ms), self._wake_up, deadline_ms)

    def _wake_up(self, deadline_ms: int) -> None:
        if self._wake_ms == deadline_ms:
            self._wake_ms = NEVER_MS
        self._queue.request()

    def clock_changed(self) -> None:
        """Compute the next wake-up again, in a round that this requests."""
        self._wake_ms = NEVER_MS
        self._queue.request()
