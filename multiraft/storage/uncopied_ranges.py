"""Ranges of indexes of one group that an installed snapshot left without records.

Contract.  Plain values without I/O, owned by the record store and the stored log.

Theory.  A snapshot of a group with partitions has no records.  Of the indexes that it stands for,
those above the log's own committed entries have no entry in the journal: an ``InstalledRange``.
Their records are copied from other members.  As long as it is not known that all records of an
index range were copied, the range is *uncopied*.  It may contain records, those whose copies a
start found behind its checkpoint; so a range may always be larger than necessary, never smaller.
Other indexes are uncopied if more of them may have been lost than are missed one by one.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, final

from multiraft import core

#: First and last index.
IndexRange = tuple[int, int]

#: Ranges of one group: each is 20 bytes of each checkpoint.  With more, the nearest ones are
#: joined, and copied as one.
UNCOPIED_RANGES_MAX = 64

#: Installed ranges of one group: a start joins the log anew at each.  With as many, the next
#: snapshot replaces the records as well.
INSTALLED_RANGES_MAX = 64


class InstalledRange(NamedTuple):
    """Indexes for which a snapshot stands: nothing but copies of them is in the journal."""

    position: int  # of the journal: entries in earlier segments have indexes below ``first``
    first: int
    last: int  # the applied index of the snapshot
    #: ``damage_value`` of the damage of unknown owner behind ``position`` that the last start met.
    #: What it may have held of these indexes is uncopied, or was copied since; any other damage
    #: may have held copies that count.  Checkpoints of earlier builds have a journal position
    #: here, which says nothing of damage that arose before it later: with damage, it differs, and
    #: the range is uncopied once.
    known_damage: int


def damage_value(ranges: Iterable[tuple[int, int]]) -> int:
    """Return a value that names a set of damaged ranges of the journal, (begin, end) each; 0 =
    none.  O(n log n)."""
    ends = [*chain.from_iterable(sorted(set(ranges)))]
    return core.crc32c(struct.pack(f"<{len(ends)}Q", *ends)) or 1 if ends else 0


@final
class UncopiedRanges:
    """Disjoint ranges of indexes, ascending, that do not touch."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[IndexRange] = ()) -> None:
        self._ranges: list[IndexRange] = [(first, last) for first, last in ranges]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def ranges(self) -> tuple[IndexRange, ...]:
        """The ranges as (first index, last index)."""
        return tuple(self._ranges)

    @property
    def count(self) -> int:
        """Number of indexes in the ranges.  O(ranges)."""
        return sum(last - first + 1 for first, last in self._ranges)

    def first_in(self, first: int, last: int) -> int:
        """Return the lowest uncopied index in [first, last]; 0 = none.  O(log ranges)."""
        at = bisect_right(self._ranges, (first, 1 << 64)) - 1
        if at >= 0 and first <= self._ranges[at][1]:
            return first if first <= last else 0
        at += 1
        found = self._ranges[at][0] if at < len(self._ranges) else last + 1
        return found if found <= last else 0

    def within(self, first: int, last: int) -> list[IndexRange]:
        """Return the parts of the ranges in [first, last], ascending.  O(ranges)."""
        return [(max(first, begin), min(last, end)) for begin, end in self._ranges
                if begin <= last and first <= end]

    def add(self, first: int, last: int) -> None:
        """Count the indexes first..last as uncopied; do nothing if there are none.  O(ranges)."""
        if first <= last:
            self._ranges = _joined([*self._ranges, (first, last)])

    def remove(self, first: int, last: int, lacking: Sequence[IndexRange] = ()) -> None:
        """Count the indexes first..last as copied, except the ranges of them that are ``lacking``.
        O(ranges log ranges)."""
        kept = [each for each in self._ranges if each[1] < first or last < each[0]]
        for begin, end in self._ranges:
            if begin <= last and first <= end:
                kept += [part for part in ((begin, first - 1), (last + 1, end))
                         if part[0] <= part[1]]
                kept += [(max(begin, low, first), min(end, high, last)) for low, high in lacking
                         if max(begin, low, first) <= min(end, high, last)]
        self._ranges = _joined(kept)

    def remove_each(self, indexes: Iterable[int]) -> None:
        """Count single indexes as copied, as far as that does not make too many ranges.  O(ranges +
        indexes log indexes)."""
        gone = sorted(index for index in indexes if self.first_in(index, index))
        kept, at = [], 0
        for first, last in self._ranges:
            while at < len(gone) and gone[at] <= last:
                kept += [(first, gone[at] - 1)] if first < gone[at] else []
                first = gone[at] + 1
                at += 1
            kept += [(first, last)] if first <= last else []
        self._ranges = _joined(kept)

    def drop_below(self, index: int) -> None:
        """Count the indexes below ``index`` as copied.  O(ranges)."""
        self._ranges = [(max(first, index), last) for first, last in self._ranges if last >= index]

    def _check(self) -> None:
        """Assert every invariant.  O(ranges)."""
        assert all(0 < first <= last for first, last in self._ranges)
        assert all(a[1] + 1 < b[0] for a, b in zip(self._ranges, self._ranges[1:]))
        assert len(self._ranges) <= UNCOPIED_RANGES_MAX


def _joined(ranges: list[IndexRange]) -> list[IndexRange]:
    """Return the ranges, ascending, those joined that overlap or touch, and the nearest ones if
    they are more than ``UNCOPIED_RANGES_MAX``.  O(ranges log ranges)."""
    joined = _joined_within(sorted(ranges), 1)
    if len(joined) > UNCOPIED_RANGES_MAX:
        distances = sorted(b[0] - a[1] for a, b in zip(joined, joined[1:]))
        joined = _joined_within(joined, distances[len(joined) - UNCOPIED_RANGES_MAX - 1])
    return joined


def _joined_within(ranges: Iterable[IndexRange], distance: int) -> list[IndexRange]:
    joined: list[IndexRange] = []
    for first, last in ranges:
        if joined and first - joined[-1][1] <= distance:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
