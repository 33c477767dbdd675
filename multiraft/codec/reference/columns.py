"""Records as columns: the plain twin of the compiled ``ColumnBuilder``.

Contract.  Part of ``_reference``.  The layout is Apache Arrow's (its columnar format, version 1):
a bitmap of rows that are not null, 32-bit ends, the bytes one after the other.

Theory.  The length of each record decides where the next record begins, so no array operation finds
records.  A walk finds them and copies each key and value once, into its column.
"""

from __future__ import annotations

from array import array

from multiraft.codec.reference.hashes import contiguous_bytes as _view
from multiraft.codec.reference.records import records_of
from multiraft.codec.values import BatchHeader, Buffer, BytesColumn, Columns, HeadersColumn

#: Most bytes of a column: its ends are 32-bit numbers.
COLUMN_BYTES_MAX = (1 << 31) - 1
#: The last millisecond whose microseconds fit 64 bits.
_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // 1000


class ColumnBuilder:
    """Collector of records as columns in the memory layout of Apache Arrow.

    ``keys``, ``values``, ``headers``: the columns to fill besides offset and timestamp.  Adding a
    record is O(bytes) amortised.
    """

    def __init__(self, keys: bool = True, values: bool = True, headers: bool = False) -> None:
        self._wanted = keys, values, headers
        self._rows: list[tuple] = []
        self._size = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def size(self) -> int:
        """Size of the rows in bytes: keys, values, headers, and 16 bytes per row."""
        return self._size

    def extend(self, header: BatchHeader, block: Buffer, first_offset: int, end_offset: int) -> int:
        """Add the records of a batch with first_offset <= offset < end_offset; return their number.

        ``block``: the uncompressed records.  A timestamp before 1970 (-1 = none), or one whose
        microseconds exceed 64 bits, becomes null.  In header names U+FFFD replaces bytes that are
        not UTF-8.  O(bytes of the block).

        Raises, with nothing changed, ``CorruptBatch`` as ``decode_records``, ``ValueError`` if a
        column would exceed 2 GiB.
        """
        keys, values, headers = self._wanted
        rows, size = [], self._size
        for delta, timestamp_ms, key, value, pairs in records_of(header, _view(block)):
            offset = header.base_offset + delta
            if first_offset <= offset < end_offset:
                row = (offset, timestamp_ms if 0 <= timestamp_ms <= _TIMESTAMP_MS_MAX else None,
                       _copy(key) if keys else None, _copy(value) if values else None,
                       [_readable(*pair) for pair in pairs] if headers else [])
                rows.append(row)
                size += 16 + sum(len(each) for each in (*row[2:4], *sum(row[4], ())) if each)
                if size - self._size > COLUMN_BYTES_MAX:
                    raise ValueError(f"a column would exceed {COLUMN_BYTES_MAX} bytes; take it "
                                     "before")
        self._rows += rows
        self._size = size
        return len(rows)

    def take(self) -> Columns:
        """Return all rows and start without rows.  The compiled twin does not copy its columns."""
        keys, values, headers = self._wanted
        rows, self._rows, self._size = self._rows, [], 0
        times = [row[1] for row in rows]
        names, fields = [], []
        for row in rows:
            names += [name for name, _ in row[4]]
            fields += [field for _, field in row[4]]
        return Columns(
            len(rows), bytearray(array("q", (row[0] for row in rows)).tobytes()),
            bytearray(array("q", (1000 * (time or 0) for time in times)).tobytes()),
            _bits([time is not None for time in times]) if None in times else None,
            _column([row[2] for row in rows]) if keys else None,
            _column([row[3] for row in rows]) if values else None,
            HeadersColumn(_ends([len(row[4]) for row in rows]), _column(names), _column(fields))
            if headers else None)


def _readable(name: memoryview, value: memoryview | None) -> tuple[bytes, bytes | None]:
    """Return a header with U+FFFD for bytes of its name that a column of text cannot hold."""
    return bytes(name).decode("utf-8", "replace").encode(), _copy(value)


def _copy(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


def _bits(flags: list[bool]) -> bytearray:
    bits = bytearray(-(-len(flags) // 8))
    for at, flag in enumerate(flags):
        bits[at // 8] |= flag << at % 8
    return bits


def _ends(lengths: list[int]) -> bytearray:
    ends = array("i", [0])
    for length in lengths:
        ends.append(ends[-1] + length)
    return bytearray(ends.tobytes())


def _column(fields: list[bytes | None]) -> BytesColumn:
    nulls = fields.count(None)
    return BytesColumn(
        nulls, _bits([field is not None for field in fields]) if nulls else None,
        _ends([len(field or b"") for field in fields]),
        bytearray(b"".join(field for field in fields if field is not None)))
