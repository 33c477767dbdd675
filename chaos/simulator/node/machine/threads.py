"""Threads of one boot: calls that block a thread of the real node take virtual time here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulator.node.machine.coroutines import Future
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler

#: Range of the duration of a call on a thread: the longest while all processors are busy.
THREAD_US = (200, 60_000)
#: Exponent that makes most calls short: half of them end within a hundredth of the longest.
SHORTNESS = 7


class SimulatedThreads:
    """Calls on threads, and pauses, of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, fail_points: FailPoints):
        self._rng = env.rng
        self._process = process
        self._fail_points = fail_points

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of ``call``, which ends after a time within ``THREAD_US``, until which
        other events happen; an armed crash may strike before it."""
        shortest, longest = THREAD_US
        await self.pause_us(
            shortest + int((longest - shortest) * self._rng.random() ** SHORTNESS))
        self._fail_points.effect()
        return call(*arguments)

    async def pause(self, pause_s: float) -> None:
        """Return after ``pause_s`` of virtual time."""
        await self.pause_us(int(pause_s * 1e6))

    async def pause_us(self, pause_us: int) -> None:
        """Return after ``pause_us`` of virtual time."""
        over = Future()
        self._process.later(pause_us, over.set_result)
        await over
