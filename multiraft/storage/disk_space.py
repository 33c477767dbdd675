"""Disk space: refusal of records on a full disk, and the reserve that elections and metadata need.

Contract.  Pure policy: the driver reports the free bytes and owns the reserve.  ``full`` is one
attribute: while it is set the node takes no records, from clients or from leaders; everything else
continues.  The driver calls ``exhausted`` after a write that failed for lack of space, and tries
again if it returns True.  It calls ``look`` at intervals, which ends the refusal when there is
space again.

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
        """Bytes that it holds now."""
        ...

    def take(self) -> bool:
        """Allocate all of it; False = there is too little space, and nothing is held."""
        ...

    def give_back(self) -> None:
        """Release all of it."""
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
                 unfilled: Preallocatable):
        """``reserved_bytes``: 0 = no reserve, and no look; ``free``: bytes that files may
        still take, the reserve not counted; ``unfilled``: asked at each look, and given its
        blocks before records are taken."""
        self.full = False
        self.refused = 0  # requests and appends that were refused for lack of space
        self._reserve = reserve
        self._reserved_bytes = reserved_bytes
        self._free = free
        self._unfilled = unfilled

    @property
    def free(self) -> int:
        """Bytes that files of the node may still take, the reserve not counted."""
        return self._free()

    @property
    def reserved(self) -> int:
        """Bytes that the reserve holds now."""
        return self._reserve.held_bytes

    @property
    def low(self) -> int:
        """Records are refused below so many free bytes."""
        return self._reserved_bytes // LOW_SHARE

    @property
    def enough(self) -> int:
        """Free bytes from which on records are accepted again."""
        missing = 0 if self.reserved else self._reserved_bytes
        return missing + 2 * self.low + self._unfilled.unallocated_bytes()

    def look(self) -> None:
        """Compare the free bytes with the limits, and begin or end the refusal."""
        if not self._reserved_bytes:
            return
        free = self.free
        if self.full:
            if free >= self.enough and self._fill_files(free) and self._take_reserve():
                self.full = False
                self.became_roomy(free)
        elif (free < self.low or not self._fill_files(free)
              or not self.reserved and not self._take_reserve()):
            self._fill(free)

    def exhausted(self) -> bool:
        """Refuse records after a write that failed for lack of space, and of which nothing counts.

        True if the reserve was released, so that the write can be tried again."""
        self._fill(self.free)
        if not self.reserved:
            return False
        self._reserve.give_back()
        self.gave_back(self.free)
        return True

    def fill(self) -> None:
        """Refuse records after a failed allocation that can wait."""
        self._fill(self.free)

    def _fill(self, free: int) -> None:
        if not self.full:
            self.full = True
            self.became_full(free)

    def _fill_files(self, free: int) -> bool:
        """Allocate the missing blocks of files; return False if there is no room for all.  Nothing
        is tried then: a part of the blocks would be taken from the writes that still continue."""
        missing = self._unfilled.unallocated_bytes()
        if missing > free:
            return False
        if missing:
            try:
                self._unfilled.preallocate()
            except OSError as error:
                if not is_full(error):
                    raise
                return False
        return True

    def _take_reserve(self) -> bool:
        return self.reserved >= self._reserved_bytes or self._reserve.take()

    # ---- reports to the operator ---------------------------------------------------------------

    def became_full(self, free: int) -> None:
        """Report that records are refused from now on."""

    def became_roomy(self, free: int) -> None:
        """Report that records are taken again."""

    def gave_back(self, free: int) -> None:
        """Report that the reserve was released."""


def is_full(error: OSError) -> bool:
    """Return True if a write failed only because the disk or quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
