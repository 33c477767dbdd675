"""The disk space guard of a node: ``multiraft.storage.disk_space`` with a real reserve file and a
log.

Contract. ``Space`` is a ``DiskSpaceGuard``, which decides what is refused on a full disk and what
happens when space is free again. ``run`` is the task that checks the free space. The reserve is a
file of the data directory.
"""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

import trio

from multiraft.storage.disk_space import DiskSpaceGuard, Preallocatable, is_full

__all__ = ["POLL_S", "RESERVE_FILE", "ReserveFile", "Space", "free_bytes", "is_full",
           "total_bytes"]

RESERVE_FILE = "reserve"
#: Interval between checks of the free space, in seconds; a check is one system call.
POLL_S = 0.5


class ReserveFile:
    """A preallocated file whose blocks are the reserve; its content is never read."""

    def __init__(self, path: Path, bytes_wanted: int):
        self._path = path
        self._bytes_wanted = bytes_wanted

    @property
    def held_bytes(self) -> int:
        """Bytes that the reserve holds now."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def allocate(self) -> bool:
        """Preallocate the whole reserve. Return False if there is no space for it; the reserve
        holds nothing then. Raises ``OSError`` for any other error."""
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._bytes_wanted)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._path.unlink()
            return False
        finally:
            os.close(descriptor)
        return True

    def release(self) -> None:
        """Delete the file, which frees the reserve."""
        self._path.unlink()


class Space(DiskSpaceGuard):
    """The guard of the disk that holds the data directory."""

    def __init__(self, directory: Path, reserved_bytes: int, log: logging.Logger,
                 files: Preallocatable, free: Callable[[Path], int] | None = None):
        super().__init__(ReserveFile(directory / RESERVE_FILE, reserved_bytes), reserved_bytes,
                         lambda: (free or free_bytes)(directory), files)
        self._directory = directory
        self._log = log

    def describe(self) -> str:
        """Return the reason for which records are refused."""
        free, needed = self.free, self.resume_bytes
        missing = (f": delete at least {_mebibytes(needed - free)}" if needed > free else "")
        return (f"the disk of {self._directory} is full: {_mebibytes(free)} are free, "
                f"{_mebibytes(needed)} are needed before records are accepted again{missing}")

    def open(self) -> None:
        """Check the free space at the start as ``check`` does, which preallocates the reserve file
        if it fits."""
        self.check()

    def on_full(self, free: int) -> None:
        self._log.error("disk_full",
                        extra={"free_bytes": free, "reserved_bytes": self.reserved})

    def on_space_freed(self, free: int) -> None:
        self._log.info("disk_space_freed", extra={"free_bytes": free})

    def on_reserve_released(self, free: int) -> None:
        self._log.warning("reserve_released", extra={"free_bytes": free})

    async def run(self) -> None:
        """Check the free space until cancelled."""
        while True:
            await trio.sleep(POLL_S)
            self.check()


def _mebibytes(count: int) -> str:
    """Return a size in words, rounded up: who frees that much has freed enough."""
    return f"{math.ceil(count * 10 / (1 << 20)) / 10:,.1f} MiB"


def free_bytes(directory: Path) -> int:
    """Return the bytes that an unprivileged process can still write to the disk of
    ``directory``."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def total_bytes(directory: Path) -> int:
    """Return the size of the disk of ``directory`` in bytes."""
    room = os.statvfs(directory)
    return room.f_blocks * room.f_frsize
