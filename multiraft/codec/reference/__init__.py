"""The hot path in plain Python: the specification that ``_core`` has to match, byte for byte.

Contract.  Same names, signatures, docstrings, results, exception types and messages as the compiled
twin; ``_core.pyi`` takes the surface of both from here.  Written to be read: ``struct`` and loops.
Inputs are hostile until checked: each length field is compared with the bytes that are left before
it is used.  ``_reference_*`` are parts of this module.

Invariants.  A batch is changed after encoding in two places only, base offset and leader epoch,
both outside its CRC.  An entry's bytes are covered completely: header and the first 21 payload
bytes by the entry CRC, the rest of a DATA payload by the batch CRC, the rest of any other payload
by the entry CRC again.

Theory.  RecordBatch v2 is Kafka's (KIP-98); varints are protobuf's zigzag varints.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from multiraft.codec import layout
from multiraft.codec.reference.cbor import decode_header, encode_header
from multiraft.codec.reference.columns import ColumnBuilder
from multiraft.codec.reference.disk import DiskQueue, append_gathered, trim_memory, unset_memory
from multiraft.codec.reference.hashes import contiguous_bytes as _view
from multiraft.codec.reference.hashes import crc32c, default_groups, jump_hash, murmur2
from multiraft.codec.reference.index import GroupColumns, PartitionColumns
from multiraft.codec.reference.index_rows import IndexRowReader, join_index_rows, pack_rows
from multiraft.codec.reference.key_table import (
    KeyTable,
    compacted,
    surviving_marks,
    surviving_records,
)
from multiraft.codec.reference.records import Reader, next_record, records_of, require_records
from multiraft.codec.values import (
    BatchHeader,
    Buffer,
    BytesColumn,
    Checked,
    Columns,
    Header,
    HeadersColumn,
    Indexed,
    PackedIndex,
    Record,
    Scan,
    ScannedEntry,
)
from multiraft.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptEntry,
    InvalidBatch,
    RecordTooLarge,
)
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

__all__ = [
    "SOURCE_DIGEST", "BatchBuilder", "BatchHeader", "BytesColumn", "Checked", "ColumnBuilder",
    "Columns", "DiskQueue", "HeadersColumn", "IndexRowReader", "Indexed", "KeyTable",
    "PackedIndex", "Record", "Scan", "ScannedEntry", "SegmentIndexer",
    "append_gathered", "batch_header", "batch_info", "check_batch", "check_entries",
    "compact_batch", "crc32c",
    "decode_header", "decode_records", "default_groups", "encode_header", "find_entry",
    "find_record", "frame_entries", "join_index_rows", "jump_hash", "keyless_records",
    "murmur2", "parse_entries", "scan_entries", "split_batches",
    "staged_batches", "stamp_append_time", "stamp_batch",
    "stamp_producer", "surviving_marks", "surviving_records",
    "trim_memory", "unset_memory", "verify_batch",
]

#: The compiled twin has the hash of its sources here.
SOURCE_DIGEST = "reference"

#: Timestamps a builder takes: with these bounds no difference of two overflows 64 bits.
TIMESTAMP_MS_MAX = (1 << 62) - 1

_BATCH = struct.Struct(">qiibIhiqqqhii")
_ENTRY = struct.Struct("<IIIBBHIIQQQqQ")

assert _BATCH.size == layout.BATCH_HEADER_BYTES
assert _ENTRY.size == layout.ENTRY_HEADER_BYTES
assert layout.BATCH_CRC_AT == struct.calcsize(">qiib")
assert layout.BATCH_ATTRIBUTES_AT == struct.calcsize(">qiibI") == layout.BATCH_UNCHECKED_BYTES
assert layout.BATCH_PRODUCER_ID_AT == struct.calcsize(">qiibIhiqq")
assert layout.BATCH_RECORDS_COUNT_AT == struct.calcsize(">qiibIhiqqqhi")
assert layout.ENTRY_KIND_AT == struct.calcsize("<III")
assert layout.ENTRY_GROUP_AT == struct.calcsize("<IIIBBH")
assert layout.ENTRY_PARTITION_AT == struct.calcsize("<IIIBBHIIQQ")
assert layout.ENTRY_DURABLE_AT == struct.calcsize("<IIIBBHIIQQQq")

_KINDS = {int(kind): kind for kind in EntryKind}
_I64_MAX = (1 << 63) - 1


# ---- Varints -----------------------------------------------------------------------------------

def _varint(number: int) -> bytes:
    """Return the zigzag varint of a signed number of at most 64 bits."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# ---- Batches: encode ---------------------------------------------------------------------------

def _bytes_or_none(name: str, field: Any) -> bytes:
    """Return ``field`` with its varint length in front."""
    if field is None:
        return _varint(-1)
    if not isinstance(field, bytes):
        raise TypeError(f"{name} must be bytes or None, not {type(field).__name__}")
    return _varint(len(field)) + field


def _encode_headers(headers: Any) -> bytes:
    headers = headers if isinstance(headers, (tuple, list)) else tuple(headers)
    if len(headers) > layout.RECORD_HEADERS_MAX:
        raise RecordTooLarge(f"record with {len(headers)} headers exceeds RECORD_HEADERS_MAX="
                             f"{layout.RECORD_HEADERS_MAX}")
    out = [_varint(len(headers))]
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError("a header must be a pair of str and bytes or None")
        name, field = header
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {type(name).__name__}")
        name = name.encode("utf-8", "surrogateescape")
        out += _varint(len(name)), name, _bytes_or_none("header value", field)
    return b"".join(out)


class BatchBuilder:
    """Encoder of records into one RecordBatch v2, record by record.

    ``bytes_max`` limits the whole uncompressed batch, header included: 62 .. BATCH_BYTES_MAX bytes.
    The constructor raises ``ValueError`` for another limit.  Adding a record is O(bytes) amortised.
    """

    def __init__(self, bytes_max: int) -> None:
        bytes_max = operator.index(bytes_max)
        if not layout.BATCH_HEADER_BYTES < bytes_max <= layout.BATCH_BYTES_MAX:
            raise ValueError(f"bytes_max={bytes_max} is outside {layout.BATCH_HEADER_BYTES + 1}.."
                             f"{layout.BATCH_BYTES_MAX}")
        self._bytes_max = bytes_max
        self.clear()

    def clear(self) -> None:
        """Remove all records.  The compiled twin keeps its memory for the next batch."""
        self._block = bytearray()
        self._count = 0
        self._base_timestamp_ms = self._max_timestamp_ms = 0

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self._count

    @property
    def size(self) -> int:
        """Size of the uncompressed batch in bytes, header included."""
        return layout.BATCH_HEADER_BYTES + len(self._block)

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None,
               headers: Sequence[Header] = ()) -> bool:
        """Add a record and return True; return False, with nothing changed, if the batch is full.

        The batch is full if the record would exceed ``bytes_max`` or BATCH_RECORDS_MAX.
        ``timestamp_ms``: milliseconds since 1970, -1 for none.  Header names are encoded as UTF-8;
        surrogate escapes become the bytes that they stand for.

        Raises, with nothing changed, ``RecordTooLarge`` for a record that exceeds ``bytes_max``
        alone or has more than RECORD_HEADERS_MAX headers, ``TypeError`` for a field of another
        type, ``ValueError`` for a timestamp outside -1 .. 2**62 - 1.
        """
        timestamp_ms = operator.index(timestamp_ms)
        if not -1 <= timestamp_ms <= TIMESTAMP_MS_MAX:
            raise ValueError(f"timestamp_ms={timestamp_ms} is outside -1..{TIMESTAMP_MS_MAX}")
        tail = (_bytes_or_none("key", key) + _bytes_or_none("value", value)
                + _encode_headers(headers))
        alone = self._record(0, 0, tail)
        if layout.BATCH_HEADER_BYTES + len(alone) > self._bytes_max:
            raise RecordTooLarge(f"record of {len(alone)} bytes exceeds bytes_max="
                                 f"{self._bytes_max} with the batch header of "
                                 f"{layout.BATCH_HEADER_BYTES}")
        if self._count == 0:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        record = self._record(timestamp_ms - self._base_timestamp_ms, self._count, tail)
        if self.size + len(record) > self._bytes_max or self._count == layout.BATCH_RECORDS_MAX:
            return False
        self._block += record
        self._count += 1
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        return True

    @staticmethod
    def _record(timestamp_delta: int, offset_delta: int, tail: bytes) -> bytes:
        body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + tail
        return _varint(len(body)) + body

    def extend(self, timestamp_ms: int, values: Sequence[bytes], start: int = 0) -> int:
        """Add records with ``values[start:]`` until the batch is full; return the next index.

        The records have neither key nor headers.  The returned index is that of the first value not
        added.  A value that can never be added ends the call before that value and raises only as
        the first value of a call, so an exception means that no record was added.

        Raises ``RecordTooLarge``, ``TypeError`` and ``ValueError`` as ``append``, and
        ``ValueError`` for a negative ``start``.
        """
        values = values if isinstance(values, (tuple, list)) else tuple(values)
        if start < 0:
            raise ValueError(f"start={start} is negative")
        for at in range(start, len(values)):
            try:
                if not isinstance(values[at], bytes):
                    raise TypeError(f"value must be bytes, not {type(values[at]).__name__}")
                if not self.append(timestamp_ms, None, values[at]):
                    return at
            except (TypeError, RecordTooLarge):
                if at == start:
                    raise
                return at  # the next call starts with this value and raises
        return max(start, len(values))

    def records_block(self) -> bytes:
        """Return the encoded records without the batch header, for a compressor.  O(bytes)."""
        return bytes(self._block)

    def build(self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
              codec: int = 0, block: Buffer | None = None) -> bytearray:
        """Return the finished batch with base offset 0 and leader epoch -1.  O(bytes).

        ``block``: the records compressed with ``codec`` (1 gzip, 2 snappy, 3 lz4, 4 zstd); without
        both, the records are stored uncompressed.  Producer fields are -1 for a batch that is not
        idempotent.  The builder keeps its records, so the same batch can be built again with other
        producer fields.

        Raises ``ValueError`` for an empty batch, a field out of range, or a codec without a block,
        ``BatchTooLarge`` if the batch would exceed BATCH_BYTES_MAX.
        """
        if self._count == 0:
            raise ValueError("an empty batch cannot be built")
        _require_range("producer_id", producer_id, -1, _I64_MAX)
        _require_range("producer_epoch", producer_epoch, -1, (1 << 15) - 1)
        _require_range("base_sequence", base_sequence, -1, layout.SEQUENCE_MODULUS - 1)
        _require_range("codec", codec, layout.CODEC_NONE, layout.CODEC_ZSTD)
        if (codec == layout.CODEC_NONE) != (block is None):
            raise ValueError("a codec and a compressed block go together")
        block = _view(self._block if block is None else block)
        total = layout.BATCH_HEADER_BYTES + len(block)
        if total > layout.BATCH_BYTES_MAX:
            raise BatchTooLarge(f"batch of {total} bytes exceeds BATCH_BYTES_MAX="
                                f"{layout.BATCH_BYTES_MAX}")
        batch = bytearray(_BATCH.pack(
            0, total - layout.BATCH_LENGTH_OVERHEAD, -1, layout.BATCH_MAGIC, 0, codec,
            self._count - 1, self._base_timestamp_ms, self._max_timestamp_ms, producer_id,
            producer_epoch, base_sequence, self._count))
        batch += block
        crc = crc32c(memoryview(batch)[layout.BATCH_ATTRIBUTES_AT:])
        struct.pack_into(">I", batch, layout.BATCH_CRC_AT, crc)
        return batch


def _require_range(name: str, number: int, least: int, most: int) -> None:
    if not least <= operator.index(number) <= most:
        raise ValueError(f"{name}={number} is outside {least}..{most}")


# ---- Batches: check and decode -----------------------------------------------------------------

def batch_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Parse the 61 bytes of a batch header at byte ``at``; the CRC is not checked.

    Raises ``CorruptBatch`` if fewer bytes are left or the length field gives a size outside 61 ..
    BATCH_BYTES_MAX, ``ValueError`` for a negative ``at``.
    """
    if at < 0:
        raise ValueError(f"at={at} is negative")
    view = _view(data)
    left = max(0, len(view) - at)
    if left < layout.BATCH_HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are less than a batch header of "
                           f"{layout.BATCH_HEADER_BYTES}")
    fields = _BATCH.unpack_from(view, at)
    total = fields[1] + layout.BATCH_LENGTH_OVERHEAD
    if not layout.BATCH_HEADER_BYTES <= total <= layout.BATCH_BYTES_MAX:
        raise CorruptBatch(f"batch length field {fields[1]} gives {total} bytes, outside "
                           f"{layout.BATCH_HEADER_BYTES}..{layout.BATCH_BYTES_MAX}")
    return BatchHeader(fields[0], total, *fields[2:])


def _whole_header(view: memoryview) -> BatchHeader:
    header = batch_header(view)
    if header.total_bytes != len(view):
        raise CorruptBatch(f"batch length field gives {header.total_bytes} bytes, buffer has "
                           f"{len(view)}")
    return header


def _check_crc(view: memoryview, header: BatchHeader) -> None:
    crc = crc32c(view[layout.BATCH_ATTRIBUTES_AT:])
    if crc != header.crc:
        raise CorruptBatch(f"batch CRC is {crc:#010x}, its header says {header.crc:#010x}")


def verify_batch(data: Buffer) -> BatchHeader:
    """Check that ``data`` is exactly one intact batch and return its header.  O(bytes).

    Followers and consumers check length field, magic and CRC only; ``check_batch`` has the rules of
    a leader.

    Raises ``CorruptBatch``.
    """
    view = _view(data)
    header = _whole_header(view)
    if header.magic != layout.BATCH_MAGIC:
        raise CorruptBatch(f"batch magic {header.magic} is not {layout.BATCH_MAGIC}")
    _check_crc(view, header)
    return header


def _info(header: BatchHeader) -> BatchInfo:
    # More than the records behind a compaction.
    offsets = min(header.last_offset_delta, 0x7FFFFFFE) + 1
    return BatchInfo(offsets, header.producer_id, header.producer_epoch, header.base_sequence,
                     header.max_timestamp_ms, header.attributes & layout.ATTRIBUTE_CODEC_MASK)


def batch_info(data: Buffer) -> BatchInfo:
    """Parse the fields a node needs of a batch that was checked before; the CRC is not checked.

    Raises ``CorruptBatch`` as ``batch_header``.
    """
    return _info(batch_header(data))


def check_batch(data: Buffer) -> BatchInfo:
    """Check that a leader may append ``data``, which must be exactly one batch; return its fields.

    Checked are sizes, magic 2, CRC, base offset 0, a positive count, last offset delta equal to
    count - 1, CreateTime timestamps, no control batch, consistent producer fields, and that a batch
    is transactional exactly if STAGED_PRODUCER_MIN <= producer id <= STAGED_PRODUCER_MAX.  The
    records of an uncompressed batch are walked: offset deltas 0 .. count - 1, lengths, no bytes
    left over.  O(bytes).

    Raises ``CorruptBatch`` for a wrong CRC or length, ``BatchTooLarge`` above BATCH_BYTES_MAX or
    BATCH_RECORDS_MAX, ``InvalidBatch`` for any other fault.
    """
    view = _view(data)
    if len(view) > layout.BATCH_BYTES_MAX:
        raise BatchTooLarge(f"batch of {len(view)} bytes exceeds BATCH_BYTES_MAX="
                            f"{layout.BATCH_BYTES_MAX}")
    header = _whole_header(view)
    if header.magic != layout.BATCH_MAGIC:
        raise InvalidBatch(f"batch magic {header.magic} is not {layout.BATCH_MAGIC}")
    _check_crc(view, header)
    _check_fields(header)
    if header.attributes & layout.ATTRIBUTE_CODEC_MASK == layout.CODEC_NONE:
        _check_records(view, header)
    return _info(header)


def _check_fields(header: BatchHeader) -> None:
    """Raise ``InvalidBatch`` for an intact batch that a producer may not send."""
    if header.base_offset != 0:
        raise InvalidBatch(f"base offset {header.base_offset} is not 0")
    if header.attributes & ~(layout.ATTRIBUTE_CODEC_MASK | layout.ATTRIBUTE_TRANSACTIONAL):
        raise InvalidBatch(f"attributes {header.attributes & 0xFFFF:#06x}: control, LogAppendTime "
                           f"and unknown bits are not accepted")
    codec = header.attributes & layout.ATTRIBUTE_CODEC_MASK
    if codec > layout.CODEC_ZSTD:
        raise InvalidBatch(f"codec {codec} is unknown")
    staged = layout.STAGED_PRODUCER_MIN <= header.producer_id <= layout.STAGED_PRODUCER_MAX
    if header.attributes & layout.ATTRIBUTE_TRANSACTIONAL and not staged:
        raise InvalidBatch(f"a transactional batch of producer {header.producer_id}, which is no "
                           f"transaction of a sink")
    if staged and not header.attributes & layout.ATTRIBUTE_TRANSACTIONAL:
        raise InvalidBatch(f"producer {header.producer_id} is a transaction of a sink, whose "
                           f"batches are transactional")
    if header.count <= 0:
        raise InvalidBatch(f"record count {header.count} is not positive")
    if header.count > layout.BATCH_RECORDS_MAX:
        raise BatchTooLarge(f"batch of {header.count} records exceeds BATCH_RECORDS_MAX="
                            f"{layout.BATCH_RECORDS_MAX}")
    if header.last_offset_delta != header.count - 1:
        raise InvalidBatch(f"last offset delta {header.last_offset_delta} does not fit "
                           f"{header.count} records")
    if header.producer_id < -1:
        raise InvalidBatch(f"producer id {header.producer_id} is below -1")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch(f"producer {header.producer_id} with epoch {header.producer_epoch} and "
                           f"sequence {header.base_sequence}")


def _check_records(view: memoryview, header: BatchHeader) -> None:
    _keys_of(Reader(view, layout.BATCH_HEADER_BYTES, len(view)), header)


def _keys_of(reader: Reader, header: BatchHeader) -> list[memoryview | None]:
    """Return the keys of the records of a block, whose offset deltas must be 0 .. count - 1."""
    keys = []
    for expected in range(header.count):
        started = reader.at
        delta, _, key, *_ = next_record(reader, header.base_timestamp_ms)
        keys.append(key)
        if delta != expected:
            raise InvalidBatch(f"record at byte {started}: offset delta {delta}, expected "
                               f"{expected}")
    if reader.at != reader.end:
        raise CorruptBatch(f"{reader.end - reader.at} bytes after the last record")
    return keys


def stamp_batch(data: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch in place; the batch CRC covers neither.

    Raises ``BufferError`` for a read-only buffer, ``CorruptBatch`` for fewer than 61 bytes,
    ``ValueError`` for a number out of range.
    """
    view = _view(data)
    if view.readonly:
        raise BufferError("Object is not writable.")
    if len(view) < layout.BATCH_HEADER_BYTES:
        raise CorruptBatch(f"{len(view)} bytes are less than a batch header of "
                           f"{layout.BATCH_HEADER_BYTES}")
    _require_range("base_offset", base_offset, 0, _I64_MAX)
    _require_range("leader_epoch", leader_epoch, -1, (1 << 31) - 1)
    struct.pack_into(">q", view, layout.BATCH_BASE_OFFSET_AT, base_offset)
    struct.pack_into(">i", view, layout.BATCH_LEADER_EPOCH_AT, leader_epoch)


def stamp_producer(data: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write the producer fields into a batch in place and recompute its CRC.  O(bytes).

    A batch gets its sequence when it is sent, which may be long after ``BatchBuilder.build``.

    Raises as ``stamp_batch``.
    """
    view = _view(data)
    if view.readonly:
        raise BufferError("Object is not writable.")
    if len(view) < layout.BATCH_HEADER_BYTES:
        raise CorruptBatch(f"{len(view)} bytes are less than a batch header of "
                           f"{layout.BATCH_HEADER_BYTES}")
    _require_range("producer_id", producer_id, -1, _I64_MAX)
    _require_range("producer_epoch", producer_epoch, -1, (1 << 15) - 1)
    _require_range("base_sequence", base_sequence, -1, (1 << 31) - 1)
    struct.pack_into(">qhi", view, layout.BATCH_PRODUCER_ID_AT, producer_id, producer_epoch,
                     base_sequence)
    struct.pack_into(">I", view, layout.BATCH_CRC_AT,
                     crc32c(view[layout.BATCH_ATTRIBUTES_AT:]))


def stamp_append_time(data: Buffer, timestamp_ms: int) -> None:
    """Turn a batch into one with LogAppendTime, in place, and recompute its CRC.  O(bytes).

    Attribute bit 3 is set, and ``timestamp_ms`` becomes the largest timestamp, which is then the
    timestamp of each record.  Base timestamp and records stay, as in Kafka.  ``data`` must be
    exactly one batch.  Its old CRC is not checked: ``check_batch`` comes first.

    Raises ``BufferError`` for a read-only buffer, ``CorruptBatch`` for a wrong length or magic,
    ``ValueError`` for a negative time or one above 63 bits.
    """
    view = _view(data)
    if view.readonly:
        raise BufferError("Object is not writable.")
    header = _whole_header(view)
    if header.magic != layout.BATCH_MAGIC:
        raise CorruptBatch(f"batch magic {header.magic} is not {layout.BATCH_MAGIC}")
    _require_range("timestamp_ms", timestamp_ms, 0, _I64_MAX)
    struct.pack_into(">h", view, layout.BATCH_ATTRIBUTES_AT,
                     header.attributes | layout.ATTRIBUTE_LOG_APPEND_TIME)
    struct.pack_into(">q", view, layout.BATCH_MAX_TIMESTAMP_AT, timestamp_ms)
    struct.pack_into(">I", view, layout.BATCH_CRC_AT,
                     crc32c(view[layout.BATCH_ATTRIBUTES_AT:]))


def split_batches(data: Buffer) -> list[memoryview]:
    """Cut a fetch payload of whole batches into one view of ``data`` per batch, without copying.

    Each batch is checked as by ``verify_batch``.  O(bytes).

    Raises ``CorruptBatch``.
    """
    view = _view(data)
    batches, at = [], 0
    while at < len(view):
        total = batch_header(view, at).total_bytes
        if total > len(view) - at:
            raise CorruptBatch(f"batch length field gives {total} bytes, buffer has "
                               f"{len(view) - at}")
        batches.append(view[at:at + total])
        verify_batch(batches[-1])
        at += total
    return batches


def staged_batches(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """Return where the batches of transactions are in buffers of whole batches: the number of the
    buffer, and the position in it.  O(batches).

    Headers alone are read, and nothing else of a batch is checked.  Raises ``CorruptBatch`` for a
    buffer that does not end with a batch.
    """
    found = []
    for number, data in enumerate(buffers):
        view, at = _view(data), 0
        while at < len(view):
            header = batch_header(view, at)
            if header.total_bytes > len(view) - at:
                raise CorruptBatch(f"batch length field gives {header.total_bytes} bytes, buffer "
                                   f"has {len(view) - at}")
            if layout.STAGED_PRODUCER_MIN <= header.producer_id <= layout.STAGED_PRODUCER_MAX:
                found.append((number, at))
            at += header.total_bytes
    return found


def decode_records(header: BatchHeader, block: Buffer) -> list[Record]:
    """Decode the records of one batch from ``block``, which holds them uncompressed.  O(bytes).

    Offset deltas must ascend and may have the gaps of compaction.  Bytes of header names that are
    not UTF-8 become surrogate escapes, which ``BatchBuilder`` accepts.  Each record of a batch with
    LogAppendTime has the batch's largest timestamp.

    Raises ``CorruptBatch``.
    """
    view = _view(block)
    records = []
    for delta, timestamp_ms, key, value, headers in records_of(header, view):
        records.append(Record(
            header.base_offset + delta, timestamp_ms, _copy(key), _copy(value),
            tuple((bytes(name).decode("utf-8", "surrogateescape"), _copy(field))
                  for name, field in headers)))
    return records


def find_record(header: BatchHeader, block: Buffer, offset: int, time_ms: int
                ) -> tuple[int, int]:
    """Return offset and time of the first record at or behind ``offset`` that has ``time_ms`` or a
    later time, else of the first one with the largest time; (-1, -1) if no record is there.

    ``block`` and its checks as in ``decode_records``.  O(bytes), without the interpreter's lock.
    Raises ``CorruptBatch``.
    """
    there = [(record.offset, record.timestamp_ms) for record in decode_records(header, block)
             if record.offset >= offset]
    late = [found for found in there if found[1] >= time_ms]
    if late:
        return late[0]
    return max(there, key=lambda found: (found[1], -found[0]), default=(-1, -1))


def keyless_records(header: BatchHeader, block: Buffer, most: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of records without a key, and the positions in the batch of the first
    ``most`` of them.  An empty key is a key.

    ``block`` holds the records uncompressed, as a producer sends them: checked as by
    ``check_batch``.  O(bytes), without the interpreter's lock.

    Raises ``CorruptBatch``, ``InvalidBatch`` for wrong offset deltas, ``ValueError`` if ``most`` is
    not within 0 .. BATCH_RECORDS_MAX.
    """
    require_records(header)
    _require_range("most", most, 0, layout.BATCH_RECORDS_MAX)
    keyless = [at for at, key in enumerate(_keys_of(Reader(_view(block), 0, len(_view(block))),
                                                    header)) if key is None]
    return len(keyless), tuple(keyless[:most])


def compact_batch(data: Buffer, block: Buffer, marks: bytearray, first: int) -> bytearray:
    """Return the batch that has the records of another one that survive, uncompressed.

    ``data``: the other batch, or its first 61 bytes; ``block``: its uncompressed records.  Offsets,
    base timestamp, producer fields and leader epoch stay, so that the bytes of each record do; the
    largest timestamp is that of the records that survive, or stays in a batch with LogAppendTime.
    The result depends on these records and that header alone.  O(bytes), without the interpreter's
    lock.

    Raises ``CorruptBatch``, ``BatchTooLarge`` above BATCH_BYTES_MAX, ``ValueError`` if no record
    survives or ``marks`` is too short.
    """
    head = bytearray(_view(data)[:layout.BATCH_HEADER_BYTES])
    return compacted(batch_header(data), head, block, marks, first)


def _copy(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


# ---- Entries -----------------------------------------------------------------------------------

def _aligned(at: int) -> int:
    return -(-at // layout.ENTRY_ALIGNMENT) * layout.ENTRY_ALIGNMENT


def _covered_bytes(kind: int, payload_bytes: int) -> int:
    """Return the number of payload bytes in the entry CRC: those outside the batch CRC."""
    if kind == EntryKind.DATA:
        return min(payload_bytes, layout.BATCH_UNCHECKED_BYTES)
    return payload_bytes


def _entry_crc(header: Any, covered: Any) -> int:
    """Return the CRC of an entry: length, header after the CRC field, covered payload bytes."""
    crc = crc32c(header[:layout.ENTRY_CRC_AT])
    crc = crc32c(header[layout.ENTRY_PREV_CRC_AT:], crc)
    return crc32c(covered, crc)


def frame_entries(entries: Iterable[Entry], prev_crc: int, durable: int,
                  ) -> tuple[list[Buffer], list[int], int, int]:
    """Frame entries for a gathered append; return (buffers, starts, total bytes, last CRC).

    ``buffers`` has three members per entry: header, payload, padding to 8 bytes; payload and
    padding may be empty.  Those of entry i are ``buffers[3 * i:3 * i + 3]``, so a peer can be sent
    a part of the bytes that the disk gets.  ``starts[i]`` is the first byte of entry i, relative to
    the first entry.

    ``prev_crc``: CRC of the entry before in the segment.  ``durable``: position in the log on disk
    that is known durable, for each header.  Payloads are not copied.  O(entries), and O(bytes) for
    payloads other than DATA, of which the CRC covers every byte.

    Raises ``ValueError`` for an entry above ENTRY_BYTES_MAX, ``OverflowError`` for a field that
    does not fit its bytes.
    """
    buffers: list[Buffer] = []
    starts: list[int] = []
    total = 0
    if not (0 <= prev_crc < 1 << 32 and 0 <= durable < 1 << 64):
        raise OverflowError("prev_crc or durable does not fit its field")
    for entry in entries:
        payload = _view(entry.payload)
        length = layout.ENTRY_HEADER_BYTES + len(payload)
        if length > layout.ENTRY_BYTES_MAX:
            raise ValueError(f"entry of {length} bytes exceeds ENTRY_BYTES_MAX="
                             f"{layout.ENTRY_BYTES_MAX}")
        try:
            header = bytearray(_ENTRY.pack(
                length, 0, prev_crc, entry.kind, 0, 0, entry.group, entry.incarnation, entry.term,
                entry.index, entry.partition, entry.base_offset, durable))
        except struct.error as error:
            raise OverflowError(f"a field of {entry!r} does not fit its bytes") from error
        prev_crc = _entry_crc(header, payload[:_covered_bytes(entry.kind, len(payload))])
        struct.pack_into("<I", header, layout.ENTRY_CRC_AT, prev_crc)
        starts.append(total)
        total = _aligned(total + length)
        buffers += memoryview(header), entry.payload, bytes(total - starts[-1] - length)
    return buffers, starts, total, prev_crc


def _entry_fault(view: memoryview, at: int) -> tuple[str, str]:
    """Return the fault of the entry at byte ``at``, (scan reason, sentence), or two empty strings.

    The 64 header bytes must be present.  Not checked are the chain of CRCs and the part of a DATA
    payload that the batch CRC covers.
    """
    header = view[at:at + layout.ENTRY_HEADER_BYTES]
    length, crc, _, kind, flags, reserved, *_ = _ENTRY.unpack(header)
    if not any(header):
        return "zeros", "is all zeros"
    if not layout.ENTRY_HEADER_BYTES <= length <= layout.ENTRY_BYTES_MAX:
        return "format", (f"has length {length}, outside {layout.ENTRY_HEADER_BYTES}.."
                          f"{layout.ENTRY_BYTES_MAX}")
    payload_at = at + layout.ENTRY_HEADER_BYTES
    covered = _covered_bytes(kind, length - layout.ENTRY_HEADER_BYTES)
    if covered > len(view) - payload_at:
        return "torn", f"of {length} bytes reaches past the buffer's {len(view) - at}"
    actual = _entry_crc(header, view[payload_at:payload_at + covered])
    if actual != crc:
        return "crc", f"has CRC {actual:#010x}, its header says {crc:#010x}"
    if kind not in _KINDS or flags or reserved:
        return "format", f"has kind {kind}, flags {flags}, reserved {reserved}: unknown"
    return "", ""


def parse_entries(data: Buffer) -> list[Entry]:
    """Parse the entries of a peer's frame; their payloads are views of ``data``.  O(bytes).

    Checked are the CRC of each entry and the CRC of each DATA payload, whose fields become
    ``Entry.batch``.  The chain of CRCs and ``durable`` belong to the sender's disk and are ignored.
    The padding of the last entry must be present.

    Raises ``CorruptEntry``.
    """
    view = _view(data)
    entries, at = [], 0
    while at < len(view):
        if len(view) - at < layout.ENTRY_HEADER_BYTES:
            raise CorruptEntry(f"entry at byte {at} has {len(view) - at} bytes, less than a header "
                               f"of {layout.ENTRY_HEADER_BYTES}")
        _, fault = _entry_fault(view, at)
        if fault:
            raise CorruptEntry(f"entry at byte {at} {fault}")
        length, _, _, kind, _, _, group, incarnation, term, index, partition, base_offset, _ = (
            _ENTRY.unpack_from(view, at))
        if _aligned(length) > len(view) - at:
            raise CorruptEntry(f"entry at byte {at} of {length} bytes reaches past the buffer's "
                               f"{len(view) - at}")
        payload = view[at + layout.ENTRY_HEADER_BYTES:at + length]
        batch = None
        if kind == EntryKind.DATA:
            try:
                batch = _info(verify_batch(payload))
            except CorruptBatch as error:
                raise CorruptEntry(f"entry at byte {at}: {error}") from error
        entries.append(Entry(_KINDS[kind], group, incarnation, term, index, partition, base_offset,
                             payload, batch))
        at += _aligned(length)
    return entries


def _payload_intact(kind: int, payload: memoryview) -> bool:
    if kind != EntryKind.DATA:
        return True  # covered by the entry CRC as a whole
    try:
        verify_batch(payload)
    except CorruptBatch:
        return False
    return True


def scan_entries(data: Buffer, at: int, prev_crc: int, verify_payload: bool = True, upto: int = -1,
                 ) -> Scan:
    """Scan the entries of a segment from byte ``at`` while their chain of CRCs holds.  O(bytes).

    ``prev_crc``: CRC of the entry before byte ``at``.  ``verify_payload``: also check the CRC of
    each DATA payload; a damaged payload clears ``payload_intact`` and does not end the scan.
    ``upto``: an entry that begins at or after this byte ends the scan ("limit"); -1 = no limit.

    Raises ``ValueError`` for a negative ``at``, ``OverflowError`` if ``prev_crc`` is not an
    unsigned 32-bit number.
    """
    view = _view(data)
    if at < 0:
        raise ValueError(f"at={at} is negative")
    if not 0 <= prev_crc < 1 << 32:
        raise OverflowError(f"CRC {prev_crc} is not an unsigned 32-bit number")
    entries: list[ScannedEntry] = []
    while True:
        if len(view) - at < layout.ENTRY_HEADER_BYTES:
            return Scan(entries, at, "end", prev_crc)
        if 0 <= upto <= at:
            return Scan(entries, at, "limit", prev_crc)
        fields = _ENTRY.unpack_from(view, at)
        length, crc, previous, kind = fields[:4]
        reason, _ = _entry_fault(view, at)
        if not reason and length > len(view) - at:
            reason = "torn"
        if not reason and previous != prev_crc:
            reason = "chain"
        if reason:
            return Scan(entries, at, reason, prev_crc)
        payload = view[at + layout.ENTRY_HEADER_BYTES:at + length]
        intact = not verify_payload or _payload_intact(kind, payload)
        group, incarnation, term, index, partition, base_offset, durable = fields[6:]
        entries.append(ScannedEntry(at, length, _KINDS[kind], group, incarnation, term, index,
                                    partition, base_offset, durable, intact))
        prev_crc = crc
        at += _aligned(length)


def check_entries(data: Buffer, at: int, prev_crc: int) -> Checked:
    """Check the entries of a segment as ``scan_entries``, without an object per entry.

    The compiled twin takes the interpreter's lock only to report a damaged payload.  O(bytes).

    Raises as ``scan_entries``.
    """
    scan = scan_entries(data, at, prev_crc)
    damaged = [(entry.at, entry.length) for entry in scan.entries if not entry.payload_intact]
    return Checked(len(scan.entries), damaged, scan.stopped_at, scan.reason, scan.last_crc,
                   scan.entries[-1].durable if scan.entries else 0)


class SegmentIndexer:
    """Builder of the index of one segment, without an object per entry.

    Only the plain case is indexed, which nearly every segment is: each entry is the next of its
    group's log in an unchanged incarnation, or the hard state of its group.  The compiled twin does
    not hold the interpreter's lock.
    """

    def __init__(self) -> None:
        self._first_durable, self._highest_durable = -1, 0
        self._groups: dict[int, GroupColumns] = {}

    @property
    def first_durable(self) -> int:
        """Durable position in the header of the first entry; -1 without entries."""
        return self._first_durable

    @property
    def highest_durable(self) -> int:
        """Highest durable position in the headers of the entries; 0 without entries."""
        return self._highest_durable

    def take(self, data: Buffer, at: int, prev_crc: int, position: int) -> Indexed:
        """Index the entries from byte ``at`` on, checked as by ``check_entries``; return the stop.

        ``position``: position in the log on disk of byte 0 of ``data``.  Indexing stops at an entry
        that is not plain ("special") and at a damaged payload ("payload"); the segment must then be
        indexed from the result of ``scan_entries``.  O(bytes).

        Raises as ``scan_entries``.
        """
        scan = scan_entries(data, at, prev_crc)
        for found in scan.entries:
            reason = "" if found.payload_intact else "payload"
            if reason or not self._add(found, _view(data), position):
                return Indexed(found.at, reason or "special", prev_crc)
            prev_crc = _ENTRY.unpack_from(_view(data), found.at)[1]
        return Indexed(scan.stopped_at, scan.reason, scan.last_crc)

    def _add(self, found: ScannedEntry, view: memoryview, position: int) -> bool:
        if found.kind > LAST_INDEXED_KIND and found.kind != EntryKind.HARD_STATE:
            return False
        group = self._groups.setdefault(found.group, GroupColumns(found.incarnation))
        if group.incarnation != found.incarnation:
            return False
        if self._first_durable < 0:
            self._first_durable = found.durable
        self._highest_durable = max(self._highest_durable, found.durable)
        payload = view[found.at + layout.ENTRY_HEADER_BYTES:found.at + found.length]
        if found.kind == EntryKind.HARD_STATE:
            vote = int.from_bytes(payload, "little") if len(payload) == 4 else 0
            group.hard_state = found.term, vote
            return True
        if not group.add(found, position + found.at, _aligned(found.length)):
            return False
        if found.kind != EntryKind.DATA:
            return True
        batch = batch_info(payload)
        partition = group.partitions.setdefault(found.partition, PartitionColumns())
        return partition.add(found.base_offset, batch.count, found.index, batch.max_timestamp_ms)

    def pack(self, identity_crc: int, start: int) -> PackedIndex:
        """Return the blocks of the segment's index file, and the fields of its summary.

        ``identity_crc``: CRC of what all checksums of the file begin with; ``start``: position of
        the segment in the log on disk.  Bytes: docs/storage-format.md.  O(entries + partitions log
        partitions).

        Raises ``OverflowError`` if a number does not fit into its row.
        """
        return pack_rows(self._groups, identity_crc, start)


def find_entry(data: Buffer, at: int) -> int:
    """Return the first aligned byte >= ``at`` where an intact entry starts, -1 if there is none.

    Intact are header and entry CRC; the part of a DATA payload that only the batch CRC covers may
    be damaged or missing.  O(bytes) where few places look like a header.

    Raises ``ValueError`` for a negative ``at``.
    """
    view = _view(data)
    if at < 0:
        raise ValueError(f"at={at} is negative")
    for candidate in range(_aligned(at), len(view) - layout.ENTRY_HEADER_BYTES + 1,
                           layout.ENTRY_ALIGNMENT):
        reason, _ = _entry_fault(view, candidate)
        if not reason:
            return candidate
    return -1
