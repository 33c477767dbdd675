"""Sparse index of one key, a group or a partition: where its rows begin in blocks of index files.

Contract.  A ``SparseIndex`` is immutable bytes, 24 a row: threads may share it.  A row stands for
the key's part of one block: the first entry index or base offset of the part, its place, and a
running value that never falls along the rows.  Look-ups are O(log n).

The running value of a group's row: framed bytes of its entries in the rows before.  That of a
partition's: the highest timestamp of the partition up to the end of the part.

Theory.  The place has the number of the file as the caller counts them, so that a row of a file's
summary becomes one of memory by one addition over all rows.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from multiraft import core
from multiraft.storage.errors import IndexTooLarge

ROW = struct.Struct("<qQq")
ROW_BYTES = ROW.size

assert sys.byteorder == "little" and ROW_BYTES == 3 * array("q").itemsize, "rows are read as arrays"

_FILE_BITS, _BLOCK_BITS, _SLOT_BITS = 20, 24, 10
assert _FILE_BITS + _BLOCK_BITS + 2 * _SLOT_BITS == 64
_BLOCK_AT, _FILE_AT = 2 * _SLOT_BITS, 2 * _SLOT_BITS + _BLOCK_BITS
_SLOT_MASK, _BLOCK_MASK = (1 << _SLOT_BITS) - 1, (1 << _BLOCK_BITS) - 1

#: Offsets are signed numbers of 64 bits; indexes share their place in a row.
FIRST_MAX = (1 << 63) - 1

#: More files than a journal of 64 TiB has at 64 MiB each.
FILES_MAX = 1 << _FILE_BITS
#: An index file of 64 GiB.  A segment of the largest size, 1 GiB of the smallest batches, needs
#: less than a hundredth of that.
BLOCKS_MAX = 1 << _BLOCK_BITS


class Row(NamedTuple):
    """A key's part of one block."""

    first: int  # entry index or base offset
    file: int
    block: int
    slot: int  # of the part's first row in the block
    count: int  # type: ignore[assignment]  # rows of the part
    value: int  # running, see the module


def pack_row(row: Row) -> bytes:
    """Return a row's 24 bytes.  Raise ``IndexTooLarge`` if a number has more bits than its
    place."""
    if row.first > FIRST_MAX:
        raise IndexTooLarge("an entry index or offset", FIRST_MAX, row.first)
    if row.file >= FILES_MAX:
        raise IndexTooLarge("the number of files", FILES_MAX, row.file + 1)
    if row.block >= BLOCKS_MAX:
        raise IndexTooLarge("the number of blocks", BLOCKS_MAX, row.block + 1)
    place = row.file << _FILE_AT | row.block << _BLOCK_AT | row.slot << _SLOT_BITS | row.count
    return ROW.pack(row.first, place, row.value)


def _row(first: int, place: int, value: int) -> Row:
    return Row(first, place >> _FILE_AT, place >> _BLOCK_AT & _BLOCK_MASK,
               place >> _SLOT_BITS & _SLOT_MASK, place & _SLOT_MASK, value)


def numbered(rows: bytes, file: int) -> bytes:
    """Return packed rows of file 0 as those of another file.  O(rows) of copying, no step per row.
    Raise ``IndexTooLarge`` for a file of a higher number than rows can have."""
    if file >= FILES_MAX:
        raise IndexTooLarge("the number of files", FILES_MAX, file + 1)
    numbers = ROW.pack(0, file << _FILE_AT, 0) * (len(rows) // ROW_BYTES)
    joined = int.from_bytes(rows, "little") | int.from_bytes(numbers, "little")
    return joined.to_bytes(len(rows), "little")


class SparseIndex:
    """Rows of one key in ascending order."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b""):
        self.data = data

    @classmethod
    def of(cls, rows: Iterable[Row]) -> SparseIndex:
        """Return the index with these rows.  Raises ``IndexTooLarge``."""
        return cls(b"".join(map(pack_row, rows)))

    def __len__(self) -> int:
        return len(self.data) // ROW_BYTES

    def __bool__(self) -> bool:
        return bool(self.data)

    def __iter__(self) -> Iterator[Row]:
        for first, place, value in ROW.iter_unpack(self.data):
            yield _row(first, place, value)

    def __getitem__(self, at: int) -> Row:
        return _row(*ROW.unpack_from(self.data, at * ROW_BYTES))

    def find(self, key: int) -> int:
        """Return the number of the last row that begins at or before ``key``; -1 = none."""
        unpack, data = ROW.unpack_from, self.data
        return bisect_right(range(len(self)), key,
                            key=lambda at: unpack(data, at * ROW_BYTES)[0]) - 1

    def find_value(self, value: int) -> int:
        """Return the number of the first row whose running value is at least ``value``; ``len`` =
        none."""
        unpack, data = ROW.unpack_from, self.data
        return bisect_left(range(len(self)), value,
                           key=lambda at: unpack(data, at * ROW_BYTES)[2])

    def of_files(self, files: Collection[int]) -> list[int]:
        """Return the numbers of the rows of some files, ascending.  O(rows)."""
        places = array("Q", self.data)[1::3]
        return [at for at, place in enumerate(places) if place >> _FILE_AT in files]

    def extended(self, later: SparseIndex, file: int) -> SparseIndex:
        """Return an index of these rows and those of ``later``, which are of file 0 and get the
        number ``file``.

        Raise as ``numbered``."""
        return SparseIndex(self.data + numbered(later.data, file))

    def ordered(self) -> SparseIndex:
        """Return an index with these rows in ascending order, none with a running value below one
        before.  O(rows log rows)."""
        firsts = array("q", self.data)[0::3]
        ordered = sorted(range(len(firsts)), key=firsts.__getitem__)
        if ordered == [*range(len(firsts))]:
            return self
        data = self.data
        return SparseIndex(b"".join([data[at * ROW_BYTES:(at + 1) * ROW_BYTES]
                                     for at in ordered])).raised()

    def raised(self) -> SparseIndex:
        """Return an index in which no running value is below one of the rows before.  O(rows)."""
        numbers = array("q", self.data)
        values = numbers[2::3]
        rising = array("q", accumulate(values, max))
        if rising == values:
            return self
        numbers[2::3] = rising
        return SparseIndex(numbers.tobytes())

    def added(self, before: int) -> SparseIndex:
        """Return an index whose running values are higher by ``before``.  O(rows)."""
        if not before:
            return self
        return SparseIndex.of(row._replace(value=row.value + before) for row in self)

    def _check(self) -> None:
        """Assert every invariant.  O(n)."""
        rows = [*self]
        assert all(row.count for row in rows)
        for name in ("first", "value"):
            values = [*map(attrgetter(name), rows)]
            assert values == sorted(values)
        assert len({row.first for row in rows}) == len(rows)


class JoinedRows(NamedTuple):
    """Rows of one partition in several files."""

    rows: SparseIndex
    end_offset: int  # after the last record there


def join_rows(files: Sequence[tuple[bytes, bytes, int]]) -> dict[int, JoinedRows]:
    """Return the rows of each partition that has some, with running values that never fall.

    ``files``: for each, in journal order, the partitions of a group in its summary, packed, their
    rows, of file 0, and the number that they get.  O(rows).  Raise as ``numbered``."""
    highest = max([file for _, _, file in files], default=0)
    if highest >= FILES_MAX:
        raise IndexTooLarge("the number of files", FILES_MAX, highest + 1)
    return {partition: JoinedRows(SparseIndex(rows), end)
            for partition, (rows, end) in core.join_index_rows(files).items()}
