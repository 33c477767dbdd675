"""Torn tail or corruption: the decision for each place where the journal cannot be read.

Contract.  ``classify`` is a function of what was read.  It reads and writes no file.

The decision, per place P of the journal where no intact entry follows the one before it.  D is the
highest journal position that anything intact (an entry's durable watermark, a checkpoint) calls
durable.

    at P                            P below D                        P at or above D
    ------------------------------  -------------------------------  -----------------------------
    anything but an intact header   damage: all groups of the        torn tail: cut at P, the rest
      (zeros, garbage, wrong chain)   journal are quarantined          goes, intact or not
    intact header, damaged batch    damage: its group is             torn tail: the same
                                      quarantined, the entry stays
    a segment's own header          damage: all groups               unfinished: file removed
    the journal's end               damage: bytes are missing,       the clean end; bytes behind it
                                      all groups                       that are not zeros are cut
    between two segments (the next  damage: bytes are missing,       the same
      one's first watermark is        all groups
      not P); a removed range
      counts as a segment
    an entry in conflict with       it is taken; entries that        the same
      those before it (index, term)   conflict with it were truncated
                                      (lost_truncations.py)

Why.  One write is in flight at a time and its watermarks say what was durable *before* it.  So a
later entry that calls P durable proves that P once was readable: that is corruption.  Later entries
of the same write prove nothing, because pages reach the disk in any order.  What remains unprovable
is the newest write of a node that never came to start another one (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from multiraft.codec import layout
from multiraft.storage.journal.journal import Segment
from multiraft.storage.journal.segment_scan import DamagedRange, SegmentScan
from multiraft.storage.recovery.rebuild import FoundDamage
from multiraft.storage.recovery.report import Damage
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.strays import JOURNAL_POSITION_MAX


@dataclass(slots=True)
class ExaminedSegment:
    """A segment file and what is in it."""

    segment: Segment
    size: int
    seed: int | None  # None: the header is damaged
    scan: SegmentScan
    is_complete: bool = False  # an index file says that the last entry is the last there was
    is_unfinished: bool = False  # no header was ever written


@dataclass(slots=True)
class Verdict:
    """The torn tail and the damage of a journal."""

    torn_at: int = -1  # position where a torn tail begins; -1 = none
    damage: list[FoundDamage] = field(default_factory=list)
    # (end of the last readable entry, segment behind the gap) of each gap: entries that were lost
    # in it are behind the ends that index files tell
    gaps: list[tuple[int, Segment]] = field(default_factory=list)
    beside_gaps: list[Segment] = field(default_factory=list)  # may have had more entries


def classify(found: Sequence[ExaminedSegment], removed: RemovedRanges, durable: int,
             directory: str) -> Verdict:
    """Return all damage below ``durable``, the highest position that anything intact calls durable,
    and the position where a torn tail begins (-1 = none), which ends the search.

    ``found``: the journal's segments in its order, without those in ``removed``, which the
    checkpoint names. ``directory`` is named where none is left. O(segments log ranges + damage).
    """
    verdict = Verdict()
    previous, reached = None, -1
    for each in found:
        before = _End.of(previous, removed, each.segment.start)
        for missing in _missing_before(each, before, previous, reached, removed.journal_start):
            verdict.damage.append(_damage(each.segment.path, missing))
            verdict.gaps.append((reached, each.segment))
            verdict.beside_gaps += [each.segment] if previous is None else [previous.segment,
                                                                           each.segment]
        if before is not None and before.is_removed:
            reached = before.position
        for damaged in each.scan.damaged_ranges:
            # Torn tail: nothing intact says that this place was ever durable.  Below the watermark
            # the same bytes are corruption: a later write began, so this one had been synced.
            if damaged.position >= durable:
                verdict.torn_at = damaged.position
                return verdict
            verdict.damage.append(_damage(each.segment.path, damaged))
        previous = each
        if reached < 0 or each.scan.index.first_durable >= 0:
            reached = each.scan.index.end
    last = _End.of(previous, removed)
    end = last.position if last is not None else removed.journal_start
    if previous is not None and last is not None and last.lacks(previous):
        verdict.damage.append(_damage(previous.segment.path, _missing_before_removed(
            last, reached)))
        verdict.beside_gaps.append(previous.segment)
    if last is not None and last.is_removed:
        reached = end
    # Not a torn tail, though nothing behind is unreadable: entries that were durable are gone.
    if end < durable:
        path = previous.segment.path if previous is not None else directory
        verdict.damage.append(_damage(path, DamagedRange(
            reached if reached >= 0 else end, f"missing: {durable} was durable", -1, 0, durable)))
        return verdict
    verdict.torn_at = _stray_from(found)
    return verdict


def _stray_from(found: Sequence[ExaminedSegment]) -> int:
    """Return the position behind the last entry if other bytes than zeros follow, which are a torn
    tail too; -1 = none."""
    for each in reversed(found):
        if each.scan.has_stray_bytes:
            return each.scan.index.end
        if each.scan.index.first_durable >= 0:
            break
    return -1


class _End(NamedTuple):
    """End of the entries before a segment, or before the journal's end."""

    position: int
    is_complete: bool  # it is known to be the last entry before
    begin: int = -1  # of the removed range that ends here; -1 = a segment does

    @property
    def is_removed(self) -> bool:
        return self.begin >= 0

    def lacks(self, previous: ExaminedSegment) -> bool:
        """Return True if entries of the segment before the removed range are missing."""
        return self.is_removed and self.begin != previous.scan.index.end

    @classmethod
    def of(cls, previous: ExaminedSegment | None, removed: RemovedRanges,
           following: int = JOURNAL_POSITION_MAX) -> _End | None:
        """Return the end of a segment, or of the removed range between it and the segment that
        begins at ``following``; None = the journal has no segment before."""
        if previous is None:
            return None
        gone = removed.behind(previous.segment.start, following)
        if gone is None:
            return cls(previous.scan.index.end, previous.is_complete)
        return cls(gone[1], True, gone[0])


def _missing_before(each: ExaminedSegment, before: _End | None, previous: ExaminedSegment | None,
                    reached: int, journal_start: int) -> list[DamagedRange]:
    """Return the ranges of entries that are missing between the last readable one and this segment:
    before and behind a removed range, at most.

    The segment's first entry carries the end of the segment before as its watermark and was written
    after all of it.  So a difference is damage, never a torn tail.  A removed range says what its
    first segment's first entry did.  ``reached``: journal offset where the last readable entry
    ends, perhaps in an earlier segment."""
    first_watermark = each.scan.index.first_durable
    if before is None or previous is None:
        if first_watermark < 0 or each.segment.start == journal_start:
            return []
        return [DamagedRange(journal_start, "missing: the first segment starts later", -1, 0,
                             each.segment.start)]
    missing = []
    if before.lacks(previous):
        missing.append(_missing_before_removed(before, reached))
    if before.is_removed:
        reached = before.position
    if first_watermark < 0 or first_watermark == before.position:
        return missing
    if before.is_complete and first_watermark > each.segment.start:
        return missing  # the first entry is lost, and that is all
    why = f"missing: the next segment continues from {first_watermark}"
    if first_watermark > each.segment.start:  # of what is before that entry no more is known
        first_watermark = before.position + layout.ENTRY_HEADER_BYTES
        if reached == before.position and first_watermark > each.segment.start:
            return missing  # the segment before could not hold another entry
    return [*missing, DamagedRange(reached, why, -1, 0, first_watermark)]


def _missing_before_removed(removed: _End, reached: int) -> DamagedRange:
    why = f"missing: the removed segments continue from {removed.begin}"
    return DamagedRange(min(reached, removed.begin), why, -1, 0, removed.begin)


def _damage(path: str, damaged: DamagedRange) -> FoundDamage:
    """Return a damaged range paired with the ``Damage`` that reports it; ``path``: of its file."""
    kind = damaged.reason.partition(":")[0]
    kind = kind if kind in ("missing", "payload") else "entry"
    why = f"unreadable below the durable watermark: {damaged.reason}"
    return damaged, Damage(kind, path, damaged.position, damaged.group, damaged.index, why)
