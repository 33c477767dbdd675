"""Marks of the COMPACT entries of one partition: which of them are as old as tombstones have to be.

Contract.  ``add`` marks a COMPACT that the replicas have carried out.  ``judge`` says up to which
log index entries are old now; by that, ``old_up_to`` is the ``up_to`` of the latest COMPACT that is
old.  In memory only: the next leader begins without marks, and tombstones stay longer then, never
less long.

Invariants.  At most ``MARKS_MAX`` marks, in the order of the log.  A mark that takes the place of
another one is younger: a tombstone stays too long by at most ``1 / SHARES`` of its time.

Theory.  The state of a partition has its last COMPACT alone, without the index of the entry.  A
mark has the group's last index when the leader learnt that the COMPACT is carried out.  A CLOCK
behind that index was appended later, so a reader that still saw an earlier value had at least the
time from that CLOCK on to reach the tombstone.
"""

from __future__ import annotations

from typing import NamedTuple

#: Of three marks, the first and the last are so large a part of the tombstones' time apart.
SHARES = 8
#: Two for each part, the latest one that is old, and the newest ones.
MARKS_MAX = 2 * SHARES + 3


class Mark(NamedTuple):
    """A COMPACT that is carried out."""

    up_to: int
    index: int  # type: ignore[assignment]  # of the log's last entry when that was known
    seen_ms: int  # time of that, by the leader's clock; it only keeps marks apart


class TombstoneMarks:
    """The marks of one partition."""

    __slots__ = ("old_up_to", "newest", "_marks")

    def __init__(self) -> None:
        self.old_up_to = 0  # 0 = no COMPACT is old
        #: The newest mark, if it is not old; None = it is, or there is none.
        self.newest: Mark | None = None
        self._marks: list[Mark] = []

    def add(self, mark: Mark, tombstone_ms: int) -> None:
        """Mark a COMPACT that is not old yet.  It takes the place of the newest mark if it is close
        to the one before: within a part of ``tombstone_ms``.  O(1)."""
        marks = self._marks
        if len(marks) > 1 and (len(marks) == MARKS_MAX
                               or mark.seen_ms - marks[-2].seen_ms < tombstone_ms // SHARES):
            marks.pop()
        marks.append(mark)

    def judge(self, old_index: int) -> None:
        """Judge all marks: a CLOCK behind ``old_index`` is as old as tombstones have to be, by the
        settings of now.  Forget those before the latest old one.  O(marks)."""
        marks = self._marks
        while len(marks) > 1 and marks[1].index <= old_index:
            del marks[0]
        self.old_up_to = marks[0].up_to if marks and marks[0].index <= old_index else 0
        self.newest = marks[-1] if marks and marks[-1].index > old_index else None
