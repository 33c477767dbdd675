"""The disk worker: the thread and the tasks that execute the writes of ``node.loop.write_gather``.

Contract. ``gather`` decides; the thread executes. Completions reach ``gather`` on the loop. The
tasks create and index segment files (``node.loop.segment_files``) on threads of trio, and flush
unsynced records.

Theory. The thread runs without the GIL (``core.DiskQueue``) and wakes the loop through an eventfd.
A busy loop therefore neither delays a write nor is delayed by one (docs/decisions/0003).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import trio

from multiraft.core import DiskQueue
from node.clock import monotonic_ms
from node.errors import DiskFailed
from node.loop.disk_space import Space, is_full
from node.loop.poller import Poller
from node.loop.segment_files import ReportDamage, ReportTooLarge, SegmentFiles
from node.loop.threads import name_this_thread
from node.loop.write_gather import PROBE_BYTES, WriteGather

if TYPE_CHECKING:
    from multiraft.storage.store import Store

#: Longest time that a hung disk delays the end of the process, in seconds.
END_S = 10.0
#: Pause of the thread that indexes a full segment, after each piece of work, in seconds: several
#: times the duration of a piece, so that the loop gets the interpreter when it needs it.
YIELD_S = 0.002


def open_probe(directory: Path, space: Space) -> int:
    """Open the file that ``WriteGather.probe`` writes, and return its descriptor. Its block is
    allocated now, from the reserve if need be, because a probe that met a full disk would stop the
    node. Raises ``DiskFailed`` if there is no space for it, ``OSError`` for any other error."""
    file_number = os.open(directory / "probe", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(file_number, 0, PROBE_BYTES)
    except OSError as error:
        if not is_full(error):
            raise
        if not space.release_reserve():
            raise DiskFailed(f"{directory} has no room for {PROBE_BYTES} bytes, and no reserve: "
                             f"free some space, then start the node again") from error
        os.posix_fallocate(file_number, 0, PROBE_BYTES)
    return file_number


class DiskWorker:
    """The owner of the writer thread of one journal."""

    def __init__(self, store: Store, on_durable: Callable[[list], bool], poller: Poller,
                 space: Space | None = None, flush_interval_ms: int = 0,
                 report_too_large: ReportTooLarge = lambda path, error: None,
                 report_damage: ReportDamage = lambda error: None):
        """Create the worker; ``run`` starts its thread. ``on_durable``: see ``WriteGather``.
        ``space``: the guard to notify of a full disk, or None. ``flush_interval_ms``: how long
        records may wait for their sync, in milliseconds; 0 = every write is synced.
        ``report_too_large`` and ``report_damage``: see ``SegmentFiles``."""
        self._poller = poller
        self._flush_interval_ms = flush_interval_ms
        self._prepare_due = trio.Event()
        self._seal_due = trio.Event()
        self._ended = False
        self._never = threading.Event()  # never set: waiting for it is a pause
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue = DiskQueue(self._wake_fd)
        self._thread = threading.Thread(target=self._work, name="disk-worker", daemon=True)
        self.gather = WriteGather(store, self._queue, on_durable, monotonic_ms,
                                  self._wake_prepare, self._wake_seal, flush_interval_ms)
        self._files = SegmentFiles(store, self.gather, trio.to_thread.run_sync, self._pause, space,
                                   report_too_large, report_damage)

    def _work(self) -> None:
        """Run the writer thread."""
        name_this_thread(self._thread.name)
        self._queue.run()

    def _wake_prepare(self) -> None:
        self._prepare_due.set()

    def _wake_seal(self) -> None:
        self._seal_due.set()

    def _pause(self) -> None:
        """Pause the calling thread for ``YIELD_S``, unless the node is stopping."""
        if not self._ended:
            self._never.wait(YIELD_S)

    async def flush(self) -> None:
        """Run the flush task of relaxed durability, until cancelled."""
        while True:
            await trio.sleep(self._flush_interval_ms / 2000)
            self.gather.flush()

    async def prepare(self) -> None:
        """Run the task that creates segment files, until cancelled. Raises ``DiskFailed`` if a file
        cannot be created, unless it is ahead of its use and the disk is full."""
        while True:
            await self._prepare_due.wait()
            self._prepare_due = trio.Event()
            await self._files.prepare()

    async def seal(self) -> None:
        """Run the task that indexes full segments, until cancelled. Raises ``DiskFailed`` for an
        error of the disk other than a lack of space."""
        while True:
            await self._seal_due.wait()
            self._seal_due = trio.Event()
            await self._files.seal()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the writer thread, have the poller collect its completions, and end it when
        cancelled. A hung disk delays the end by ``END_S`` at most."""
        self._thread.start()
        task_status.started()
        try:
            self._poller.add(self._wake_fd, self.collect)
            await trio.sleep_forever()
        finally:
            self._poller.remove(self._wake_fd)
            self._ended = True
            self.gather.end()
            self._queue.close()
            with trio.move_on_after(END_S, shield=True):
                await trio.to_thread.run_sync(self._thread.join, abandon_on_cancel=True)

    def collect(self) -> bool:
        """Take the completions of the thread. Return True if a round is due. Raises ``DiskFailed``
        if a write failed."""
        os.eventfd_read(self._wake_fd)
        return self.gather.collect(self._queue.completions())
