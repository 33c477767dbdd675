"""Deleted offsets that a reader asked for, as values and as text.

Contract.  Values and text without decisions.
"""

from __future__ import annotations

from typing import NamedTuple


class Gap(NamedTuple):
    """Offsets of a partition that were deleted before a consumer could read them: from
    ``start_offset`` up to, and without, ``end_offset``, where the log begins."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:  # type: ignore[override]  # of the offsets, not tuple's
        """Number of deleted offsets."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        name = f"{self.topic}/{self.partition}"
        if self.count == 1:
            return (f"offset {self.start_offset} of {name} was deleted; the log begins at "
                    f"{self.end_offset}")
        return (f"offsets {self.start_offset} to {self.end_offset - 1} of {name} were deleted; the "
                f"log begins at {self.end_offset}")
