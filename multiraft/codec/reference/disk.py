"""Gathered appends and the disk worker's queue in plain Python: a part of the reference.

Contract.  As ``_reference``: same names, results and errors as the compiled twin, whose worker runs
without the interpreter's lock.  The only part that writes files.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable

from multiraft.codec.reference.hashes import contiguous_bytes
from multiraft.codec.values import Buffer
from multiraft.errors import QueueFull

#: Buffers that one pwritev takes (Linux UIO_MAXIOV).
IOV_MAX = 1024
#: Bytes between two syncs of one append (docs/decisions/0034).
SYNC_BYTES = 512 << 10
#: Jobs of a DiskQueue that were submitted and not collected.  The driver has one in flight, so this
#: many mean that the driver has stopped collecting.
DISK_QUEUE_JOBS_MAX = 1024


def _take(views: deque[memoryview], room: int) -> list[memoryview]:
    """Return the first ``room`` bytes of ``views`` as at most IOV_MAX buffers."""
    taken: list[memoryview] = []
    for view in views:
        if not room or len(taken) == IOV_MAX:
            break
        taken.append(view[:room])
        room -= len(taken[-1])
    return taken


def _write_all(fd: int, buffers: Iterable[Buffer], position: int, sync: bool) -> int:
    """Write all ``buffers``, repeating pwritev after short writes.

    With ``sync``, fdatasync runs after each ``SYNC_BYTES`` but not at the end.
    """
    views = deque(view for view in map(contiguous_bytes, buffers) if len(view))
    written = unsynced = 0
    while views:
        room = SYNC_BYTES - unsynced if sync else sys.maxsize
        done = os.pwritev(fd, _take(views, room), position + written)
        if done == 0:
            raise OSError(errno.EIO, "pwritev wrote nothing")
        written += done
        unsynced += done
        while done:
            first = views.popleft()
            if done < len(first):
                views.appendleft(first[done:])
                break
            done -= len(first)
        if sync and views and unsynced >= SYNC_BYTES:
            os.fdatasync(fd)
            unsynced = 0
    return written


def _require_position(position: int) -> None:
    if position < 0:  # -1 tells pwritev2 to use the current file offset
        raise ValueError(f"position={position} is negative")


def unset_memory(size: int) -> bytearray:
    """Return ``size`` bytes of memory with undefined content, to read or receive into.

    Saves the zeroing of ``bytearray(size)``.  The caller must pass on only bytes that were filled.

    Raises ``ValueError`` for a negative size.
    """
    if size < 0:
        raise ValueError(f"size={size} is negative")
    return bytearray(size)


def trim_memory() -> None:
    """Return memory that was freed to the operating system, as far as the allocator can.

    Most of the memory that a start has used meanwhile is between what it keeps.  Some milliseconds
    for each 100 MB; the reference, and the compiled twin without the GNU C library, do nothing.
    """


def append_gathered(fd: int, buffers: Iterable[Buffer], position: int, sync: bool) -> int:
    """Write all ``buffers`` at byte ``position`` of a file; return the number of bytes written.

    pwritev is repeated after short writes.  With ``sync``, fdatasync runs after each 512 KiB and at
    the end (docs/decisions/0034).  A failed sync is never retried.  O(bytes).

    Raises ``OSError``, ``ValueError`` for a negative position.
    """
    _require_position(position)
    written = _write_all(fd, buffers, position, sync)
    if sync:
        os.fdatasync(fd)
    return written


class DiskQueue:
    """Queue of one writer thread, which appends and syncs jobs in the order of submission.

    ``wake_fd``: an eventfd, to which each completion adds 1; the queue does not close it.  The
    writer of the compiled twin runs without the interpreter's lock.

    After a failed job every later job completes with ``ECANCELED`` and leaves the disk untouched: a
    failed fsync is never retried, and nothing may be written after a gap.
    """

    def __init__(self, wake_fd: int) -> None:
        self._wake_fd = wake_fd
        self._changed = threading.Condition()
        self._jobs: deque[tuple[int, tuple[memoryview, ...], int, bool, int]] = deque()
        self._completed: list[tuple[int, int, int, int]] = []
        self._outstanding = 0
        self._closing = self._running = self._failed = False

    def submit(self, fd: int, buffers: Iterable[Buffer], position: int, sync: bool, token: int,
               ) -> None:
        """Enqueue one ``append_gathered``; never wait for the disk.

        The queue holds the buffers until ``completions`` returns the job; until then the caller
        must not change them.  ``token``: a signed 64-bit number, which the completion repeats.

        Raises ``ValueError`` after ``close`` or for a negative position, ``QueueFull`` while 1,024
        jobs are submitted and not collected.
        """
        _require_position(position)
        held = tuple(map(contiguous_bytes, buffers))
        with self._changed:
            if self._outstanding >= DISK_QUEUE_JOBS_MAX:
                raise QueueFull("disk_queue_jobs", DISK_QUEUE_JOBS_MAX, self._outstanding + 1)
            if self._closing:
                raise ValueError("the disk queue is closed")
            self._outstanding += 1
            self._jobs.append((fd, held, position, sync, token))
            self._changed.notify()

    def run(self) -> None:
        """Process jobs until the queue is closed and empty: the body of the writer thread.

        Raises ``RuntimeError`` if the queue has or had a writer thread already.
        """
        with self._changed:
            if self._running:
                raise RuntimeError("the disk queue has its worker already")
            self._running = True
        while self._run_one():
            pass

    def _run_one(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing)
            if not self._jobs:
                return False
            fd, buffers, position, sync, token = self._jobs.popleft()
        error, written, started = errno.ECANCELED, 0, time.monotonic_ns()
        if not self._failed:
            error = 0
            try:
                written = append_gathered(fd, buffers, position, sync)
            except OSError as failure:
                error, self._failed = failure.errno or errno.EIO, True
        micros = (time.monotonic_ns() - started) // 1000
        with self._changed:
            self._completed.append((token, error, written, micros))
        os.eventfd_write(self._wake_fd, 1)
        return True

    def completions(self) -> list[tuple[int, int, int, int]]:
        """Return the jobs completed since the last call, in the order of submission.

        Each job is (token, error number or 0, bytes written, microseconds taken); its buffers are
        released.  The eventfd is not read.  O(jobs).
        """
        with self._changed:
            completed, self._completed = self._completed, []
            self._outstanding -= len(completed)
        return completed

    def close(self) -> None:
        """Refuse further jobs; ``run`` returns once the submitted jobs are done.  Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
