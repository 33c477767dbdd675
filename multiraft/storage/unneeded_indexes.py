"""Indexes of one group that were missing once, and have no record.

Contract.  A plain value without I/O, owned by the record store.

Theory.  A start counts an index as missing that may have stood in a damaged place, and members of
the group are asked.  One that has compacted the entry, and has no record of it, ends the search for
good: log starts only rise.  Checkpoints name such indexes, because the next start meets the same
damage.  Without that each start would ask again, and members that all have damage there, and were
all started, could not answer each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import final

from multiraft.storage.uncopied_ranges import IndexRange

#: Ranges of one group: each is 20 bytes of each checkpoint.  Further indexes are not kept, and the
#: next start asks for them again.
UNNEEDED_RANGES_MAX = 256


@final
class UnneededIndexes:
    """Disjoint ranges of indexes, ascending, that do not touch."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[IndexRange] = ()) -> None:
        self._ranges: list[IndexRange] = [(first, last) for first, last in ranges]

    @property
    def ranges(self) -> tuple[IndexRange, ...]:
        """The ranges as (first index, last index)."""
        return tuple(self._ranges)

    def __contains__(self, index: object) -> bool:
        """Return True if an index is known to have no record.  O(log ranges)."""
        assert isinstance(index, int)
        at = bisect_right(self._ranges, (index, 1 << 64)) - 1
        return at >= 0 and index <= self._ranges[at][1]

    def add(self, indexes: Iterable[int]) -> None:
        """Add indexes, as far as there is room for their ranges.  O(ranges + indexes log
        indexes)."""
        joined: list[IndexRange] = []
        for first, last in sorted([*self._ranges, *((index, index) for index in indexes)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        if len(joined) > UNNEEDED_RANGES_MAX:
            # The highest stay longest: log starts pass the lowest first.
            joined = joined[-UNNEEDED_RANGES_MAX:]
        self._ranges = joined

    def drop_below(self, index: int) -> None:
        """Forget the indexes below ``index``.  O(ranges)."""
        self._ranges = [(max(first, index), last) for first, last in self._ranges if last >= index]

    def drop_from(self, index: int) -> None:
        """Forget ``index`` and those behind it.  O(ranges)."""
        self._ranges = [(first, min(last, index - 1)) for first, last in self._ranges
                        if first < index]

    def _check(self) -> None:
        """Assert every invariant.  O(ranges)."""
        assert all(0 < first <= last for first, last in self._ranges)
        assert all(a[1] + 1 < b[0] for a, b in zip(self._ranges, self._ranges[1:]))
        assert len(self._ranges) <= UNNEEDED_RANGES_MAX
