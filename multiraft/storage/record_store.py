"""Records of one group below its Raft start: entries that are kept only to be read.

Contract.  Owned by the loop, in memory only.  ``StoredLog.compact`` fills the store from the Raft
log's index, recovery does the same; ``StoredLog`` answers by index from either of the two.  Offsets
lead to indexes in the partitions' own indexes (``PartitionIndex``).

The places of most records are in index files alone (``indexed_segments.py``): of these the store
has a range of indexes for each segment, in which other entries are as well.  ``in_file`` tells the
segment, a job the rest.  A place in memory, of a copy or of a missing record, counts first.

Invariants.  Indexes ascend and are below the group's Raft start.  Each record is a data entry that
is committed, so (group, incarnation, index) names it, and its term identifies it.  A missing index
is either one of the records or a *hole*: an entry that is lost, of unknown kind.  Of an *uncopied*
index (``uncopied_ranges.py``) it is not known whether its entry is a record.

Theory.  A record changes no state, because a checkpoint has all that it did, and it needs no entry
beside it, because no append is compared with it.  The terms of all indexes from the first record
on are kept beside the records: an entry that was truncated, and whose truncation a damaged place
hides, has the index of a record but not its term.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, final

from multiraft.errors import Compacted
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.repaired_indexes import RepairedIndexes
from multiraft.storage.uncopied_ranges import UncopiedRanges
from multiraft.storage.unneeded_indexes import UnneededIndexes

#: Term of an index for which it is not known: the committed entry of that index is the right one.
UNKNOWN_TERM = 0

#: An offset behind all others.
END_OF_OFFSETS = 1 << 62

#: Holes that one group gets because of unreadable places whose records are not known: each takes
#: memory, a question to other members, and time whenever missing records are compared.  A start
#: counts more possible indexes as uncopied, which are asked for in ranges.
HOLES_MAX = 1 << 12

TermRuns = Sequence[tuple[int, int]]


class EntryPlace(NamedTuple):
    """Identity and place of an entry of a log."""

    term: int
    position: int  # of the journal, or the place in a cold segment
    size: int  # framed


class FileRange(NamedTuple):
    """Range of indexes for which the index file of a segment answers."""

    first: int
    last: int
    segment: IndexedSegment


class CopiedRange(NamedTuple):
    """Range of indexes of one source, for which the index file of a cold segment is to answer."""

    first: int
    last: int
    segment: IndexedSegment | None  # whose index file answers so far; None = memory does


class CompactedPart(NamedTuple):
    """Last compaction by key that was carried out in one partition."""

    generation: int  # 0 = it may not be complete any longer, because the log was replaced
    up_to: int  # of the compact entry
    sources: tuple[int, ...]  # starts of the segments from which survivors were copied


class Unreadable(NamedTuple):
    """Indexes of which no record, or not each, can be read."""

    missing: Sequence[int]  # ascending
    uncopied: UncopiedRanges

    def first_in(self, first: int, last: int) -> int:
        """Return the lowest missing or uncopied index in [first, last]; 0 = none.  O(log missing +
        log ranges)."""
        known, uncopied = self.missing, self.uncopied.first_in(first, last)
        at = bisect_left(known, first)
        if at == len(known) or known[at] > last:
            return uncopied
        return min(known[at], uncopied or known[at])

    def with_missing(self, indexes: Iterable[int]) -> Unreadable:
        """Return these indexes and others that are missing.  O(missing log missing)."""
        return self._replace(missing=sorted({*self.missing, *indexes}))

    def is_missing(self, index: int) -> bool:
        """Return True if the record of an index cannot be read.  O(log missing)."""
        at = bisect_left(self.missing, index)
        return at < len(self.missing) and self.missing[at] == index


class MissingRecord(NamedTuple):
    """Place of a record, or of a hole, that cannot be read."""

    position: int  # of the journal, or the place in a cold segment; 0 = unknown
    size: int  # framed; 0 = unknown


def _first(found: FileRange) -> int:
    return found.first


def _last(found: FileRange) -> int:
    return found.last


def term_in(runs: TermRuns, index: int) -> int:
    """Return the term of an index in runs of (first index, term), ``UNKNOWN_TERM`` before the first
    run.  O(log runs)."""
    at = bisect_right(runs, (index, 1 << 64)) - 1
    return runs[at][1] if at >= 0 else UNKNOWN_TERM


def terms_agree(true: TermRuns, raft_start: int, first: int, last: int, terms: TermRuns) -> bool:
    """Return True if entries first..last, with runs of these ``terms``, are the committed ones of
    their indexes, and a record may be among them.  ``true``: the terms from the first record up to
    the Raft start.

    Entries of a segment that were truncated later have other terms, and entries at or above the
    Raft start may be truncated yet.  Before the first record no terms are known, and none are
    needed: with the entry of a term, a log has all that its leader had before it (Log Matching).
    O(runs log runs)."""
    begin = max(first, true[0][0]) if true else raft_start
    if not begin <= last < raft_start:
        return False
    starts = {begin, *(start for start, _ in [*true, *terms] if begin < start <= last)}
    return all(term_in(terms, start) == term_in(true, start) != UNKNOWN_TERM for start in starts)


def with_term(runs: Iterable[tuple[int, int]], index: int, term: int,
              end: int) -> list[tuple[int, int]]:
    """Return runs that end before index ``end``, with another term for one index.  O(runs)."""
    known = list(runs)
    behind = term_in(known, index + 1)
    changed = [run for run in known if run[0] not in (index, index + 1)]
    changed.append((index, term))
    if index + 1 < end:
        changed.append((index + 1, behind))
    return _joined(sorted(changed))


def _dense(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the (first, last) of runs of indexes without gaps.  O(runs log n)."""
    at = 0
    while at < len(indexes):
        first = indexes[at]
        # Within a run, index - slot is the same, and behind it only larger.
        end = bisect_right(range(len(indexes)), first - at, at,
                           key=lambda slot: indexes[slot] - slot)
        yield first, indexes[end - 1]
        at = end


def _delete_runs(column: array, runs: Sequence[tuple[int, int]]) -> None:
    """Delete runs of slots, [begin, end), ascending.  O(runs + moved bytes)."""
    if len(runs) == 1:
        del column[runs[0][0]:runs[0][1]]
    elif runs:
        kept, at = array(column.typecode), 0
        for begin, end in runs:
            kept.extend(column[at:begin])
            at = end
        kept.extend(column[at:])
        column[:] = kept


def terms_from(runs: TermRuns, index: int) -> list[tuple[int, int]]:
    """Return the runs of the indexes from ``index`` on.  O(runs)."""
    behind = [run for run in runs if run[0] > index]
    return [(index, term_in(runs, index)), *behind]


def runs_fault(runs: TermRuns, first: int, end: int) -> str:
    """Return why pairs of numbers are no runs of terms of the indexes from ``first`` up to ``end``
    (exclusive); empty if they are.  O(runs)."""
    starts = [start for start, _ in runs]
    if not starts:
        return f"no terms from index {first} up to {end}" if first < end else ""
    if starts[0] != first or starts[-1] >= end:
        return f"terms from index {starts[0]} to {starts[-1]}, expected {first} up to {end}"
    if any(a >= b for a, b in zip(starts, starts[1:])):
        return "the indexes of the terms do not ascend"
    return ""


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs without those that repeat the term of the run before."""
    joined: list[tuple[int, int]] = []
    for start, term in runs:
        if not joined or joined[-1][1] != term:
            joined.append((start, term))
    return joined


class RecordTotals(NamedTuple):
    """Number of some records, and their framed bytes."""

    count: int  # type: ignore[assignment]
    bytes: int

    def without(self, dropped_bytes: int) -> RecordTotals:
        """Return the totals after records of about ``dropped_bytes`` are gone."""
        if dropped_bytes >= self.bytes:
            return NO_RECORDS
        return RecordTotals(self.count - self.count * dropped_bytes // self.bytes,
                            self.bytes - dropped_bytes)


NO_RECORDS = RecordTotals(0, 0)


@final
class RecordStore:
    """Places of the kept records of one group, by index."""

    __slots__ = ("bytes", "in_files", "changes", "uncopied", "unneeded", "repaired", "compacted",
                 "_indexes", "_positions", "_sizes", "_terms", "_missing", "_missing_sorted",
                 "_ranges")

    def __init__(self) -> None:
        self.bytes = 0  # framed, of the records whose places are in memory
        self.in_files = NO_RECORDS  # of the others, about
        self.changes = 0  # of places of single records
        self._indexes = array("Q")
        self._positions = array("Q")
        self._sizes = array("I")
        #: (first index, term), ascending, from the first needed index up to the Raft start.
        self._terms: list[tuple[int, int]] = []
        self._missing: dict[int, MissingRecord] = {}
        self._missing_sorted: list[int] | None = None  # None = to be sorted anew
        self.uncopied = UncopiedRanges()
        self.unneeded = UnneededIndexes()
        self.repaired = RepairedIndexes()  # also of the Raft log, none of installed ranges
        self._ranges: list[FileRange] = []  # ascending, disjoint
        self.compacted: dict[int, CompactedPart] = {}  # by partition

    def __len__(self) -> int:
        """Return the number of records whose places are in memory."""
        return len(self._indexes)

    def __bool__(self) -> bool:
        return bool(self._indexes) or bool(self._missing) or bool(self.uncopied) or bool(
            self._ranges)

    @property
    def is_complete(self) -> bool:
        """True if no record is missing or may be uncopied."""
        return not self._missing and not self.uncopied

    # ---- changes -------------------------------------------------------------------------------

    def take_over(self, log: GroupIndex, first_index: int, kept: Sequence[int],
                  missing: Mapping[int, MissingRecord], terms: TermRuns) -> None:
        """Add the entries ``kept``, ascending, of a Raft log whose start rises to ``first_index``.

        ``missing``: those of them, and holes, that cannot be read; ``terms``: of the indexes from
        the log's present start on.  O(kept + runs + missing)."""
        assert not self._indexes or not kept or self._indexes[-1] < kept[0]
        self._indexes.extend(kept)
        for first, last in _dense(kept):
            positions, sizes = log.columns(first, last)
            self._positions.extend(positions)
            self._sizes.extend(sizes)
            self.bytes += sum(sizes)
        self._terms = _joined([*self._terms, *(run for run in terms if run[0] < first_index)])
        for index, place in missing.items():
            self.set_missing(index, place)
        self._drop_terms(first_index)

    def install(self, terms: TermRuns, first_index: int, first_uncopied: int, last: int) -> None:
        """Continue behind an installed snapshot, whose applied index is ``last`` and which needs no
        index below ``first_index``: the indexes from ``first_uncopied`` on are uncopied.

        ``terms``: of all indexes from the first record on.  O(missing + runs)."""
        for index in [index for index in self._missing if index < first_index]:
            if index not in self:
                self.forget_missing(index)
        self.uncopied.drop_below(first_index)
        self.uncopied.add(first_uncopied, last)
        self.set_terms(terms, last + 1)

    def set_terms(self, terms: TermRuns, raft_start: int) -> None:
        """Set the terms of all indexes from the first record on up to the Raft start.  O(runs)."""
        self._terms = _joined(terms)
        self._drop_terms(raft_start)

    def add(self, copies: Sequence[Copy], raft_start: int) -> None:
        """Add records that were copied, ascending by index, none of which is here.  O(n) for each
        place at which some of them belong."""
        for copy in copies:
            if self.term(copy.index) == UNKNOWN_TERM:
                self._terms = with_term(self._terms, copy.index, copy.term, raft_start)
        at = 0
        while at < len(copies):
            slot = bisect_left(self._indexes, copies[at].index)
            following = self._indexes[slot] if slot < len(self._indexes) else 1 << 64
            end = bisect_left(copies, following, at, key=attrgetter("index"))
            assert end > at, f"record {following} is known"
            added = copies[at:end]
            self._indexes[slot:slot] = array("Q", [copy.index for copy in added])
            self._positions[slot:slot] = array("Q", [copy.position for copy in added])
            self._sizes[slot:slot] = array("I", [copy.size for copy in added])
            self.bytes += sum(copy.size for copy in added)
            at = end

    def copied(self, first: int, last: int, lacking: Sequence[tuple[int, int]],
               raft_start: int) -> None:
        """Count the indexes first..last as copied.  Of the ranges ``lacking`` in the copies those
        of one index become missing, the others stay uncopied.  O(ranges)."""
        for index, end in lacking:
            if (index == end and index not in self and index not in self.unneeded
                    and self.uncopied.first_in(index, index)):
                self.lose_hole(index)
        self.uncopied.remove(first, last, [each for each in lacking if each[0] < each[1]])
        self._drop_terms(raft_start)

    def replace(self, index: int, term: int, position: int, size: int, raft_start: int) -> None:
        """Set place and term of a record, which is added if it was a hole, and count it as intact.
        O(records) when it was a hole, O(log n) else."""
        self.changes += 1
        slot = bisect_left(self._indexes, index)
        if slot == len(self._indexes) or self._indexes[slot] != index:
            self._indexes.insert(slot, index)
            self._positions.insert(slot, position)
            self._sizes.insert(slot, size)
            self.bytes += size
        else:
            self.bytes += size - self._sizes[slot]
            self._positions[slot], self._sizes[slot] = position, size
        if self.term(index) != term:
            self._terms = with_term(self._terms, index, term, raft_start)
        self.forget_missing(index)

    def move(self, index: int, position: int, size: int) -> None:
        """Set the place of a record to that of its copy, which compaction may have made smaller or
        larger, and count it as intact.  O(log n)."""
        slot = bisect_left(self._indexes, index)
        assert self._indexes[slot] == index, f"{index} is no record"
        self.changes += 1
        self.bytes += size - self._sizes[slot]
        self._positions[slot], self._sizes[slot] = position, size
        self.forget_missing(index)

    def take_moved(self, copies: Sequence[Copy]) -> None:
        """Set the places of records, ascending by index, which were in index files alone.  Their
        terms are known.  O(log n + records in memory with indexes between + moved bytes)."""
        if not copies:
            return
        low = bisect_left(self._indexes, copies[0].index)
        high = bisect_right(self._indexes, copies[-1].index)
        between = zip(self._indexes[low:high], self._positions[low:high], self._sizes[low:high])
        merged = sorted([*between, *((each.index, each.position, each.size) for each in copies)])
        for column, slot in ((self._indexes, 0), (self._positions, 1), (self._sizes, 2)):
            column[low:high] = array(column.typecode, [each[slot] for each in merged])
        moved_bytes, known = sum(each.size for each in copies), self.in_files
        self.bytes += moved_bytes
        self.in_files = RecordTotals(max(0, known.count - len(copies)),
                                     max(0, known.bytes - moved_bytes))
        self.changes += 1

    def join(self, places: Mapping[int, tuple[int, int]], terms: TermRuns,
             raft_start: int) -> None:
        """Set position and size of records, by index, and add those that are not here.  Missing
        ones stay missing.  ``terms``: of the indexes below those whose terms are known.
        O(records log records)."""
        joined = dict(zip(self._indexes, zip(self._positions, self._sizes)))
        joined.update(places)
        ordered = sorted(joined)
        self._indexes = array("Q", ordered)
        self._positions = array("Q", [joined[index][0] for index in ordered])
        self._sizes = array("I", [joined[index][1] for index in ordered])
        self.bytes = sum(self._sizes)
        self.changes += 1
        self.restore_terms(terms, raft_start)

    def restore_terms(self, terms: TermRuns, raft_start: int) -> None:
        """Add the ``terms`` of indexes below those whose terms are known, because records or holes
        below them were added.  O(runs)."""
        first = self._terms[0][0] if self._terms else raft_start
        self._terms = _joined([*(run for run in terms if run[0] < first), *self._terms])
        self._drop_terms(raft_start)

    def remove(self, indexes: Collection[int], raft_start: int) -> int:
        """Remove records, missing ones too, and return their framed bytes.  O(removed log n + moved
        bytes)."""
        if not indexes:
            return 0
        runs: list[tuple[int, int]] = []  # of slots that go
        for index in sorted(indexes):
            slot = bisect_left(self._indexes, index, runs[-1][1] if runs else 0)
            if slot < len(self._indexes) and self._indexes[slot] == index:
                if runs and runs[-1][1] == slot:
                    runs[-1] = runs[-1][0], slot + 1
                else:
                    runs.append((slot, slot + 1))
        removed_bytes = sum(sum(self._sizes[begin:end]) for begin, end in runs)
        for column in (self._indexes, self._positions, self._sizes):
            _delete_runs(column, runs)
        self.bytes -= removed_bytes
        for index in self._missing.keys() & set(indexes):
            self.forget_missing(index)
        self.repaired.remove(indexes)
        self._drop_terms(raft_start)
        return removed_bytes

    def lose(self, index: int, place: MissingRecord | None = None) -> bool:
        """Count a record as missing, because it cannot be read.  Return False if it was.

        ``place``: of a record whose place is in an index file alone; it is in memory from now
        on."""
        if index in self._missing:
            return False
        self.changes += 1
        if index not in self:
            assert place is not None, f"record {index} is in no index file"
            slot = bisect_left(self._indexes, index)
            self._indexes.insert(slot, index)
            self._positions.insert(slot, place.position)
            self._sizes.insert(slot, place.size)
            self.bytes += place.size
        known = self.locate(index)
        self.set_missing(index, MissingRecord(known.position, known.size))
        return True

    def forget_missing(self, index: int) -> None:
        """Count a record as intact, or a hole as an entry that is no record."""
        if self._missing.pop(index, None) is not None:
            self._missing_sorted = None

    def can_take(self, first: int, last: int, terms: TermRuns, raft_start: int) -> bool:
        """Return True if the entries first..last of a segment, with runs of these ``terms``, are
        the committed ones, and no other segment's index file answers for one of them.

        A record whose place is in a cold segment has left the segment: the index file would answer
        for it once more, and keep the segment.  O(runs + segments + records first..last)."""
        positions = self._positions[bisect_left(self._indexes, first):
                                    bisect_right(self._indexes, last)]
        return (terms_agree(self._terms, raft_start, first, last, terms)
                and not any(first <= each.last and each.first <= last for each in self._ranges)
                and not is_cold(max(positions, default=0)))

    def take_file(self, first: int, last: int, segment: IndexedSegment) -> None:
        """Let the index file of a segment answer for the records first..last, as far as they stand
        in the segment and are not missing.  O(records that go)."""
        self.let_go(first, last, segment)
        self.add_file(first, last, segment)

    def add_file(self, first: int, last: int, segment: IndexedSegment) -> None:
        """Let the index file of a segment answer for the indexes first..last, for which no other
        does.  Records in memory count first.  O(ranges)."""
        insort(self._ranges, FileRange(first, last, segment), key=_first)

    def let_go(self, first: int, last: int, segment: IndexedSegment) -> None:
        """Forget the places of the records first..last that stand in a segment and are not missing,
        because its index file answers for them.  O(records that go)."""
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        count, size = len(self._indexes), self.bytes
        for slot in reversed([low - 1, *self.slots_kept(first, last, segment)]):
            self.bytes -= sum(self._sizes[slot + 1:high])
            for column in (self._indexes, self._positions, self._sizes):
                del column[slot + 1:high]
            high = slot
        known = self.in_files
        self.in_files = RecordTotals(known.count + count - len(self._indexes),
                                     known.bytes + size - self.bytes)

    def slots_kept(self, first: int, last: int, segment: IndexedSegment) -> list[int]:
        """Return the slots of those of the records first..last, ascending, whose places stay in
        memory when the index file of ``segment`` answers for the others: copies and missing
        ones."""
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        positions, missing = self._positions[low:high], self._missing
        begin, end = segment.segment.start, segment.segment.end
        if not missing and (low == high or begin <= min(positions) <= max(positions) < end):
            return []
        return [slot for slot, position in enumerate(positions, low)
                if not begin <= position < end or self._indexes[slot] in missing]

    def kept_in_memory(self, first: int, last: int, segment: IndexedSegment) -> list[int]:
        """Return the indexes of the records in ``slots_kept``."""
        return [self._indexes[slot] for slot in self.slots_kept(first, last, segment)]

    def file_from(self, index: int) -> FileRange | None:
        """Return the first range of indexes for which an index file answers and that ends at
        ``index`` or behind; None = there is none.  O(log segments)."""
        at = bisect_left(self._ranges, index, key=_last)
        return self._ranges[at] if at < len(self._ranges) else None

    def ranges_within(self, first: int, last: int) -> list[FileRange]:
        """Return the ranges of indexes for which index files answer, as far as an index of them is
        in [first, last].  O(log ranges + result)."""
        at = bisect_left(self._ranges, first, key=_last)
        return self._ranges[at:bisect_right(self._ranges, last, key=_first)]

    def ranges_of(self, segment: IndexedSegment) -> list[tuple[int, int]]:
        """Return the ranges for which the index file of a segment answers.  O(ranges)."""
        return [(each.first, each.last) for each in self._ranges if each.segment is segment]

    def is_in_file(self, segment: IndexedSegment, first: int, last: int) -> bool:
        """Return True if the index file of a segment answers for an index in [first, last].  O(log
        ranges + ranges there)."""
        return any(each.segment is segment for each in self.ranges_within(first, last))

    def is_in_memory(self, first: int, last: int) -> bool:
        """Return True if memory alone has the records with an index in [first, last], and there are
        some: no index file answers for such an index, and none is uncopied.  O(log n)."""
        at = bisect_left(self._indexes, first)
        return (at < len(self._indexes) and self._indexes[at] <= last
                and not self.ranges_within(first, last) and not self.uncopied.first_in(first, last))

    def replace_files(self, ranges: Iterable[CopiedRange], added: IndexedSegment | None,
                      raft_start: int) -> None:
        """Let the index file of a cold segment answer instead of others for their ``ranges``; None
        = all records there have places in memory.  O(ranges)."""
        gone = {each.first for each in ranges}
        self._ranges = [each if added is None or each.first not in gone
                        else each._replace(segment=added)
                        for each in self._ranges if added is not None or each.first not in gone]
        self._drop_terms(raft_start)

    def needed_from(self, partition: int, start: int, log_start: int) -> int:
        """Return the offset from which on the batches of a partition are needed in the segment that
        begins at ``start``: the log start, or behind all of them if compaction has copied from it
        what survives.  O(sources of the partition)."""
        part = self.compacted.get(partition)
        return END_OF_OFFSETS if part is not None and start in part.sources else log_start

    def restore(self, terms: TermRuns, ranges: Iterable[FileRange], raft_start: int) -> None:
        """Set the terms, and add ranges of segments whose index files answer.  O(terms + ranges log
        ranges)."""
        self._ranges = sorted([*self._ranges, *ranges], key=_first)
        self._terms = list(terms)
        self._drop_terms(raft_start)

    def forget_file(self, segment: IndexedSegment, raft_start: int) -> None:
        """Forget the range of a segment, in which no record is left.  O(segments)."""
        kept = [each for each in self._ranges if each.segment is not segment]
        if len(kept) != len(self._ranges):
            self._ranges = kept
            self._drop_terms(raft_start)

    def lose_file(self, segment: IndexedSegment, position: int, raft_start: int) -> None:
        """Forget the ranges of a segment whose index file cannot be read, and count the indexes in
        them as missing whose place is not in memory.  ``position``: a place in the segment, which
        is not removed before they are found.  O(indexes + segments)."""
        place = MissingRecord(position, 0)
        for first, last in self.ranges_of(segment):
            for index in range(max(first, self._terms[0][0]), last + 1):
                if (index not in self and index not in self._missing
                        and index not in self.unneeded):
                    self.set_missing(index, place)
        self.forget_file(segment, raft_start)

    def set_missing(self, index: int, place: MissingRecord) -> None:
        """Count a record, or an index that is a hole then, as missing."""
        self._missing[index] = place
        self._missing_sorted = None

    def lose_hole(self, index: int) -> None:
        """Count the entry of an index as missing that is no record here, and may be one."""
        self.set_missing(index, MissingRecord(UNKNOWN_POSITION, 0))

    @property
    def first_needed(self) -> int:
        """The first index that is or may be kept, is missing or uncopied; 0 = none.  O(missing log
        missing)."""
        others = [first for first, _ in self.uncopied.ranges[:1]]
        # Entries of a segment may begin before the first record, where no terms are known.
        others += [max(each.first, self._terms[0][0]) for each in self._ranges[:1]]
        return min([*self._indexes[:1], *self._missing_in_order()[:1], *others], default=0)

    def drop_unneeded(self, raft_start: int) -> None:
        """Forget indexes without records that the next start cannot miss, and repaired ones that
        nothing needs.  O(missing log missing) if there are any.  To be called once a start has
        joined all records."""
        if self.unneeded.ranges or self.repaired.ranges:
            first = self.first_needed or raft_start
            self.unneeded.drop_below(first)
            self.repaired.drop_below(first)

    def _drop_terms(self, raft_start: int) -> None:
        """Drop the terms before the first index that is kept, missing or uncopied."""
        first = self.first_needed or raft_start
        runs = [run for run in self._terms if run[0] > first]
        if first < raft_start:
            runs.insert(0, (first, self.term(first)))
        self._terms = runs if first < raft_start else []

    # ---- queries -------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[tuple[int, int], ...]:
        """Terms of all indexes from the first one that is kept or missing up to the Raft start, as
        runs of (first index, term)."""
        return tuple(self._terms)

    @property
    def missing(self) -> Mapping[int, MissingRecord]:
        """Records and holes that cannot be read, by index."""
        return self._missing

    def __contains__(self, index: object) -> bool:
        """Return True if the entry of that index is a record, readable or missing, whose place is
        in memory.  O(log n)."""
        assert isinstance(index, int)
        slot = bisect_left(self._indexes, index)
        return slot < len(self._indexes) and self._indexes[slot] == index

    def in_file(self, index: int) -> IndexedSegment | None:
        """Return the segment whose index file tells if the entry of that index is a record, and
        where; None = it is no record, or its place is in memory.  O(log n)."""
        at = bisect_right(self._ranges, index, key=_first) - 1
        if at < 0 or index > self._ranges[at].last or index in self:
            return None
        return self._ranges[at].segment

    def holds(self, index: int, term: int) -> bool:
        """Return True if there is a record of that index and term, readable or missing, whose place
        is in memory; with ``UNKNOWN_TERM``, of that index.  O(log n)."""
        return index in self and term in (UNKNOWN_TERM, self.term(index))

    def term(self, index: int) -> int:
        """Return the term of an index below the Raft start; ``UNKNOWN_TERM`` = not known."""
        return term_in(self._terms, index)

    def locate(self, index: int) -> EntryPlace:
        """Return where a record is, readable or missing.  O(log n).  Raise ``Compacted`` for an
        index without a record whose place is in memory."""
        slot = bisect_left(self._indexes, index)
        if slot == len(self._indexes) or self._indexes[slot] != index:
            raise Compacted(f"index {index} is below the Raft start and no record")
        return EntryPlace(self.term(index), self._positions[slot], self._sizes[slot])

    def size(self, index: int) -> int:
        """Return the framed bytes of a record.  O(log n).  Raise ``Compacted`` for an index without
        a record."""
        return self.locate(index).size

    def indexes_within(self, begin: int, end: int) -> list[int]:
        """Return the records that begin in [begin, end) of the journal, without those whose places
        are in index files alone.  O(records)."""
        return [self._indexes[slot] for slot, position in enumerate(self._positions)
                if begin <= position < end]

    def places_within(self, begin: int, end: int, first: int,
                      last: int) -> tuple[array[int], array[int], array[int]]:
        """Return indexes, positions and sizes of the records that begin in [begin, end) of the
        journal, or of cold places, and have an index in [first, last].  O(log n + records with such
        an index)."""
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        positions = self._positions[low:high]
        if positions and begin <= min(positions) and max(positions) < end:  # as a rule
            return self._indexes[low:high], positions, self._sizes[low:high]
        slots = [slot for slot, position in enumerate(positions, low) if begin <= position < end]
        return (array("Q", [self._indexes[slot] for slot in slots]),
                array("Q", [self._positions[slot] for slot in slots]),
                array("I", [self._sizes[slot] for slot in slots]))

    def places_from(self, first: int, last: int) -> tuple[array[int], array[int], array[int]]:
        """Return indexes, positions and sizes of the records with an index in [first, last] whose
        places are in memory.  O(result)."""
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        return self._indexes[low:high], self._positions[low:high], self._sizes[low:high]

    def indexes_from(self, first: int, last: int) -> array[int]:
        """Return the records with an index in [first, last] whose places are in memory.
        O(result)."""
        return self._indexes[bisect_left(self._indexes, first):bisect_right(self._indexes, last)]

    def has_lost_within(self, begin: int, end: int) -> bool:
        """Return True if a missing record, or a hole of known place, begins in [begin, end) of the
        journal, or of cold places.  O(missing)."""
        return any(begin <= missing.position < end for missing in self._missing.values())

    def stand_within(self, begin: int, end: int, first: int, last: int) -> bool:
        """Return True if a record, or a hole of known place, begins in [begin, end) of the journal
        and has an index in [first, last].  O(log n + records with such an index + missing)."""
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        return any(begin <= position < end for position in self._positions[low:high]) or any(
            begin <= missing.position < end for missing in self._missing.values())

    def first_missing(self, first: int, last: int) -> int:
        """Return the lowest missing or uncopied index in [first, last]; 0 = none.  O(log
        missing)."""
        return Unreadable(self._missing_in_order(), self.uncopied).first_in(first, last)

    def unreadable(self) -> Unreadable:
        """Return the indexes that cannot be read now.  O(missing + ranges)."""
        return Unreadable(tuple(self._missing_in_order()), UncopiedRanges(self.uncopied.ranges))

    def missing_within(self, first: int, last: int) -> list[int]:
        """Return the missing indexes in [first, last], ascending.  O(result)."""
        known = self._missing_in_order()
        return known[bisect_left(known, first):bisect_right(known, last)]

    def within(self, first: int, last: int, bytes_max: int) -> tuple[list[int], int]:
        """Return the first readable records in [first, last] that have at most ``bytes_max`` framed
        bytes, at least one, and the index up to which they are all; only those whose places are in
        memory.  O(result + missing there)."""
        slot, total = bisect_left(self._indexes, first), 0
        found: list[int] = []
        while slot < len(self._indexes) and self._indexes[slot] <= last:
            index = self._indexes[slot]
            if index not in self._missing:
                total += self._sizes[slot]
                if found and total > bytes_max:
                    return found, index - 1
                found.append(index)
            slot += 1
        return found, last

    def missing_behind(self, index: int, count_max: int) -> list[int]:
        """Return up to ``count_max`` missing indexes behind ``index``, ascending.  O(count)."""
        known = self._missing_in_order()
        at = bisect_right(known, index)
        return known[at:at + count_max]

    def missing_ranges(self) -> list[tuple[int, int]]:
        """Return the journal ranges of the missing records and holes whose place in the journal is
        known.  O(missing)."""
        return [(position, position + size) for position, size in self._missing.values()
                if position != UNKNOWN_POSITION and size and not is_cold(position)]

    def _missing_in_order(self) -> list[int]:
        if self._missing_sorted is None:
            self._missing_sorted = sorted(self._missing)
        return self._missing_sorted

    def _check(self, raft_start: int) -> None:
        """Assert every invariant.  O(n)."""
        assert len(self._indexes) == len(self._positions) == len(self._sizes)
        assert self.bytes == sum(self._sizes), f"{self.bytes} bytes, {sum(self._sizes)} expected"
        assert all(a < b for a, b in zip(self._indexes, self._indexes[1:]))
        assert not self._indexes or self._indexes[-1] < raft_start
        assert all(0 < index < raft_start for index in self._missing), f"{self._missing}"
        self.uncopied._check()
        self.unneeded._check()
        self.repaired._check()
        assert all(last < raft_start for _, last in self.uncopied.ranges)
        assert all(a[0] < b[0] and a[1] != b[1] for a, b in zip(self._terms, self._terms[1:]))
        assert not self._terms or self._terms[-1][0] < raft_start
        assert not self.first_needed or self._terms[0][0] <= self.first_needed
        assert self.first_needed or not self._terms, f"terms {self._terms} of nothing"
        ranges = self._ranges
        assert all(each.first <= each.last < raft_start for each in ranges)
        assert all(a.last < b.first for a, b in zip(ranges, ranges[1:]))
