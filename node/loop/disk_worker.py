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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import trio

from multiraft.core import DiskQueue
from multiraft.storage.filesystem import File
from node.clock import monotonic_ms
from node.errors import DiskFailed
from node.histogram import Histogram
from node.loop.disk_space import Space, is_full
from node.loop.poller import Poller
from node.loop.threads import name_this_thread

if TYPE_CHECKING:
    from multiraft.storage.io_jobs import StagedWrite
    from multiraft.storage.store import Store

#: A disk that hangs does not keep the node from ending for longer than this, in seconds.
END_S = 10.0
#: How long the index of a full segment gives way after each piece of work, in seconds: several
#: times what a piece takes, so that the loop has the interpreter when it wants it.
GIVE_WAY_S = 0.002
#: With more full segments than this waiting for their index, those that a start has left included,
#: it does not give way: they are made faster than so, and the next start reads each of them whole.
SEALS_WAITING_MAX = 4
#: One block, written to see whether the disk still answers.
PROBE_BYTES = 512


def open_probe(directory: Path, space: Space) -> int:
    """The file whose one block is written when nothing else is.  It has its room before the disk is
    full, or takes it from the reserve: a probe that finds none would end the node.  Raises
    ``DiskFailed``, ``OSError``."""
    file_number = os.open(directory / "probe", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(file_number, 0, PROBE_BYTES)
    except OSError as error:
        if not is_full(error):
            raise
        if not space.exhausted():
            raise DiskFailed(f"{directory} has no room for {PROBE_BYTES} bytes, and no reserve: "
                             f"free some space, then start the node again") from error
        os.posix_fallocate(file_number, 0, PROBE_BYTES)
    return file_number


class DiskWorker:
    """Owner of the writer thread of one journal.

    ``on_durable(staged_writes)`` is called on the loop for each completed group of writes, in
    order; it says whether a round is due.
    """

    def __init__(self, store: Store, on_durable: Callable[[list], bool], arrivals: Poller,
                 space: Space | None = None, flush_interval_ms: int = 0):
        """``space``: who is told when there is no room, None = nobody; ``flush_interval_ms``: how
        long records may wait for their sync, 0 = not at all."""
        self._space = space
        self._relaxed = flush_interval_ms > 0
        self._flush_interval_ms = flush_interval_ms
        self._unsynced: File | None = None  # the file whose last bytes wait for a sync
        self._unsynced_since_ms = 0
        self._flushing = 0  # journal position that a sync under way makes durable
        self._arrivals = arrivals
        self._store = store
        self._prepare_due = trio.Event()
        self._seal_due = trio.Event()
        self._never = threading.Event()  # waited for by who only wants to give way
        self._preparing = False
        self._ended = False
        self._on_durable = on_durable
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue = DiskQueue(self._wake_fd)
        self._thread = threading.Thread(target=self._work, name="disk-worker", daemon=True)
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

    def _work(self) -> None:
        """The thread."""
        name_this_thread(self._thread.name)
        self._queue.run()

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

    def submit(self, staged: StagedWrite) -> None:
        """Queue a staged write; returns at once."""
        self._gathering.append(staged)

    def write(self, staged: StagedWrite) -> None:
        """Submit a staged write, and start it now unless another one is in flight."""
        self.submit(staged)
        self.start_next()

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
                self._prepare_due.set()  # ``prepare`` creates it, then starts this write
                return
            parts += staged.parts
        self._in_flight, self._gathering = gathering, []
        self._writing_since_ms = now_ms = monotonic_ms()
        jobs = parts if len(parts) == 1 else _joined(parts)
        sync = True
        if self._relaxed:
            sync = self._sync_is_due(now_ms)
            self._relax(jobs, sync, now_ms)
        self._store.begin(gathering[-1])
        last = jobs[-1][0]
        for file, buffers, position in jobs:
            self._token += 1
            # A segment that is full is synced before the next one begins, relaxed or not.
            self._queue.submit(file.fileno(), buffers, position, sync or file is not last,
                               self._token)
        self._last_token = self._token

    # ---- relaxed durability --------------------------------------------------------------------

    def _sync_is_due(self, now_ms: int) -> bool:
        """Whether this write is synced: it is more than records, or others have waited enough."""
        return (not all(staged.records_only for staged in self._in_flight)
                or self._unsynced is not None
                and now_ms - self._unsynced_since_ms >= self._flush_interval_ms)

    def _relax(self, jobs: list, sync: bool, now_ms: int) -> None:
        for staged in self._in_flight:
            staged.synced = sync
        if self._unsynced is not None and self._unsynced is not jobs[0][0]:
            self._submit_sync()  # the segment before: its marks say that it is on the disk
        if sync:
            self._unsynced = None
        elif self._unsynced is None or self._unsynced is not jobs[-1][0]:
            self._unsynced, self._unsynced_since_ms = jobs[-1][0], now_ms

    def _submit_sync(self) -> None:
        self._token += 1
        assert self._unsynced is not None
        self._queue.submit(self._unsynced.fileno(), [b""], 0, True, self._token)
        self._unsynced = None

    async def flush(self) -> None:
        """Task, with relaxed durability: nothing waits for its sync because nothing follows."""
        while True:
            await trio.sleep(self._flush_interval_ms / 2000)
            now_ms = monotonic_ms()
            if (self._unsynced is not None and self._writing_since_ms is None and not self._ended
                    and now_ms - self._unsynced_since_ms >= self._flush_interval_ms):
                self._writing_since_ms = now_ms
                self._flushing = self._store.durable_position
                self._submit_sync()
                self._last_token = self._token

    async def prepare(self) -> None:
        """Task: creates segment files, ahead when it can; what waits for one is started then."""
        while True:
            await self._prepare_due.wait()
            self._prepare_due = trio.Event()
            self._preparing = True
            self._creating_since_ms = monotonic_ms()
            missing = next((staged for staged in self._gathering if not staged.native_ready), None)
            try:
                if missing is not None:
                    await self._create(missing)
                elif (plan := self._store.prepare_plan()) is not None:
                    await self._unless_full(plan.execute)
            except OSError as error:
                raise DiskFailed(f"a segment could not be prepared: {error}") from error
            self._preparing = False
            self._creating_since_ms = None
            self.start_next()

    async def seal(self) -> None:
        """Task: the indexes of full segments, which can wait."""
        while True:
            await self._seal_due.wait()
            self._seal_due = trio.Event()
            while (plan := self._store.seal_plan()) is not None:
                try:
                    if await self._unless_full(partial(plan.execute, self._give_way)):
                        self._store.sealed(plan)
                except OSError as error:
                    raise DiskFailed(f"a full segment could not be indexed: {error}") from error

    def _give_way(self) -> None:
        """In a thread that works for later: the loop first, unless too much waits already."""
        if not self._ended and self._store.seals_waiting <= SEALS_WAITING_MAX:
            self._never.wait(GIVE_WAY_S)

    async def _create(self, staged: StagedWrite) -> None:
        """A segment that is needed now.  When there is no room for all of it, the reserve makes
        room for what goes on: records are refused from here on."""
        try:
            await trio.to_thread.run_sync(staged.create_files)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.exhausted()
            await trio.to_thread.run_sync(staged.create_files, False)

    async def _unless_full(self, work: Callable[[], None]) -> bool:
        """Do what can be done later as well; whether there was room for it."""
        try:
            await trio.to_thread.run_sync(work)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.fill()
            return False
        return True

    def probe(self, file_number: int) -> None:
        """Write and sync one block elsewhere, so that a hung disk is noticed while idle."""
        if self._writing_since_ms is None and not self._gathering and not self._ended:
            self._writing_since_ms = monotonic_ms()
            self._token += 1
            self._last_token = self._token
            self._queue.submit(file_number, [bytes(PROBE_BYTES)], 0, True, self._token)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
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
        if self._flushing:
            self._store.flushed(self._flushing)
            self._flushing = 0
        self.last_write_ms = monotonic_ms()
        due = False
        if done:
            due = self._on_durable(done)
            if self._store.prepare_due and not self._preparing:
                self._prepare_due.set()
            if self._store.seals_waiting:
                self._seal_due.set()
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
