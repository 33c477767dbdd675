"""The gathering of staged writes: one write for all that are staged while another is in flight.

Contract. ``submit`` takes a staged write. While a write is in flight, submitted writes gather and
become the next one (group commit). Writes become durable in the order of ``submit``. A failed write
or sync is never retried: ``collect`` raises ``DiskFailed`` and the node stops. After a failed fsync
the kernel may drop the dirty pages and report success to the next fsync, so a retry could
acknowledge entries that are not on disk.

The gathering knows no trio, no thread and no clock. ``queue`` executes what it submits, one after
the other, and reports each completion with its token: ``core.DiskQueue`` on a node
(``node.loop.disk_worker``), a simulated disk in the simulator. Files are created by
``node.loop.segment_files``.

Relaxed durability. With a flush interval, writes of nothing but records are not synced. The file
with unsynced bytes is synced by the first write that must be, by ``flush`` after the interval, and
before bytes of the next segment are written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from node.errors import DiskFailed
from node.histogram import Histogram

if TYPE_CHECKING:
    from multiraft.storage.filesystem import File
    from multiraft.storage.io_jobs import StagedWrite

#: Size of the block that is written to probe an idle disk, in bytes.
PROBE_BYTES = 512


class Queue(Protocol):
    """The queue of a thread that writes, in order."""

    def submit(self, file_number: int, buffers: list, position: int, sync: bool,
               token: int) -> None:
        """Queue a gathered write at a position of a file; with ``sync`` its file is synced
        afterwards. Its completion carries ``token``."""


class Store(Protocol):
    """The store's part in a write."""

    @property
    def durable_position(self) -> int: ...

    @property
    def prepare_due(self) -> bool: ...

    @property
    def seals_waiting(self) -> int: ...

    def submitted(self, staged: StagedWrite) -> None: ...

    def fsynced(self, position: int) -> None: ...


class WriteGather:
    """The staged writes of one journal on their way to the disk.

    ``on_durable(staged_writes)`` is called for each completed group of writes, in order. It returns
    True if a round is due.
    """

    def __init__(self, store: Store, queue: Queue, on_durable: Callable[[list], bool],
                 now_ms: Callable[[], int], prepare_is_due: Callable[[], None],
                 seal_is_due: Callable[[], None], flush_interval_ms: int = 0):
        """``prepare_is_due`` and ``seal_is_due`` are called when a segment file is to be created,
        and when full segments wait for their index. ``flush_interval_ms``: how long records may
        wait for their sync, in milliseconds; 0 = every write is synced."""
        self._store = store
        self._queue = queue
        self._on_durable = on_durable
        self._now_ms = now_ms
        self._prepare_is_due = prepare_is_due
        self._seal_is_due = seal_is_due
        self._relaxed = flush_interval_ms > 0
        self._flush_interval_ms = flush_interval_ms
        self._unsynced: File | None = None  # the file whose last bytes wait for a sync
        self._unsynced_since_ms = 0
        self._flushing = 0  # journal offset that the sync in flight makes durable
        self._gathering: list = []
        self._in_flight: list = []
        self._token = 0
        self._last_token = 0
        self._writing_since_ms: int | None = None
        self._creating_since_ms: int | None = None
        self._ended = False
        self.last_write_ms = now_ms()
        self.writes = 0
        self.bytes_written = 0
        self.latency = Histogram()  # of each write, fsync included

    @property
    def idle(self) -> bool:
        """True if no write is in flight."""
        return self._writing_since_ms is None

    @property
    def is_synced(self) -> bool:
        """True if no written bytes wait for a sync of their own (relaxed durability)."""
        return self._unsynced is None

    @property
    def busy_since_ms(self) -> int | None:
        """Time since which the disk has owed a completion, of a write or of a new file; None = it
        owes none. The liveness thread reads it."""
        writing_ms, creating_ms = self._writing_since_ms, self._creating_since_ms
        if writing_ms is None or creating_ms is None:
            return creating_ms if writing_ms is None else writing_ms
        return min(writing_ms, creating_ms)

    # ---- writes --------------------------------------------------------------------------------

    def submit(self, staged: StagedWrite) -> None:
        """Queue a staged write, without starting it."""
        self._gathering.append(staged)

    def write(self, staged: StagedWrite) -> None:
        """Queue a staged write, and start it unless another one is in flight."""
        self.submit(staged)
        self.start_next()

    def start_next(self) -> None:
        """Hand the gathered writes to the queue, unless a write is in flight or a segment file is
        being created. A write that needs a new file waits until the file is created."""
        gathering = self._gathering
        if (not gathering or self._writing_since_ms is not None
                or self._creating_since_ms is not None or self._ended):
            return
        parts: list = []
        for staged in gathering:
            if not staged.native_ready:
                self._prepare_is_due()  # creates the file, then starts this write
                return
            parts += staged.parts
        self._in_flight, self._gathering = gathering, []
        self._writing_since_ms = now_ms = self._now_ms()
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

    def end(self) -> None:
        """Start no write from now on: the thread of the queue ends."""
        self._ended = True

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

    def flush(self) -> None:
        """Sync the last written file if its records have waited for the flush interval and no write
        is in flight. Called at least twice per interval."""
        now_ms = self._now_ms()
        if (self._unsynced is not None and self._writing_since_ms is None and not self._ended
                and now_ms - self._unsynced_since_ms >= self._flush_interval_ms):
            self._writing_since_ms = now_ms
            self._flushing = self._store.durable_position
            self._submit_sync()
            self._last_token = self._token

    # ---- a disk that is not written ------------------------------------------------------------

    def probe(self, file_number: int, idle_ms: int = 0) -> None:
        """Write and sync one block of the probe file, unless a write is in flight, has gathered, or
        completed in the last ``idle_ms``. A hung disk is thus detected while the node writes
        nothing."""
        if (self._writing_since_ms is not None or self._gathering or self._ended
                or self._now_ms() - self.last_write_ms < idle_ms):
            return
        self._writing_since_ms = self._now_ms()
        self._token += 1
        self._last_token = self._token
        self._queue.submit(file_number, [bytes(PROBE_BYTES)], 0, True, self._token)

    # ---- new files -----------------------------------------------------------------------------

    def begin_creation(self) -> StagedWrite | None:
        """Record that a segment file is being created, so that no write starts. Return the gathered
        write that waits for its file, or None."""
        self._creating_since_ms = self._now_ms()
        for staged in self._gathering:
            if not staged.native_ready:
                return staged
        return None

    def end_creation(self) -> None:
        """Record that the creation has ended, and start the gathered writes."""
        self._creating_since_ms = None
        self.start_next()

    # ---- completions ---------------------------------------------------------------------------

    def collect(self, completions: Sequence[tuple[int, int, int, int]]) -> bool:
        """Process completions of the queue, as (token, errno, bytes, microseconds): report finished
        writes to ``on_durable`` and start those that have gathered. Return True if a round is due.
        Raises ``DiskFailed`` if a write failed, which is never retried."""
        due = False
        for token, error, size, micros in completions:
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
        self.last_write_ms = self._now_ms()
        due = False
        if done:
            due = self._on_durable(done)
            if self._store.prepare_due and self._creating_since_ms is None:
                self._prepare_is_due()
            if self._store.seals_waiting:
                self._seal_is_due()
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
