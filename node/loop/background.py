"""Background tasks of requests that cannot be answered at once: cold reads, waits for metadata.

Contract. ``start`` begins a task, or returns False at ``TASKS_MAX``; ``run`` owns the nursery.
Blocking reads go through ``read`` and use at most ``cold_readers_max`` threads and
``cold_read_bytes_max`` bytes at a time, whatever the clients request. A read that waits for its
turn holds its job but no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import trio

from multiraft.storage.errors import CorruptRange, SegmentRemoved
from node.limits import TASKS_MAX

if TYPE_CHECKING:
    from node.config import Limits

#: Limits of one hand-over to a thread. A consumer of many partitions reads thousands of small
#: ranges, and a hand-over costs more than such a range. Higher limits would let readers of few
#: ranges wait for a thread.
PLANS_PER_READ_MAX = 64
BYTES_PER_READ_MAX = 1 << 20


class Background:
    """Owner of the background tasks of requests, and of the threads that read from the disk for
    them."""

    def __init__(self, limits: Limits):
        self._bytes_max = limits.cold_read_bytes_max
        self._readers_max = limits.cold_readers_max
        self._limiter: trio.CapacityLimiter | None = None
        self._nursery: trio.Nursery | None = None
        self._room = trio.Condition()
        self._bytes = 0
        self.tasks = 0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the nursery of all background tasks, until cancelled; ``start`` is allowed from
        ``task_status.started`` on."""
        self._limiter = trio.CapacityLimiter(self._readers_max)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def start(self, work: Callable[..., Any], *args: Any) -> bool:
        """Run ``await work(*args)`` in a task of its own. Return False if ``TASKS_MAX`` tasks run
        already."""
        if self.tasks >= TASKS_MAX:
            return False
        self.tasks += 1
        assert self._nursery is not None
        self._nursery.start_soon(self._run, work, args)
        return True

    async def _run(self, work: Callable[..., Any], args: tuple) -> None:
        try:
            await work(*args)
        finally:
            self.tasks -= 1

    async def read(self, job: Any) -> Any:
        """Return ``job.execute()``, run on a thread, once fewer than ``cold_read_bytes_max`` bytes
        are being read. Raises what ``execute`` raises."""
        return await self._on_thread(job.bytes, job.execute)

    async def read_each(self, jobs: Sequence) -> list:
        """Run all jobs on threads, in order, many small ones in one hand-over. Return for each its
        result, or the ``CorruptRange`` or ``SegmentRemoved`` that it raised. Raises ``OSError`` if
        the disk cannot be read."""
        read: list = []
        for portion in _portions(jobs):
            read += await self._on_thread(sum(job.bytes for job in portion), _execute_each,
                                          portion)
        return read

    async def _on_thread(self, size: int, work: Callable[..., Any], *args: Any) -> Any:
        async with self._room:
            # A read that exceeds the limit by itself runs alone.
            while self._bytes and self._bytes + size > self._bytes_max:
                await self._room.wait()
            self._bytes += size
        try:
            return await trio.to_thread.run_sync(work, *args, limiter=self._limiter)
        finally:
            with trio.CancelScope(shield=True):
                async with self._room:
                    self._bytes -= size
                    self._room.notify_all()


def _portions(jobs: Sequence) -> Iterator[Sequence]:
    """Yield ``jobs`` in their order, in portions of one hand-over each.  O(jobs)."""
    start, size = 0, 0
    for at, job in enumerate(jobs):
        if at > start and (at - start >= PLANS_PER_READ_MAX
                           or size + job.bytes > BYTES_PER_READ_MAX):
            yield jobs[start:at]
            start, size = at, 0
        size += job.bytes
    if start < len(jobs):
        yield jobs[start:]


def _execute_each(jobs: Sequence) -> list:
    """Run the jobs on this thread.  Return for each its result, ``CorruptRange`` or
    ``SegmentRemoved``."""
    results: list = []
    for job in jobs:
        try:
            results.append(job.execute())
        except (CorruptRange, SegmentRemoved) as error:
            results.append(error)
    return results
