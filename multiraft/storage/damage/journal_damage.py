"""Damaged ranges of a node's journal, and those whose contents a copy or a record tells.

Contract.  Owned by the loop; filled by recovery, extended by repair when the scrub or a read finds
more.  Nothing here is written to disk: REPAIR and LIFT records are, and recovery derives this
object from them.  Per damaged range, for each replica that may have had records in it
(``DamageMap`` knows what that replica has cleared):

    state         what is known of its bytes
    UNATTRIBUTED  nothing: any replica's entries, votes or truncations may have been there
    EXPLAINED     a copy, or the record of one that is not needed, tells the contents
    CLEARED       for this replica: its leader told what it may have lost there, or it had nothing

    transition         from           to            cause
    add_unattributed   (found)        UNATTRIBUTED  recovery or the scrub, in bytes of no log
    explain            (found),       EXPLAINED     a copy is durable; the damaged entry was
                       UNATTRIBUTED                 compacted or truncated; its replica was removed
    DamageMap.clear    UNATTRIBUTED   CLEARED       a LIFT record is durable, after a head recovery
    DamageMap.create   UNATTRIBUTED   CLEARED       the replica was created behind the range
    DamageMap.remove   UNATTRIBUTED   CLEARED       its tombstone stands behind the range

A range that is EXPLAINED in part is UNATTRIBUTED in the rest: ``unexplained`` returns that.
"""

from __future__ import annotations

from collections.abc import Iterable

from multiraft.storage.damage.place import Place, PlaceRange
from multiraft.storage.damage.ranges import merged, uncovered

#: Damaged ranges of unknown owner that one LIFT can clear, the newest of them; a journal with
#: more has to be replaced.
CLEARED_RANGES_MAX = 64


class JournalDamage:
    """Damage of one journal, shared by all logs in it."""

    __slots__ = ("_explained", "_unattributed", "was_cleared_before")

    def __init__(self) -> None:
        self._explained: dict[Place, Place] = {}  # begin -> end; the same = of unknown length
        self._unattributed: list[PlaceRange] = []
        #: LIFT records of earlier starts name damage, which this start need not have met.
        self.was_cleared_before = False

    # ---- transitions ---------------------------------------------------------------------------

    def add_unattributed(self, begin: Place, end: Place) -> None:
        """Add a range that may have held any replica's records."""
        self._unattributed.append((begin, end))

    def explain(self, begin: Place, end: Place) -> None:
        """Record that the contents of a damaged entry are known, or that no replica needs them.
        ``end`` = ``begin``: its length is unknown, so no other byte is explained."""
        self._explained[begin] = end

    # ---- queries -------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """True if damage of this journal is known, also if it is explained or cleared."""
        return bool(self._unattributed or self._explained) or self.was_cleared_before

    @property
    def unattributed(self) -> tuple[PlaceRange, ...]:
        """Ranges that may have held any replica's records, in the order of discovery."""
        return tuple(self._unattributed)

    @property
    def unattributed_count(self) -> int:
        """Number of the unattributed ranges; it never falls."""
        return len(self._unattributed)

    @property
    def explained(self) -> list[PlaceRange]:
        """Ranges of damaged entries of known contents and length.  O(n)."""
        return [each for each in self._explained.items() if each[0] != each[1]]

    def is_explained(self, begin: Place) -> bool:
        """Return True if a damaged entry at a place is explained, of whatever length.  O(1)."""
        return begin in self._explained

    def is_inside_explained(self, place: Place) -> bool:
        """Return True if a place lies inside an explained entry, behind its first byte.  O(n)."""
        return any(begin < place < end for begin, end in self.explained)

    def unexplained(self, begin: Place, end: Place) -> list[PlaceRange]:
        """Return the parts of a damaged range that are not explained, ascending.  O(n log n)."""
        return uncovered(begin, end, self.explained)

    def unexplained_ranges(self,
                           found: Iterable[PlaceRange]) -> list[tuple[Place, list[PlaceRange]]]:
        """Return, ascending, begin and unexplained parts of each range that is not explained
        entirely.  O(n²)."""
        return [(begin, parts) for begin, end in sorted(set(found))
                if (parts := self.unexplained(begin, end))]

    def ranges_to_clear(self, cleared: Iterable[PlaceRange]) -> tuple[PlaceRange, ...]:
        """Return the ranges for the next LIFT record of a replica that has ``cleared`` some before,
        at most ``CLEARED_RANGES_MAX``: first unexplained ones, then explained ones, whose REPAIR
        records may be lost later.  O(n log n)."""
        # Ranges that were cleared before, too: a start does not meet those in segments with an
        # index file, but the scrub reads all segments.
        ranges = merged([*cleared, *self._unattributed])
        everything = merged([*ranges, *self.explained])
        if len(everything) <= CLEARED_RANGES_MAX:
            return tuple(everything)
        # Ranges stay whole: without the parts that copies explain, one could become more ranges
        # than a LIFT may name.
        bare = [each for each in ranges if self.unexplained(*each)]
        spare = max(0, CLEARED_RANGES_MAX - len(bare))
        return tuple(merged([*bare[-CLEARED_RANGES_MAX:], *everything[len(everything) - spare:]]))

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        for begin, end in [*self._unattributed, *self._explained.items()]:
            assert begin <= end, f"{begin} to {end}"
        assert len(self.ranges_to_clear(())) <= CLEARED_RANGES_MAX
