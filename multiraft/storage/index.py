"""Packed indexes: where an entry of a group lies in the journal, which entry holds an offset.

Contract.  Parallel arrays, no Python object per entry: 16 bytes per entry in ``GroupIndex``, 24 per
batch in ``PartitionIndex``.  Appended when an entry is staged, truncated with the log; both
amortised O(1), look-ups O(log n).  The same classes hold one segment's part (``segment_index.py``)
and a node's whole: recovery joins parts with ``extend``.

Invariants.  Indexes of a group's Raft log are dense; those of the records below its start, which
``record_store.py`` keeps, are not.  Terms do not fall; sizes add up in ``_ends``.  Offsets of a
partition ascend with their indexes, of records and of the log; they have a gap where the partition
was in another group between, or where a batch is lost.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, sub
from typing import NamedTuple

from multiraft.codec import layout
from multiraft.errors import Compacted
from multiraft.storage.block_index.lookup import Blocks, PlaceInFile
from multiraft.storage.block_index.partition_rows import PartitionRows
from multiraft.types import Entry

assert sys.byteorder == "little", "index files hold the arrays' own little-endian bytes"
assert array("Q").itemsize == 8, "index files hold 64-bit numbers"


#: Position of an entry that is known to exist and is lost: no entry stands at a journal's first
#: byte.
UNKNOWN_POSITION = 0


class Copy(NamedTuple):
    """An entry that was written once more because its first place is damaged."""

    index: int  # type: ignore[assignment]  # 0 = it was truncated since
    term: int
    position: int
    size: int
    damaged_position: int  # of the damaged entry; 0 = unknown
    damaged_size: int
    partition: int = 0  # of a batch, with what its partition's index says of it
    base_offset: int = -1
    count: int = 0  # type: ignore[assignment]
    max_timestamp_ms: int = -1

    @classmethod
    def of(cls, entry: Entry, position: int, size: int, damaged_position: int,
           damaged_size: int) -> Copy:
        """Return the copy of an entry that was written at a journal position."""
        copy = cls(entry.index, entry.term, position, size, damaged_position, damaged_size)
        batch = entry.batch
        if batch is None:
            return copy
        return copy._replace(partition=entry.partition, base_offset=entry.base_offset,
                             count=batch.count, max_timestamp_ms=batch.max_timestamp_ms)


class GroupIndex:
    """(group, index) -> journal position and framed size, terms as runs."""

    __slots__ = ("first_index", "prev_term", "_positions", "_ends", "_base", "_run_starts",
                 "_run_terms")

    def __init__(self, first_index: int = 1, prev_term: int = 0):
        self.first_index = first_index
        self.prev_term = prev_term  # term of first_index - 1
        self._positions = array("Q")
        self._ends = array("Q")  # framed bytes of the entries up to and including this one
        self._base = 0  # framed bytes of the entries that were compacted
        self._run_starts: list[int] = []  # first index of each run of equal terms, ascending
        self._run_terms: list[int] = []

    def __len__(self) -> int:
        return len(self._positions)

    def __bool__(self) -> bool:
        return bool(self._positions)

    @property
    def last_index(self) -> int:
        return self.first_index + len(self._positions) - 1

    @property
    def has_unknown_position(self) -> bool:
        """Return True if the position of an entry is unknown.  O(n)."""
        return UNKNOWN_POSITION in self._positions

    def with_unknown_position(self) -> Iterator[int]:
        """Yield the indexes of the entries whose position is unknown.  O(n)."""
        at = -1
        for _ in range(self._positions.count(UNKNOWN_POSITION)):
            at = self._positions.index(UNKNOWN_POSITION, at + 1)
            yield self.first_index + at

    @property
    def last_term(self) -> int:
        return self._run_terms[-1] if self._run_terms else self.prev_term

    def append(self, index: int, term: int, position: int, size: int) -> None:
        """Append the next entry.  ``size``: header, payload and padding."""
        positions, ends, terms = self._positions, self._ends, self._run_terms
        assert index == self.first_index + len(positions), f"{index} after {self.last_index}"
        if not terms or term != terms[-1]:
            assert term >= self.last_term, f"term {term} after {self.last_term}"
            self._run_starts.append(index)
            terms.append(term)
        ends.append((ends[-1] if ends else self._base) + size)
        positions.append(position)

    def append_next(self, index: int, term: int, position: int, size: int) -> bool:
        """Append an entry if it follows the last one, with a term not below that one's, and return
        True.

        Return False, and change nothing, otherwise, and always while the index is empty."""
        positions, ends, terms = self._positions, self._ends, self._run_terms
        if not terms or index != self.first_index + len(positions) or term < terms[-1]:
            return False
        if term != terms[-1]:
            self._run_starts.append(index)
            terms.append(term)
        ends.append(ends[-1] + size)
        positions.append(position)
        return True

    def append_placeholders(self, first: int, term: int = 0) -> None:
        """Add entries up to ``first`` (exclusive) that existed and are not there.  They get a term,
        at least that of the last entry, an unknown position and the size of an empty entry."""
        begin, size = self.last_index + 1, layout.ENTRY_HEADER_BYTES
        if begin >= first:
            return
        self.append(begin, max(term, self.last_term), UNKNOWN_POSITION, size)
        count, end = first - begin - 1, self._ends[-1]
        self._positions.extend(array("Q", bytes(8 * count)))
        self._ends.extend(range(end + size, end + size * count + 1, size))

    def replace(self, index: int, position: int, size: int) -> None:
        """Set another position and size of an entry.  O(1), O(n) when its size differs."""
        slot, ends = self._slot(index), self._ends
        change = size - self.size(index)
        self._positions[slot] = position
        if change:
            for at in range(slot, len(ends)):
                ends[at] += change

    def set_term(self, index: int, term: int, until: int) -> None:
        """Set the term of a lost entry, and of the entries behind it up to ``until`` (exclusive),
        which are lost too and whose terms were guesses. O(elections)."""
        runs = [(start, value) for start, value in self.term_runs() if not index <= start <= until]
        at = bisect_left(runs, (index, 0))
        if not at or runs[at - 1][1] != term:
            runs.insert(at, (index, term))
            at += 1
        if until <= self.last_index and (behind := self.term(until)) != term:
            runs.insert(at, (until, behind))
        self._run_starts, self._run_terms = map(list, zip(*runs))

    def indexes_within(self, begin: int, end: int) -> list[int]:
        """Return the indexes of the entries that begin in [begin, end) of the journal.  O(n)."""
        return [slot + self.first_index for slot, position in enumerate(self._positions)
                if begin <= position < end]

    def holds(self, index: int, term: int) -> bool:
        """Return True if the log has the entry of that index and term, readable or not.  O(log
        n)."""
        return self.first_index <= index <= self.last_index and self.term(index) == term

    def first_conflict(self, index: int, term: int) -> int:
        """Return the first index that must have been truncated before an entry of ``index`` and
        ``term`` was appended.

        That is ``index`` itself, or the first entry of a later term; the last index + 1 = none.
        O(log elections)."""
        run = bisect_right(self._run_terms, term)
        later = self._run_starts[run] if run < len(self._run_starts) else self.last_index + 1
        return min(index, later)

    def extend(self, later: GroupIndex) -> None:
        """Append the entries of ``later``, whose first one follows this index's last.
        O(len(later))."""
        assert later.first_index == self.last_index + 1, (
            f"{later.first_index} after {self.last_index}")
        base = (self._ends[-1] if self._ends else self._base) - later._base
        self._ends.extend(array("Q", [end + base for end in later._ends]) if base else later._ends)
        self._positions.extend(later._positions)
        for start, term in zip(later._run_starts, later._run_terms):
            if term != self.last_term or not self._run_terms:
                self._run_starts.append(start)
                self._run_terms.append(term)

    def truncate(self, first_removed: int) -> None:
        """Remove the entry ``first_removed`` and all behind it; do nothing if the index ends
        before."""
        kept = max(0, first_removed - self.first_index)
        del self._positions[kept:]
        del self._ends[kept:]
        runs = bisect_left(self._run_starts, self.first_index + kept)
        del self._run_starts[runs:]
        del self._run_terms[runs:]

    def compact(self, first_index: int) -> None:
        """Remove the entries below ``first_index``, which is at most the last index + 1; do nothing
        if the index begins there or later.  O(entries that remain)."""
        gone = first_index - self.first_index
        if gone <= 0:
            return
        assert gone <= len(self._positions), f"{first_index} after {self.last_index}"
        self.prev_term, self._base = self.term(first_index - 1), self._ends[gone - 1]
        del self._positions[:gone]
        del self._ends[:gone]
        kept = bisect_right(self._run_starts, first_index) - 1
        del self._run_starts[:kept]
        del self._run_terms[:kept]
        self.first_index = first_index
        if self._positions:
            self._run_starts[0] = first_index
        else:
            self._run_starts, self._run_terms = [], []

    def position(self, index: int) -> int:
        return self._positions[self._slot(index)]

    def size(self, index: int) -> int:
        """Return the framed bytes of one entry. Raise ``Compacted`` for an index below the
        first."""
        return self.bytes_between(index, index)

    def term(self, index: int) -> int:
        """Return the term of an entry, or of the one before the first. Raise ``Compacted`` for a
        lower index."""
        if index == self.first_index - 1:
            return self.prev_term
        self._slot(index)
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def term_runs(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._run_starts, self._run_terms))

    def bytes_between(self, first: int, last: int) -> int:
        """Return the framed bytes of the entries first..last; 0 if ``last`` is before ``first``.
        Raise ``Compacted`` if ``first`` is below the first index. O(1)."""
        if last < first:
            return 0
        slot, ends = first - self.first_index, self._ends
        if slot < 0 or last - self.first_index >= len(ends):
            self._slot(first), self._slot(last)  # one of them raises
        return ends[last - self.first_index] - (ends[slot - 1] if slot else self._base)

    def last_within(self, first: int, bytes_max: int) -> int:
        """Return the highest index such that the entries from ``first`` to it take at most
        ``bytes_max``, at least ``first``. Raise ``Compacted`` if ``first`` is below the first
        index."""
        slot = self._slot(first)
        before = self._ends[slot - 1] if slot else self._base
        fit = bisect_right(self._ends, before + bytes_max, slot)
        return max(first, self.first_index + fit - 1)

    def first_within(self, bytes_max: int, position: int = 0) -> int:
        """Return the first index of the newest entries that take at most ``bytes_max`` and begin at
        journal position ``position`` or behind; the last index + 1 if there are none.  O(log n).

        An entry that was written once more stands behind its place; it may be left out."""
        if not self._positions:
            return self.first_index
        before = self._ends[-1] - bytes_max
        slot = 0 if self._base >= before else bisect_left(self._ends, before) + 1
        return self.first_index + max(slot, bisect_left(self._positions, position))

    def columns(self, first: int, last: int) -> tuple[array, list[int]]:
        """Return positions and framed sizes of the entries first..last.  O(result)."""
        begin, end = first - self.first_index, last - self.first_index + 1
        ends = self._ends[begin:end]
        before = self._ends[begin - 1:begin] if begin else array("Q", [self._base])
        return self._positions[begin:end], [*map(sub, ends, chain(before, ends))]

    def _slot(self, index: int) -> int:
        if index < self.first_index:
            raise Compacted(f"index {index} is below the log's first, {self.first_index}")
        assert index <= self.last_index, f"index {index} is beyond the last, {self.last_index}"
        return index - self.first_index

    def pack(self) -> list:
        assert not self._base, "index files have whole parts"
        return [self.first_index, self._positions.tobytes(), self._ends.tobytes(),
                self._run_starts, self._run_terms]

    @classmethod
    def unpack(cls, fields: list) -> GroupIndex:
        """Return the index that ``pack`` made these fields of.  Raise ``ValueError`` or
        ``TypeError`` for other fields."""
        first_index, positions, ends, starts, terms = fields
        index = cls(first_index)
        index._positions.frombytes(positions)
        index._ends.frombytes(ends)
        index._run_starts, index._run_terms = list(starts), list(terms)
        if len(index._positions) != len(index._ends) or len(starts) != len(terms):
            raise ValueError("arrays of different length")
        if bool(positions) != bool(starts) or (starts and starts[0] != first_index):
            raise ValueError("the terms are not those of the entries")
        return index

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        assert len(self._positions) == len(self._ends)
        assert all(a < b for a, b in zip(self._ends, self._ends[1:]))
        lost = self._positions.count(UNKNOWN_POSITION)
        assert len({*self._positions} - {UNKNOWN_POSITION}) + lost == len(self)
        assert all(a < b for a, b in zip(self._run_starts, self._run_starts[1:]))
        assert all(a < b for a, b in zip(self._run_terms, self._run_terms[1:]))
        assert bool(self._positions) == bool(self._run_starts)
        assert not self._run_starts or self._run_starts[0] == self.first_index


class IndexedBatch(NamedTuple):
    """A batch of a partition."""

    base_offset: int
    end: int  # offset after its last record
    index: int  # type: ignore[assignment]  # in its group
    place: PlaceInFile | None  # None = it has a slot, and the log knows its place


def _runs_of(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending slots as runs, [begin, end).  O(slots)."""
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot:
            runs[-1] = runs[-1][0], slot + 1
        else:
            runs.append((slot, slot + 1))
    return runs


class PartitionIndex:
    """(partition, offset) -> index in its group, and first batch of a timestamp."""

    __slots__ = ("partition", "group", "end_offset", "rows", "_bases", "_indexes", "_latest",
                 "_gaps")

    def __init__(self, partition: int, group: int):
        self.partition = partition
        self.group = group
        self.end_offset = 0  # after the last record
        self.rows: PartitionRows | None = None  # batches that are in index files alone
        self._bases = array("q")
        self._indexes = array("Q")
        self._latest = array("q")  # highest timestamp up to and including this batch: ascending
        #: Where the next batch does not begin where this one ends: its base offset -> its end.
        #: The last batch is among them if the partition's end is that of ``rows``.
        self._gaps: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of slots: batches that are not in ``rows`` alone."""
        return len(self._bases)

    def __bool__(self) -> bool:
        return bool(self._bases) or self.rows is not None

    @property
    def first_offset(self) -> int:
        first = self._bases[0] if self._bases else self.end_offset
        return min(first, self.rows.first_offset) if self.rows is not None else first

    @property
    def rows_end(self) -> int:
        """Offset at and behind which every batch has a slot."""
        return self.rows.end_offset if self.rows is not None else 0

    @property
    def row_count(self) -> int:
        """Number of rows of index files."""
        return len(self.rows.index) if self.rows is not None else 0

    def append(self, base_offset: int, count: int, index: int, max_timestamp_ms: int) -> None:
        latest = self._latest
        if latest and latest[-1] > max_timestamp_ms:
            max_timestamp_ms = latest[-1]
        if latest and base_offset != self.end_offset:
            self._gaps.setdefault(self._bases[-1], self.end_offset)
        self._bases.append(base_offset)
        self._indexes.append(index)
        latest.append(max_timestamp_ms)
        self.end_offset = base_offset + count

    def extend(self, later: PartitionIndex) -> None:
        """Append the batches of ``later``, which follow those of this index.  O(len(later))."""
        if not later._bases:
            return
        at = len(self._latest)
        highest = self._latest[-1] if self._latest else later._latest[0]
        if at and later.first_offset != self.end_offset:
            self._gaps.setdefault(self._bases[-1], self.end_offset)
        self._gaps.update(later._gaps)
        self._bases.extend(later._bases)
        self._indexes.extend(later._indexes)
        self._latest.extend(later._latest)
        while at < len(self._latest) and self._latest[at] < highest:
            self._latest[at] = highest
            at += 1
        self.end_offset = later.end_offset

    def truncate(self, first_removed: int) -> None:
        """Remove the batches whose *index* is ``first_removed`` or higher, and lower the end offset
        accordingly."""
        kept = bisect_left(self._indexes, first_removed)
        if kept < len(self._bases):
            end = self.batch(kept - 1)[1] if kept else self._bases[0]
            if self._gaps:
                for base in self._bases[max(0, kept - 1):]:
                    self._gaps.pop(base, None)
            self.end_offset = max(end, self.rows_end)
            if kept and end != self.end_offset:
                self._gaps[self._bases[kept - 1]] = end
            del self._bases[kept:]
            del self._indexes[kept:]
            del self._latest[kept:]

    def indexes_below(self, index: int, first: int = 0) -> array[int]:
        """Return the indexes of the batches from ``first`` on and below ``index``, ascending.
        O(result)."""
        indexes = self._indexes
        return indexes[bisect_left(indexes, first):bisect_left(indexes, index)]

    def slots_within(self, first: int, end: int) -> range:
        """Return the slots of the batches with an index in [first, end).  O(log n)."""
        return range(bisect_left(self._indexes, first), bisect_left(self._indexes, end))

    def has_index_within(self, first: int, end: int) -> bool:
        """Return True if a batch has an index in [first, end).  O(1) for a partition without
        batches from ``first`` on, O(log n) else."""
        indexes = self._indexes
        if not indexes or indexes[-1] < first:
            return False
        return indexes[bisect_left(indexes, first)] < end

    def end_of(self, index: int) -> int:
        """Return the offset behind the batch of the entry ``index``, which has a slot; a guess if
        the batch is unreadable.  O(log n)."""
        return self.batch(bisect_left(self._indexes, index))[1]

    def remove_below(self, offset: int, index: int, unsure: Container[int] = (),
                     count_max: int = sys.maxsize) -> array[int]:
        """Remove the batches that end at ``offset`` or before and whose index is below ``index``,
        the first ``count_max`` of them, and return their indexes, ascending.  O(removed + moved
        bytes).

        ``unsure``: indexes of batches of unknown end; it is at most where the next batch begins."""
        slot = self.find(offset)
        if slot >= 0 and self.batch(slot)[1] <= offset:
            slot += 1
        gone = min(max(0, slot), bisect_left(self._indexes, index), count_max)
        if gone and self._indexes[gone - 1] in unsure and (
                gone == len(self._bases) or self._bases[gone] > offset):
            gone -= 1
        removed = self._indexes[:gone]
        if self._gaps:
            for base in self._bases[:gone]:
                self._gaps.pop(base, None)
        for column in (self._bases, self._indexes, self._latest):
            del column[:gone]
        return removed

    def repair(self, base_offset: int, count: int, index: int, max_timestamp_ms: int) -> None:
        """Add a batch that could not be read before.  If its index is known, only correct its end
        and the timestamps.  O(n)."""
        slot = bisect_left(self._indexes, index)
        if slot == len(self._indexes) or self._indexes[slot] != index:
            if slot and slot == len(self._indexes) and base_offset != self.end_offset:
                self._gaps.setdefault(self._bases[-1], self.end_offset)
            self._bases.insert(slot, base_offset)
            self._indexes.insert(slot, index)
            self._latest.insert(slot, self._latest[slot - 1] if slot else max_timestamp_ms)
        self._end_at(slot, base_offset + count)
        if slot and self._gaps.get(self._bases[slot - 1]) == base_offset:
            del self._gaps[self._bases[slot - 1]]
        for at in range(slot, len(self._latest)):
            if self._latest[at] >= max_timestamp_ms and at > slot:
                break
            self._latest[at] = max(self._latest[at], max_timestamp_ms)

    def insert(self, copies: Sequence[Copy]) -> None:
        """Add the batches of copies, ascending by index, none of which the index has.  O(n) for
        each place at which some of them belong."""
        at = 0
        while at < len(copies):
            slot = bisect_left(self._indexes, copies[at].index)
            following = self._indexes[slot] if slot < len(self._indexes) else 1 << 64
            end = bisect_left(copies, following, at, key=attrgetter("index"))
            assert end > at, f"index {following} is known"
            self._insert_at(slot, copies[at:end])
            at = end

    def take_copies(self, copies: Sequence[Copy], unreadable: Container[int] = ()) -> None:
        """Add the batches of copies, ascending by index, that the index does not have, and give
        those that it has the end of their copy, unless that is among the ``unreadable``: an entry
        that cannot be read tells no end.  O(n) for each place at which some of them belong, and for
        each batch whose end changes."""
        added = []
        for copy in copies:
            slot = bisect_left(self._indexes, copy.index)
            if slot == len(self._indexes) or self._indexes[slot] != copy.index:
                added.append(copy)
            elif (copy.index not in unreadable
                  and self.batch(slot)[1] != copy.base_offset + copy.count):
                self.repair(copy.base_offset, copy.count, copy.index, copy.max_timestamp_ms)
        self.insert(added)

    def _insert_at(self, slot: int, copies: Sequence[Copy]) -> None:
        """Insert the batches of copies before a slot.  O(n)."""
        bases, latest = self._bases, self._latest
        before = self.batch(slot - 1)[1] if slot else copies[0].base_offset
        highest = latest[slot - 1] if slot else copies[0].max_timestamp_ms
        added = []
        for copy in copies:
            highest = max(highest, copy.max_timestamp_ms)
            added.append(highest)
        bases[slot:slot] = array("q", [copy.base_offset for copy in copies])
        self._indexes[slot:slot] = array("Q", [copy.index for copy in copies])
        latest[slot:slot] = array("q", added)
        for at, copy in enumerate(copies, slot):
            self._end_at(at, copy.base_offset + copy.count)
        if slot:
            self._end_at(slot - 1, before)
        at = slot + len(copies)
        while at < len(latest) and latest[at] < highest:
            latest[at] = highest
            at += 1

    def remove_batch(self, index: int) -> None:
        """Remove the batch of the entry ``index``, if the partition has it.  O(n)."""
        slot = bisect_left(self._indexes, index)
        if slot == len(self._indexes) or self._indexes[slot] != index:
            return
        base, end, _ = self.batch(slot)
        before = self.batch(slot - 1)[1] if slot else base
        self._gaps.pop(base, None)
        for column in (self._bases, self._indexes, self._latest):
            del column[slot]
        if slot:
            self._end_at(slot - 1, before)
        elif not self._bases:
            self.end_offset = max(base, self.rows_end)

    def columns(self) -> tuple[array[int], array[int], dict[int, int], int]:
        """Return base offsets and indexes of the slots, the ends of the batches behind which
        offsets do not continue, by base offset, and the end of the last one.  O(slots)."""
        return self._bases[:], self._indexes[:], dict(self._gaps), self.end_offset

    def remove_batches(self, indexes: Collection[int]) -> None:
        """Remove the batches of entries with these indexes that compaction dropped, as far as they
        have slots; offsets of the partition do not change.  O(n) if there are any."""
        gone = [slot for slot, index in enumerate(self._indexes) if index in indexes]
        for begin, end in reversed(_runs_of(gone)):
            self._let_go(begin, end)

    def _end_at(self, slot: int, end: int) -> None:
        """Set the offset after the last record of a slot's batch."""
        base = self._bases[slot]
        if slot == len(self._bases) - 1:
            self.end_offset = max(end, self.rows_end)
            self._gaps.pop(base, None)  # nothing follows that could begin elsewhere
            if end != self.end_offset:
                self._gaps[base] = end
        elif self._bases[slot + 1] == end:
            self._gaps.pop(base, None)
        else:
            self._gaps[base] = end

    def find(self, offset: int) -> int:
        """Return the slot of the batch that holds ``offset``, or of the last one before it; -1 =
        none."""
        return bisect_right(self._bases, offset) - 1

    def batch(self, slot: int) -> tuple[int, int, int]:
        """Return (base offset, offset after the last record, index) of a slot."""
        bases = self._bases
        base = bases[slot]
        end = bases[slot + 1] if slot + 1 < len(bases) else self.end_offset
        if self._gaps:
            end = self._gaps.get(base, end)
        return base, end, self._indexes[slot]

    def latest(self, slot: int) -> int:
        """Return the highest timestamp of the batches up to and including that of a slot."""
        return self._latest[slot]

    def find_timestamp(self, timestamp_ms: int) -> int:
        """Return the slot of the first batch with a record at or after ``timestamp_ms``; len(self)
        = none."""
        return bisect_left(self._latest, timestamp_ms)

    # ---- rows ------------------------------------------------------------------------------------

    def take_rows(self, added: PartitionRows | None, first: int, last: int,
                  kept: Iterable[int] = ()) -> None:
        """Let go of the slots of batches with indexes first..last, except the ``kept`` ones,
        because ``added``, which becomes ``rows``, answers for them; None = they are below the log
        start.  O(slots that go + slots behind them)."""
        if added is not None:
            self.set_rows(added)
        low, high = bisect_left(self._indexes, first), bisect_right(self._indexes, last)
        for index in sorted(kept, reverse=True):
            slot = bisect_left(self._indexes, index, low, high)
            if slot < high and self._indexes[slot] == index:
                self._let_go(slot + 1, high)
                high = slot
        self._let_go(low, high)

    def set_rows(self, rows: PartitionRows) -> None:
        """Set the rows of the index; slots keep the ends of their batches.  O(1)."""
        self.rows, end = rows, self.end_offset
        self.end_offset = max(end, rows.end_offset)
        if self._bases and end != self.end_offset:
            self._gaps.setdefault(self._bases[-1], end)

    def _let_go(self, begin: int, end: int) -> None:
        """Remove the slots begin..end (exclusive), whose batches stay in the partition."""
        if begin == end:
            return
        before = self.batch(begin - 1)[1] if begin else 0
        if self._gaps:
            for base in self._bases[begin:end]:
                self._gaps.pop(base, None)
        for column in (self._bases, self._indexes, self._latest):
            del column[begin:end]
        if begin:
            following = self._bases[begin] if begin < len(self._bases) else self.end_offset
            if before != following:
                self._gaps[self._bases[begin - 1]] = before

    def drop_rows_of(self, files: Collection[int]) -> int:
        """Forget that batches are in some index files: they have slots, are not needed, or cannot
        be read.  Return their estimated bytes.  O(rows)."""
        if self.rows is None:
            return 0
        dropped_bytes = self.rows.drop_files(files)
        if not self.rows:
            self.rows = None
        return dropped_bytes

    def drop_rows(self) -> int:
        """Forget the batches that are in index files alone, and return their estimated bytes.
        O(rows)."""
        if self.rows is None:
            return 0
        dropped_bytes = self.rows.drop_all()
        self.rows = None
        return dropped_bytes

    def drop_rows_below(self, log_start: int, count_max: int = sys.maxsize) -> int:
        """Forget those of the batches in index files that end at ``log_start`` or before, and
        return the estimated bytes of those that leave memory: of up to ``count_max`` rows.  O(rows
        that go + moved bytes)."""
        if self.rows is None:
            return 0
        dropped_bytes = self.rows.drop_below(log_start, count_max)
        if not self.rows:
            self.rows = None
        return dropped_bytes

    def batches_from(self, offset: int, blocks: Blocks) -> Iterator[IndexedBatch]:
        """Yield the batches that end behind ``offset``, in ascending order, each once, from its
        slot if it has one.  A block is asked for when a batch may be in it that is due; errors of
        ``blocks`` pass through.  No change of the index may come between."""
        slot, last = max(0, self.find(offset)), 0
        if slot < len(self._bases) and self.batch(slot)[1] <= offset:
            slot += 1
        if slot < len(self._bases) and self._bases[slot] <= offset:  # no other batch comes first
            yield IndexedBatch(*self.batch(slot), None)
            last, slot = self._indexes[slot], slot + 1
        rows = (self.rows.batches_from(offset, blocks)
                if self.rows is not None and offset < self.rows.end_offset else iter(()))
        row = next(rows, None)
        while slot < len(self._bases) or row is not None:
            if row is not None and row.index <= last:
                row = next(rows, None)
            elif slot < len(self._bases) and (row is None or self._bases[slot] <= row.base_offset):
                yield IndexedBatch(*self.batch(slot), None)
                last, slot = self._indexes[slot], slot + 1
            else:
                assert row is not None
                yield IndexedBatch(row.base_offset, row.end, row.index, row.place)
                last = row.index

    def first_since(self, timestamp_ms: int, blocks: Blocks) -> int | None:
        """Return the base offset of the first batch up to which a record is at or after
        ``timestamp_ms``; None = there is none.  One block."""
        slot = self.find_timestamp(timestamp_ms)
        found = [self._bases[slot]] if slot < len(self._bases) else []
        if self.rows is not None:
            row = self.rows.find_timestamp(timestamp_ms, blocks)
            if row is not None:
                found.append(row.base_offset)
        return min(found, default=None)

    def latest_below(self, offset: int, blocks: Blocks) -> int | None:
        """Return the highest timestamp of the batches that begin below ``offset``, removed ones
        included as far as they are known; None = there is none.  One block."""
        slot = bisect_left(self._bases, offset) - 1
        found = [self._latest[slot]] if slot >= 0 else []
        if self.rows is not None:
            latest = self.rows.latest_below(offset, blocks)
            if latest is not None:
                found.append(latest)
        return max(found, default=None)

    def pack(self) -> list:
        return [self.partition, self.end_offset, self._bases.tobytes(), self._indexes.tobytes(),
                self._latest.tobytes(), [list(gap) for gap in sorted(self._gaps.items())]]

    @classmethod
    def unpack(cls, fields: list, group: int) -> PartitionIndex:
        """Return the index that ``pack`` made these fields of.  Raise ``ValueError`` or
        ``TypeError`` for other fields."""
        partition, end_offset, bases, indexes, latest, gaps = fields
        index = cls(partition, group)
        index.end_offset = end_offset
        index._bases.frombytes(bases)
        index._indexes.frombytes(indexes)
        index._latest.frombytes(latest)
        index._gaps = {base: end for base, end in gaps}
        if not len(index._bases) == len(index._indexes) == len(index._latest):
            raise ValueError("arrays of different length")
        return index

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        assert len(self._bases) == len(self._indexes) == len(self._latest)
        assert all(a < b for a, b in zip(self._bases, self._bases[1:]))
        assert all(a < b for a, b in zip(self._indexes, self._indexes[1:]))
        assert all(a <= b for a, b in zip(self._latest, self._latest[1:]))
        assert not self._bases or self._bases[-1] <= self.end_offset
        assert self.rows_end <= self.end_offset
        assert self.rows is None or self.rows
        following = dict(zip(self._bases, [*self._bases[1:], self.end_offset]))
        for base, end in self._gaps.items():
            assert base < end < following[base], f"no gap between {end} and {following[base]}"
