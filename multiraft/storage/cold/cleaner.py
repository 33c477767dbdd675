"""The cleaner of a store: which steps of its work are due, and what they change in memory.

Contract.  ``work`` does bounded pieces on the loop after each checkpoint.  ``copy_job`` -> (a
thread executes its steps) -> ``copied`` or ``copy_failed``; one cold segment at a time is written.
The ``surveys`` of its sources come before, ``survey_job`` says which other ones are due: ``read``
and ``select`` on a thread, ``take_bounds`` on the loop between, ``surveyed`` behind them.
``removal_job`` -> (a thread executes it) -> ``removed`` or ``removal_failed``.

    step                                              durable when
    ------------------------------------------------  ----------------------------------------------
    1 records are copied (``copy_job.py``)            the cold segment has its name; a start removes
                                                      it, because no checkpoint names it
    2 a checkpoint names the cold segment             the checkpoint is; a start from it reads both
                                                      copies, one from an earlier reads the source
    3 all kept checkpoints name it: its index file    not at all: the journal's own removal of the
      answers for the copies from now on              sources begins (``segment_removal.py``)
    4 a cold segment without a record leaves          a checkpoint without it is
    5 no kept checkpoint names it: its files are      the directory is synced
      unlinked

A crash between any two steps leaves a start that works.

Invariants.  A source counts as free of records only by the places of records, never because it was
copied: what became a record since, or could not be copied, still stands in it.  A copy is used
only where the record's place is older than the copying; what repair wrote since is kept.  The index
file of a cold segment answers for a group's range of indexes in a source only if each live record
of the group there was copied, or has its place in memory.  Else the places of copies are in memory.

Theory.  Which segments are copied: ``cleaning_policy.py``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from multiraft.storage.block_index.rows import Row
from multiraft.storage.checkpointer import Checkpointer
from multiraft.storage.cold.cleaning_policy import (
    CleaningLimits,
    SegmentFacts,
    Sources,
    next_sources,
)
from multiraft.storage.cold.cold_index import ColdContents, ColdRun, batch_rows
from multiraft.storage.cold.cold_segment import (
    ColdSegment,
    cold_index_path,
    cold_path,
    is_cold,
    number_of,
    place_in,
)
from multiraft.storage.cold.copy_job import Compaction, CopyJob, CopySource, WantedRun
from multiraft.storage.cold.source_survey import LiveBounds, SurveyJob
from multiraft.storage.errors import CorruptRange
from multiraft.storage.file_removal import FileRemoval
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.index import Copy
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.journal.journal import Segment
from multiraft.storage.log_table import LogTable
from multiraft.storage.record_store import NO_RECORDS, CopiedRange, RecordTotals, term_in
from multiraft.storage.removable_segments import GroupContents, SegmentContents
from multiraft.storage.stored_log import StoredLog

#: Records that one call of ``work`` examines: some milliseconds of the loop.
RECORDS_PER_CALL = 1 << 14
#: Records whose places one call sets: each is a search, half a microsecond.
MOVES_PER_CALL = 1 << 12
#: Records of index files whose places one call adds: each is some microseconds.
ADDED_PER_CALL = 1 << 10
#: Partitions whose log starts one call notes for a survey: some milliseconds of the loop.
BOUNDS_PER_CALL = 1 << 12
#: A segment is surveyed again when so many of its batches left since, the first time when so many
#: of its entries are no batches, or left: some ten times at most, each of a twentieth of its bytes
#: or less.
SURVEYED_SHARE = 1 / 8
#: Cold segments that wait for checkpoints.  Their indexes are in memory, some 3 MiB each.
WAITING_MAX = 4
#: Cold segments whose files one job unlinks.
FILES_PER_JOB = 16


class ColdRemovalJob:
    """Unlinking of the files of cold segments that no kept checkpoint names."""

    __slots__ = ("numbers", "_files")

    def __init__(self, filesystem: Filesystem, directory: str, numbers: Sequence[int]):
        self.numbers = tuple(numbers)
        self._files = FileRemoval(filesystem, directory, [
            path for number in numbers
            for path in (cold_index_path(directory, number), cold_path(directory, number))])

    @property
    def has_blocks(self) -> bool:
        """True if unlinked files still have blocks."""
        return self._files.has_blocks

    def execute(self) -> None:
        """Unlink the files that exist, and sync the directory.  Block, on any thread.  Raises
        ``OSError``; the job may be executed again."""
        self._files.unlink()

    def free(self) -> None:
        """Free a bounded part of the blocks of the unlinked files.  Block, on any thread.  Raises
        ``OSError``."""
        self._files.free()


class _Survey(NamedTuple):
    """Live records that a survey found in an index file."""

    batches: int  # in rows of memory then
    live_bytes: int
    records: int


class _WholeSource(NamedTuple):
    """Source of which each live record of a group is copied, or has its place in memory."""

    group: int
    incarnation: int
    start: int  # of the source, or its place
    end: int
    first: int  # lowest index of the group in it
    last: int
    ranges: tuple[CopiedRange, ...]
    partitions: Sequence[int]  # known to the index file of the source, without those that live


class _Dropped(NamedTuple):
    """Batches that compaction drops, and whose places were in memory when they were examined."""

    group: int
    incarnation: int
    partition: int
    indexes: Sequence[int]


class _Shrunk(NamedTuple):
    """Records in index files that a compaction drops, and bytes by which others are smaller."""

    group: int  # 0 = nothing is compacted
    incarnation: int
    totals: RecordTotals


_NOTHING_SHRUNK = _Shrunk(0, 0, NO_RECORDS)


class _Waiting:
    """A cold segment whose sources still count."""

    __slots__ = ("segment", "contents", "sources", "source_bytes", "whole", "dropped", "shrunk")

    def __init__(self, segment: ColdSegment, contents: ColdContents, sources: frozenset[int],
                 source_bytes: int, whole: Sequence[_WholeSource], dropped: Sequence[_Dropped],
                 shrunk: _Shrunk):
        self.dropped = dropped
        self.shrunk = shrunk
        self.segment = segment
        self.contents = contents
        self.sources = sources  # starts, or places
        self.source_bytes = source_bytes
        self.whole = whole


def _disjoint(sources: Iterable[_WholeSource]) -> list[_WholeSource]:
    """Return sources of one group of which no two have ranges with the same index: of two segments
    whose entries were truncated and sent again, the first one.  O(ranges log ranges)."""
    found: list[_WholeSource] = []
    taken: list[CopiedRange] = []
    for source in sources:
        ranges = sorted([*taken, *source.ranges])
        if all(a.last < b.first for a, b in zip(ranges, ranges[1:])):
            taken = ranges
            found.append(source)
    return found


def _ranges_by_group(sources: Sequence[_WholeSource]) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges of the groups for which the index file of their copies may answer."""
    by_group: dict[int, list[_WholeSource]] = {}
    for source in sources:
        by_group.setdefault(source.group, []).append(source)
    return {group: sorted((each.first, each.last) for source in _disjoint(known)
                          for each in source.ranges)
            for group, known in by_group.items()}


def _fitting(sizes: Sequence[int], records_max: int, bytes_max: int, is_first: bool) -> int:
    """Return how many records of a group are to be copied from one source: all if they fit, else
    none, because a part of them would stay in memory.  Of the first group, as many as fit."""
    if len(sizes) <= records_max and sum(sizes) <= bytes_max:
        return len(sizes)
    if not is_first:
        return 0
    ends = [*accumulate(sizes[:records_max])]
    return bisect_right(ends, bytes_max)


def _without(run: WantedRun, indexes: Collection[int]) -> WantedRun:
    """Return a run without the records of some indexes.  O(records)."""
    slots = [slot for slot, index in enumerate(run.indexes) if index not in indexes]
    return run._replace(indexes=[run.indexes[slot] for slot in slots],
                        positions=[run.positions[slot] for slot in slots],
                        sizes=[run.sizes[slot] for slot in slots])


def _without_places(indexes: array[int], positions: array[int], sizes: array[int],
                    gone: Collection[int]) -> tuple[array[int], array[int], array[int]]:
    """Return the columns without the rows of some indexes.  O(rows)."""
    kept = [slot for slot, index in enumerate(indexes) if index not in gone]
    return (array("Q", [indexes[slot] for slot in kept]),
            array("Q", [positions[slot] for slot in kept]),
            array("I", [sizes[slot] for slot in kept]))


def _is_within(ranges: Sequence[CopiedRange], index: int) -> bool:
    at = bisect_right(ranges, index, key=attrgetter("first")) - 1
    return at >= 0 and index <= ranges[at].last


class Cleaner:
    """Decisions about the cold segments of a store, and the jobs that write and remove them."""

    def __init__(self, table: LogTable, checkpointer: Checkpointer,
                 contents: Mapping[int, SegmentContents],
                 cold_contents: dict[int, Mapping[int, GroupContents]], limits: CleaningLimits,
                 moved: Callable[[int], None]):
        """``contents``: by start, of the journal's sealed segments, kept up to date by the caller;
        ``cold_contents``: by number, of the cold segments that recovery found; ``moved`` is called
        with the bytes of records that do not stand in their sources any longer."""
        self.copied_bytes = 0  # of records, since the start
        self.freed_segments = 0  # cold segments that left, since the start
        #: Starts of the sources of the last copy for a compaction of which no batch of its group
        #: is left: each is copied, dropped, or has its place in memory.
        self.compacted_sources: set[int] = set()
        self._table = table
        self._checkpointer = checkpointer
        self._contents = contents
        self._cold_contents = cold_contents
        self._limits = limits
        self._moved = moved
        self._trimmed_bytes = 0  # since the last pass began
        self._newest = checkpointer.newest  # when the last pass began
        self._work: Iterator[None] | None = None
        self._facts: list[SegmentFacts] = []  # of the last complete pass
        #: Waiting cold segments and ``is_short``, with which nothing in the facts is worth a copy.
        self._worthless: tuple[frozenset[int], bool] | None = None
        self._copying: CopyJob | None = None
        self._copying_whole: list[_WholeSource] = []
        self._copying_dropped: list[_Dropped] = []
        self._copying_shrunk = _NOTHING_SHRUNK
        self._surveys: dict[int, _Survey] = {}  # by start
        self._unsurveyed: dict[int, None] = {}  # starts, as far as the last pass found
        self._removal: ColdRemovalJob | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._leaving: dict[int, int] = {}  # number -> bytes of cold segments that left

    @property
    def waiting(self) -> int:
        """Number of cold segments whose sources still count."""
        return len(self._waiting)

    def is_waiting(self, number: int) -> bool:
        """Return True if the sources of a cold segment still count.  O(1)."""
        return number in self._waiting

    @property
    def live_bytes(self) -> int:
        """Framed bytes of the records in the segments of the last pass."""
        return sum(each.live_bytes for each in self._facts)

    @property
    def segment_bytes(self) -> int:
        """Bytes of the segments of the last pass."""
        return sum(each.bytes for each in self._facts)

    @property
    def unnamed_bytes(self) -> int:
        """Bytes of files that go after further checkpoints.  O(sources of waiting segments +
        removed cold segments)."""
        return (sum(each.source_bytes for each in self._waiting.values())
                + sum(size for number, size in self._leaving.items()
                      if not self._checkpointer.none_names(number)))

    def trimmed(self, size: int) -> None:
        """Take the bytes of records that left the record stores."""
        self._trimmed_bytes += size

    # ---- work on the loop ----------------------------------------------------------------------

    def work(self) -> bool:
        """Do the next piece of the work that is due since the last checkpoint, or since many bytes
        were trimmed.  Return True if more is due.  O(``RECORDS_PER_CALL`` + records of one group in
        one segment)."""
        if self._work is None:
            if (self._checkpointer.newest is self._newest
                    and self._trimmed_bytes < self._limits.freed_bytes_min):
                return False
            self._newest, self._trimmed_bytes = self._checkpointer.newest, 0
            self._work = self._pass()
        if next(self._work, self) is self:
            self._work = None
        return self._work is not None

    def _pass(self) -> Iterator[None]:
        """Use the copies that all kept checkpoints name, examine the segments, and take out the
        cold ones without a record; yield after each piece."""
        for number in [each for each in self._waiting if self._checkpointer.all_name(each)]:
            yield from self._use(self._waiting[number])
            self._moved(self._waiting.pop(number).segment.name.length)
        facts: list[SegmentFacts] = []
        self._unsurveyed.clear()
        yield from self._examine(facts)
        self._facts, self._worthless = facts, None
        known = {each.start for each in facts}
        self._surveys = {start: each for start, each in self._surveys.items() if start in known}

    def _use(self, waiting: _Waiting) -> Iterator[None]:
        """Let the copies of records answer instead of their sources; yield after each piece."""
        indexed = self._table.indexed
        cold = indexed.add(waiting.segment, waiting.contents.index_header)
        changing = [cold, *(known for start in waiting.sources
                            if (known := indexed.find(start)) is not None)]
        for each in changing:
            each.rows += 1  # they stay while rows are replaced
            each.is_changing = True
        whole: dict[int, list[_WholeSource]] = {}
        for source in waiting.whole:
            whole.setdefault(source.group, []).append(source)
        for dropped in waiting.dropped:
            self._drop(dropped, waiting.segment)
            yield
        self._shrink(waiting.shrunk)
        for run in waiting.contents.runs.values():
            yield from self._move(waiting.segment, run)
            yield from self._use_run(waiting, cold, run, whole.pop(run.group, ()))
        for sources in whole.values():
            for source in sources:
                self._forget(source)
            yield
        for each in changing:
            each.rows -= 1
            each.is_changing = False

    def _shrink(self, shrunk: _Shrunk) -> None:
        log = self._log_of(shrunk.group, shrunk.incarnation)
        if log is not None:
            known, gone = log.records.in_files, shrunk.totals
            log.records.in_files = RecordTotals(max(0, known.count - gone.count),
                                                max(0, known.bytes - gone.bytes))

    def _drop(self, dropped: _Dropped, segment: ColdSegment | None) -> None:
        """Forget the places in memory of batches that compaction dropped, except those that repair
        wrote behind the copying of ``segment``.  O(batches of the partition)."""
        log = self._log_of(dropped.group, dropped.incarnation)
        if log is None:
            return
        gone = {index for index in dropped.indexes if index in log.records and (
            segment is None or self._is_older(log.records.locate(index).position, segment))}
        batches = log.partitions.get(dropped.partition)
        if batches is not None:
            batches.remove_batches(gone)
        log.records.remove(gone, log.raft_start)

    def _move(self, segment: ColdSegment, run: ColdRun) -> Iterator[None]:
        """Set the places of records in memory to those of their copies; yield after each piece.  A
        record that was lost after it was copied is back then, in the index of its partition too:
        while it is missing, it has no slot there if an index file answered for it."""
        number = segment.name.number
        for begin in range(0, len(run.indexes), MOVES_PER_CALL):
            log = self._log_of(run.group, run.incarnation)
            lost: dict[int, int] = {}  # index -> slot
            for slot in range(begin, min(begin + MOVES_PER_CALL, len(run.indexes))):
                index = run.indexes[slot]
                if log is not None and index in log.records and self._is_older(
                        log.records.locate(index).position, segment):
                    if index in log.records.missing:
                        lost[index] = slot
                    else:
                        log.records.move(index, place_in(number, run.bytes[slot]),
                                         run.sizes[slot])
            if log is not None and lost:
                states = self._table.partition_states[run.group]
                for copy in self._copies(segment, run, lost):
                    log.restore_copy(copy, states)
            yield

    def _use_run(self, waiting: _Waiting, cold: IndexedSegment, run: ColdRun,
                 sources: Sequence[_WholeSource]) -> Iterator[None]:
        """Let the index file of a cold segment answer for the records of a group that were copied
        from whole ``sources``; those of other files are in memory from now on.  Yield after each
        piece."""
        log = self._log_of(run.group, run.incarnation)
        if log is None:
            return
        current = _disjoint([source for source in sources if self._is_unchanged(log, source)])
        ranges = sorted(each for source in current for each in source.ranges)
        records = log.records
        yield from self._add_moved(waiting, run, ranges)
        if log.records is not records or not ranges:
            return  # the replica was removed, or has a snapshot that replaced its records
        if self._log_of(run.group, run.incarnation) is not log:
            return
        partitions = sorted({*run.partitions}.union(*(each.partitions for each in current)))
        rows_of = self._rows_of(waiting.contents, cold, run, ranges)
        yield from log.take_cold(cold, ranges, partitions, rows_of, self._table.partition_states,
                                 self._table.indexed)
        yield

    def _rows_of(self, contents: ColdContents, cold: IndexedSegment, run: ColdRun,
                 ranges: Sequence[CopiedRange]) -> Callable[[int], tuple[list[Row], int]]:
        """Return a function that returns the rows of a partition, and the offset behind them."""
        before, starts = contents.batches_before(run.group), {}
        for partition, batches in sorted(run.partitions.items()):
            starts[partition], before = before, before + len(batches)
        header, bounds = contents.index_header, [(each.first, each.last) for each in ranges]

        def rows_of(partition: int) -> tuple[list[Row], int]:
            batches = run.partitions.get(partition)
            if batches is None:
                return [], 0
            rows = batch_rows(batches, starts[partition], header, cold.number, bounds)
            if not rows:
                return [], 0
            last = batches.find(rows[-1].first) + rows[-1].count - 1
            return rows, batches.batch(last)[1]

        return rows_of

    def _is_unchanged(self, log: StoredLog, source: _WholeSource) -> bool:
        """Return True if the ranges of a source are those that they were when it was copied."""
        known = next((each.segment for each in source.ranges), None)
        return log.copied_ranges(known, source.first, source.last) == [*source.ranges]

    def _add_moved(self, waiting: _Waiting, run: ColdRun,
                   ranges: Sequence[CopiedRange]) -> Iterator[None]:
        """Add the places of copies of records that are in index files alone, and not in
        ``ranges``; yield after each piece."""
        for begin in range(0, len(run.indexes), ADDED_PER_CALL):
            indexes = run.indexes[begin:begin + ADDED_PER_CALL]
            log = self._log_of(run.group, run.incarnation)
            if log is None:
                return
            slots = {index: slot for slot, index in enumerate(indexes, begin)
                     if not _is_within(ranges, index)
                     and self._is_copied_from_file(log, index, waiting)}
            if not slots:
                continue
            log.take_moved(sorted(self._copies(waiting.segment, run, slots)))
            yield

    def _copies(self, segment: ColdSegment, run: ColdRun, slots: Mapping[int, int]) -> list[Copy]:
        """Return the copies of records that are not below the log start; ``slots``: index -> slot
        in the run.  O(partitions log n + records of the run with indexes between)."""
        terms, copies = list(zip(run.run_starts, run.run_terms)), []
        states, first, last = self._table.partition_states[run.group], min(slots), max(slots)
        for partition, batches in run.partitions.items():
            state = states.applied(partition)
            if state is None:
                continue
            for at in batches.slots_within(first, last + 1):
                base, end, index = batches.batch(at)
                if end > state.log_start and index in slots:
                    slot = slots[index]
                    place = place_in(segment.name.number, run.bytes[slot])
                    # The highest timestamp so far does as well as the batch's own.
                    copies.append(Copy(index, term_in(terms, index), place, run.sizes[slot], 0, 0,
                                       partition, base, end - base, batches.latest(at)))
        return copies

    def _forget(self, source: _WholeSource) -> None:
        """Forget that the index file of a source answers: all live records of the group there have
        their places in memory.  O(partitions + rows)."""
        log = self._log_of(source.group, source.incarnation)
        if log is None or not self._is_unchanged(log, source):
            return
        own = [each for each in source.ranges if each.segment is not None]
        files = {each.segment.number for each in own if each.segment is not None}
        for partition in source.partitions:
            batches = log.partitions.get(partition)
            if batches is not None:
                batches.drop_rows_of(files)
        log.records.replace_files(own, None, log.raft_start)

    def _is_in_file(self, segment: Segment | ColdSegment, group: int) -> bool:
        """Return True if the index file of a segment answers for records of a group."""
        log, indexed = self._table.logs.get(group), self._table.indexed.find(segment.start)
        return (log is not None and indexed is not None
                and bool(log.records.ranges_of(indexed)))

    def _is_copied_from_file(self, log: StoredLog, index: int, waiting: _Waiting) -> bool:
        found = log.records.in_file(index)
        return (found is not None and found.segment.start in waiting.sources
                and index not in log.records.missing)

    def _is_older(self, position: int, than: ColdSegment) -> bool:
        if is_cold(position):
            return number_of(position) < than.name.number
        return position < than.name.copied_from

    def _log_of(self, group: int, incarnation: int) -> StoredLog | None:
        log = self._table.logs.get(group)
        return log if log is not None and log.incarnation == incarnation else None

    def _examine(self, facts: list[SegmentFacts]) -> Iterator[None]:
        """Add the segments that may be copied to ``facts``; yield after each piece."""
        journal = self._table.journal
        start, seen = 0, 0
        while segments := journal.sealed_from(start, 1):
            segment = segments[0]
            start = segment.start + 1
            if segment.end > self._newest.position:
                break
            contents = self._contents.get(segment.start)
            if contents is None:
                continue  # it waits for its index file, or is damaged
            found = self._facts_of(segment, contents.groups, segment.end - segment.start,
                                   journal.position - segment.end)
            in_memory = found.records if found is not None else 0
            found = self._with_file(found)
            seen += 1
            if found is not None and contents.is_intact and self._is_below(contents):
                facts.append(found)
                seen += in_memory
            if seen >= RECORDS_PER_CALL:
                seen = 0
                yield
        for cold in list(journal.cold):
            number = cold.name.number
            found = self._facts_of(cold, self._cold_contents[number], cold.name.length,
                                   journal.position - cold.name.copied_from)
            in_memory = found.records if found is not None else 0
            found = self._with_file(found)
            if found is not None and not found.records and number not in self._waiting:
                journal.cold.remove(cold)
                self._forget_cold(cold)
                del self._cold_contents[number]
                self._leaving[number] = cold.name.length
                self.freed_segments += 1
            elif found is not None:
                facts.append(found)
                seen += in_memory
            seen += 1
            if seen >= RECORDS_PER_CALL:
                seen = 0
                yield

    def _forget_cold(self, cold: ColdSegment) -> None:
        """Forget the ranges of a cold segment, in which no record is left.  O(groups * ranges)."""
        indexed = self._table.indexed.find(cold.start)
        if indexed is None:
            return
        for group in self._cold_contents[cold.name.number]:
            log = self._table.logs.get(group)
            if log is not None:
                log.records.forget_file(indexed, log.raft_start)
        self._table.indexed.remove(cold.start)

    def _is_below(self, contents: SegmentContents) -> bool:
        """Return True if a segment has no entry at or above the Raft start of its group, apart from
        those before a tombstone or an installed snapshot.  O(groups)."""
        for group, each in contents.groups.items():
            log = self._table.logs.get(group)
            if log is None or each.incarnation > log.incarnation:
                return False
            begin = max(log.tombstone_position, log.snapshot_position)
            if (each.incarnation == log.incarnation and contents.end > begin
                    and each.last_index >= log.raft_start):
                return False
        return True

    def _facts_of(self, segment: Segment | ColdSegment, groups: Mapping[int, GroupContents],
                  size: int, age: int) -> SegmentFacts | None:
        """Return what is known of a segment; None if a record that stands in it is missing: it
        cannot be copied, and goes elsewhere when it is repaired."""
        live = count = 0
        begin, end = segment.start, segment.end
        for group, contents in groups.items():
            log = self._log_of(group, contents.incarnation)
            if log is None or not log.records:
                continue
            if log.records.has_lost_within(begin, end):
                return None
            sizes = log.records.places_within(begin, end, contents.first_index,
                                              contents.last_index)[2]
            live += sum(sizes)
            count += len(sizes)
        return SegmentFacts(segment.start, size, live, count, age, is_cold(segment.start))

    # ---- records in index files alone ----------------------------------------------------------

    def _with_file(self, facts: SegmentFacts | None) -> SegmentFacts | None:
        """Return the facts of a segment with the records that its index file answers: those of the
        last survey, less what left since.  Note that a survey is due if that is much."""
        indexed = self._table.indexed.find(facts.start) if facts is not None else None
        if facts is None or indexed is None or not indexed.rows:
            return facts
        batches, known = max(0, indexed.batches), self._surveys.get(facts.start)
        before = known.batches if known is not None else indexed.header.entries
        if batches < before * (1 - SURVEYED_SHARE):
            self._unsurveyed[facts.start] = None
        if known is None:
            live, records = batches * indexed.entry_bytes_mean, batches
        else:
            share = min(1.0, batches / max(1, known.batches))
            live, records = int(known.live_bytes * share), int(known.records * share)
        return facts._replace(live_bytes=min(facts.bytes, facts.live_bytes + live),
                              records=facts.records + max(1, records))

    def survey_job(self) -> SurveyJob | None:
        """Return the survey of a segment of which more than ``SURVEYED_SHARE`` left; None = none is
        due.  O(1)."""
        while self._unsurveyed:
            start = next(iter(self._unsurveyed))
            del self._unsurveyed[start]
            job = self._survey_of(start)
            if job is not None:
                return job
        return None

    def surveys(self, sources: Sources,
                compaction: Compaction | None = None) -> list[SurveyJob]:
        """Return the surveys of ``sources`` that ``copy_job`` needs, for the same ``compaction``.
        O(sources)."""
        return [job for facts in sources.segments
                if (job := self._survey_of(facts.start, compaction)) is not None]

    def _survey_of(self, start: int, compaction: Compaction | None = None) -> SurveyJob | None:
        indexed = self._table.indexed.find(start)
        if indexed is None or not indexed.rows or indexed.segment.is_removed:
            return None
        return SurveyJob(indexed, self._table.indexed.reader(-1, {indexed.number}), compaction)

    def take_bounds(self, job: SurveyJob) -> Iterator[None]:
        """Add the bounds of live records to a survey that was read; yield after each
        ``BOUNDS_PER_CALL`` partitions."""
        seen = 0
        groups = self._groups_of(job.start)
        for group, partitions in job.partitions().items():
            log, contents = self._table.logs.get(group), groups.get(group)
            if log is None or contents is None:
                continue
            if job.compaction is not None and group != job.compaction.group:
                continue
            ranges = [(each.first, each.last) for each in log.records.ranges_within(
                contents.first_index, contents.last_index) if each.segment is job.indexed]
            if not ranges:
                continue
            states, log_starts = self._table.partition_states[group], {}
            in_memory = frozenset(log.records.indexes_from(contents.first_index,
                                                           contents.last_index))
            for partition in partitions:
                state = states.applied(partition)
                if state is not None:
                    log_starts[partition] = log.records.needed_from(partition, job.start,
                                                                    state.log_start)
            job.bounds[group] = LiveBounds(log.incarnation, log.records.terms, log_starts,
                                           in_memory, ranges, job.compaction)
            seen += len(partitions)
            if seen >= BOUNDS_PER_CALL:
                seen = 0
                yield

    def _groups_of(self, start: int) -> Mapping[int, GroupContents]:
        """Return the groups in a segment; none if it is gone."""
        if is_cold(start):
            return self._cold_contents.get(number_of(start), {})
        contents = self._contents.get(start)
        return contents.groups if contents is not None else {}

    def surveyed(self, job: SurveyJob) -> None:
        """Take an executed survey.  O(records of the segment + segments)."""
        if not job.is_readable:
            return
        self._surveys[job.start] = _Survey(max(0, job.indexed.batches), job.live_bytes,
                                           job.records)
        source = self._source(job.start)
        for at, each in enumerate(self._facts):
            if each.start == job.start and source is not None:
                found = self._with_file(self._facts_of(*source, each.bytes, each.age))
                self._facts[at:at + 1] = [found] if found is not None else []
                self._worthless = None
                break

    def examined(self) -> dict[int, SegmentFacts]:
        """Return the segments whose records may be copied, by start, as the last pass found them;
        none while a pass is under way.  O(segments)."""
        return {each.start: each for each in self._facts} if self._work is None else {}

    def is_source(self, start: int) -> bool:
        """Return True if records of a segment are being copied, or their copies wait for
        checkpoints: their places stay in memory.  O(waiting cold segments + sources)."""
        return any(start in each.sources for each in self._waiting.values()) or (
            self._copying is not None
            and any(source.file.start == start for source in self._copying.sources))

    # ---- copying -------------------------------------------------------------------------------

    def choose(self, is_short: bool = False) -> Sources:
        """Return the segments that the next cold segment would be copied from, by the last pass; no
        segment = nothing is worth it, or has to wait.  O(segments log segments), and O(waiting cold
        segments) if nothing was worth it before."""
        known = frozenset(self._waiting), is_short
        if (self._copying is not None or len(self._waiting) >= WAITING_MAX
                or self._worthless == known):
            return Sources(())
        taken = frozenset().union(*(each.sources for each in self._waiting.values()))
        segments = [each for each in self._facts if each.start not in taken and not (
            each.is_cold and number_of(each.start) in self._waiting)]
        chosen = next_sources(segments, len(self._table.journal.cold), self._limits, is_short)
        if not chosen.segments:
            self._worthless = known
        return chosen

    def copy_job(self, sources: Sources, surveys: Sequence[SurveyJob] = (),
                 compaction: Compaction | None = None) -> CopyJob | None:
        """Return a job that copies the records of ``sources``, as ``choose`` returned them; None if
        none is left there.  ``surveys``: of the sources, executed; ``compaction``: of a partition,
        whose group alone is copied then, without the batches that are dropped.  O(records of the
        sources)."""
        assert self._copying is None, "one cold segment at a time"
        self.compacted_sources.clear()
        journal = self._table.journal
        found: list[CopySource] = []
        whole: list[_WholeSource] = []
        dropped: list[_Dropped] = []
        shrunk = _NOTHING_SHRUNK
        by_start = {each.start: each for each in surveys if each.is_readable}
        room = self._limits.records_max, self._limits.bytes_max
        for facts in sources.segments:
            source = self._source(facts.start)
            if source is None:
                continue
            if compaction is not None:
                source = source[0], {group: contents for group, contents in source[1].items()
                                     if group == compaction.group}
            leaving = self._dropped_from(*source, compaction)
            runs, partial, room = self._wanted(*source, not found, *room, leaving)
            survey = by_start.get(facts.start)
            if survey is not None and not self._is_current(survey.indexed):
                survey = None
            if survey is not None:
                room = self._add_surveyed(survey, runs, partial, not found, *room)
            copied = self._whole_sources(*source, partial, survey)
            if compaction is not None and survey is not None and compaction.group in survey.bounds:
                shrunk = _Shrunk(compaction.group, survey.bounds[compaction.group].incarnation,
                                 RecordTotals(shrunk.totals.count + survey.dropped.count,
                                              shrunk.totals.bytes + survey.dropped.bytes))
            if compaction is not None and compaction.group not in partial and (
                    copied or not self._is_in_file(source[0], compaction.group)):
                self.compacted_sources.add(facts.start)
            if runs:
                whole += copied
                dropped += [leaving] if leaving is not None else []
                found.append(CopySource(source[0], runs))
            else:  # memory has the places of all of them
                if leaving is not None:
                    self._drop(leaving, None)
                for each in copied:
                    self._forget(each)
        if not found:
            # They are examined again by the next pass.
            gone = {each.start for each in sources.segments}
            self._facts = [each for each in self._facts if each.start not in gone]
            self._shrink(shrunk)
            return None
        self._copying_whole, self._copying_dropped = whole, dropped
        self._copying_shrunk = shrunk
        self._copying = CopyJob(self._table.filesystem, journal.cold.directory,
                                journal.cold_header(journal.cold.take_number()), found,
                                _ranges_by_group(whole), compaction)
        return self._copying

    def _dropped_from(self, segment: Segment | ColdSegment, groups: Mapping[int, GroupContents],
                      compaction: Compaction | None) -> _Dropped | None:
        """Return the batches in a segment that compaction drops and whose places are in memory;
        None = there are none."""
        if compaction is None or compaction.group not in groups:
            return None
        contents = groups[compaction.group]
        log = self._log_of(compaction.group, contents.incarnation)
        if log is None:
            return None
        indexes = log.records.places_within(segment.start, segment.end, contents.first_index,
                                            contents.last_index)[0]
        found = [index for index in indexes if compaction.is_dropped(index)]
        return _Dropped(compaction.group, contents.incarnation, compaction.partition,
                        found) if found else None

    def _source(self, start: int) -> tuple[Segment | ColdSegment,
                                           Mapping[int, GroupContents]] | None:
        """Return a segment with its groups; None if it is gone."""
        journal = self._table.journal
        indexed = self._table.indexed.find(start)
        if indexed is not None and indexed.is_changing:
            return None  # some places are leaving memory
        if is_cold(start):
            cold = journal.cold.behind(number_of(start))
            found = cold is not None and cold.start == start
            return (cold, self._cold_contents[cold.name.number]) if cold and found else None
        segments = journal.sealed_from(start, 1)
        contents = self._contents.get(start)
        if not segments or segments[0].start != start or contents is None:
            return None
        return segments[0], contents.groups

    def _wanted(self, segment: Segment | ColdSegment, groups: Mapping[int, GroupContents],
                is_first: bool, records_max: int, bytes_max: int,
                dropped: _Dropped | None) -> tuple[list[WantedRun], set[int], tuple[int, int]]:
        """Return the records of a segment with places in memory that are to be copied, the groups
        of which these are not all, and the room that is left.  ``is_first``: nothing else is
        copied; ``dropped``: batches that are not copied."""
        runs: list[WantedRun] = []
        partial: set[int] = set()
        begin, end = segment.start, segment.end
        for group, contents in groups.items():
            log = self._log_of(group, contents.incarnation)
            if log is None or not log.records:
                continue
            if log.records.has_lost_within(begin, end):
                partial.add(group)
                continue
            indexes, positions, sizes = log.records.places_within(
                begin, end, contents.first_index, contents.last_index)
            if dropped is not None and dropped.group == group:
                indexes, positions, sizes = _without_places(indexes, positions, sizes,
                                                            {*dropped.indexes})
            count = _fitting(sizes, records_max, bytes_max, is_first and not runs)
            records_max, bytes_max = records_max - count, bytes_max - sum(sizes[:count])
            if count < len(indexes):
                partial.add(group)
            if count:
                runs.append(WantedRun(group, log.incarnation, indexes[:count], positions[:count],
                                      sizes[:count], log.records.terms))
        return runs, partial, (records_max, bytes_max)

    def _whole_sources(self, segment: Segment | ColdSegment, groups: Mapping[int, GroupContents],
                       partial: Collection[int], survey: SurveyJob | None) -> list[_WholeSource]:
        """Return the groups of a segment of which each live record is to be copied, or has its
        place in memory.  O(groups log ranges)."""
        indexed, found = self._table.indexed.find(segment.start), []
        for group, contents in groups.items():
            log = self._log_of(group, contents.incarnation)
            if log is None or group in partial:
                continue
            first, last = contents.first_index, contents.last_index
            is_known = indexed is not None and log.records.is_in_file(indexed, first, last)
            if is_known and (survey is None or group not in survey.bounds):
                continue
            ranges = log.copied_ranges(indexed, first, last)
            if ranges:
                found.append(_WholeSource(
                    group, log.incarnation, segment.start, segment.end, first, last,
                    tuple(ranges), survey.held.get(group, ()) if survey is not None else ()))
        return found

    def _is_current(self, indexed: IndexedSegment) -> bool:
        """Return True if the index file still answers for its segment.  O(1)."""
        return self._table.indexed.find(indexed.segment.start) is indexed

    def _add_surveyed(self, survey: SurveyJob, runs: list[WantedRun], partial: set[int],
                      is_first: bool, records_max: int, bytes_max: int) -> tuple[int, int]:
        """Add the records of a survey that are still in the index file alone to ``runs``, and the
        groups of which these are not all to ``partial``.  Return the room that is left."""
        for run in survey.runs:
            log = self._log_of(run.group, run.incarnation)
            if log is None or not log.records.is_in_file(survey.indexed, run.indexes[0],
                                                         run.indexes[-1]):
                continue
            # Repaired meanwhile: the copy of a peer is newer than one that begins now.
            known = {*log.records.indexes_from(run.indexes[0], run.indexes[-1])}
            wanted = _without(run, known) if known else run
            count = _fitting(wanted.sizes, records_max, bytes_max, is_first and not runs)
            records_max, bytes_max = records_max - count, bytes_max - sum(wanted.sizes[:count])
            if count < len(wanted.sizes):
                partial.add(run.group)
            if count:
                runs.append(wanted._replace(indexes=wanted.indexes[:count],
                                            positions=wanted.positions[:count],
                                            sizes=wanted.sizes[:count]))
        return records_max, bytes_max

    def copied(self, job: CopyJob) -> list[CorruptRange]:
        """Take an executed job.  Return an error for each record that could not be read at its
        source and still stands there."""
        assert job is self._copying and job.is_done
        self._copying = None
        whole, self._copying_whole = self._copying_whole, []
        dropped, self._copying_dropped = self._copying_dropped, []
        shrunk, self._copying_shrunk = self._copying_shrunk, _NOTHING_SHRUNK
        if shrunk.group:  # rewritten batches are smaller
            count, size = shrunk.totals
            shrunk = shrunk._replace(totals=RecordTotals(
                count, size + max(0, job.bytes_to_copy - job.bytes_copied)))
        self.copied_bytes += job.bytes_to_copy
        if job.written is not None and job.contents is not None:
            number = job.written.number
            segment = self._table.journal.cold.add(job.written)
            self._cold_contents[number] = job.contents.groups()
            whole = [each for each in whole if not any(
                each.group == damaged.group and each.start <= damaged.position < each.end
                for damaged in job.damaged)]
            starts = frozenset(source.file.start for source in job.sources)
            self._waiting[number] = _Waiting(segment, job.contents, starts, sum(
                each.bytes for each in self._facts if each.start in starts), whole, dropped,
                shrunk)
        return [CorruptRange(each.group, each.index, each.why, each.position, each.size)
                for each in job.damaged
                if self._stands_at(each.group, each.index, each.position)]

    def _stands_at(self, group: int, index: int, position: int) -> bool:
        log = self._table.logs.get(group)
        if log is None or index not in log.records:
            found = log.records.in_file(index) if log is not None else None
            return found is not None and (
                found.segment.start <= position < found.segment.end)
        return log.records.locate(index).position == position

    def copy_failed(self, job: CopyJob) -> None:
        """Allow another job, because this one was abandoned."""
        assert job is self._copying
        self._copying, self._copying_whole, self._copying_dropped = None, [], []
        self._copying_shrunk = _NOTHING_SHRUNK

    # ---- removal -------------------------------------------------------------------------------

    def removal_job(self) -> ColdRemovalJob | None:
        """Return a job that unlinks files of cold segments that no kept checkpoint names; None =
        there are none.  O(files)."""
        cold = self._table.journal.cold
        ready = [number for number in cold.leftovers if self._checkpointer.none_names(number)]
        if self._removal is not None or not ready:
            return None
        self._removal = ColdRemovalJob(self._table.filesystem, cold.directory,
                                       ready[:FILES_PER_JOB])
        return self._removal

    def removed(self, job: ColdRemovalJob) -> None:
        """Take an executed job: its files are gone."""
        assert job is self._removal
        self._removal = None
        cold, gone = self._table.journal.cold, set(job.numbers)
        cold.leftovers = [number for number in cold.leftovers if number not in gone]
        for number in gone:
            self._leaving.pop(number, None)

    def removal_failed(self) -> None:
        """Allow another job, because the last one could not unlink its files."""
        self._removal = None
