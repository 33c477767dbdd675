"""Ranges of a journal whose segments were removed because nothing needs them.

Contract.  Values without effects.  ``Journal`` has those of now, each checkpoint has those of its
capture.  A segment is removed for a start as soon as the start's checkpoint names it, with or
without a file; a file goes when all kept checkpoints name its segment (``segment_removal``).

Invariants.  Ranges ascend, do not touch, and lie behind the journal's start.  A segment that
remains is in none of them.

Theory.  A range begins where the last entry before its first segment ends, and it ends behind the
last entry of its last segment.  Both ends are the durable watermarks of first entries: that of the
first removed segment, and that of the segment behind the range.  So a range proves what the removed
files proved: if the segment before ends elsewhere, or the one behind continues from elsewhere,
bytes are missing there (``recovery/torn_tail.py``).  Removed segments in the front need no range,
because the journal begins behind them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

#: Removed ranges of a journal.  Each checkpoint has all of them, in 300 KiB at most.  A segment
#: whose removal would make another range waits until one beside it goes.
REMOVED_RANGES_MAX = 1 << 14

_BEHIND_ALL = 1 << 64

#: [begin, end) of the journal.
JournalRange = tuple[int, int]


class RemovedRanges(NamedTuple):
    """Removed part of a journal."""

    journal_start: int = 0  # start of the first segment that remains
    ranges: tuple[JournalRange, ...] = ()

    def covers(self, start: int) -> bool:
        """Return True if the segment that begins at ``start`` is removed.  O(log n)."""
        if start < self.journal_start:
            return True
        at = bisect_right(self.ranges, (start, _BEHIND_ALL)) - 1
        return at >= 0 and start < self.ranges[at][1]

    def behind(self, start: int, before: int = _BEHIND_ALL) -> JournalRange | None:
        """Return the range right behind the remaining segment that begins at ``start``; None = no
        range begins there before position ``before``, at which the next one begins.  O(log n)."""
        at = bisect_right(self.ranges, (start, _BEHIND_ALL))
        if at < len(self.ranges) and self.ranges[at][0] <= before:
            return self.ranges[at]
        return None

    def end_behind(self, start: int, end: int, before: int) -> int:
        """Return where the entries before position ``before`` end: at the end of the range behind
        the remaining segment that begins at ``start``, or at its own ``end``.  O(log n)."""
        found = self.behind(start, before)
        return found[1] if found is not None else end

    def is_within(self, begin: int, end: int) -> bool:
        """Return True if a removed range lies in [begin, end]; the removed front counts, with a
        ``begin`` below zero.  O(log n)."""
        if begin < 0 < self.journal_start <= end:
            return True
        at = bisect_left(self.ranges, (begin, 0))
        return at < len(self.ranges) and self.ranges[at][1] <= end

    def with_segment(self, begin: int, end: int, previous: int | None,
                     following: int) -> RemovedRanges:
        """Return the ranges with one more segment.  O(n).

        ``begin``: where the entries before the segment end; ``end``: position after its last entry;
        ``previous``, ``following``: starts of the segments beside it that remain, None = the
        segment was the first."""
        if previous is None:
            return RemovedRanges(following, self.from_on(following))
        first = bisect_right(self.ranges, (previous, _BEHIND_ALL))
        last = bisect_left(self.ranges, (following, 0))
        # Nothing remains between these and the segment.
        joined = [(begin, end), *self.ranges[first:last]]
        return self._replace(ranges=(
            *self.ranges[:first],
            (min(each[0] for each in joined), max(each[1] for each in joined)),
            *self.ranges[last:]))

    def from_on(self, start: int) -> tuple[JournalRange, ...]:
        """Return the ranges behind the segment that begins at ``start``.  O(n)."""
        return self.ranges[bisect_left(self.ranges, (start, 0)):]
