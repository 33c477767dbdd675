"""How much room the disk has: who is refused when there is none, and the reserve that keeps the
rest going.

Contract.  ``full`` is one attribute: while it is set the node takes no records, from clients or
from leaders; everything else goes on.  ``exhausted`` is told of a write that found no room, and
says whether to try again.  ``run`` watches and, when there is room again, takes it all back.

Theory.  A reserve file is given back to the filesystem when room runs out: what elections, hard
states, membership, metadata and checkpoints write is small, and lives on it until somebody frees
space.  Segments reserve their blocks when they are created, so that running out is met there,
before anything was written, and not in the middle of a gathered write (docs/decisions/0010).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import trio

RESERVE_FILE = "reserve"
#: How often the room is looked at, in seconds: one system call.
LOOK_S = 0.5
#: Records are refused when less than this share of the reserve is free beside it, and taken again
#: when twice the share is: so that the node does not waver.
LOW_SHARE = 4


class Space:
    """Of the disk that holds the data directory."""

    def __init__(self, directory: Path, reserved_bytes: int, log: logging.Logger,
                 free: Callable[[Path], int] | None = None):
        self.full = False
        self.refused = 0  # requests and appends that were not taken for lack of room
        self._directory = directory
        self._path = directory / RESERVE_FILE
        self._reserved_bytes = reserved_bytes
        self._log = log
        self._free = free or free_bytes

    @property
    def free(self) -> int:
        """Bytes that files of the node may still take, the reserve not counted."""
        return self._free(self._directory)

    @property
    def reserved(self) -> int:
        """Bytes that the reserve holds now."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def describe(self) -> str:
        """Why records are refused."""
        return (f"the disk of {self._directory} is full: {self.free} bytes are free, appends are "
                f"taken again from {self._enough} on")

    @property
    def _low(self) -> int:
        return self._reserved_bytes // LOW_SHARE

    @property
    def _enough(self) -> int:
        missing = 0 if self.reserved else self._reserved_bytes
        return missing + 2 * self._low

    def open(self) -> None:
        """Take the reserve if there is room for it."""
        self.look()

    def look(self) -> None:
        """Compare, and act."""
        if not self._reserved_bytes:
            return
        free = self.free
        if self.full and free >= self._enough:
            if self._take_reserve():
                self.full = False
                self._log.info("there is room again", extra={"free": free})
        elif not self.full and free < self._low:
            self._fill(free)
        elif not self.full and not self.reserved and not self._take_reserve():
            self._fill(free)

    def exhausted(self) -> bool:
        """A write found no room: nothing of it counts.  Whether the reserve was given back, so that
        it can be tried again."""
        self._fill(self.free)
        if not self.reserved:
            return False
        self._path.unlink()
        self._log.warning("the reserve is given back", extra={"free": self.free})
        return True

    def fill(self) -> None:
        """Something found no room that can wait."""
        self._fill(self.free)

    def _fill(self, free: int) -> None:
        if not self.full:
            self.full = True
            self._log.error("the disk is full", extra={"free": free, "reserve": self.reserved})

    def _take_reserve(self) -> bool:
        if self.reserved >= self._reserved_bytes:
            return True
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._reserved_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._path.unlink()
            return False
        finally:
            os.close(descriptor)
        return True

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self.look()


def free_bytes(directory: Path) -> int:
    """What an ordinary process may still write there."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def is_full(error: OSError) -> bool:
    """Whether a write failed for lack of room alone."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
