"""Rows of one partition's batches in the index files of many segments.

Contract.  Owned by the loop.  ``insert`` takes the rows of one file, ``drop_below`` drops those
below a log start, without reading a block.  Look-ups answer no batch that ends at or below the log
start; the errors of ``Blocks`` pass through unchanged.

Invariant.  ``RowCounts`` has as many rows of each file as all partitions have, so a file without
rows answers nothing and may go.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, final

from multiraft.storage.block_index.lookup import (
    Batch,
    Blocks,
    batches_from,
    find_timestamp,
    latest_below,
)
from multiraft.storage.block_index.rows import ROW_BYTES, Row, SparseIndex, pack_row


class RowCounts(Protocol):
    """Counts of the rows of all partitions by file."""

    def add_rows(self, file: int, count: int, batches: int) -> None:
        """Count rows of a file that a partition has from now on, and their batches."""

    def drop_row(self, row: Row) -> int:
        """Count a row that a partition no longer has, and return the estimated bytes of its
        batches."""


@final
class PartitionRows:
    """The batches of a partition that are in index files."""

    __slots__ = ("index", "end_offset", "log_start", "_counts")

    def __init__(self, counts: RowCounts, log_start: int = 0, index: SparseIndex | None = None,
                 end_offset: int = 0):
        """``index``: rows that are counted already."""
        self.index = index or SparseIndex()
        self.end_offset = end_offset  # after the last record
        self.log_start = log_start  # batches that end here or before are not answered
        self._counts = counts

    def __bool__(self) -> bool:
        return bool(self.index)

    @property
    def first_offset(self) -> int:
        """Lowest offset that is answered, if any is."""
        return max(self.log_start, self.index[0].first) if self.index else self.end_offset

    def insert(self, rows: SparseIndex, file: int, end_offset: int) -> None:
        """Add the rows of file 0 as those of ``file``, in which the partition ends at
        ``end_offset``.  No other file has batches between them.  O(rows)."""
        data, at = self.index.data, (self.index.find(rows[0].first) + 1) * ROW_BYTES
        added = SparseIndex().extended(rows, file).data
        self.index = SparseIndex(data[:at] + added + data[at:]).raised()
        self.end_offset = max(self.end_offset, end_offset)
        self._counts.add_rows(file, len(rows), sum(row.count for row in rows))

    def drop_below(self, log_start: int, count_max: int = sys.maxsize) -> int:
        """Raise the log start, drop the rows that are wholly below it, up to ``count_max``, and
        return the estimated bytes of their batches.  O(rows that go + moved bytes)."""
        self.log_start = max(self.log_start, log_start)
        index = self.index
        if not index or self.log_start <= index[0].first < self.end_offset:
            return 0
        # A part ends where the next one begins, or before.
        gone = (len(index) if self.end_offset <= self.log_start
                else max(0, index.find(self.log_start)))
        return self._drop(min(gone, count_max))

    def drop_all(self) -> int:
        """Drop all rows, because the partition or its log is gone, and return the estimated bytes
        of their batches.  O(rows)."""
        return self._drop(len(self.index))

    def replace(self, files: Collection[int], rows: Sequence[Row], end_offset: int) -> None:
        """Add ``rows``, ascending and all of one file, in which the partition ends at
        ``end_offset``, and drop the rows of ``files``, whose live batches have these rows or slots.
        No batch of another file is inside of one of the rows.  O(rows)."""
        self.drop_files(files)
        data, known, at = self.index.data, self.index, 0
        pieces = []
        for row in rows:
            here = known.find(row.first) + 1
            pieces += [data[at * ROW_BYTES:here * ROW_BYTES], pack_row(row)]
            at = here
        self.index = SparseIndex(b"".join([*pieces, data[at * ROW_BYTES:]])).raised()
        self.end_offset = max(self.end_offset, end_offset)
        if rows:
            self._counts.add_rows(rows[0].file, len(rows), sum(row.count for row in rows))

    def drop_files(self, files: Collection[int]) -> int:
        """Drop the rows of some files, because other places of their batches are known or the files
        cannot be read, and return the estimated bytes of their batches.  O(rows)."""
        index = self.index
        dropped = index.of_files(files)
        dropped_bytes = sum(self._counts.drop_row(index[at]) for at in dropped)
        pieces, end = [], 0
        for at in dropped:
            pieces.append(index.data[end:at * ROW_BYTES])
            end = (at + 1) * ROW_BYTES
        self.index = SparseIndex(b"".join([*pieces, index.data[end:]]))
        return dropped_bytes

    def _drop(self, count: int) -> int:
        dropped_bytes = sum(self._counts.drop_row(self.index[at]) for at in range(count))
        if count:
            self.index = SparseIndex(self.index.data[count * ROW_BYTES:])
        return dropped_bytes

    def part(self, offset: int, count_max: int) -> SparseIndex:
        """Return up to ``count_max`` rows, from the one that may hold ``offset`` on.  O(count)."""
        at = max(0, self.index.find(offset)) * ROW_BYTES
        return SparseIndex(self.index.data[at:at + count_max * ROW_BYTES])

    def batches_from(self, offset: int, blocks: Blocks) -> Iterator[Batch]:
        """Yield the batches that end behind ``offset``, in ascending order.  A block is asked for
        when its first batch is due."""
        return batches_behind(self.index, max(offset, self.log_start), blocks)

    def find_timestamp(self, timestamp_ms: int, blocks: Blocks) -> Batch | None:
        """Return the first batch up to which a record is at or after ``timestamp_ms``, or an
        earlier one; None = no record is.  One block."""
        return find_timestamp(self.index, timestamp_ms, blocks)

    def latest_below(self, offset: int, blocks: Blocks) -> int | None:
        """Return the highest timestamp of the batches that begin below ``offset``, those below the
        log start included as far as they are known; None = there is none.  One block."""
        return latest_below(self.index, offset, self.end_offset, blocks)


def batches_behind(rows: SparseIndex, offset: int, blocks: Blocks) -> Iterator[Batch]:
    """Yield the batches of a partition that end behind ``offset``, in ascending order."""
    if not rows:
        return
    for batch in batches_from(rows, max(offset, rows[0].first), blocks):
        if batch.end > offset:
            yield batch
