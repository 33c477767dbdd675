"""One group's log in the store: packed index, entries in memory, configurations, damage.

Contract.  Owned by the loop.  ``cached`` holds the newest entries of the group, contiguous up to
the last one; older entries are read from disk.  Nothing here writes: the store and repair write the
records, recovery reads them.  ``damage`` knows which entries are missing; the methods here that
change both it and the index keep the two in agreement.

The log has two starts.  From the Raft start on, ``index.first_index``, consensus replicates and
compares entries; ``index`` and ``damage`` are of these alone.  Below it ``records`` has the entries
that are kept to be read, and no others.  ``locate`` answers for both.

Invariants.  Missing entries have indexes of the log from the Raft start on; missing records have
lower ones, and neither quarantine the replica nor keep it in head recovery.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, final

from multiraft.codec import layout
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.block_index.file_codec import RunSummary
from multiraft.storage.block_index.lookup import Blocks
from multiraft.storage.block_index.partition_rows import PartitionRows, RowCounts
from multiraft.storage.block_index.rows import ROW_BYTES, Row, join_rows
from multiraft.storage.checkpoint import GroupRecord
from multiraft.storage.cold.cold_index import ColdRunSummary
from multiraft.storage.damage.damage_map import DamageMap, EntryState, MissingEntry
from multiraft.storage.damage.place import Place
from multiraft.storage.damage.ranges import merged
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import (
    UNKNOWN_POSITION,
    Copy,
    GroupIndex,
    IndexedBatch,
    PartitionIndex,
)
from multiraft.storage.indexed_segments import IndexedSegment
from multiraft.storage.journal.journal import Journal
from multiraft.storage.journal.segment_index import REPAIR_STRUCT, TRUNCATED_IN_HEAD_RECOVERY
from multiraft.storage.record_store import (
    HOLES_MAX,
    NO_RECORDS,
    UNKNOWN_TERM,
    CopiedRange,
    EntryPlace,
    FileRange,
    MissingRecord,
    RecordStore,
    RecordTotals,
    TermRuns,
    terms_from,
    with_term,
)
from multiraft.storage.uncopied_ranges import INSTALLED_RANGES_MAX, InstalledRange
from multiraft.types import Configuration, Entry, EntryKind, HardState

NO_HARD_STATE = HardState(0, 0)
NO_CONFIGURATION = Configuration(())
_NONE_TAKEN: dict[int, int] = {}

#: Batches that one read examines for a missing record before them, while records are missing: a
#: read returns fewer.
BATCHES_EXAMINED_MAX = 4096


class CachedEntry(NamedTuple):
    """Entry in memory; ``buffers[slot:slot + 3]`` are its header, payload and padding."""

    entry: Entry
    buffers: list[Buffer]
    slot: int
    end: int  # journal position after it: cached at least until that is durable


class Trimmed(NamedTuple):
    """Result of the removal of records below log starts."""

    bytes: int  # framed, of the removed records
    is_complete: bool  # False: some may be left


@final
class StoredLog:
    """Log of one group's replica, as this node has it on disk."""

    __slots__ = (
        "group",
        "incarnation",
        "configurations",
        "vote_barrier_index",
        "vote_barrier_term",
        "removed",
        "tombstone_position",
        "group_incarnation",
        "record_before_tombstone",
        "hard_state",
        "index",
        "records",
        "partitions",
        "cached",
        "commit",
        "damage",
        "snapshot_position",
        "installed",
        "raft_start_recorded",
        "record_key",
        "record",
    )

    def __init__(self, group: int, incarnation: int,
                 configuration: Configuration = NO_CONFIGURATION):
        self.group = group
        self.incarnation = incarnation
        #: (index, configuration): the one in force where applied state is, and those above.
        self.configurations = [(0, configuration)]
        self.vote_barrier_index = self.vote_barrier_term = 0  # see ``replica_records.Tombstone``
        self.removed = False  # a tombstone is all there is
        #: Journal position of the last tombstone: the log begins after it.
        self.tombstone_position = 0
        self.group_incarnation = 0  # of the group, where it differs from the log's
        #: For checkpoints while the tombstone is not durable; empty = no replica was here.
        self.record_before_tombstone: GroupRecord | bytes = b""
        self.hard_state = NO_HARD_STATE
        self.index = GroupIndex()
        self.records = RecordStore()
        self.partitions: dict[int, PartitionIndex] = {}
        self.cached: dict[int, CachedEntry] = {}
        self.commit = 0  # as the last checkpoint knew it
        self.damage = DamageMap()
        #: Journal position at which a snapshot was installed: segments that begin before it have no
        #: entries of this log.
        self.snapshot_position = 0
        #: Indexes that installed snapshots stand for, ascending, of a group with partitions.
        self.installed: tuple[InstalledRange, ...] = ()
        #: Lowest Raft start in the kept checkpoints: the next start may begin with it.
        self.raft_start_recorded = 1
        self.record_key: tuple | None = None  # of the record below
        self.record = b""  # encoded for the last checkpoint

    @property
    def quarantined(self) -> str:
        """Reason why the replica is quarantined; empty = it is not."""
        return self.damage.why

    @property
    def missing(self) -> Mapping[int, MissingEntry]:
        """Entries of the log that are not intact, by index."""
        return self.damage.missing

    @property
    def configuration(self) -> Configuration:
        """Configuration of the last membership entry of the log: it is in force at once."""
        return self.configurations[-1][1]

    def set_initial_configuration(self, configuration: Configuration) -> None:
        """Set the configuration before the first entry; do nothing if the log knows it, or follows
        a removed replica of the group (vote barrier)."""
        if self.configurations[0] == (0, NO_CONFIGURATION) and not self.vote_barrier_index:
            self.configurations[0] = (0, configuration)

    def configuration_at(self, applied: int) -> tuple[int, Configuration]:
        """Return (index, configuration) in force at the ``applied`` index; drop earlier ones from
        the log."""
        kept = self.configurations
        while len(kept) > 1 and kept[1][0] <= applied:
            del kept[0]
        return kept[0]

    def set_configuration(self, index: int, configuration: Configuration | None) -> None:
        """Set or remove the configuration of an entry above the applied state, which was missing
        and is known now; ``configuration``: None when the entry has none."""
        kept = [each for each in self.configurations if each[0] != index]
        if configuration is not None:
            kept.append((index, configuration))
        self.configurations = sorted(kept, key=itemgetter(0))

    def apply_tombstone(self, left: Tombstone, position: int, place: Place) -> None:
        """Empty the log at a tombstone: entries before its journal position, which is at ``place``,
        belong to a removed replica.  Keep the term, vote and vote barrier of the tombstone."""
        self.drop_rows()
        self.__init__(self.group, self.incarnation)
        self.hard_state, self.vote_barrier_index = left.hard_state, left.vote_barrier_index
        self.vote_barrier_term = left.vote_barrier_term
        self.group_incarnation = left.incarnation
        self.removed = True
        self.tombstone_position = position
        self.damage.remove(position, place)

    def apply_forced_recovery(self, new: ForcedRecovery, index: int,
                              vote_barrier_term: int) -> None:
        """Apply a forced recovery to the log, whose last index it names as ``index``: the group
        continues in a new incarnation with the named members.

        Without members the replica joins a recovered group: it may not vote before it has ``index``
        of the term ``vote_barrier_term``."""
        self.group_incarnation = new.incarnation
        alone = bool(new.configuration.voters)
        if alone:
            self.configurations = [(index, new.configuration)]
        self.vote_barrier_index, self.vote_barrier_term = (
            (0, 0) if alone else (index, vote_barrier_term)
        )

    def bounds(self) -> LogBounds:
        return LogBounds(self.index.first_index, self.index.prev_term, self.index.last_index)

    def restored(self, applied: int) -> GroupRestored:
        last = self.index.last_index
        index, configuration = self.configurations[0]
        return GroupRestored(
            self.bounds(),
            self.index.term_runs(),
            self.hard_state,
            min(self.commit, last),
            min(applied, last),
            configuration,
            self.damage.why,
            self.damage.is_waiting_for_leader,
            min(index, last),
            tuple(self.configurations[1:]),
            self.vote_barrier_index,
            self.group_incarnation,
            self.vote_barrier_term,
            self.guessed_through,
        )

    @property
    def guessed_through(self) -> int:
        """Return the last forgotten entry of the Raft log, whose term is a guess; 0 = none.
        O(entries)."""
        return max((at for at in self.index.with_unknown_position() if at not in self.missing),
                   default=0)

    def restart(self, bounds: LogBounds, index: int, configuration: Configuration,
                snapshot_position: int) -> None:
        """Replace the log by a snapshot up to ``bounds``, with the configuration of the entry at
        ``index``; the log's later entries are in segments from position ``snapshot_position``
        on."""
        self.configurations = [(index, configuration)]
        self.index = GroupIndex(bounds.first_index, bounds.prev_term)
        self.drop_rows()
        self.records = RecordStore()
        self.partitions = {}
        self.cached.clear()
        self.commit = bounds.last_index
        self.raft_start_recorded = bounds.first_index  # two checkpoints record it
        self.damage.truncate(0)
        self.snapshot_position, self.installed = snapshot_position, ()

    def install(self, bounds: LogBounds, index: int, configuration: Configuration,
                states: PartitionStates, snapshot_position: int, terms: TermRuns,
                first_index: int, committed: int) -> None:
        """Replace the log by a snapshot, as ``restart``, and keep its entries up to the
        ``committed`` index and its records, as far as ``states`` say that they are needed.  Other
        indexes from ``first_index`` on become uncopied.

        ``terms``: runs of the indexes from ``first_index``, the first that may be needed, up to the
        snapshot's.  Records that are in index files alone stay so.  O(entries + records)."""
        last, records, partitions = bounds.last_index, self.records, self.partitions
        installed = self.installed_needed()
        if len(installed) >= INSTALLED_RANGES_MAX:  # copied anew, so that there is one range
            first_removed, installed = 1, ()
            self.drop_rows()
            records, partitions, terms = RecordStore(), {}, tuple(terms)
        else:
            first_removed = max(self.raft_start, min(committed, self.index.last_index) + 1)
            terms = self._terms_with(terms, first_index, first_removed)
            self.truncate(first_removed)
            self.compact(first_removed, states, (), [run for run in terms_from(
                terms, self.raft_start) if run[0] < first_removed], 0)
            self.trim(states)
        self.partitions = {}  # the rows of those that stay are kept
        self.restart(bounds, index, configuration, snapshot_position)
        self.records, self.partitions = records, partitions
        # Nothing of the journal stands behind its position yet, damage neither.
        self.installed = (*installed, InstalledRange(snapshot_position, first_removed, last, 0))
        records.install(terms, first_index, max(first_removed, first_index), last)

    def installed_needed(self) -> tuple[InstalledRange, ...]:
        """Return the ranges that installed snapshots stand for and in which, or below which, a
        record is or may be needed."""
        needed = self.records.first_needed if self.installed else 0
        return tuple([each for each in self.installed if 0 < needed <= each.last])

    def _terms_with(self, terms: TermRuns, first_index: int, first_removed: int) -> TermRuns:
        """Return the runs of the records and of the log up to ``first_removed`` (exclusive), with
        ``terms`` in their place from ``first_index`` on.  O(runs + missing)."""
        below = {at: each for at, each in self.missing.items() if at < first_removed}
        own = [*self.records.terms, *self._sure_terms(first_removed, below)]
        return [*[run for run in own if run[0] < first_index], *terms]

    def record_terms(self, applied: int) -> tuple[int, TermRuns]:
        """Return the first index up to ``applied`` that is or may be needed as a record, in the
        Raft log or below it, and the terms of the indexes from there on; see
        ``Store.record_terms``."""
        first_index = self.records.first_needed or self.raft_start
        below = {at: each for at, each in self.missing.items() if at <= applied}
        own = [*self.records.terms, *self._sure_terms(applied + 1, below)]
        joined = [run for at, run in enumerate(own) if not at or run[1] != own[at - 1][1]]
        return first_index, tuple(joined)

    def lacking(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the uncopied ranges and the missing entries and records in [first, last], as
        ranges, ascending.  O(result log result + missing entries of the Raft log)."""
        records = self.records
        lacking = records.uncopied.within(first, last)
        single = [index for index in self.missing if first <= index <= last]
        single += [index for index in records.missing_within(first, last)
                   if not records.uncopied.first_in(index, index)]
        return sorted([*lacking, *[(index, index) for index in single]])

    # ---- both starts -----------------------------------------------------------------------------

    @property
    def raft_start(self) -> int:
        """First index that consensus replicates and compares; records are below it."""
        return self.index.first_index

    def locate(self, index: int) -> EntryPlace:
        """Return term, position and size of an entry of the Raft log, or of a record whose place is
        in memory.  O(log n).  Raise ``Compacted`` for another index below the Raft start."""
        at = self.index
        if index < at.first_index:
            return self.records.locate(index)
        return EntryPlace(at.term(index), at.position(index), at.size(index))

    def size(self, index: int) -> int:
        """Return the framed bytes of an entry of the Raft log, or of a record, as ``locate``."""
        if index < self.index.first_index:
            return self.records.size(index)
        return self.index.size(index)

    def has(self, index: int) -> bool:
        """Return True if the Raft log has an entry, or the record store its place in memory,
        readable or missing.  O(log n)."""
        return self.index.first_index <= index <= self.index.last_index or index in self.records

    def first_missing_of(self, indexes: Iterable[int]) -> int:
        """Return the first of ``indexes`` that is missing, as entry or as record; 0 = none.
        O(indexes) if any is missing, O(1) else."""
        entries, records = self.damage.missing, self.records.missing
        if not entries and not records:
            return 0
        return next((each for each in indexes if each in entries or each in records), 0)

    def readable_below(self, partition: int, offset: int, below_offset: int,
                       blocks: Blocks | None = None) -> tuple[int, int]:
        """Return the offset up to which a partition can be read from ``offset`` on without passing
        a missing record, at most ``below_offset``, and the missing record that prevents a read at
        ``offset`` itself; 0 = none does.

        A lost batch stood between those before and behind it, so a place where the offsets do not
        continue counts as lost if an index between may be.  ``blocks``: None if all batches from
        ``offset`` on have slots.  O(``BATCHES_EXAMINED_MAX``)."""
        records, batches = self.records, self.partitions.get(partition)
        before, at = 0, offset  # index of the last readable batch, and offset behind it
        if batches is not None:
            if blocks is not None and offset < batches.rows_end:
                return self._readable_below(batches, offset, below_offset, blocks)
            first = max(0, batches.find(offset))
            for slot in range(first, min(len(batches), first + BATCHES_EXAMINED_MAX)):
                base, end, index = batches.batch(slot)
                # Of a missing batch, the end is a guess.
                if index in records.missing or (
                        base > at and records.first_missing(before, index)):
                    return at, records.first_missing(before, index) if at == offset else 0
                before, at = index, max(at, end)
                if at >= below_offset:
                    return below_offset, 0
            if first + BATCHES_EXAMINED_MAX < len(batches):
                return at, 0
        lost = records.first_missing(before, self.index.first_index)
        if not lost:
            return below_offset, 0
        return at, lost if at == offset else 0

    def _readable_below(self, batches: PartitionIndex, offset: int, below_offset: int,
                        blocks: Blocks) -> tuple[int, int]:
        """Return what ``readable_below`` does, where some of the batches are in index files
        alone."""
        records, before, at = self.records, 0, offset
        for examined, batch in enumerate(batches.batches_from(offset, blocks)):
            if examined == BATCHES_EXAMINED_MAX:
                return at, 0
            lost = (batch.index if batch.index in records.missing else
                    records.first_missing(before, batch.index) if batch.base_offset > at else 0)
            if lost:
                return at, lost if at == offset else 0
            before, at = batch.index, max(at, batch.end)
            if at >= below_offset:
                return below_offset, 0
        lost = records.first_missing(before, self.index.first_index)
        return (at, lost if at == offset else 0) if lost else (below_offset, 0)

    def copied_batches(self, batches: PartitionIndex, offset: int,
                       blocks: Blocks) -> Iterator[IndexedBatch]:
        """Yield the batches of a partition that end behind ``offset``, ascending, up to the first
        place where an uncopied one may be.  Otherwise as ``PartitionIndex.batches_from``."""
        uncopied, before = self.records.uncopied, 0
        for batch in batches.batches_from(offset, blocks):
            if batch.base_offset > offset and uncopied.first_in(before + 1, batch.index):
                return
            before, offset = batch.index, max(offset, batch.end)
            yield batch

    def indexes_within(self, begin: int, end: int) -> list[int]:
        """Return the entries that begin in [begin, end) of the journal, and the records there whose
        places are in memory.  O(n)."""
        return self.records.indexes_within(begin, end) + self.index.indexes_within(begin, end)

    def is_batch_needed(self, index: int, states: PartitionStates) -> bool:
        """Return True if the index of a partition in memory has the entry of an index as a batch
        that does not end at or below the applied log start, as far as is known.  O(partitions log
        n)."""
        for partition, batches in self.partitions.items():
            if batches.has_index_within(index, index + 1):
                state = states.applied(partition)
                return state is not None and batches.end_of(index) > state.log_start
        return False

    def forget_records(self, indexes: Collection[int]) -> None:
        """Remove missing records and holes that no replica needs, and remember their indexes.
        O(records among them * partitions log n + moved bytes)."""
        for index in indexes:
            if index in self.records:  # a hole has no slot in the index of a partition
                for batches in self.partitions.values():
                    batches.remove_batch(index)
        self.records.unneeded.add(indexes)
        self.records.remove(indexes, self.raft_start)

    def partitions_below(self, first_index: int) -> list[int]:
        """Return the partitions with batches of the Raft log below an index.  O(partitions)."""
        first = self.index.first_index
        return [partition for partition, batches in self.partitions.items()
                if batches.has_index_within(first, first_index)]

    def compact(self, first_index: int, states: PartitionStates,
                unneeded: Container[int] = (), terms: TermRuns | None = None,
                prev_term: int | None = None, partitions: Collection[int] | None = None) -> None:
        """Raise the Raft start to ``first_index``, at most the applied index + 1, or to an index
        before it that follows an entry whose term is sure.  Batches with records at or above their
        partition's applied log start become records; other entries are dropped.  Do nothing if the
        Raft start is there or higher.

        Of the missing entries, batches that are needed become missing records, and those of unknown
        kind holes, except the ``unneeded`` ones: a peer has compacted them and has no record.
        ``terms`` and ``prev_term``: the true terms below ``first_index``, if those of the log may
        be guesses.  ``partitions``: those with batches of the Raft log below ``first_index``, None
        = any.  O(entries that go, or that remain, + partitions)."""
        index = self.index
        while first_index > index.first_index and prev_term is None and not self._is_term_sure(
                first_index - 1):
            first_index -= 1
        if first_index <= index.first_index:
            return
        assert first_index <= states.applied_index + 1, (
            f"Raft start {first_index}, applied {states.applied_index}")
        below = {at: each for at, each in self.missing.items() if at < first_index}
        self.trim(states, partitions, first_index)
        known = (self.partitions.values() if partitions is None
                 else [self.partitions[each] for each in partitions if each in self.partitions])
        kept: list[int] = []
        for each in known:
            kept += each.indexes_below(first_index, index.first_index)
        kept.sort()
        batches = set(kept) if below else ()
        # The kind of an entry with a known position is known: its header was read.
        missing = {at: MissingRecord(each.position, index.size(at) if each.position else 0)
                   for at, each in below.items() if at in batches or (
                       index.position(at) == UNKNOWN_POSITION and at not in unneeded
                       and at not in self.records.unneeded)}
        if terms is None:
            terms = self._sure_terms(first_index, below)
        self.records.unneeded.add(at for at in below if at not in missing and at in unneeded)
        self.records.take_over(index, first_index, kept, missing, terms)
        index.compact(first_index)
        if prev_term is not None:
            index.prev_term = prev_term
        self.damage.compact(first_index)

    def _is_term_sure(self, index: int) -> bool:
        """Return True if the term of an entry is no guess: an entry that was forgotten because it
        is not needed stays in the index with an unknown place."""
        state = self.damage.state_of(index)
        return state is EntryState.UNREADABLE or (
            state is EntryState.INTACT and self.index.position(index) != UNKNOWN_POSITION)

    def forget_unneeded(self, index: int) -> None:
        """Count a missing entry as intact that no replica needs.  One that may have been truncated
        is no batch of its partition."""
        if self.damage.is_maybe_truncated(index):
            self.discard_superseded(index)
        self.damage.repair(index)
        self.records.unneeded.add([index])

    def is_forgotten(self, index: int) -> bool:
        """Return True if an entry of the Raft log was lost and is not needed, because another
        member has compacted it: nothing can be read in its place.  O(log n)."""
        log = self.index
        return (log.first_index <= index <= log.last_index and index not in self.missing
                and log.position(index) == UNKNOWN_POSITION)

    def _batches_below(self, first_index: int) -> frozenset[int]:
        return frozenset(at for batches in self.partitions.values()
                         for at in batches.indexes_below(first_index))

    def _sure_terms(self, first_index: int, missing: Mapping[int, MissingEntry]) -> TermRuns:
        """Return the terms of the log below an index, ``UNKNOWN_TERM`` for guesses.  O(runs *
        guesses)."""
        runs: TermRuns = [run for run in self.index.term_runs() if run[0] < first_index]
        for at, (state, _) in missing.items():
            if state is not EntryState.UNREADABLE:
                runs = with_term(runs, at, UNKNOWN_TERM, first_index)
        return runs

    def trim(self, states: PartitionStates, partitions: Collection[int] | None = None,
             first_index: int = 0, batches_max: int = sys.maxsize) -> Trimmed:
        """Remove records below their partition's applied log start, and those of partitions that
        ``states`` does not know, but not more than ``batches_max``, where a row of an index file
        counts as one; those of the Raft log stay, up to ``first_index`` if that is higher.  The
        index of a deleted partition that is chosen goes with them.

        ``partitions``: None = all of the group.  O(removed log n + moved bytes + partitions)."""
        removed: list[int] = []
        count = rows_bytes = 0  # of batches and rows
        end, is_complete = max(first_index, self.index.first_index), True
        unsure = self.missing.keys() | self.records.missing.keys()
        for partition in [*self.partitions] if partitions is None else partitions:
            batches = self.partitions.get(partition)
            if batches is None:
                continue
            state = states.applied(partition)  # None: it is gone, or its entries are all above
            log_start = state.log_start if state is not None else 1 << 62
            rows_before = batches.row_count
            rows_bytes += batches.drop_rows_below(log_start, batches_max - count)
            count += rows_before - batches.row_count
            if state is None or batches.first_offset < log_start:
                # All that is below the Raft start is applied, and ends at the partition's end.
                is_whole = state is None or state.next_offset <= log_start
                gone = batches.remove_below(log_start, end, () if is_whole else unsure,
                                            batches_max - count)
                removed += gone
                count += len(gone)
            if count == batches_max:
                is_complete = False
                break
            # At a start the states may know nothing of the entries behind their checkpoint.
            if state is None and (not batches or (
                    partitions is not None and states.is_deleted(partition))):
                del self.partitions[partition]
        removed_bytes = self.records.remove([at for at in removed if at < self.index.first_index],
                                            self.index.first_index)
        self.records.in_files = self.records.in_files.without(rows_bytes)
        return Trimmed(removed_bytes + rows_bytes, is_complete)

    # ---- index files -----------------------------------------------------------------------------

    def can_take(self, segment: IndexedSegment, run: RunSummary) -> bool:
        """Return True if the index file of a segment may answer for this log's records there, once
        and for all.  O(runs + segments)."""
        entries, at = run.entries, segment.segment
        if (entries is None or run.run.incarnation != self.incarnation
                or at.end <= self.tombstone_position):
            return False
        first, last = entries.first_index, entries.last_index
        # An installed snapshot replaces entries before its position: those of its range, and all if
        # it has no range.
        if (any(each.first <= last and first <= each.last for each in self.installed)
                if self.installed else at.start < self.snapshot_position):
            return False
        return self.records.can_take(first, last, tuple(zip(entries.run_starts, entries.run_terms)),
                                     self.raft_start)

    def take_file(self, segment: IndexedSegment, run: RunSummary,
                  states: Mapping[int, PartitionStates], counts: RowCounts) -> Iterator[None]:
        """Let the index file of a segment answer for this log's records there, except for copies
        and missing ones.  ``can_take`` is true.  Yield after each partition: everything is readable
        then.  To be ended, not begun anew, unless the records are replaced.  ``states``: by group,
        because a snapshot may replace them.  O(batches that go + rows)."""
        entries, records = run.entries, self.records
        assert entries is not None
        first, last = entries.first_index, entries.last_index
        kept, seen = records.kept_in_memory(first, last, segment), records.changes
        for known, rows in run.rows_of():
            if seen != records.changes:
                kept, seen = records.kept_in_memory(first, last, segment), records.changes
            state = states[self.group].applied(known.partition)
            log_start = records.needed_from(known.partition, segment.segment.start,
                                            state.log_start if state is not None else 1 << 62)
            batches = self.partitions.get(known.partition)
            if log_start < known.end_offset and rows:
                batches = batches or self.partition_index(known.partition)
                added = batches.rows or PartitionRows(counts, log_start)
                added.insert(rows, segment.number, known.end_offset)
                batches.take_rows(added, first, last, kept)
                batches.drop_rows_below(log_start)
            elif batches is not None:  # below the log start, and not trimmed yet
                batches.take_rows(None, first, last, kept)
            yield
        records.take_file(first, last, segment)

    def copied_ranges(self, source: IndexedSegment | None, first: int,
                      last: int) -> list[CopiedRange]:
        """Return the ranges of indexes for which the index file of a cold segment may answer once
        it has a copy of each record of the log in a source.  These are the ranges of the source,
        ``source``; None, or without any, all of its indexes, first..last, if one of them is a
        record in memory and no other file answers for one.  O(ranges there + installed ranges)."""
        known = self.records.ranges_within(first, last)
        own = [CopiedRange(*each) for each in known if each.segment is source]
        if own or not first:
            return own
        if not self.records.is_in_memory(first, last) or last >= self.raft_start or any(
                each.first <= last and first <= each.last for each in self.installed):
            return []
        return [CopiedRange(first, last, None)]

    def take_cold(self, cold: IndexedSegment, ranges: Sequence[CopiedRange],
                  partitions: Iterable[int], rows_of: Callable[[int], tuple[list[Row], int]],
                  states: Mapping[int, PartitionStates], counts: RowCounts) -> Iterator[None]:
        """Let the index file of a cold segment answer for the indexes in ``ranges``, as
        ``copied_ranges`` returned them, instead of those of their segments.  Each of the records
        there that live has its place in memory or is in the cold segment.  Yield between two
        partitions: everything is readable then.

        ``partitions``: all that may have rows of the replaced files, or batches in the cold
        segment; ``rows_of`` returns the rows there of a partition's batches in ``ranges``, and the
        offset behind them.  O(rows + batches that go)."""
        records, seen = self.records, -1
        replaced = {each.segment.number for each in ranges if each.segment is not None}
        kept: list[list[int]] = []
        for each in ranges:
            if each.segment is None:  # before another file can answer for an index in it
                records.add_file(each.first, each.last, cold)
        for turn, partition in enumerate(partitions):
            if turn:
                yield
            if self.records is not records:
                return  # the log was replaced
            if seen != records.changes:
                seen = records.changes
                kept = [records.kept_in_memory(each.first, each.last, cold) for each in ranges]
            self._take_cold_rows(ranges, kept, partition, replaced, rows_of, states, counts)
        own = [each for each in ranges if each.segment is not None]
        records.replace_files(own, cold, self.raft_start)
        for each in ranges:
            records.let_go(each.first, each.last, cold)

    def _take_cold_rows(self, ranges: Sequence[CopiedRange], kept: Sequence[Sequence[int]],
                        partition: int, replaced: Collection[int],
                        rows_of: Callable[[int], tuple[list[Row], int]],
                        states: Mapping[int, PartitionStates], counts: RowCounts) -> None:
        """Replace the rows of one partition, and let go of its slots."""
        state = states[self.group].applied(partition)
        log_start = state.log_start if state is not None else 1 << 62
        rows, end_offset = rows_of(partition)
        is_live = bool(rows) and log_start < end_offset
        batches = self.partition_index(partition) if is_live else self.partitions.get(partition)
        if batches is None:
            return
        known = None
        if is_live:
            known = batches.rows or PartitionRows(counts, log_start)
            known.replace(replaced, rows, end_offset)
            batches.take_rows(known, 1, 0)
        else:
            batches.drop_rows_of(replaced)
        if len(batches):
            for each, indexes in zip(ranges, kept, strict=True):
                batches.take_rows(known, each.first, each.last, indexes)
        batches.drop_rows_below(log_start)

    def restore_files(self, files: Sequence[tuple[IndexedSegment, RunSummary]],
                      cold: Sequence[tuple[IndexedSegment, ColdRunSummary]], terms: TermRuns,
                      states: PartitionStates, counts: RowCounts) -> None:
        """Let index files answer for this log's records in segments, in journal order, and in
        ``cold`` ones; no record of them is in memory.  ``terms``: from the first record up to the
        Raft start.  O(partitions of each file + rows)."""
        ranges = []
        count = size = dropped_bytes = 0
        for segment, run in files:
            entries = run.entries
            assert entries is not None
            counts.add_rows(segment.number, len(run.partition_rows) // ROW_BYTES, entries.count)
            ranges.append(FileRange(entries.first_index, entries.last_index, segment))
            count, size = count + entries.count, size + entries.bytes
        ends: dict[int, int] = {}
        for segment, known_run in cold:
            counts.add_rows(segment.number, len(known_run.partition_rows) // ROW_BYTES,
                            known_run.records)
            ranges += [FileRange(*each, segment) for each in known_run.ranges]
            count += known_run.records
            size += known_run.records * segment.entry_bytes_mean
            for partition, end in known_run.ends():
                ends[partition] = max(end, ends.get(partition, 0))
        packed = [(each.packed_partitions, each.partition_rows, segment.number)
                  for segment, each in cold]
        packed += [(run.packed_partitions, run.partition_rows, segment.number)
                   for segment, run in files]
        for partition, (rows, end_offset) in join_rows(packed).items():
            if partition in ends:
                rows, end_offset = rows.ordered(), max(end_offset, ends[partition])
            state = states.applied(partition)
            known = PartitionRows(counts, 0, rows, end_offset)
            if state is None:
                dropped_bytes += known.drop_all()
                continue
            dropped_bytes += known.drop_below(state.log_start)
            if known:
                self.partition_index(partition).set_rows(known)
        self.records.restore(terms, ranges, self.raft_start)
        self.records.in_files = RecordTotals(count, size).without(dropped_bytes)

    def restore_copy(self, copy: Copy, states: PartitionStates) -> None:
        """Take the copy of a record of a known term, which an index file or a cold segment may
        have as well, unless it is below the log start."""
        state = states.applied(copy.partition)
        if state is None or copy.base_offset + copy.count <= state.log_start:
            return
        self.records.replace(copy.index, copy.term, copy.position, copy.size, self.raft_start)
        self._note_copy(copy.index)
        self.partition_index(copy.partition).repair(copy.base_offset, copy.count, copy.index,
                                                    copy.max_timestamp_ms)

    def take_moved(self, copies: Sequence[Copy]) -> None:
        """Take the places of records, ascending by index, which are in index files alone, and let
        memory answer for them.  O(records log n + records in memory with indexes between)."""
        self.records.take_moved(copies)
        by_partition: dict[int, list[Copy]] = {}
        for copy in copies:
            by_partition.setdefault(copy.partition, []).append(copy)
        for partition, batches in by_partition.items():
            self.partition_index(partition).insert(batches)

    def lose_file(self, segment: IndexedSegment, position: int) -> bool:
        """Count the records as missing for which the index file of a segment answered, because
        neither can be read; return False if it answered for none, or for more than ``HOLES_MAX``
        indexes: it stays in use then, for what can be read of it.  ``position``: a place in the
        segment at which no entry begins.  O(indexes there + partitions + rows)."""
        indexes = sum([last - first + 1 for first, last in self.records.ranges_of(segment)])
        if not 0 < indexes <= HOLES_MAX:
            return False
        files = {segment.number}
        dropped_bytes = sum([batches.drop_rows_of(files) for batches in self.partitions.values()])
        self.records.lose_file(segment, position, self.raft_start)
        self.records.in_files = self.records.in_files.without(dropped_bytes)
        return True

    def drop_rows(self) -> None:
        """Forget all records that are in index files alone, because the log is replaced.
        O(rows)."""
        for batches in self.partitions.values():
            batches.drop_rows()
        self.records.in_files = NO_RECORDS

    def is_copy_needed(self, entry: Entry, states: PartitionStates) -> bool:
        """Return True if the copy of a batch below the Raft start is to be kept: it is neither here
        nor below the log start that ``states`` have applied.  O(log n)."""
        state, batch = states.applied(entry.partition), entry.batch
        assert batch is not None
        return (state is not None and entry.base_offset + batch.count > state.log_start
                and (entry.index in self.records.missing or not self._is_record_here(entry.index)))

    def _is_record_here(self, index: int) -> bool:
        return index in self.records or self.records.in_file(index) is not None

    def take_copies(self, copies: Sequence[Copy], states: PartitionStates) -> int:
        """Add the batches of copies, ascending by index, to the records, except those that are here
        or that ``states``, the applied ones, do not need.  Return their number.

        O(copies log n + n for each place at which some of them belong)."""
        added: list[Copy] = []
        by_partition: dict[int, list[Copy]] = {}
        for copy in copies:
            state = states.applied(copy.partition)
            if (not copy.count or state is None
                    or copy.base_offset + copy.count <= state.log_start):
                continue
            if copy.index in self.records.missing:
                self._repair_record(copy)
            elif not self._is_record_here(copy.index):
                added.append(copy)
                self._note_copy(copy.index)
                by_partition.setdefault(copy.partition, []).append(copy)
        self.records.add(added, self.raft_start)
        for partition, batches in by_partition.items():
            self.partition_index(partition).insert(batches)
        return len(added)

    def _repair_record(self, copy: Copy) -> bool:
        """Take the copy of a missing record as ``repair`` does.  A copy without a batch tells that
        a hole is no record."""
        records = self.records
        if copy.index not in records.missing or records.term(copy.index) not in (
                UNKNOWN_TERM, copy.term):
            return False
        if not copy.count:
            records.remove((copy.index,), self.index.first_index)
            return True
        records.replace(copy.index, copy.term, copy.position, copy.size, self.index.first_index)
        self._note_copy(copy.index)
        self.partition_index(copy.partition).repair(copy.base_offset, copy.count, copy.index,
                                                    copy.max_timestamp_ms)
        return True

    def _note_copy(self, index: int) -> None:
        """Note that a batch is read from its copy in the journal.  Do nothing in an installed
        range, of which nothing but copies is in the journal.  O(ranges)."""
        if not any(each.first <= index <= each.last for each in self.installed):
            self.records.repaired.add(index)

    # ---- damage of the Raft log ------------------------------------------------------------------

    def may_have_term(self, index: int, term: int, taken: dict[int, int] = _NONE_TAKEN) -> bool:
        """Return True if a missing entry may be of that term.  Entries of unknown term are repaired
        in ascending order, so that terms never fall along the log; ``taken``: index -> term of
        those that are repaired in the same step.  O(lost)."""
        if not self.damage.is_term_unknown(index):
            return self.index.holds(index, term)
        behind = self.next_of_known_term(index)
        before = taken.get(index - 1) or self.index.term(index - 1)
        lowest = min({*self.damage.terms_unknown()} - taken.keys(), default=0)
        return (index == lowest and before <= term
                and (behind > self.index.last_index or term <= self.index.term(behind)))

    def next_of_known_term(self, index: int) -> int:
        """Return the first index behind ``index`` whose term is known, or the log's end + 1.
        O(lost)."""
        index += 1
        while self.damage.is_term_unknown(index):
            index += 1
        return index

    def append_lost(self, first: int) -> None:
        """Add entries up to ``first`` (exclusive) that existed and are lost, as missing entries of
        unknown term."""
        for index in range(self.index.last_index + 1, first):
            self.damage.lose_term(index)
        self.index.append_placeholders(first)

    def append_lost_of_last_term(self, first: int) -> None:
        """Add entries up to ``first`` (exclusive) that existed and are lost, as missing entries of
        the last entry's term."""
        for index in range(self.index.last_index + 1, first):
            self.damage.lose(index, None)
        self.index.append_placeholders(first)

    def place_of(self, index: int, journal: Journal) -> Place | None:
        """Return where an entry of the log stands; None = unknown.  O(log n)."""
        position = self.index.position(index)
        return journal.place_at(position) if position != UNKNOWN_POSITION else None

    def unreadable_ranges(self) -> list[tuple[int, int]]:
        """Return the journal ranges of missing entries and records, ascending, without those that
        are missing only because they may have been truncated; entries that touch share a range.
        O(missing)."""
        at = self.index
        entries = [(at.position(index), at.position(index) + at.size(index))
                   for index in self.damage.unreadable()
                   if at.position(index) != UNKNOWN_POSITION]
        return merged([*entries, *self.records.missing_ranges()])

    def records_after_tombstone(self, record: Entry) -> list[Entry]:
        """Return the REPAIR records to write right behind the tombstone of this replica, none
        behind another lifecycle record: without them its damaged entries could have been any other
        group's.  O(missing)."""
        if record.kind != EntryKind.TOMBSTONE:
            return []
        # Behind the tombstone: with records in front of it, a torn write could leave a log that
        # lost its end and does not know.  Without an index: what the group's next replica has of it
        # first is no copy.
        return [Entry(EntryKind.REPAIR, self.group, self.incarnation, 0, 0,
                      payload=REPAIR_STRUCT.pack(begin, end - begin))
                for begin, end in self.unreadable_ranges()]

    def append_journal_entries(self, write: GroupWrite, entries: list[Entry]) -> None:
        """Append the group's part of a round to ``entries``, as journal entries: lifecycle record
        (with REPAIR records behind a tombstone), truncation, entries, hard state."""
        record = write.lifecycle_record
        if record is not None:
            entries += [record, *self.records_after_tombstone(record)]
        if write.drop_from:
            in_head_recovery = self.damage.needs_head_recovery and (
                record or write.drop_from <= self.index.last_index
            )
            payload = TRUNCATED_IN_HEAD_RECOVERY if in_head_recovery else b""
            entries.append(Entry(EntryKind.SUFFIX_DROP, write.group, write.incarnation, 0,
                                 write.drop_from, payload=payload))
        entries.extend(write.entries)
        if write.hard_state is not None:
            term, vote = write.hard_state
            entries.append(Entry(EntryKind.HARD_STATE, write.group, write.incarnation, term, 0,
                                 payload=vote.to_bytes(4, "little")))

    def discard_superseded(self, index: int) -> None:
        """Discard an entry that was truncated: the entry that replaced it is lost, of unknown term.
        O(partitions)."""
        self.index.replace(index, UNKNOWN_POSITION, layout.ENTRY_HEADER_BYTES)
        self.damage.lose_term(index)
        for partition in self.partitions.values():
            partition.remove_batch(index)

    def is_obsolete(self, index: int, position: int) -> bool:
        """Return True if an entry at a journal position is not needed: its index is compacted, or
        an entry of that index was written behind it."""
        kept = self.index
        return index < kept.first_index or (index <= kept.last_index and index not in self.missing
                                            and kept.position(index) > position)

    def repair(self, copy: Copy) -> bool:
        """Set an entry's position to that of its copy, so that it is read from there and is no
        longer missing; a batch is in its partition's index then.  An unknown term becomes the
        copy's if it may be.  O(batches of the partition).

        Return False, and change nothing, if the log does not have the entry."""
        if copy.index < self.index.first_index:
            return self._repair_record(copy)
        if (self.damage.is_term_unknown(copy.index)
                and self.may_have_term(copy.index, copy.term)):
            self.index.set_term(copy.index, copy.term, self.next_of_known_term(copy.index))
        if not self.index.holds(copy.index, copy.term):
            return False
        self.index.replace(copy.index, copy.position, copy.size)
        self.damage.repair(copy.index)
        if copy.count:
            self._note_copy(copy.index)
            self.partition_index(copy.partition).repair(copy.base_offset, copy.count, copy.index,
                                                        copy.max_timestamp_ms)
        return True

    def partition_index(self, partition: int) -> PartitionIndex:
        """Return the index of a partition's batches, created if necessary."""
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionIndex(partition, self.group)
        return known

    def take_batches(self, partitions: dict[int, PartitionIndex]) -> None:
        """Move the batches of a run, which follow those of the log, out of ``partitions``.
        O(batches)."""
        for partition in [*partitions]:
            batches = partitions.pop(partition)
            if batches and partition not in self.partitions:
                self.partitions[partition] = batches
            else:
                self.partition_index(partition).extend(batches)

    def merge_hard_state(self, found: HardState) -> None:
        """Take a hard state from a segment if its term is later than the known one's.  In the same
        term, take it if the known one has no vote."""
        # Within a term a vote is final, so any vote replaces none.
        known = self.hard_state
        if found.term > known.term or (found.term == known.term and known.vote == 0):
            self.hard_state = found

    def raise_term(self) -> None:
        """Raise the term to that of the last entry, without a vote, if it is lower.

        A round's entries stand before its hard state, so a torn write can leave entries without the
        term; its vote had not been sent."""
        if self.index.last_term > self.hard_state.term:
            self.hard_state = HardState(self.index.last_term, 0)

    def truncate(self, first_removed: int) -> None:
        """Truncate the log from ``first_removed`` on.  O(removed entries + the group's
        partitions)."""
        # Records are committed: a truncation below the Raft start is of entries that are dropped.
        first_removed = max(first_removed, self.index.first_index)
        for index in range(first_removed, self.index.last_index + 1):
            self.cached.pop(index, None)
        self.index.truncate(first_removed)
        # A configuration counts as long as its entry is in the log, committed or not (thesis 4.1).
        while len(self.configurations) > 1 and self.configurations[-1][0] >= first_removed:
            self.configurations.pop()
        self.damage.truncate(first_removed)
        self.records.unneeded.drop_from(first_removed)
        for partition in self.partitions.values():
            partition.truncate(first_removed)

    def _check(self) -> None:
        """Assert every invariant, of the index and of the damage as well.  O(n)."""
        self.index._check()
        self.damage._check()
        first, last = self.index.first_index, self.index.last_index
        assert all(first <= index <= last for index in self.missing), f"{self.missing}"
        self.records._check(first)
        below = self._batches_below(first)
        assert all(index in self.records for index in below), f"{below} are no records"
        # A missing record of an index file has no slot.
        assert len(self.records) - len(below) <= len(self.records.missing), (
            f"records without a batch, of {below}")
        for batches in self.partitions.values():
            batches._check()
