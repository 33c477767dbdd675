"""Segments of the journal that hold nothing that is needed.

Contract.  ``removable_segments`` is a function of what each segment contains, of the kept
checkpoints and of the kept records.  It reads and removes nothing.

Theory.  A start begins with one of the kept checkpoints, the older one if the newest is damaged,
and reads the journal.  For each group it needs the entries from that checkpoint's Raft start on,
the records, and all that the journal has behind the checkpoint's position.  Before that position,
terms, votes, truncations and tombstones are in the checkpoint.

A segment may tell the contents of a damaged place elsewhere (a REPAIR record).  Without it, that
place is damage of unknown owner again, so it stays until the damaged place is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from multiraft.storage.journal.segment_index import SegmentIndex


class GroupContents(NamedTuple):
    """Entries of one group in a segment."""

    incarnation: int
    last_index: int  # highest index of an entry or a copy


class SegmentContents(NamedTuple):
    """Summary of a sealed segment."""

    start: int
    end: int  # journal position after its last entry
    groups: Mapping[int, GroupContents]
    explains: tuple[int, ...] = ()  # journal positions of damaged entries that REPAIR records name
    is_intact: bool = True  # False: what it holds is not known

    @classmethod
    def of(cls, index: SegmentIndex) -> SegmentContents:
        """Return the summary of an intact segment.  O(groups + copies)."""
        groups = {}
        for group, run in index.runs.items():
            copied = max((copy.index for copy in run.copies), default=0)
            groups[group] = GroupContents(run.incarnation, max(run.last_index, copied))
        explains = tuple(copy.damaged_position for run in index.runs.values()
                         for copy in run.copies if copy.damaged_position)
        return cls(index.start, index.end, groups, explains)


class CheckpointedStart(NamedTuple):
    """Beginning of one group's log in a checkpoint."""

    incarnation: int
    first_index: int  # the Raft start
    position: int = 0  # of its tombstone or snapshot: nothing of the log stands before


class KeptCheckpoint(NamedTuple):
    """Part of a kept checkpoint that says what a start needs of the journal."""

    position: int
    starts: Mapping[int, CheckpointedStart]  # by group


def removable_segments(segments: Sequence[SegmentContents],
                       checkpoints: Sequence[KeptCheckpoint],
                       has_record_within: Callable[[int, int], bool]) -> list[SegmentContents]:
    """Return the segments that no start and no reader needs, in journal order; none without two
    kept checkpoints.

    ``segments``: sealed ones, in journal order; ``has_record_within(begin, end)``: True if a kept
    record of any group stands there.  They are to be removed in this order, so that a place is gone
    before the record that explains it.  O(segments * groups in them)."""
    found: list[SegmentContents] = []
    if len(checkpoints) < 2:
        return found
    kept: list[tuple[int, int]] = []
    for segment in segments:
        explains_kept = any(begin <= position < end for position in segment.explains
                            for begin, end in kept)
        if (segment.is_intact and not explains_kept
                and not any(_is_needed_by(checkpoint, segment) for checkpoint in checkpoints)
                and not has_record_within(segment.start, segment.end)):
            found.append(segment)
        else:
            kept.append((segment.start, segment.end))
    return found


def _is_needed_by(checkpoint: KeptCheckpoint, segment: SegmentContents) -> bool:
    """Return True if a start with this checkpoint needs entries of the segment to rebuild a Raft
    log, or records that the checkpoint does not contain."""
    if segment.end > checkpoint.position:
        return True
    for group, contents in segment.groups.items():
        start = checkpoint.starts.get(group)
        if start is None or contents.incarnation > start.incarnation:
            return True
        is_earlier = (contents.incarnation < start.incarnation or segment.end <= start.position)
        if not is_earlier and contents.last_index >= start.first_index:
            return True
    return False
