"""Rows of blocks from the columns of a segment's indexes.

Contract.  ``RowWriter`` takes keys one after the other and fills blocks without gaps; what it
returns for a key are the key's rows of the summary.  Blocks of plain segments are packed by
``core.SegmentIndexer`` instead, and read by ``core.IndexRowReader``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import starmap
from operator import sub

from multiraft.storage.block_index.blocks import (
    BATCH_ROW,
    ENTRY_ROW,
    RECORD_ROW,
    ROW_BYTES,
    ROWS_PER_BLOCK,
    FileIdentity,
    pack_block,
)
from multiraft.storage.block_index.rows import Row, SparseIndex
from multiraft.storage.errors import IndexTooLarge
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import UNKNOWN_POSITION, GroupIndex, PartitionIndex

_U32_MAX = (1 << 32) - 1
_INDEX_MAX = (1 << 64) - 1  # above every index of an entry


class GroupColumns:
    """A group's entries in a segment, as columns of numbers that fit into rows."""

    __slots__ = ("first", "places", "ends", "sizes")

    def __init__(self, index: GroupIndex, start: int):
        """``start``: journal position of the segment.  Raises ``IndexTooLarge``."""
        self.first, positions, ends, _, _ = index.pack()
        self.places = _numbers(
            "the position of an entry",
            [each - start if each != UNKNOWN_POSITION else 0 for each in array("Q", positions)])
        self.ends = array("Q", ends)
        self.sizes = _numbers("the size of an entry", [*map(sub, self.ends, [0, *self.ends])])


class RowWriter:
    """Blocks of one kind, filled in the order of the keys."""

    def __init__(self, identity: FileIdentity, kind: int, first_block: int,
                 pause: Callable[[], None] | None = None):
        """``first_block``: number of the first block in its file; ``pause`` is called about every
        0.2 ms of work, None = never."""
        self.count = 0  # rows
        self.blocks: list[bytes] = []
        self._identity = identity
        self._kind = kind
        self._first_block = first_block
        self._pause = pause
        self._open = bytearray()  # rows of the block that is not full

    def add_entries(self, group: GroupColumns) -> SparseIndex:
        """Add a group's entries and return their rows of the summary.  O(entries).  Raises
        ``IndexTooLarge``."""
        rows, at, before = [], 0, 0
        while at < len(group.ends):
            row = self._place(group.first + at, len(group.ends) - at, before)
            stop = at + row.count
            columns = array("I", bytes(row.count * ENTRY_ROW.size))
            columns[0::2] = array("I", group.places[at:stop])
            columns[1::2] = array("I", _numbers(
                "the size of the entries of a block",
                [each - before for each in group.ends[at:stop]]))
            self._append(columns.tobytes())
            rows.append(row)
            at, before = stop, group.ends[stop - 1]
        return SparseIndex.of(rows)

    def add_batches(self, partition: PartitionIndex, group: GroupColumns) -> SparseIndex:
        """Add the batches of a partition of a group and return their rows of the summary.
        O(batches).  Raises ``IndexTooLarge``."""
        slots = [index - group.first for index in partition.indexes_below(_INDEX_MAX)]
        places, sizes = group.places, group.sizes
        return self.add_batches_at(partition, [places[slot] for slot in slots],
                                   [sizes[slot] for slot in slots])

    def add_batches_at(self, partition: PartitionIndex, places: Sequence[int],
                       sizes: Sequence[int]) -> SparseIndex:
        """Add the batches of a partition, which stand at ``places`` in the file with framed
        ``sizes``, as ``add_batches``."""
        _, end_offset, base_bytes, index_bytes, latest_bytes, gaps = partition.pack()
        bases, latest = array("q", base_bytes), array("q", latest_bytes)
        stops, moved = [*bases[1:], end_offset], dict(gaps)
        if moved:
            stops = [moved.get(base, stop) for base, stop in zip(bases, stops)]
        counts = _numbers("the number of records of a batch", [*map(sub, stops, bases)])
        indexes = array("Q", index_bytes)
        rows, at = [], 0
        while at < len(bases):
            row = self._place(bases[at], len(bases) - at, 0)
            stop = at + row.count
            columns = zip(bases[at:stop], latest[at:stop], indexes[at:stop], places[at:stop],
                          sizes[at:stop], counts[at:stop])
            self._append(b"".join(starmap(BATCH_ROW.pack, columns)))
            rows.append(row._replace(value=latest[stop - 1]))
            at = stop
        return SparseIndex.of(rows)

    def add_records(self, indexes: Sequence[int], places: Sequence[int],
                    sizes: Sequence[int]) -> SparseIndex:
        """Add the records of a group, ascending by index, and return their rows of the summary.
        O(records).  Raises ``IndexTooLarge``."""
        rows, at, before = [], 0, 0
        while at < len(indexes):
            row = self._place(indexes[at], len(indexes) - at, before)
            stop = at + row.count
            self._append(b"".join(starmap(RECORD_ROW.pack, zip(
                indexes[at:stop], places[at:stop], sizes[at:stop]))))
            rows.append(row)
            before += sum(sizes[at:stop])
            at = stop
        return SparseIndex.of(rows)

    def finish(self) -> list[bytes]:
        """Return all blocks; the last one may be short of rows."""
        if self._open:
            self._close_block()
        return self.blocks

    def _place(self, first: int, wanted: int, value: int) -> Row:
        slot = self.count % ROWS_PER_BLOCK[self._kind]
        return Row(first, 0, self._first_block + len(self.blocks), slot,
                   min(wanted, ROWS_PER_BLOCK[self._kind] - slot), value)

    def _append(self, rows: Buffer) -> None:
        self._open += rows
        self.count += len(rows) // ROW_BYTES[self._kind]
        if len(self._open) == ROWS_PER_BLOCK[self._kind] * ROW_BYTES[self._kind]:
            self._close_block()
        if self._pause is not None:
            self._pause()

    def _close_block(self) -> None:
        self.blocks.append(pack_block(self._identity, self._first_block + len(self.blocks),
                                      self._kind, self._open))
        self._open = bytearray()


def _numbers(what: str, values: list[int]) -> list[int]:
    """Return numbers that fit into 32 bits.  Raises ``IndexTooLarge``."""
    if values and not 0 <= min(values) <= max(values) <= _U32_MAX:
        raise IndexTooLarge(what, _U32_MAX, max(values, key=abs))
    return values
