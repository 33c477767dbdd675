"""Compactions of the partitions of one store: which is due, and what carries it out.

Contract.  Owned by the loop.  ``ordered`` takes a committed compact entry.  ``next_marking`` ->
(a thread executes its steps) -> ``marked`` -> ``sources`` -> the cleaner's ``surveys`` and
``copy_job`` with ``compaction`` -> ``copied`` -> ... -> ``is_carried_out`` once all kept
checkpoints name the copies.  One compaction at a time; ``abandon`` ends it early, and it is begun
anew later.

Invariants.  A compaction begins only when no cold segment waits for checkpoints, and the cleaner
chooses no sources of its own until all of its ``sources`` are copied, so the places that were
examined stay.  A batch is dropped only where the copies of all records of its group in a segment
answer instead of it.

Theory.  What survives is a function of the partition's batches, so a compaction that a crash ended
is begun again, on batches that lack some of what it would have dropped.  ``carried_out`` counts a
compaction once all kept checkpoints have it: what it dropped does not return then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from multiraft.storage.block_index.rows import SparseIndex
from multiraft.storage.cold.cleaner import Cleaner
from multiraft.storage.cold.cleaning_policy import Sources
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.compaction.compacted_parts import SOURCES_MAX, existing
from multiraft.storage.compaction.marking import Marking, Order
from multiraft.storage.compaction.partition_batches import (
    PartitionBatches,
    PartitionFiles,
    SlotColumns,
)
from multiraft.storage.compaction.surviving_batches import Decompress, SurvivingBatches
from multiraft.storage.index import PartitionIndex
from multiraft.storage.journal.journal import Segment
from multiraft.storage.log_table import LogTable
from multiraft.storage.record_store import CompactedPart
from multiraft.storage.stored_log import StoredLog

#: Partitions that one call of ``next_marking`` examines.
EXAMINED_PER_CALL = 64
#: Segments whose records one copy of a compaction reads.
SOURCES_PER_COPY = 64


class _Key(NamedTuple):
    group: int
    partition: int


class _Current(NamedTuple):
    """The compaction that is under way."""

    key: _Key
    order: Order
    marking: Marking


class Compactor:
    """Compactions of the partitions of one store."""

    def __init__(self, table: LogTable, cleaner: Cleaner, decompress: Decompress, seed: int,
                 checkpoints_kept: int):
        """``seed``: of the hashes of keys, 64 bits that clients do not know; ``checkpoints_kept``:
        those that a start may use."""
        self._seed = seed
        self._checkpoints_kept = checkpoints_kept
        self.examined_bytes = 0  # of batches, since the start
        self._table = table
        self._cleaner = cleaner
        self._decompress = decompress
        self._due: dict[_Key, None] = {}  # the one that was examined longest ago first
        self._checkpoints = 0  # since the start
        self._recorded: dict[_Key, int] = {}  # ``_checkpoints`` when a compaction ended
        self._numbers: set[int] = set()  # of the cold segments of the compaction under way
        self._sources: set[int] = set()  # of the compaction under way, that are copied
        self._with_sources: set[_Key] = set()  # partitions that name some
        self._begins: dict[_Key, tuple[int, int]] = {}  # generation, end of the last marking
        self._current: _Current | None = None
        self._left: list[int] = []  # starts of sources that are to be copied
        for group, states in table.partition_states.items():
            for key in [_Key(group, partition) for partition in states.compacted()]:
                if self._order_of(key) is not None:
                    self._due[key] = None
        for group, log in table.logs.items():
            self._with_sources.update([_Key(group, partition) for partition, part
                                       in log.records.compacted.items() if part.sources])

    @property
    def is_busy(self) -> bool:
        """True while a compaction is under way."""
        return self._current is not None

    @property
    def compaction(self) -> SurvivingBatches | None:
        """The batches that the compaction under way drops or changes; None = they are not known."""
        current = self._current
        return current.marking.result if current is not None and current.marking.is_done else None

    @property
    def waiting(self) -> int:
        """Number of partitions whose last compact entry is not carried out."""
        return len(self._due)

    def carried_out(self, group: int, partition: int) -> int:
        """Return the generation of the last compaction of a partition that is carried out, and that
        all kept checkpoints have; 0 = there is none.  O(1)."""
        since = self._recorded.get(_Key(group, partition), 0)
        if self._checkpoints - since < self._checkpoints_kept:
            return 0
        return self._generation(_Key(group, partition))

    def checkpointed(self) -> None:
        """Take a checkpoint that is durable, and forget the sources that are gone.  O(partitions
        with sources * segments)."""
        self._checkpoints += 1
        for key in [*self._with_sources]:
            log = self._table.logs.get(key.group)
            part = log.records.compacted.get(key.partition) if log is not None else None
            if log is None or part is None:
                self._with_sources.discard(key)
                continue
            sources = tuple([each.start for each in existing(self._table, part.sources)])
            if sources != part.sources:
                log.records.compacted[key.partition] = part._replace(sources=sources)
            if not sources:
                self._with_sources.discard(key)

    def _generation(self, key: _Key) -> int:
        log = self._table.logs.get(key.group)
        part = log.records.compacted.get(key.partition) if log is not None else None
        return part.generation if part is not None else 0

    def ordered(self, group: int, partition: int) -> None:
        """Take a compact entry of a partition that was applied.  O(1)."""
        self._due[_Key(group, partition)] = None

    # ---- examination ---------------------------------------------------------------------------

    def next_marking(self, memory_bytes: int) -> Marking | None:
        """Begin the compaction of a partition that is due, if one can be carried out now; None =
        none can.  O(``EXAMINED_PER_CALL`` + batches of the partition in memory + rows)."""
        assert self._current is None, "one compaction at a time"
        if self._cleaner.waiting:
            return None
        for key in [*self._due][:EXAMINED_PER_CALL]:
            del self._due[key]
            order = self._order_of(key)
            if order is None:
                continue
            self._due[key] = None  # behind the others
            files = self._files_of(key, order)
            if files is None:
                continue
            generation, begin = self._begins.get(key, (0, 0))
            batches = PartitionBatches(self._table.filesystem, files, order.up_to)
            marking = Marking(batches, order, memory_bytes, self._decompress,
                              self._seed, begin if generation == order.generation else 0)
            self._current = _Current(key, order, marking)
            return marking
        return None

    def _order_of(self, key: _Key) -> Order | None:
        """Return what is to be carried out; None if it was, or the partition is gone."""
        states = self._table.partition_states.get(key.group)
        state = states.applied(key.partition) if states is not None else None
        if state is None or state.compaction.generation <= self._generation(key):
            return None
        return Order(*state.compaction)

    def _files_of(self, key: _Key, order: Order) -> PartitionFiles | None:
        """Return where the batches are; None if some of them may not be copied yet, or cannot be
        read."""
        log = self._table.logs.get(key.group)
        state = self._table.partition_states[key.group].applied(key.partition)
        if log is None or state is None or log.removed or log.missing or (
                not log.records.is_complete):
            return None
        batches = log.partitions.get(key.partition)
        if batches is None:
            batches = PartitionIndex(key.partition, key.group)
        bases, indexes, ends, end_offset = batches.columns()
        count = bisect_left(bases, order.up_to)
        if count and indexes[count - 1] >= log.raft_start:
            return None
        places = log.records.places_from(indexes[0], indexes[count - 1] if count else 0) if (
            indexes) else log.records.places_from(1, 0)
        slots = SlotColumns(bases[:count], indexes[:count], ends,
                            bases[count] if count < len(bases) else end_offset, *places)
        rows = batches.rows.index if batches.rows is not None else SparseIndex()
        segments = self._segments_of(log, slots, rows, order.up_to)
        if segments is None:
            return None
        numbers = {row.file for row in rows}
        # A reader finds the places of these; what is in memory may be without effect soon.
        for index in [index for index in log.cached if index < log.raft_start]:
            del log.cached[index]
        return PartitionFiles(
            key.group, log.incarnation, key.partition, max(state.log_start, state.start_offset),
            log.records.terms, rows, slots, segments, self._table.indexed.reader(key.group,
                                                                                 numbers))

    def _segments_of(self, log: StoredLog, slots: SlotColumns, rows: SparseIndex,
                     up_to: int) -> list[Segment | ColdSegment] | None:
        """Return the segments of the batches, ascending by start; None if one may not be copied."""
        own = {*slots.indexes}
        found = {}
        for index, position in zip(slots.record_indexes, slots.positions, strict=True):
            if index in own:
                segment = self._table.journal.file_of(position)
                found[segment.start] = segment
        for row in rows:
            segment = self._table.indexed.with_number(row.file).segment
            if row.first < up_to:
                found[segment.start] = segment
        if found.keys() - self._cleaner.examined().keys():
            return None
        return [found[start] for start in sorted(found)]

    # ---- copies --------------------------------------------------------------------------------

    def marked(self) -> None:
        """Take the marking under way, which is done.  O(sources log sources)."""
        assert self._current is not None and self._current.marking.is_done
        self.examined_bytes += self._current.marking.bytes
        self._left = sorted(self._current.marking.sources)
        self._numbers.clear()
        if not self._begins.get(self._current.key, (0, 0))[1]:
            self._sources.clear()

    @property
    def sources(self) -> Sources:
        """The segments that are to be copied next; none = all are copied.  O(segments)."""
        known = self._cleaner.examined()
        return Sources(tuple([known[start] for start in self._left[:SOURCES_PER_COPY]
                              if start in known]))

    @property
    def lacks_sources(self) -> bool:
        """True if something is left to copy, and no source of it may be copied: segments were
        removed meanwhile, or have lost a record.  The compaction is to be abandoned then.
        O(segments)."""
        return bool(self._left) and not self.sources.segments

    def copied(self, done: Collection[int], number: int | None) -> bool:
        """Take a copy of ``sources`` whose records the cleaner has taken.  ``done``: its
        ``compacted_sources``; ``number``: of the cold segment, None = no record was left to copy.
        Return False if no source is done: the compaction is to be abandoned."""
        if number is not None:
            self._numbers.add(number)
        self._sources.update(done)
        before = len(self._left)
        self._left = [start for start in self._left if start not in done]
        return len(self._left) < before

    @property
    def is_carried_out(self) -> bool:
        """True if all sources of the compaction under way are copied, and all kept checkpoints name
        the copies."""
        return (self.compaction is not None and not self._left
                and not any(map(self._cleaner.is_waiting, self._numbers)))

    def finish(self) -> bool:
        """End the compaction under way, which is carried out.  Return False if that was of those
        batches alone that memory had marks for: it continues behind them."""
        assert self._current is not None and self.is_carried_out
        key, order, marking = self._current
        self._current = None
        if marking.is_partial:
            self._begins[key] = order.generation, marking.result.end_offset
            return False
        self._begins.pop(key, None)
        self._record(key, order)
        if self._order_of(key) is None:
            self._due.pop(key, None)
        return True

    def _record(self, key: _Key, order: Order) -> None:
        """Record a compaction that is carried out, for checkpoints and ``carried_out``."""
        log = self._table.logs.get(key.group)
        if log is None:
            return
        known = log.records.compacted.get(key.partition)
        sources = {each.start for each in existing(
            self._table, self._sources.union(known.sources if known is not None else ()))}
        generation = order.generation if len(sources) <= SOURCES_MAX else 0
        log.records.compacted[key.partition] = CompactedPart(
            generation, order.up_to, tuple(sorted(sources)))
        self._with_sources.add(key)
        self._recorded[key] = self._checkpoints

    def replaced(self, group: int) -> None:
        """Forget what was carried out in a group whose log was replaced or removed: what it has now
        is examined once more.  O(partitions of the group)."""
        log = self._table.logs.get(group)
        if log is not None:
            known = log.records.compacted
            known.update({each: part._replace(generation=0) for each, part in known.items()})
        for key in [key for key in self._begins if key.group == group]:
            del self._begins[key]
        if self._current is not None and self._current.key.group == group:
            self.abandon()
        states = self._table.partition_states.get(group)
        for partition in states.compacted() if states is not None else ():
            self._due[_Key(group, partition)] = None

    def abandon(self) -> None:
        """End the compaction under way; it begins anew later."""
        self._current, self._left = None, []
