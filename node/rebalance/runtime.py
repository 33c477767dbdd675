"""The runtime interface of plans: time, concurrency and timeouts.

Contract.  ``RUNTIME`` is the node's: trio and its clocks.  The simulator runs plans in virtual time
with another object of the same five methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from node.clock import monotonic_ms, wall_ms


class Runtime:
    """The implementation for a node: wall clock, monotonic clock, and trio's nurseries and
    timeouts."""

    monotonic_ms = staticmethod(monotonic_ms)
    wall_ms = staticmethod(wall_ms)

    async def run_all(self, calls: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        """Run all calls concurrently and return after the last one."""
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call)

    async def run_with_timeout(self, limit_s: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of ``call``; None when it takes longer than ``limit_s`` seconds."""
        with trio.move_on_after(limit_s):
            return await call()
        return None

    async def checkpoint(self) -> None:
        """Let other tasks run."""
        await trio.lowlevel.checkpoint()


RUNTIME = Runtime()
