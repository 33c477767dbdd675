"""The disk worker: writes staged entries to the journal, with one sync for all that gathered.

Contract. ``submit`` takes a staged write. While a write is in flight, submitted writes gather and
become the next one (group commit). Writes become durable in the order of ``submit``. A failed write
or sync is never retried: ``collect`` raises ``DiskFailed`` and the node stops. After a failed fsync
the kernel may drop the dirty pages and report success to the next fsync, so a retry could
acknowledge entries that are not on disk.

Theory. The thread runs without the GIL (``core.DiskQueue``) and wakes the loop through an eventfd.
A busy loop therefore neither delays a write nor is delayed by one (docs/decisions/0003).
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

#: Longest time that a hung disk delays the end of the process, in seconds.
END_S = 10.0
#: Pause of the thread that indexes a full segment, after each piece of work, in seconds: several
#: times the duration of a piece, so that the loop gets the interpreter when it needs it.
YIELD_S = 0.002
#: Number of full segments without an index, those left by a start included, above which indexing no
#: longer pauses: segments fill faster than they are indexed, and the next start would read each of
#: them whole.
SEALS_WAITING_MAX = 4
#: Size of the block that is written to probe an idle disk, in bytes.
PROBE_BYTES = 512


def open_probe(directory: Path, space: Space) -> int:
    """Open the file that ``DiskWorker.probe`` writes, and return its descriptor. Its block is
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
    """The owner of the writer thread of one journal.

    ``on_durable(staged_writes)`` is called on the loop for each completed group of writes, in
    order. It returns True if a round is due.
    """

    def __init__(self, store: Store, on_durable: Callable[[list], bool], poller: Poller,
                 space: Space | None = None, flush_interval_ms: int = 0):
        """Create the worker; ``run`` starts its thread. ``space``: the guard to notify of a full
        disk, or None. ``flush_interval_ms``: how long records may wait for their sync, in
        milliseconds; 0 = every write is synced."""
        self._space = space
        self._relaxed = flush_interval_ms > 0
        self._flush_interval_ms = flush_interval_ms
        self._unsynced: File | None = None  # the file whose last bytes wait for a sync
        self._unsynced_since_ms = 0
        self._flushing = 0  # journal offset that the sync in flight makes durable
        self._poller = poller
        self._store = store
        self._prepare_due = trio.Event()
        self._seal_due = trio.Event()
        self._never = threading.Event()  # never set: waiting for it is a pause
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
        """Run the writer thread."""
        name_this_thread(self._thread.name)
        self._queue.run()

    @property
    def idle(self) -> bool:
        """True if no write is in flight."""
        return self._writing_since_ms is None

    @property
    def busy_since_ms(self) -> int | None:
        """Time since which the disk has owed a completion, of a write or of a new file; None = it
        owes none. The liveness thread reads it."""
        writing_ms, creating_ms = self._writing_since_ms, self._creating_since_ms
        if writing_ms is None or creating_ms is None:
            return creating_ms if writing_ms is None else writing_ms
        return min(writing_ms, creating_ms)

    def submit(self, staged: StagedWrite) -> None:
        """Queue a staged write, without starting it."""
        self._gathering.append(staged)

    def write(self, staged: StagedWrite) -> None:
        """Queue a staged write, and start it unless another one is in flight."""
        self.submit(staged)
        self.start_next()

    def start_next(self) -> None:
        """Hand the gathered writes to the thread, unless a write is in flight or a segment file is
        being created. A write that needs a new file waits for the ``prepare`` task."""
        gathering = self._gathering
        if (not gathering or self._writing_since_ms is not None or self._preparing
                or self._ended):
            return
        parts: list = []
        for staged in gathering:
            if not staged.native_ready:
                self._prepare_due.set()  # ``prepare`` creates the file, then starts this write
                return
            parts += staged.parts
        self._in_flight, self._gathering = gathering, []
        self._writing_since_ms = now_ms = monotonic_ms()
        jobs = parts if len(parts) == 1 else _joined(parts)
        sync = True
        if self._relaxed:
            sync = self._sync_is_due(now_ms)
            self._relax(jobs, sync, now_ms)
        # Entries staged from now on carry the end of this write as their durable watermark: they
        # reach the disk after this write is durable.
        self._store.submitted(gathering[-1])
        last = jobs[-1][0]
        for file, buffers, position in jobs:
            self._token += 1
            # A full segment is synced before bytes of the next one are written, whatever the flush
            # interval.
            self._queue.submit(file.fileno(), buffers, position, sync or file is not last,
                               self._token)
        self._last_token = self._token

    # ---- relaxed durability --------------------------------------------------------------------

    def _sync_is_due(self, now_ms: int) -> bool:
        """Return True if the writes in flight must be synced: they hold more than records, or
        unsynced records have waited for the flush interval."""
        return (not all(staged.records_only for staged in self._in_flight)
                or self._unsynced is not None
                and now_ms - self._unsynced_since_ms >= self._flush_interval_ms)

    def _relax(self, jobs: list, sync: bool, now_ms: int) -> None:
        for staged in self._in_flight:
            staged.synced = sync
        if self._unsynced is not None and self._unsynced is not jobs[0][0]:
            self._submit_sync()  # the previous segment: later watermarks state that it is durable
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
        """Run the flush task of relaxed durability, until cancelled: sync the last written file
        when its records have waited for the flush interval and no write is in flight."""
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
        """Run the task that creates the file of a waiting write, or else the next one ahead of its
        use, until cancelled. Then start the gathered writes. Raises ``DiskFailed`` if a file cannot
        be created, unless it is ahead of its use and the disk is full."""
        while True:
            await self._prepare_due.wait()
            self._prepare_due = trio.Event()
            self._preparing = True
            self._creating_since_ms = monotonic_ms()
            missing = next((staged for staged in self._gathering if not staged.native_ready), None)
            try:
                if missing is not None:
                    await self._create(missing)
                elif (job := self._store.create_segment_job()) is not None:
                    await self._unless_full(job.execute)
            except OSError as error:
                raise DiskFailed(f"a segment could not be prepared: {error}") from error
            self._preparing = False
            self._creating_since_ms = None
            self.start_next()

    async def seal(self) -> None:
        """Run the task that indexes full segments on a thread, until cancelled; no write waits for
        it. A full disk leaves the segment for later. Raises ``DiskFailed`` for any other error of
        the disk."""
        while True:
            await self._seal_due.wait()
            self._seal_due = trio.Event()
            while (job := self._store.seal_job()) is not None:
                try:
                    if await self._unless_full(partial(job.execute, self._yield_to_writes)):
                        self._store.sealed(job)
                except OSError as error:
                    raise DiskFailed(f"a full segment could not be indexed: {error}") from error

    def _yield_to_writes(self) -> None:
        """Pause the calling indexing thread for ``YIELD_S`` in favour of the loop, unless too many
        segments wait for their index."""
        if not self._ended and self._store.seals_waiting <= SEALS_WAITING_MAX:
            self._never.wait(YIELD_S)

    async def _create(self, staged: StagedWrite) -> None:
        """Create the segment file that a write waits for, on a thread. If the disk has no space for
        a whole segment, release the reserve and create the file unallocated."""
        try:
            await trio.to_thread.run_sync(staged.create_files)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.release_reserve()
            await trio.to_thread.run_sync(staged.create_files, False)

    async def _unless_full(self, work: Callable[[], None]) -> bool:
        """Run postponable work on a thread. If the disk had no space for it, refuse records from
        now on and return False. Raises other ``OSError``."""
        try:
            await trio.to_thread.run_sync(work)
        except OSError as error:
            if self._space is None or not is_full(error):
                raise
            self._space.refuse_records()
            return False
        return True

    def probe(self, file_number: int) -> None:
        """Write and sync one block of the probe file, unless a write is in flight or gathered. A
        hung disk is thus detected while the node writes nothing."""
        if self._writing_since_ms is None and not self._gathering and not self._ended:
            self._writing_since_ms = monotonic_ms()
            self._token += 1
            self._last_token = self._token
            self._queue.submit(file_number, [bytes(PROBE_BYTES)], 0, True, self._token)

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
            self._queue.close()
            with trio.move_on_after(END_S, shield=True):
                await trio.to_thread.run_sync(self._thread.join, abandon_on_cancel=True)

    def collect(self) -> bool:
        """Take the completions of the thread; report finished writes to ``on_durable`` and start
        those that have gathered. Return True if a round is due. Raises ``DiskFailed`` if a write
        failed, which is never retried."""
        due = False
        os.eventfd_read(self._wake_fd)
        for token, error, size, micros in self._queue.completions():
            if error:
                # No retry: after a failed fsync the kernel may have dropped the pages, and the next
                # fsync would report success for bytes that are not on disk.
                raise DiskFailed(f"a write of the journal failed and is not retried: "
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
            self._store.fsynced(self._flushing)
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
    """Return the parts as (file, buffers, position), with adjacent parts of one file merged into
    one gathered write."""
    joined: list = []
    for handle, buffers, position in parts:
        if joined and joined[-1][0] is handle and joined[-1][3] == position:
            joined[-1][1].extend(buffers)
            joined[-1][3] += sum(map(len, buffers))
        else:
            joined.append([handle, list(buffers), position, position + sum(map(len, buffers))])
    return [tuple(job[:3]) for job in joined]
