"""Damaged byte ranges of a journal, and the ranges whose contents a copy or a record tells.

Contract.  Owned by the loop; filled by recovery, extended by repair when the scrub or a read finds
more.  Ranges are [begin, end) in journal positions.  Nothing here is written to disk: REPAIR and
LIFT records are, and recovery derives this object from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from multiraft.storage.ranges import ByteRange, uncovered


@dataclass(slots=True)
class JournalDamage:
    """Damage of one journal, shared by all logs in it."""

    #: Begin -> size of a damaged entry that has an intact copy, or that no replica needs; size 0 =
    #: unknown.
    repaired_ranges: dict[int, int] = field(default_factory=dict)
    #: Ranges that may have held any group's records, in the order in which they were found.
    unattributed_ranges: list[ByteRange] = field(default_factory=list)

    def unexplained(self, begin: int, end: int) -> list[ByteRange]:
        """Return the parts of a damaged range that no copy explains, ascending.
        O(copies log copies)."""
        return uncovered(begin, end, self.explained())

    def unexplained_ranges(self, found: Iterable[ByteRange]) -> list[tuple[int, list[ByteRange]]]:
        """Return, in journal order, the begin and the unexplained parts of every damaged range that
        copies do not explain entirely.  O(n²)."""
        return [(begin, parts) for begin, end in sorted(set(found))
                if (parts := self.unexplained(begin, end))]

    def explained(self) -> list[ByteRange]:
        """Return the ranges of damaged entries of which a copy or record tells the contents."""
        return [(at, at + size) for at, size in self.repaired_ranges.items() if size]

    def is_inside_repaired(self, position: int) -> bool:
        """Return True if a position lies inside a damaged entry that has a copy, behind its first
        byte.  O(copies)."""
        return any(begin < position < end for begin, end in self.explained())
