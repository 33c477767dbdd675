"""What goes wrong with one simulated disk: errors on write and on sync, and no room.

Contract.  Asked by ``filesystem.SimulatedFilesystem`` before an effect.  A write that fails has
taken effect up to some sector.  A sync that fails leaves of each unsynced sector some version on
the disk, and the page cache calls all of them clean: it goes on showing what was written, and the
next sync of the file succeeds without writing any of it; so with a directory and its names.  Room
is counted in bytes that files own, reserved or written.

Theory.  Rebello et al., "Can applications recover from fsync failures?" (ATC 2020): after a failed
fsync the pages are clean and in most file systems hold what the disk does not.
"""

from __future__ import annotations

import errno
import random
from collections import Counter

SECTOR_BYTES = 512
#: As good as endless.
UNLIMITED_BYTES = 1 << 60


class DiskFaults:
    """Of one disk, over all lives of its node."""

    __slots__ = ("capacity_bytes", "used_bytes", "writes_left", "syncs_left",
                 "directory_syncs_left", "write_errors", "sync_errors", "refusals", "struck", "rng")

    def __init__(self) -> None:
        self.capacity_bytes = UNLIMITED_BYTES
        self.used_bytes = 0
        #: Operations until one of them fails; 0 = none will.
        self.writes_left = 0
        self.syncs_left = 0
        self.directory_syncs_left = 0
        #: How often they did.
        self.write_errors = 0
        self.sync_errors = 0
        self.refusals = 0  # for lack of room
        #: The same by kind of fault: what is prepared and never comes is none.
        self.struck: Counter[str] = Counter()
        self.rng = random.Random(0)

    @property
    def free_bytes(self) -> int:
        """What files may still take."""
        return max(0, self.capacity_bytes - self.used_bytes)

    def take(self, size: int, path: str) -> None:
        """A file grows by so many bytes.  Raises ``OSError`` when there is no room."""
        if size > self.capacity_bytes - self.used_bytes:
            self.refusals += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)
        self.used_bytes += size

    def written_before_error(self, size: int) -> int | None:
        """How many of the bytes of this write take effect before it fails; None = it does not."""
        if not self.writes_left:
            return None
        self.writes_left -= 1
        if self.writes_left:
            return None
        self.write_errors += 1
        self.struck["eio-write"] += 1
        return min(size, SECTOR_BYTES * self.rng.randrange(size // SECTOR_BYTES + 1))

    def sync_fails(self) -> bool:
        """Whether this sync does."""
        if not self.syncs_left:
            return False
        self.syncs_left -= 1
        if self.syncs_left:
            return False
        self.sync_errors += 1
        self.struck["eio-sync"] += 1
        return True

    def directory_sync_fails(self) -> bool:
        """Whether this sync of a directory does."""
        if not self.directory_syncs_left:
            return False
        self.directory_syncs_left -= 1
        if self.directory_syncs_left:
            return False
        self.sync_errors += 1
        self.struck["eio-directory"] += 1
        return True

    def heal(self) -> None:
        """No error any more, and all the room there can be."""
        self.writes_left = self.syncs_left = self.directory_syncs_left = 0
        self.capacity_bytes = UNLIMITED_BYTES


def io_error(path: str) -> OSError:
    """As the system raises it."""
    return OSError(errno.EIO, "input/output error", path)
