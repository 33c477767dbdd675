"""Faults of one simulated disk: errors of writes and syncs, and lack of disk space.

Contract.  ``filesystem.SimulatedFilesystem`` asks before each effect.  A write that fails has taken
effect up to some sector.  A sync that fails leaves some version of each unsynced sector on the
disk, and the page cache calls all of them clean: reads continue to return the written bytes, and
the next sync of the file succeeds without writing any of them.  A failed sync of a directory does
the same to its names.  Disk space is counted in bytes that files own, reserved or written.

Theory.  Rebello et al., "Can applications recover from fsync failures?" (ATC 2020): after a failed
fsync the pages are clean, and in most file systems they differ from the disk.
"""

from __future__ import annotations

import errno
import random
from collections import Counter

SECTOR_BYTES = 512
#: Capacity of a disk that is never full.
UNLIMITED_BYTES = 1 << 60


class DiskFaults:
    """Faults and capacity of one disk, over all boots of its node."""

    __slots__ = ("capacity_bytes", "used_bytes", "writes_left", "syncs_left",
                 "directory_syncs_left", "write_errors", "sync_errors", "refusals", "counts", "rng")

    def __init__(self) -> None:
        self.capacity_bytes = UNLIMITED_BYTES
        self.used_bytes = 0
        #: Operations until one of them fails; 0 = none fails.
        self.writes_left = 0
        self.syncs_left = 0
        self.directory_syncs_left = 0
        #: Numbers of failed operations.
        self.write_errors = 0
        self.sync_errors = 0
        self.refusals = 0  # for lack of disk space
        #: Failed operations by kind of fault; an armed fault that never strikes is not counted.
        self.counts: Counter[str] = Counter()
        self.rng = random.Random(0)

    @property
    def free_bytes(self) -> int:
        """Bytes that files may still take."""
        return max(0, self.capacity_bytes - self.used_bytes)

    def take(self, size: int, path: str) -> None:
        """Count ``size`` bytes as used for the file ``path``.  Raises ``OSError`` (ENOSPC) when
        they are not free."""
        if size > self.capacity_bytes - self.used_bytes:
            self.refusals += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)
        self.used_bytes += size

    def written_before_error(self, size: int) -> int | None:
        """Count down an armed error of writes; return the number of bytes of this write that take
        effect before it fails, None = it succeeds."""
        if not self.writes_left:
            return None
        self.writes_left -= 1
        if self.writes_left:
            return None
        self.write_errors += 1
        self.counts["eio-write"] += 1
        return min(size, SECTOR_BYTES * self.rng.randrange(size // SECTOR_BYTES + 1))

    def sync_fails(self) -> bool:
        """Count down an armed error of file syncs; return True if this sync fails."""
        if not self.syncs_left:
            return False
        self.syncs_left -= 1
        if self.syncs_left:
            return False
        self.sync_errors += 1
        self.counts["eio-sync"] += 1
        return True

    def directory_sync_fails(self) -> bool:
        """Count down an armed error of directory syncs; return True if this sync fails."""
        if not self.directory_syncs_left:
            return False
        self.directory_syncs_left -= 1
        if self.directory_syncs_left:
            return False
        self.sync_errors += 1
        self.counts["eio-directory"] += 1
        return True

    def heal(self) -> None:
        """Disarm all errors, and lift the limit of the capacity."""
        self.writes_left = self.syncs_left = self.directory_syncs_left = 0
        self.capacity_bytes = UNLIMITED_BYTES


def io_error(path: str) -> OSError:
    """Return the ``OSError`` (EIO) that a system raises for ``path``."""
    return OSError(errno.EIO, "input/output error", path)
