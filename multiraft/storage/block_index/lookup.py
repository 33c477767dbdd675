"""Look-ups of entries and batches of sealed segments, from rows in memory and blocks of files.

Contract.  ``Blocks`` returns a block's rows, from memory or from a file; the errors of that, such
as ``BlockNotCached``, pass through unchanged.  A look-up of one entry, one batch or one time asks
for one block.  Positions are within the segment of the row's file.

Theory.  The loop and the threads use the same functions: the loop's ``Blocks`` raises for a block
that is not in memory, those of a thread read it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from multiraft.storage.block_index.blocks import BATCH_ROW, ENTRY_ROW
from multiraft.storage.block_index.rows import Row, SparseIndex
from multiraft.storage.errors import CorruptIndex

#: (file, block) -> its rows
Blocks = Callable[[int, int], bytes]


class PlaceInFile(NamedTuple):
    """Place of a log's entry in a sealed segment."""

    file: int
    position: int  # in the segment
    size: int  # framed


class Batch(NamedTuple):
    """A partition's batch in a sealed segment."""

    base_offset: int
    end: int  # offset after its last record
    index: int  # type: ignore[assignment]  # in its group
    place: PlaceInFile
    latest: int  # highest timestamp of the partition in the segment up to this batch


# ---- (group, index) ------------------------------------------------------------------------------


def find_entry(rows: SparseIndex, index: int, blocks: Blocks) -> PlaceInFile | None:
    """Return where a group's entry is; None if ``rows`` does not have it.  One block."""
    at = rows.find(index)
    if at < 0:
        return None
    row = rows[at]
    slot = index - row.first
    if slot >= row.count:
        return None
    data = _part(row, ENTRY_ROW.size, blocks)
    position, end = ENTRY_ROW.unpack_from(data, slot * ENTRY_ROW.size)
    return PlaceInFile(row.file, position, end - _end_at(slot - 1, data))


def bytes_up_to(rows: SparseIndex, index: int, blocks: Blocks) -> int:
    """Return the framed bytes of a group's entries up to and including ``index``, which ``rows``
    has, counted as the running values are.  One block."""
    row = rows[rows.find(index)]
    return row.value + _end_at(index - row.first, _part(row, ENTRY_ROW.size, blocks))


def last_within(rows: SparseIndex, bytes_max: int, blocks: Blocks) -> int:
    """Return the highest index such that a group's entries up to it take at most ``bytes_max``,
    counted as the running values are; the index before the first one = none. ``rows`` is not
    empty. One block."""
    at = max(0, bisect_right(range(len(rows)), bytes_max, key=lambda at: rows[at].value) - 1)
    row = rows[at]
    data = _part(row, ENTRY_ROW.size, blocks)
    fit = bisect_right(range(row.count), bytes_max - row.value,
                       key=lambda slot: _end_at(slot, data))
    return row.first + fit - 1


def _end_at(slot: int, data: memoryview) -> int:
    """Return the framed bytes of a part's entries up to one of its slots; -1 = none."""
    if slot < 0:
        return 0
    return ENTRY_ROW.unpack_from(data, slot * ENTRY_ROW.size)[1]


# ---- (partition, offset or timestamp) ------------------------------------------------------------


def find_batch(rows: SparseIndex, offset: int, blocks: Blocks) -> Batch | None:
    """Return a partition's batch that holds ``offset``, or the last one before it; None if there
    is none.  One block."""
    return next(batches_from(rows, offset, blocks), None)


def find_timestamp(rows: SparseIndex, timestamp_ms: int, blocks: Blocks) -> Batch | None:
    """Return a partition's first batch up to which a record is at or after ``timestamp_ms``; None
    if there is none.  One block."""
    at = rows.find_value(timestamp_ms)
    if at == len(rows):
        return None
    row = rows[at]
    data = _part(row, BATCH_ROW.size, blocks)
    # Values in blocks begin anew with each segment.  No row before has the timestamp, so in this
    # part the first value that has it is the partition's first.  None has it if the timestamp is of
    # a row that was dropped: then the first batch that is left comes behind it.
    slot = bisect_left(range(row.count), timestamp_ms,
                       key=lambda slot: BATCH_ROW.unpack_from(data, slot * BATCH_ROW.size)[1])
    return _batch(row, slot if slot < row.count else 0, data)


def latest_below(rows: SparseIndex, offset: int, end_offset: int, blocks: Blocks) -> int | None:
    """Return the highest timestamp of a partition's batches that begin below ``offset``, and of
    dropped ones before them; None if there is none.  ``end_offset``: of the partition in ``rows``.
    One block."""
    at = rows.find(offset - 1)
    if at < 0:
        return None
    if at + 1 == len(rows) and offset >= end_offset:
        return rows[at].value  # the whole part is below
    row = rows[at]
    data = _part(row, BATCH_ROW.size, blocks)
    slot = bisect_left(range(row.count), offset,
                       key=lambda slot: BATCH_ROW.unpack_from(data, slot * BATCH_ROW.size)[0]) - 1
    latest = BATCH_ROW.unpack_from(data, slot * BATCH_ROW.size)[1]
    return max(latest, rows[at - 1].value) if at else latest


def batches_from(rows: SparseIndex, offset: int, blocks: Blocks) -> Iterator[Batch]:
    """Yield a partition's batches in ascending order, from the one that holds ``offset`` on, or
    from the last one before it.  A block is asked for when its first batch is due."""
    at = rows.find(offset)
    if at < 0:
        return
    row = rows[at]
    data = _part(row, BATCH_ROW.size, blocks)
    slot = bisect_right(range(row.count), offset,
                        key=lambda slot: BATCH_ROW.unpack_from(data, slot * BATCH_ROW.size)[0]) - 1
    while True:
        for each in range(slot, row.count):
            yield _batch(row, each, data)
        at, slot = at + 1, 0
        if at == len(rows):
            return
        row = rows[at]
        data = _part(row, BATCH_ROW.size, blocks)


def _batch(row: Row, slot: int, data: memoryview) -> Batch:
    base, latest, index, position, size, count = BATCH_ROW.unpack_from(data, slot * BATCH_ROW.size)
    return Batch(base, base + count, index, PlaceInFile(row.file, position, size), latest)


def _part(row: Row, row_bytes: int, blocks: Blocks) -> memoryview:
    """Return a key's rows of one block.  Raise ``CorruptIndex`` if the block ends before."""
    data = blocks(row.file, row.block)
    end = (row.slot + row.count) * row_bytes
    if len(data) < end:
        raise CorruptIndex(f"index file {row.file}", f"block {row.block} has {len(data)} bytes of "
                           f"rows, its summary says {end}")
    return memoryview(data)[row.slot * row_bytes:end]
