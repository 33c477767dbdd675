"""The disk worker: staged writes in, durable sequences out, one fsync for all that gathered.

Contract.  ``submit`` takes a staged write; while one is in flight, what is submitted gathers and
becomes the next: group commit falls out.  Writes become durable in the order of ``submit``.  A
failed write or fsync is never retried: ``run`` raises ``DiskFailed`` and the node stops.

Theory.  The thread runs without the GIL (``core.DiskQueue``) and wakes the loop through an eventfd,
so a busy loop neither delays a write nor is delayed by one (docs/decisions/0003).
"""

from __future__ import annotations

import os
import threading
from typing import Callable

import trio

from multiraft.core import DiskQueue
from node.arrivals import Arrivals
from node.clock import monotonic_ms
from node.errors import DiskFailed
from node.histogram import Histogram

#: A disk that hangs does not keep the node from ending for longer than this, in seconds.
END_S = 10.0


class DiskWorker:
    """Owner of the writer thread of one lane.

    ``on_durable(staged_writes)`` is called on the loop for each completed group of writes, in
    order; it says whether a round is due.
    """

    def __init__(self, store, on_durable: Callable[[list], bool], arrivals: Arrivals):
        self._arrivals = arrivals
        self._store = store
        self._upkeep = trio.Event()
        self._preparing = False
        self._ended = False
        self._on_durable = on_durable
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue = DiskQueue(self._wake_fd)
        self._thread = threading.Thread(target=self._queue.run, name="disk-worker", daemon=True)
        self._gathering: list = []
        self._in_flight: list = []
        self._token = 0
        self._last_token = 0
        self._writing_since_ms: int | None = None
        self._creating_since_ms: int | None = None
        self.last_write_ms = monotonic_ms()
        self.writes = 0
        self.bytes_written = 0
        self.latency = Histogram()  # of each write, fsync included

    @property
    def idle(self) -> bool:
        """Nothing in flight."""
        return self._writing_since_ms is None

    @property
    def busy_since_ms(self) -> int | None:
        """Since when the disk owes an answer, whatever the question was; None = it does not.  Read
        by the liveness thread."""
        writing_ms, creating_ms = self._writing_since_ms, self._creating_since_ms
        if writing_ms is None or creating_ms is None:
            return creating_ms if writing_ms is None else writing_ms
        return min(writing_ms, creating_ms)

    def submit(self, staged) -> None:
        """Queue a staged write; returns at once."""
        self._gathering.append(staged)

    def start_next(self) -> None:
        """Hand what has gathered to the thread, unless a write is in flight or its file is being
        created."""
        gathering = self._gathering
        if (not gathering or self._writing_since_ms is not None or self._preparing
                or self._ended):
            return
        parts: list = []
        for staged in gathering:
            if not staged.native_ready:
                self._upkeep.set()  # ``prepare`` creates it, then starts this write
                return
            parts += staged.parts
        self._in_flight, self._gathering = gathering, []
        self._store.begin(gathering[-1])
        self._writing_since_ms = monotonic_ms()
        for file, buffers, position in parts if len(parts) == 1 else _joined(parts):
            self._token += 1
            self._queue.submit(file.fileno(), buffers, position, True, self._token)
        self._last_token = self._token

    async def prepare(self) -> None:
        """Task: creates segment files, ahead when it can, and the indexes of full segments, which
        can wait: a write that needs a file goes first."""
        while True:
            await self._upkeep.wait()
            self._upkeep = trio.Event()
            self._preparing = True
            self._creating_since_ms = monotonic_ms()
            missing = next((staged for staged in self._gathering if not staged.native_ready), None)
            try:
                if missing is not None:
                    await trio.to_thread.run_sync(missing.create_files)
                elif (plan := self._store.prepare_plan()) is not None:
                    await trio.to_thread.run_sync(plan.execute)
                self._preparing = False
                self._creating_since_ms = None
                self.start_next()
                while not self._upkeep.is_set() and (seal := self._store.seal_plan()) is not None:
                    await trio.to_thread.run_sync(seal.execute)
                    self._store.sealed(seal)
            except OSError as error:
                raise DiskFailed(f"a segment could not be prepared: {error}") from error

    def probe(self, file_number: int) -> None:
        """Write and sync one block elsewhere, so that a hung disk is noticed while idle."""
        if self._writing_since_ms is None and not self._gathering and not self._ended:
            self._writing_since_ms = monotonic_ms()
            self._token += 1
            self._last_token = self._token
            self._queue.submit(file_number, [b"\0" * 512], 0, True, self._token)

    async def run(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """Owns the thread: starts it, has its completions collected, ends it when cancelled."""
        self._thread.start()
        task_status.started()
        try:
            self._arrivals.add(self._wake_fd, self.collect)
            await trio.sleep_forever()
        finally:
            self._arrivals.remove(self._wake_fd)
            self._ended = True
            self._queue.close()
            with trio.move_on_after(END_S, shield=True):
                await trio.to_thread.run_sync(self._thread.join, abandon_on_cancel=True)

    def collect(self) -> bool:
        """Take the completions that are there, and start what has gathered; whether a round is
        due.  Raises ``DiskFailed``."""
        due = False
        os.eventfd_read(self._wake_fd)
        for token, error, size, micros in self._queue.completions():
            if error:
                raise DiskFailed(f"a write of the lane failed and is not retried: "
                                 f"{os.strerror(error)}")
            self.writes += 1
            self.bytes_written += size
            self.latency.observe(micros)
            if token == self._last_token:
                due = self._finished() or due
        return due

    def _finished(self) -> bool:
        done, self._in_flight = self._in_flight, []
        self._writing_since_ms = None
        self.last_write_ms = monotonic_ms()
        due = False
        if done:
            due = self._on_durable(done)
            if self._store.upkeep_due and not self._preparing:
                self._upkeep.set()
        self.start_next()
        return due


def _joined(parts: list) -> list:
    """Neighbouring parts of one file become one gathered write."""
    joined: list = []
    for handle, buffers, position in parts:
        if joined and joined[-1][0] is handle and joined[-1][3] == position:
            joined[-1][1].extend(buffers)
            joined[-1][3] += sum(map(len, buffers))
        else:
            joined.append([handle, list(buffers), position, position + sum(map(len, buffers))])
    return [tuple(job[:3]) for job in joined]
