"""How much room the disk has: ``multiraft.storage.disk_space`` with a real reserve file and a log.

Contract.  ``Space`` is a ``DiskSpaceGuard`` (who is refused when there is none, what happens when
there is some again); ``run`` is the task that watches.  The reserve is a file of the data
directory.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import trio

from multiraft.storage.disk_space import DiskSpaceGuard, Preallocatable, is_full

__all__ = ["LOOK_S", "RESERVE_FILE", "ReserveFile", "Space", "free_bytes", "is_full"]

RESERVE_FILE = "reserve"
#: How often the room is looked at, in seconds: one system call.
LOOK_S = 0.5


class ReserveFile:
    """Blocks held by a file that nobody reads."""

    def __init__(self, path: Path, bytes_wanted: int):
        self._path = path
        self._bytes_wanted = bytes_wanted

    @property
    def held_bytes(self) -> int:
        """What it holds now."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def take(self) -> bool:
        """Take all of it; False = there is no room for it, and nothing is held.  Raises
        ``OSError``."""
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

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._path.unlink()


class Space(DiskSpaceGuard):
    """Of the disk that holds the data directory."""

    def __init__(self, directory: Path, reserved_bytes: int, log: logging.Logger,
                 unfilled: Preallocatable, free: Callable[[Path], int] | None = None):
        super().__init__(ReserveFile(directory / RESERVE_FILE, reserved_bytes), reserved_bytes,
                         lambda: (free or free_bytes)(directory), unfilled)
        self._directory = directory
        self._log = log

    def describe(self) -> str:
        """Why records are refused."""
        return (f"the disk of {self._directory} is full: {self.free} bytes are free, appends are "
                f"taken again from {self.enough} on")

    def open(self) -> None:
        """Take the reserve if there is room for it."""
        self.look()

    def became_full(self, free: int) -> None:
        self._log.error("the disk is full", extra={"free": free, "reserve": self.reserved})

    def became_roomy(self, free: int) -> None:
        self._log.info("there is room again", extra={"free": free})

    def gave_back(self, free: int) -> None:
        self._log.warning("the reserve is given back", extra={"free": free})

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self.look()


def free_bytes(directory: Path) -> int:
    """What an ordinary process may still write there."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize
