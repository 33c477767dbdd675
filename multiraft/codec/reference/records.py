"""The walk over the records of a batch, as ``_reference`` specifies it.

Contract.  Part of ``_reference``.  Each length is compared with the bytes that are left
before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multiraft.codec import layout
from multiraft.codec.values import BatchHeader
from multiraft.errors import CorruptBatch

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


class Reader:
    """Cursor over record fields in ``view[at:end]``."""

    def __init__(self, view: memoryview, at: int, end: int):
        self.view = view
        self.at = at
        self.end = end

    def varint(self, bits: int) -> int:
        """Read a zigzag varint of at most ``bits`` (32 or 64); longer forms are accepted."""
        number = shift = 0
        while True:
            if self.at >= self.end:
                raise CorruptBatch(f"record field at byte {self.at} reaches past its end "
                                   f"{self.end}")
            byte = self.view[self.at]
            if shift + 7 > bits and byte >> (bits - shift):
                raise CorruptBatch(f"varint at byte {self.at} is longer than {bits} bits")
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    def sized(self, least: int) -> memoryview | None:
        """Read a length (at least ``least``; -1 = null) and return as many bytes."""
        started = self.at
        length = self.varint(32)
        if length < least or length > self.end - self.at:
            raise CorruptBatch(f"record field at byte {started}: length {length} does not fit the "
                               f"{self.end - self.at} bytes left")
        if length < 0:
            return None
        self.at += length
        return self.view[self.at - length:self.at]


def next_record(reader: Reader, base_timestamp_ms: int) -> Any:
    """Read one record: (offset delta, timestamp, key, value, headers), bytes as views."""
    started, block_end = reader.at, reader.end
    length = reader.varint(32)
    if length < 0 or length > reader.end - reader.at:
        raise CorruptBatch(f"record at byte {started}: length {length} does not fit the "
                           f"{reader.end - reader.at} bytes left")
    reader.end = reader.at + length
    if length == 0:
        raise CorruptBatch(f"record field at byte {reader.at} reaches past its end {reader.end}")
    reader.at += 1  # attributes: unused by the format
    timestamp_ms = base_timestamp_ms + reader.varint(64)
    if not _I64_MIN <= timestamp_ms <= _I64_MAX:
        raise CorruptBatch(f"record at byte {started}: timestamp overflows 64 bits")
    delta = reader.varint(32)
    key = reader.sized(-1)
    value = reader.sized(-1)
    headers_count = reader.varint(32)
    if not 0 <= headers_count <= layout.RECORD_HEADERS_MAX:
        raise CorruptBatch(f"record at byte {started}: {headers_count} headers, limit "
                           f"{layout.RECORD_HEADERS_MAX}")
    headers = [(reader.sized(0), reader.sized(-1)) for _ in range(headers_count)]
    if reader.at != reader.end:
        raise CorruptBatch(f"record at byte {started}: {reader.end - reader.at} bytes unused")
    reader.end = block_end
    return delta, timestamp_ms, key, value, headers


def require_records(header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` if the number of records or the last offset is out of range."""
    if not 0 <= header.count <= layout.BATCH_RECORDS_MAX:
        raise CorruptBatch(f"record count {header.count} is outside 0..{layout.BATCH_RECORDS_MAX}")
    if header.base_offset + max(0, header.last_offset_delta) > _I64_MAX:
        raise CorruptBatch(f"base offset {header.base_offset} overflows 64 bits")


def spans_of(header: BatchHeader, view: memoryview) -> Iterator[memoryview]:
    """Yield the bytes of each record of an uncompressed block, which is intact."""
    reader = Reader(view, 0, len(view))
    for _ in range(header.count):
        started = reader.at
        next_record(reader, header.base_timestamp_ms)
        yield view[started:reader.at]


def records_of(header: BatchHeader, view: memoryview) -> Iterator[tuple]:
    """Yield (offset delta, timestamp, key, value, headers) of each record of an uncompressed block.

    Each record of a batch with LogAppendTime has the batch's largest timestamp.  Keys, values and
    headers are views.  Raises ``CorruptBatch`` at the first fault.
    """
    require_records(header)
    reader, last_delta = Reader(view, 0, len(view)), -1
    for _ in range(header.count):
        started = reader.at
        record = next_record(reader, header.base_timestamp_ms)
        if not last_delta < record[0] <= header.last_offset_delta:
            raise CorruptBatch(f"record at byte {started}: offset delta {record[0]} is not above "
                               f"{last_delta} and at most {header.last_offset_delta}")
        if header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
            record = record[0], header.max_timestamp_ms, *record[2:]
        yield record
        last_delta = record[0]
    if reader.at != reader.end:
        raise CorruptBatch(f"{reader.end - reader.at} bytes after the last record")
