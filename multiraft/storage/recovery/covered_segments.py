"""Segments whose entries a start does not read, because index files answer for all records there.

Contract.  ``part_of`` judges one group's part of a segment by the summary of its index file and the
checkpoint; ``Beginnings`` takes the segments in journal order.  Nothing here reads or writes.

Theory.  A start joins a group's entries densely from one index on, so that everything lost is seen
to be missing.  The records before that index come from index files alone: of the group's first
segments, as far as they are whole, in the log and below the checkpoint's Raft start.  Nothing of
these can be lost where the journal has no damage; with damage, a start reads all index files whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from multiraft.storage.block_index.file_codec import RunSummary
from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.journal.journal import Segment
from multiraft.storage.journal.segment_index import Applied
from multiraft.storage.record_store import terms_agree
from multiraft.storage.removed_ranges import RemovedRanges


class Part(Enum):
    """Need of a start for a group's part of a segment."""

    NOTHING = "none of its entries is in the log, or needed"
    RECORDS = "its records, which the index file answers"
    ENTRIES = "its entries"


def part_of(record: GroupRecord | None, applied: int, segment: Segment,
            summary: RunSummary) -> Part:
    """Return what a start needs of a part of ``segment``, which ends before the checkpoint's
    position.

    ``record``: of the group in the checkpoint, None = it does not know the group; ``applied``:
    index that it has applied.  O(runs of terms + copies)."""
    run, entries = summary.run, summary.entries
    if record is None or run.incarnation > record.incarnation:
        return Part.ENTRIES
    if (run.incarnation < record.incarnation or segment.end <= record.tombstone_position
            or (segment.start < record.snapshot_position and not record.installed)):
        return Part.NOTHING
    if record.installed:  # a start tells copies from the log's own entries by their places
        return Part.ENTRIES
    if any(copy.index > applied for copy in run.copies):
        return Part.ENTRIES
    if entries is None or not entries.count:
        return Part.NOTHING
    first_needed = record.record_terms[0][0] if record.record_terms else record.first_index
    if entries.last_index < first_needed:
        return Part.NOTHING
    if record.missing or record.quarantined or record.needs_head_recovery:
        return Part.ENTRIES
    return Part.RECORDS if terms_agree(
        record.record_terms, record.first_index, entries.first_index, entries.last_index,
        tuple(zip(entries.run_starts, entries.run_terms))) else Part.ENTRIES


class Beginnings:
    """The first segments of each group whose records are in index files alone."""

    def __init__(self, checkpoint: Checkpoint, applied: Applied, removed: RemovedRanges):
        self._records = checkpoint.records
        self._applied = applied
        self._removed = removed
        self._ended: set[int] = set()  # groups whose entries are read from some segment on
        self._last: dict[int, tuple[int, int]] = {}  # group -> (last index, start of its segment)

    def take(self, segment: Segment, summaries: Mapping[int, RunSummary]) -> dict[int, Part]:
        """Return what of each group of the next segment a start needs.  O(groups + runs of
        terms)."""
        return {group: self._part(segment, group, summary)
                for group, summary in summaries.items()}

    def end(self, groups: set[int]) -> None:
        """Note that entries of ``groups`` are read from this segment on.  O(groups)."""
        self._ended |= groups

    def _part(self, segment: Segment, group: int, summary: RunSummary) -> Part:
        record, run = self._records.get(group), summary.run
        part = part_of(record, self._applied.get((group, run.incarnation), 0), segment, summary)
        if part is Part.RECORDS:
            assert summary.entries is not None
            first = summary.entries.first_index
            last, start = self._last.get(group, (first - 1, segment.start))
            if group in self._ended or first <= last or (
                    first > last + 1 and not self._removed.is_within(start, segment.start)):
                part = Part.ENTRIES
            else:
                self._last[group] = summary.entries.last_index, segment.start
        if part is Part.ENTRIES:
            self._ended.add(group)
        return part
