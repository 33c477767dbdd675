"""Tasks of requests that cannot be answered at once: cold reads, waiting for metadata.

Contract.  ``start`` begins a task or says that there are too many; ``run`` holds them.  Blocking
reads go through ``read``: at most ``cold_readers_max`` threads, and ``cold_read_bytes_max`` bytes
under way, whatever the clients ask for.  Who waits for its turn holds a plan, not its bytes.
"""

from __future__ import annotations

from typing import Any

import trio

#: Requests under way outside the loop, of all connections: each is a task and what it answers to.
TASKS_MAX = 4096


class Background:
    """Owner of the tasks and of the threads that read cold ranges."""

    def __init__(self, limits):
        self._bytes_max = limits.cold_read_bytes_max
        self._readers_max = limits.cold_readers_max
        self._limiter: trio.CapacityLimiter | None = None
        self._nursery: trio.Nursery | None = None
        self._room = trio.Condition()
        self._bytes = 0
        self.tasks = 0

    async def run(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """Hold the tasks until cancelled."""
        self._limiter = trio.CapacityLimiter(self._readers_max)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def start(self, work, *args) -> bool:
        """Run ``await work(*args)`` in a task of its own; False = there are too many."""
        if self.tasks >= TASKS_MAX:
            return False
        self.tasks += 1
        self._nursery.start_soon(self._run, work, args)
        return True

    async def _run(self, work, args: tuple) -> None:
        try:
            await work(*args)
        finally:
            self.tasks -= 1

    async def read(self, plan) -> Any:
        """``plan.execute()`` on a thread, in turn.  Raises what it raises."""
        async with self._room:
            # A plan that is larger than all there may be goes alone.
            while self._bytes and self._bytes + plan.bytes > self._bytes_max:
                await self._room.wait()
            self._bytes += plan.bytes
        try:
            return await trio.to_thread.run_sync(plan.execute, limiter=self._limiter)
        finally:
            with trio.CancelScope(shield=True):
                async with self._room:
                    self._bytes -= plan.bytes
                    self._room.notify_all()
