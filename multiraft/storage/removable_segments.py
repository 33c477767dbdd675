"""Segments of the journal that hold nothing that is needed.

Contract.  ``RemovalPass`` takes what each segment contains, the kept checkpoints and the kept
records, and decides.  It reads and removes nothing.

Theory.  A start begins with one of the kept checkpoints, the older one if the newest is damaged,
and reads the journal.  For each group it needs the entries from that checkpoint's Raft start on,
the records, and all that the journal has behind the checkpoint's position.  Before that position,
terms, votes and tombstones are in the checkpoint, and so are the terms of all entries between the
records: an entry that was truncated below the Raft start is known by its term.

A truncation of entries at or above the Raft start is in the journal alone.  Its segment stays as
long as a segment before it has such entries.

A segment may tell the contents of a damaged place elsewhere (a REPAIR record).  Without it, that
place is damage of unknown owner again, so it stays until the damaged place is gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun


class GroupContents(NamedTuple):
    """Entries of one group in a segment."""

    incarnation: int
    last_index: int  # highest index of an entry or a copy
    first_index: int = 0  # lowest one
    truncated_from: int = 0  # first index of earlier segments that is gone behind it; 0 = none

    @classmethod
    def of(cls, run: SegmentRun) -> GroupContents:
        """Return the summary of a group's part of a segment.  O(copies)."""
        copied = [copy.index for copy in run.copies if copy.index]
        own = [run.first_index] if run.first_index else []
        truncating = [first for first in [run.truncated_from, *own] if first]
        return cls(run.incarnation, max([run.last_index, *copied]), min([*own, *copied], default=0),
                   min(truncating, default=0))


class PackedGroups(Mapping[int, GroupContents]):
    """Contents of a segment by group, in 32 bytes each: a node has many groups and segments."""

    __slots__ = ("_groups", "_incarnations", "_indexes")

    def __init__(self, contents: Mapping[int, GroupContents]):
        ordered = sorted(contents.items())
        self._groups = array("I", [group for group, _ in ordered])
        self._incarnations = array("I", [each.incarnation for _, each in ordered])
        self._indexes = array("Q", [index for _, each in ordered for index in each[1:]])

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[int]:
        return iter(self._groups)

    def __getitem__(self, group: int) -> GroupContents:
        slot = bisect_left(self._groups, group)
        if slot == len(self._groups) or self._groups[slot] != group:
            raise KeyError(group)
        return GroupContents(self._incarnations[slot], *self._indexes[3 * slot:3 * slot + 3])


class SegmentContents(NamedTuple):
    """Summary of a sealed segment."""

    start: int
    end: int  # journal position after its last entry
    groups: Mapping[int, GroupContents]
    explains: tuple[int, ...] = ()  # journal positions of damaged entries that REPAIR records name
    is_intact: bool = True  # False: what it holds is not known
    begin: int = 0  # where the entries before it end; -1 = its first entry does not tell

    @classmethod
    def of(cls, index: SegmentIndex, is_intact: bool = True) -> SegmentContents:
        """Return the summary of a segment.  O(groups log groups + copies)."""
        explains = tuple(copy.damaged_position for run in index.runs.values()
                         for copy in run.copies if copy.damaged_position)
        return cls(index.start, index.end, PackedGroups(
            {group: GroupContents.of(run) for group, run in index.runs.items()}), explains,
            is_intact and index.first_durable >= 0
            and not any(run.broken_reason for run in index.runs.values()),
            # Behind a round without entries it is the entry's own position.
            index.first_durable if index.first_durable <= index.start else -1)


class CheckpointedStart(NamedTuple):
    """Beginning of one group's log in a checkpoint."""

    incarnation: int
    first_index: int  # the Raft start
    position: int = 0  # of its tombstone or snapshot: nothing of the log stands before


class KeptCheckpoint(NamedTuple):
    """Part of a kept checkpoint that says what a start needs of the journal."""

    position: int
    starts: Mapping[int, CheckpointedStart]  # by group


HasRecord = Callable[[SegmentContents], bool]


class RemovalPass:
    """Decisions about one segment after the other, in journal order."""

    def __init__(self, checkpoints: Sequence[KeptCheckpoint], has_record: HasRecord):
        """``checkpoints``: all kept ones; ``has_record(segment)``: True if a kept record of any
        group stands in it."""
        self._checkpoints = checkpoints
        self._has_record = has_record
        self._begins: list[int] = []  # of the segments that stay, and their ends
        self._ends: list[int] = []
        #: (group, incarnation) -> highest index in the segments that stay.
        self._highest: dict[tuple[int, int], int] = {}

    def may_go(self, segment: SegmentContents) -> bool:
        """Return True if no start and no reader needs the next segment; the caller removes it then,
        or calls ``keep``.  False without two kept checkpoints.

        Segments are to be removed in this order, so that a place is gone before the record that
        explains it.  O(groups in the segment * checkpoints + explained places)."""
        may_go = (segment.is_intact and len(self._checkpoints) > 1
                  and not any(self._is_kept(position) for position in segment.explains)
                  and not any(self._is_needed_by(each, segment) for each in self._checkpoints)
                  and not self._has_record(segment))
        if not may_go:
            self.keep(segment)
        return may_go

    def keep(self, segment: SegmentContents) -> None:
        """Note that a segment stays.  O(groups in it)."""
        self._begins.append(segment.start)
        self._ends.append(segment.end)
        for group, contents in segment.groups.items():
            key = group, contents.incarnation
            self._highest[key] = max(contents.last_index, self._highest.get(key, 0))

    def _is_kept(self, position: int) -> bool:
        at = bisect_left(self._begins, position + 1) - 1
        return at >= 0 and position < self._ends[at]

    def _is_needed_by(self, checkpoint: KeptCheckpoint, segment: SegmentContents) -> bool:
        """Return True if a start with this checkpoint needs entries or truncations of the segment
        to rebuild a Raft log, or records that the checkpoint does not contain."""
        if segment.end > checkpoint.position:
            return True
        for group, contents in segment.groups.items():
            start = checkpoint.starts.get(group)
            if start is None or contents.incarnation > start.incarnation:
                return True
            if contents.incarnation < start.incarnation or segment.end <= start.position:
                continue  # of an earlier incarnation
            truncated = max(contents.truncated_from, start.first_index)
            if contents.last_index >= start.first_index or contents.truncated_from and (
                    self._highest.get((group, contents.incarnation), 0) >= truncated):
                return True
        return False


def removable_segments(segments: Sequence[SegmentContents],
                       checkpoints: Sequence[KeptCheckpoint],
                       has_record: HasRecord) -> list[SegmentContents]:
    """Return the segments that no start and no reader needs, in journal order; see
    ``RemovalPass``.  ``segments``: sealed ones, in journal order."""
    decisions = RemovalPass(checkpoints, has_record)
    return [segment for segment in segments if decisions.may_go(segment)]
