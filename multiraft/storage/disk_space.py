"""Disk space: refusal of records on a full disk, and the reserve that elections and metadata need.

Contract.  Pure policy: the driver reports the free bytes and owns the reserve.  ``full`` is one
attribute: while it is set the node takes no records, from clients or from leaders; everything else
continues.  The driver calls ``release_reserve`` after a write that failed for lack of space, and
tries again if it returns True.  It calls ``check`` at intervals, which ends the refusal when there
is space again.

Theory.  The reserve is released to the filesystem when space runs out.  Elections, hard states,
membership, metadata and checkpoints write little, and use it until an operator frees space.
Segments reserve their blocks when they are created.  So a full disk is met there, before anything
was written, and not in the middle of a gathered write (docs/decisions/0010).  A segment that is
created without free space has no reserved blocks.  It gets them before the reserve is taken again,
or a write would be the next to meet the full disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

#: Records are refused when less than this part of the reserve is free beside it, and accepted again
#: at twice that share, so that the state does not oscillate.
LOW_SHARE = 4


class Reserve(Protocol):
    """Disk space that is allocated ahead."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the reserve holds now."""
        ...

    def allocate(self) -> bool:
        """Allocate the whole reserve; False = there is too little space, and nothing is held."""
        ...

    def release(self) -> None:
        """Release the whole reserve."""
        ...


class Preallocatable(Protocol):
    """Files that exist without the blocks that they will need: a ``Store``."""

    def unallocated_bytes(self) -> int:
        """Return the bytes of blocks that the files still need."""
        ...

    def preallocate(self) -> None:
        """Allocate these blocks.  Raises ``OSError``; part of them may be allocated then."""
        ...


class DiskSpaceGuard:
    """Guard of the disk that holds the data directory."""

    def __init__(self, reserve: Reserve, reserved_bytes: int, free: Callable[[], int],
                 files: Preallocatable):
        """``reserved_bytes``: 0 = no reserve, and no check; ``free``: bytes that files may
        still take, the reserve not counted; ``files``: asked at each check, and given its
        blocks before records are taken."""
        self.full = False
        self.refused = 0  # requests and appends that were refused for lack of space
        self._reserve = reserve
        self._reserved_bytes = reserved_bytes
        self._free = free
        self._files = files

    @property
    def free(self) -> int:
        """Bytes that files of the node may still take, the reserve not counted."""
        return self._free()

    @property
    def reserved(self) -> int:
        """Bytes that the reserve holds now."""
        return self._reserve.held_bytes

    @property
    def low_bytes(self) -> int:
        """Records are refused below so many free bytes."""
        return self._reserved_bytes // LOW_SHARE

    @property
    def resume_bytes(self) -> int:
        """Free bytes from which on records are accepted again: with them the reserve and the files'
        missing blocks can be allocated."""
        missing = 0 if self.reserved else self._reserved_bytes
        return missing + 2 * self.low_bytes + self._files.unallocated_bytes()

    def check(self) -> None:
        """Compare the free bytes with the limits, and begin or end the refusal of records; allocate
        files' missing blocks and the reserve where space permits.  Do nothing without a reserve."""
        if not self._reserved_bytes:
            return
        free = self.free
        if self.full:
            if (free >= self.resume_bytes and self._preallocate_files(free)
                    and self._allocate_reserve()):
                self.full = False
                self.on_space_freed(free)
        elif (free < self.low_bytes or not self._preallocate_files(free)
              or not self.reserved and not self._allocate_reserve()):
            self._refuse_records(free)

    def release_reserve(self) -> bool:
        """Begin to refuse records, and release the reserve, after a write that failed for lack of
        space and of which nothing counts.

        True if the reserve was released, so that the write can be tried again; False if none was
        held."""
        self._refuse_records(self.free)
        if not self.reserved:
            return False
        self._reserve.release()
        self.on_reserve_released(self.free)
        return True

    def refuse_records(self) -> None:
        """Begin to refuse records, without a release of the reserve, because an allocation that can
        wait has failed."""
        self._refuse_records(self.free)

    def _refuse_records(self, free: int) -> None:
        if not self.full:
            self.full = True
            self.on_full(free)

    def _preallocate_files(self, free: int) -> bool:
        """Allocate the missing blocks of files, if any; return False if there is too little space.
        Nothing is tried then: a part of the blocks would be taken from the writes that still
        continue."""
        missing = self._files.unallocated_bytes()
        if missing > free:
            return False
        if missing:
            try:
                self._files.preallocate()
            except OSError as error:
                if not is_full(error):
                    raise
                return False
        return True

    def _allocate_reserve(self) -> bool:
        return self.reserved >= self._reserved_bytes or self._reserve.allocate()

    # ---- reports to the operator ---------------------------------------------------------------

    def on_full(self, free: int) -> None:
        """Report that records are refused from now on; does nothing here, the node overrides it."""

    def on_space_freed(self, free: int) -> None:
        """Report that records are taken again; does nothing here, the node overrides it."""

    def on_reserve_released(self, free: int) -> None:
        """Report that the reserve was released; does nothing here, the node overrides it."""


def is_full(error: OSError) -> bool:
    """Return True if a write failed only because the disk or quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
