"""Gathered appends and the disk worker's queue in plain Python: the part of the reference that
touches files.

Contract.  As ``_reference``: same names, results and errors as the compiled twin, where the worker
runs without the interpreter's lock; here it uses the interpreter's own.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections import deque

from multiraft._reference_hashes import contiguous_bytes
from multiraft.errors import QueueFull

#: Buffers that one pwritev takes (Linux UIO_MAXIOV).
IOV_MAX = 1024
#: Bytes between two syncs of one append (docs/decisions/0034).
SYNC_BYTES = 512 << 10
#: Jobs of a DiskQueue that were submitted and not collected: the driver has one in flight, so this
#: many mean that somebody stopped collecting.
DISK_QUEUE_JOBS_MAX = 1024


def _take(views: deque, room: int) -> list:
    """The first buffers that fit into ``room`` bytes, the last of them shortened to that."""
    taken = []
    for view in views:
        if not room or len(taken) == IOV_MAX:
            break
        taken.append(view[:room])
        room -= len(taken[-1])
    return taken


def _write_all(fd: int, buffers, position: int, sync: bool) -> int:
    """pwritev until everything is written, however short the writes are; if asked, with a sync
    after each ``SYNC_BYTES``, but for the last."""
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
    if position < 0:  # the kernel takes -1 for "where the file stands"
        raise ValueError(f"position={position} is negative")


def unset_memory(size: int) -> bytearray:
    """Of the reference these bytes are zeros."""
    if size < 0:
        raise ValueError(f"size={size} is negative")
    return bytearray(size)


def append_gathered(fd: int, buffers, position: int, sync: bool) -> int:
    _require_position(position)
    written = _write_all(fd, buffers, position, sync)
    if sync:
        os.fdatasync(fd)
    return written


class DiskQueue:
    """One writer thread's queue; see ``_core.pyi``.  Here with the interpreter's own locks."""

    def __init__(self, wake_fd: int):
        self._wake_fd = wake_fd
        self._changed = threading.Condition()
        self._jobs = deque()
        self._completed = []
        self._outstanding = 0
        self._closing = self._running = self._failed = False

    def submit(self, fd, buffers, position, sync, token) -> None:
        _require_position(position)
        buffers = tuple(map(contiguous_bytes, buffers))
        with self._changed:
            if self._outstanding >= DISK_QUEUE_JOBS_MAX:
                raise QueueFull("disk_queue_jobs", DISK_QUEUE_JOBS_MAX, self._outstanding + 1)
            if self._closing:
                raise ValueError("the disk queue is closed")
            self._outstanding += 1
            self._jobs.append((fd, buffers, position, sync, token))
            self._changed.notify()

    def run(self) -> None:
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
                error, self._failed = failure.errno, True
        micros = (time.monotonic_ns() - started) // 1000
        with self._changed:
            self._completed.append((token, error, written, micros))
        os.eventfd_write(self._wake_fd, 1)
        return True

    def completions(self) -> list[tuple[int, int, int, int]]:
        with self._changed:
            completed, self._completed = self._completed, []
            self._outstanding -= len(completed)
        return completed

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
