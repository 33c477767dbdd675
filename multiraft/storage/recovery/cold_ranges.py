"""Cold segments whose records a start does not read, because their index files answer.

Contract.  ``read_cold_summaries`` reads header and summary of each index file; ``choose`` decides
for one group, by the checkpoint and what was joined of the journal.  It reads nothing.

Invariant.  An index file answers for a range of indexes if each record of the group in it that
lives is in the cold segment or has its place in memory.  That was so when the cold segment was
written, of the ranges in the summary.  What had its place in memory then has it again: it is a copy
that repair wrote into the journal, or in another cold segment.

Theory.  A range is that of one source, or of a part of one.  A source that is still there, of the
journal or an earlier cold segment, has the same range, and answers for it no longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from multiraft.storage.block_index.file_codec import RunSummary
from multiraft.storage.checkpoint import GroupRecord
from multiraft.storage.cold.cold_index import ColdIndexHeader, ColdRunSummary
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.errors import CorruptFile, UnknownFormat
from multiraft.storage.indexed_segments import read_cold_summary
from multiraft.storage.journal.journal import Journal, Segment
from multiraft.storage.record_store import term_in
from multiraft.storage.stored_log import StoredLog

FilePart = tuple[Segment, RunSummary]


class ColdPart(NamedTuple):
    """A group's part of a cold segment."""

    segment: ColdSegment
    header: ColdIndexHeader
    run: ColdRunSummary


class Chosen(NamedTuple):
    """Index files that answer for the records of one group."""

    files: list[FilePart]  # of segments of the journal, in its order
    cold: list[ColdPart]  # ascending by number
    #: Numbers of the cold segments of which nothing else is needed.
    answered: frozenset[int]


ColdSummaries = Mapping[int, Sequence[ColdPart]]  # by number of the cold segment


def read_cold_summaries(journal: Journal, cluster: bytes, node: int) -> ColdSummaries:
    """Return the groups in the summary of each cold segment's index file, without those of a file
    that is damaged, missing or of another version, or whose cold segment is short.  Block.  O(bytes
    of the summaries).  Raises ``OSError``."""
    found = {}
    for segment in journal.cold:
        identity = segment.name.header(cluster, node).index_identity
        try:
            header, runs = read_cold_summary(journal.filesystem, segment, identity)
        except (CorruptFile, UnknownFormat):
            continue  # the cold segment is read whole
        found[segment.name.number] = [ColdPart(segment, header, run) for run in runs]
    return found


def is_needed(part: ColdPart, record: GroupRecord) -> bool:
    """Return True if the records of a group in a cold segment may be needed."""
    return (part.run.incarnation == record.incarnation and bool(record.record_terms)
            and (not part.run.ranges or part.run.ranges[-1][1] >= record.record_terms[0][0]))


def choose(log: StoredLog, record: GroupRecord, files: Sequence[FilePart],
           parts: Sequence[ColdPart]) -> Chosen:
    """Return the index files that answer for a group's records.

    ``files``: of the journal, that would answer without cold segments; ``parts``: of the group.
    Others of these are to be read whole.  O(parts log parts + ranges * (ranges + files))."""
    taken: list[tuple[int, int]] = []
    cold, answered = [], set()
    for part in sorted(parts, key=_number, reverse=True):
        ranges = part.run.ranges
        if not is_needed(part, record) or (ranges and all(each in taken for each in ranges)):
            answered.add(part.segment.name.number)
        elif (_may_answer(log, record, part) and not any(_overlap(each, other)
              for each in ranges for other in taken) and _replaces(part, files)):
            taken += ranges
            cold.append(part)
            answered.add(part.segment.name.number)
    return Chosen([each for each in files if _range_of(each) not in taken], cold[::-1],
                  frozenset(answered))


def _may_answer(log: StoredLog, record: GroupRecord, part: ColdPart) -> bool:
    """Return True if the index file of a cold segment may answer for a group at all."""
    run, copied_from = part.run, part.segment.name.copied_from
    if (not run.ranges or record.installed or record.missing or record.quarantined
            or record.needs_head_recovery or copied_from <= record.tombstone_position
            or run.ranges[-1][1] >= record.first_index):
        return False
    first_needed = record.record_terms[0][0]
    if any(term_in(record.record_terms, start) != term
           for start, term in zip(run.run_starts, run.run_terms) if start >= first_needed):
        return False
    # Of what was read of the journal, nothing may be older than its copy.
    return not any(log.records.places_within(0, copied_from, *each)[0] for each in run.ranges)


def _replaces(part: ColdPart, files: Sequence[FilePart]) -> bool:
    """Return True if each file with an index in a range of the part is its source."""
    return all(_range_of(file) in part.run.ranges
               and file[0].end <= part.segment.name.copied_from
               for file in files for each in part.run.ranges if _overlap(each, _range_of(file)))


def _range_of(file: FilePart) -> tuple[int, int]:
    entries = file[1].entries
    assert entries is not None
    return entries.first_index, entries.last_index


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


_number = attrgetter("segment.name.number")
