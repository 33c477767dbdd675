"""Indexes of one group whose batches were lost once, and have copies in the journal.

Contract.  A plain value without I/O, owned by the record store.

Theory.  The segment of a lost entry is removed like any other once nothing in it is needed.  From
then on a start tells by the copy alone that its index is a record: an index between two entries
that stood in removed segments is no record (decision 0066).  Damage of unknown owner may have held
the copy and the REPAIR record before it.  So checkpoints name these indexes, and a start with such
damage misses those of them that are no records there (``recovery/lost_copies.py``).  A range may
contain other indexes: a range may always be larger than necessary, never smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from multiraft.storage.uncopied_ranges import IndexRange, UncopiedRanges


@final
class RepairedIndexes:
    """At most ``UNCOPIED_RANGES_MAX`` disjoint ranges of indexes, ascending, that do not touch."""

    __slots__ = ("known_damage", "_ranges")

    def __init__(self, ranges: Iterable[IndexRange] = ()) -> None:
        self._ranges = UncopiedRanges(ranges)
        #: ``damage_value`` of the damage of unknown owner that the last start met; 0 = none.  What
        #: it may have held is missing, or was found not to be.
        self.known_damage = 0

    @property
    def ranges(self) -> tuple[IndexRange, ...]:
        """The ranges as (first index, last index)."""
        return self._ranges.ranges

    def add(self, index: int) -> None:
        """Add an index.  O(log ranges) if it is in a range, O(ranges) else."""
        if not self._ranges.first_in(index, index):
            self._ranges.add(index, index)

    def remove(self, indexes: Iterable[int]) -> None:
        """Remove indexes of which no record is needed.  Where that would make too many ranges, some
        stay.  O(ranges + indexes log indexes)."""
        if self._ranges:
            self._ranges.remove_each(indexes)

    def drop_below(self, index: int) -> None:
        """Remove the indexes below ``index``.  O(ranges)."""
        self._ranges.drop_below(index)

    def _check(self) -> None:
        """Assert every invariant.  O(ranges)."""
        self._ranges._check()
