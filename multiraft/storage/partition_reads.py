"""Reads of a partition's batches from a store: by offset, by time, and for a check of one.

Contract.  Owned by the loop; no method blocks.  What is not in memory leaves as a job for a thread
(``io_jobs.py``), or raises ``BlockNotCached`` where a look-up needs a block of an index file first.

Invariant.  No record is passed over that a reader may not miss: where offsets do not continue, a
missing or uncopied record counts, except for the holes that compaction by key has left.
"""

from __future__ import annotations

from itertools import islice, takewhile

from multiraft.codec import layout
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.errors import BlockNotCached, OffsetTooLow, RecordsNotCopied
from multiraft.storage.index import IndexedBatch, PartitionIndex
from multiraft.storage.io_jobs import (
    Fetch,
    FetchJob,
    RowFetchJob,
    VerifyJob,
    select_batches,
)
from multiraft.storage.log_table import LogTable
from multiraft.storage.record_store import Unreadable
from multiraft.storage.stored_log import StoredLog
from multiraft.storage.uncopied_ranges import UncopiedRanges

#: Parts of blocks that a fetch reads whose blocks are not in memory: 512 KiB of records and more
#: where batches have 1 KiB, and few where a partition has little in each segment.
PARTS_PER_FETCH = 16

_ENTRY_HEADER_BYTES = layout.ENTRY_HEADER_BYTES


class PartitionReads:
    """Reads of the batches of all partitions of one store."""

    def __init__(self, table: LogTable):
        self._table = table

    def fetch(self, group: int, partition: int, offset: int, bytes_max: int,
              below_offset: int) -> Fetch:
        """Return whole batches of a partition in ``group``, from the one that holds ``offset`` on,
        with all records below ``below_offset``. They are as many as fit into ``bytes_max``, at
        least one.

        Batches come from memory or from a job that reads the disk, never mixed: a range that begins
        on disk ends where memory begins. Both are empty if nothing is readable; if an entry of the
        group is missing, or a record that the range needs, the job raises ``CorruptRange``. O(log
        n + batches). Raise ``OffsetTooLow`` if ``offset`` is below the first one here,
        ``RecordsNotCopied`` if its batch may be uncopied, ``UnknownGroup`` for a group without a
        log here."""
        log = self._table.logs.get(group) or self._table.log(group)
        batches = log.partitions.get(partition)
        if missing := log.damage.missing:
            if not batches:
                return Fetch([], None, offset, 0)
            # The partition's index may lack the same entries: an answer could skip over records.
            return self._missing(log, min(missing), offset)
        holes_below = self._holes_below(group, partition, offset)
        if batches is not None and offset < batches.rows_end and (
                batches.first_offset <= max(offset, holes_below)):
            return self._fetch_rows(log, batches, offset, bytes_max, below_offset, holes_below)
        if not log.records.is_complete and offset < below_offset:
            below_offset, lost = log.readable_below(partition, offset, below_offset)
            if lost and lost not in log.records.missing:
                raise RecordsNotCopied(group, partition, offset, lost)
            if lost:
                return self._missing(log, lost, offset)
        if not batches:
            return Fetch([], None, offset, 0)
        first = batches.find(offset)
        if first + 1 < len(batches) and batches.batch(first + 1)[0] <= holes_below and (
                first < 0 or batches.batch(first)[1] <= offset):
            first += 1  # compaction dropped the batch that held the offset
        if first < 0:
            if offset >= batches.first_offset:  # behind the batches in index files
                return Fetch([], None, offset, 0)
            raise OffsetTooLow(partition, offset, batches.first_offset)
        size_of, cached = log.size, log.cached
        is_cached = batches.batch(first)[2] in cached
        indexes: list[int] = []
        total, next_offset = 0, offset
        for slot in range(first, len(batches)):
            _, end, index = batches.batch(slot)
            size = size_of(index) - _ENTRY_HEADER_BYTES
            if end > below_offset or (indexes and total + size > bytes_max):
                break
            if end <= offset or (index in cached) != is_cached:
                break
            indexes.append(index)
            total += size
            next_offset = end
        if not indexes:
            return Fetch([], None, offset, 0)
        if is_cached:
            payloads = [cached[index].entry.payload for index in indexes]
            return Fetch(payloads, None, next_offset, total)
        return Fetch([], FetchJob(self._table.read_from_disk(log, indexes), next_offset),
                     next_offset, total)

    def _holes_below(self, group: int, partition: int, offset: int) -> int:
        """Return the offset below which compaction may have dropped the batch that held
        ``offset``; 0 = it did not.  O(1)."""
        state = self._table.partition_states[group].applied(partition)
        if state is None or offset < max(state.log_start, state.start_offset):
            return 0
        return state.compaction.up_to

    def _missing(self, log: StoredLog, index: int, offset: int) -> Fetch:
        return Fetch([], FetchJob(self._table.missing_job(log, index), offset), offset, 0)

    def _fetch_rows(self, log: StoredLog, batches: PartitionIndex, offset: int, bytes_max: int,
                    below_offset: int, holes_below: int) -> Fetch:
        """Return a fetch of batches of which some are in index files alone.

        Batches in memory are not mixed with others, and neither are those with a slot and those
        whose place is in a block that is not in memory."""
        cached, unreadable = log.cached, log.records.unreadable()

        def size_of(batch: IndexedBatch) -> int:
            return batch.place.size if batch.place is not None else log.size(batch.index)

        try:
            chosen = select_batches(batches.batches_from(offset, self._table.indexed.blocks),
                                    offset, below_offset, bytes_max, unreadable, size_of,
                                    holes_below)
        except BlockNotCached:
            return self._fetch_slot(log, batches, offset, below_offset) or self._fetch_blocks(
                log, batches, offset, bytes_max, below_offset, unreadable, holes_below)
        if isinstance(chosen, int):
            if not unreadable.is_missing(chosen):
                raise RecordsNotCopied(log.group, batches.partition, offset, chosen)
            return self._missing(log, chosen, offset)
        if not chosen:
            return Fetch([], None, offset, 0)
        is_cached = chosen[0].index in cached
        chosen = [*takewhile(lambda batch: (batch.index in cached) == is_cached, chosen)]
        total = sum(map(size_of, chosen)) - _ENTRY_HEADER_BYTES * len(chosen)
        next_offset = chosen[-1].end
        if is_cached:
            return Fetch([cached[batch.index].entry.payload for batch in chosen], None,
                         next_offset, total)
        read = self._table.read_places(log, [self._place_of(log, batch) for batch in chosen])
        return Fetch([], FetchJob(read, next_offset), next_offset, total)

    def _fetch_slot(self, log: StoredLog, batches: PartitionIndex, offset: int,
                    below_offset: int) -> Fetch | None:
        """Return a fetch of the batch that holds the offset, if that has a slot; else None."""
        slot = batches.find(offset)
        if slot < 0 or offset >= batches.batch(slot)[1]:
            return None
        _, end, index = batches.batch(slot)
        if end > below_offset:
            return Fetch([], None, offset, 0)
        if log.first_missing_of((index,)):
            return self._missing(log, index, offset)
        size = log.size(index) - _ENTRY_HEADER_BYTES
        if index in log.cached:
            return Fetch([log.cached[index].entry.payload], None, end, size)
        return Fetch([], FetchJob(self._table.read_from_disk(log, (index,)), end), end, size)

    def _place_of(self, log: StoredLog, batch: IndexedBatch) -> tuple[int, int, int, int]:
        """Return index, term, journal position and size of a batch."""
        place = batch.place
        if place is None:
            return batch.index, *log.locate(batch.index)
        start = self._table.indexed.with_number(place.file).segment.start
        return batch.index, log.records.term(batch.index), start + place.position, place.size

    def _fetch_blocks(self, log: StoredLog, batches: PartitionIndex, offset: int, bytes_max: int,
                      below_offset: int, unreadable: Unreadable, holes_below: int) -> Fetch:
        """Return a fetch whose job reads blocks of index files first, and so does not know its
        batches yet.  Batches with a slot are left to the next fetch."""
        assert batches.rows is not None
        rows = batches.rows.part(offset, PARTS_PER_FETCH)
        slot = batches.find(offset) + 1
        slot_base = batches.batch(slot)[0] if slot < len(batches) else 0
        if slot_base:
            below_offset = min(below_offset, slot_base)
        reader = self._table.indexed.reader(log.group, {row.file for row in rows})
        job = RowFetchJob(log.group, log.incarnation, batches.partition, rows, reader,
                          log.records.terms, unreadable, offset, below_offset, bytes_max,
                          self._table.read_gap_bytes_max,
                          batches.batch(slot - 1)[0] if slot else -1, holes_below, slot_base)
        return Fetch([], job, offset, job.bytes)

    def batches(self, group: int, partition: int, offset: int,
                count: int) -> list[tuple[int, int, int, int]]:
        """Return batches of a partition in ``group``, at most ``count``: from the one that holds
        ``offset`` on, or the next one behind it.  Each as (base offset, offset after its last
        record, index of its entry, bytes of its payload with padding).  Empty if there is none.

        Batches of the log's end are among them, whether committed or not, and none before which one
        may be uncopied.  O(log n + count).  Raise ``UnknownGroup`` for a group without a log here,
        ``BlockNotCached`` if a block of an index file has to be read first (``block_job``)."""
        log = self._table.log(group)
        batches = log.partitions.get(partition)
        if not batches:
            return []
        found = islice(log.copied_batches(batches, offset, self._table.indexed.blocks), count)
        return [(base, end, index, (place.size if place is not None else log.size(index))
                 - _ENTRY_HEADER_BYTES) for base, end, index, place in found]

    def first_at(self, group: int, partition: int, timestamp_ms: int, from_offset: int,
                 below_offset: int) -> int | None:
        """Return the offset at which to begin a search for the first record at or after
        ``timestamp_ms``: from ``from_offset`` up to it, no record of ``partition`` in ``group`` is
        so late. None if no batch that ends below ``below_offset`` can have such a record. O(log n).
        Raise ``UnknownGroup`` for a group without a log here, ``BlockNotCached`` if a block of an
        index file has to be read first (``block_job``).

        The offset is the first one of a batch with such a record, or ``from_offset`` when the batch
        that first reached the timestamp lies before it: the index has the highest timestamp so far,
        and batches after that one may be older again.  It is not behind the first record that may
        be missing or uncopied."""
        log = self._table.log(group)
        if not log.records.is_complete and from_offset < below_offset:
            readable, lost = log.readable_below(partition, from_offset, below_offset,
                                                self._table.indexed.blocks)
            if lost:
                return from_offset
            found = self._first_at(log, partition, timestamp_ms, from_offset, readable)
            return readable if found is None and readable < below_offset else found
        return self._first_at(log, partition, timestamp_ms, from_offset, below_offset)

    def _first_at(self, log: StoredLog, partition: int, timestamp_ms: int, from_offset: int,
                  below_offset: int) -> int | None:
        batches = log.partitions.get(partition)
        if not batches:
            return None
        blocks = self._table.indexed.blocks
        first = batches.first_since(timestamp_ms, blocks)
        if first is None:
            return None
        for base, end, _, _ in batches.batches_from(max(first, from_offset), blocks):
            return max(base, from_offset) if end <= below_offset else None
        return None

    def latest_below(self, group: int, partition: int, offset: int) -> int | None:
        """Return the highest timestamp of the batches before ``offset``, removed ones included;
        None = there is none.  Raise as ``first_at``."""
        batches = self._table.log(group).partitions.get(partition)
        return batches.latest_below(offset, self._table.indexed.blocks) if batches else None

    def verify_job(self, group: int, partition: int, offset: int) -> VerifyJob | None:
        """Return a job that checks the batch of ``group`` that holds ``offset``: its bytes on disk,
        and its copy in memory if there is one.

        None when this store has no such batch, or not durably. Raise ``UnknownGroup`` for a group
        without a log here."""
        log = self._table.log(group)
        batches = log.partitions.get(partition)
        if batches is not None and offset < batches.rows_end:
            return self._verify_rows(log, batches, offset)
        slot = batches.find(offset) if batches else -1
        if batches is None or slot < 0 or offset >= batches.batch(slot)[1]:
            return None
        index = batches.batch(slot)[2]
        _, position, size = log.locate(index)
        if not is_cold(position) and position + size > self._table.journal.durable:
            return None
        cached = log.cached.get(index)
        return VerifyJob(self._table.read_from_disk(log, (index,)), index,
                          cached.entry.payload if cached is not None else None)

    def _verify_rows(self, log: StoredLog, batches: PartitionIndex,
                     offset: int) -> VerifyJob | None:
        """Return a job that checks a batch which is perhaps in index files alone, and durable."""
        if offset < batches.first_offset:
            return None
        blocks = self._table.indexed.blocks
        try:
            batch = next(batches.batches_from(offset, blocks), None)
        except BlockNotCached:
            job = self._fetch_blocks(log, batches, offset, 0, 1 << 62,
                                     Unreadable((), UncopiedRanges()), 0).job
            assert isinstance(job, RowFetchJob)
            return VerifyJob(job, 0, None)
        if batch is None or batch.base_offset > offset:
            return None
        cached = log.cached.get(batch.index)
        return VerifyJob(self._table.read_places(log, [self._place_of(log, batch)]), batch.index,
                         cached.entry.payload if cached is not None else None)
