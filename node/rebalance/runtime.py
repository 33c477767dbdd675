"""What carrying out a plan takes from its surroundings: the time, and doing several things at once.

Contract.  ``TASKS`` is the node's: trio and its clocks.  Whoever carries plans out elsewhere (the
simulator does, in virtual time) brings another object with the same five methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from node.clock import monotonic_ms, wall_ms


class Tasks:
    """See the module's docstring."""

    monotonic_ms = staticmethod(monotonic_ms)
    wall_ms = staticmethod(wall_ms)

    async def together(self, calls: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        """All of them at once, until the last one is over."""
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call)

    async def within(self, limit_s: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """What ``call`` returns; None when that takes longer than ``limit_s`` seconds."""
        with trio.move_on_after(limit_s):
            return await call()
        return None

    async def checkpoint(self) -> None:
        """Others may run."""
        await trio.lowlevel.checkpoint()


TASKS = Tasks()
