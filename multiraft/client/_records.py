"""Records, receipts and fetched batches of applications.

Contract.  Values.  A ``FetchedBatch`` holds the bytes of one batch, whose CRC is verified.  Its
records are decoded, and decompressed, on access.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Iterator, NamedTuple, Sequence, SupportsIndex

from multiraft import core
from multiraft.client._unreadable import UnreadableBatch, unreadable
from multiraft.codec import layout
from multiraft.compression import decompress
from multiraft.errors import CodecError
from multiraft.wire.errors import InvalidTopicName, UnknownPartition
from multiraft.wire.messages import TEXT_MAX
from multiraft.wire.schema import I32_MAX

if TYPE_CHECKING:
    from multiraft.wire.frames import Buffer

Header = tuple[str, bytes | None]

#: Bytes of a record in a batch beside its value, without key and headers: its length and that of
#: the value (4 bytes each, from 1 MiB on), and five fields of one byte.
_RECORD_FRAME_BYTES = 13
#: The longest value, in bytes, of a record without key and headers: such a record fills a
#: batch of ``BATCH_BYTES_MAX``, 8 MiB, alone.
VALUE_BYTES_MAX = layout.BATCH_BYTES_MAX - layout.BATCH_HEADER_BYTES - _RECORD_FRAME_BYTES


class Record(NamedTuple):
    """A record to append.

    ``value`` and ``key``: bytes or None.  ``partition`` None = the key's murmur2 hash modulo the
    number of partitions, as in Kafka; without a key, the partition of the current batch.
    ``timestamp_ms``: milliseconds since 1970, None = now.  ``headers``: pairs of a name (str) and a
    value (bytes or None).

        Record("flights", b"UA 1545", key=b"UA", headers=[("source", b"radar")])
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()


def require_record(record: Record) -> int:
    """Return the bytes of the record's fields.  Raises ``TypeError`` or ``ValueError`` for fields
    of a wrong type; the encoder checks the rest.  O(headers)."""
    if type(record) is not Record and not isinstance(record, Record):
        raise TypeError(f"a record must be a Record, not {type(record).__name__}: "
                        "Record(topic, value, key=...)")
    _, value, key, _, _, headers = record
    if type(value) is bytes:
        size = len(value)
    else:
        size = _field_bytes("value", value)
    if key is not None:
        size += _field_bytes("key", key)
    return size + _headers_bytes(headers) if headers else size


def _field_bytes(name: str, field: bytes | None) -> int:
    if field is None:
        return 0
    if not isinstance(field, bytes):
        encode = f": {name}.encode() makes bytes of it" if isinstance(field, str) else ""
        raise TypeError(f"{name} must be bytes or None, not {type(field).__name__}{encode}")
    return len(field)


def _headers_bytes(headers: Sequence[Header]) -> int:
    """Return the bytes of headers. Raises ``TypeError`` for fields of a wrong type, and
    ``ValueError`` for a name without a UTF-8 encoding, which other clients could not read.
    O(headers)."""
    size = 0
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError("a header must be a pair of str and bytes or None")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {type(name).__name__}")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"header value must be bytes or None, not {type(value).__name__}")
        try:
            size += len(name.encode())
        except UnicodeEncodeError:
            raise ValueError(f"header name {name!r} has no UTF-8 encoding") from None
        size += len(value or b"")
    return size


def batch_bytes_of(record: Record) -> int:
    """Return the bytes of a batch that holds this record alone, uncompressed.  O(headers)."""
    fields = [record.key, record.value]
    for name, value in record.headers:
        fields += (name.encode(), value)
    body = 3 + _varint_bytes(len(record.headers)) + sum(
        1 if field is None else _varint_bytes(len(field)) + len(field) for field in fields)
    return layout.BATCH_HEADER_BYTES + _varint_bytes(body) + body


def _varint_bytes(count: int) -> int:
    """Return the bytes of a length as a zigzag varint."""
    return max(1, ((count << 1).bit_length() + 6) // 7)


def require_topic_name(name: str) -> None:
    """Raise ``TypeError`` or ``InvalidTopicName`` for a name that no request can carry."""
    if not isinstance(name, str):
        raise TypeError(f"a topic is named by a str, not {type(name).__name__}: {name!r:.80}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidTopicName(f"topic name {name!r:.80} has no UTF-8 encoding") from None
    if not 0 < len(name) <= TEXT_MAX:
        raise InvalidTopicName(f"a topic name of {len(name)} characters: expected 1 to {TEXT_MAX}",
                               limit=TEXT_MAX, value=len(name))


def require_partition(topic: str, partition: SupportsIndex) -> int:
    """Return the partition as an int.  Raises ``TypeError`` or ``UnknownPartition`` for a number
    that no topic can have."""
    if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
        raise TypeError(f"partition must be int or None, not {type(partition).__name__}")
    number = operator.index(partition)
    if not 0 <= number <= I32_MAX:
        raise UnknownPartition(f"topic {topic!r} has no partition of that number: they count from "
                               f"0, and are at most {I32_MAX}")
    return number


class Timestamp(NamedTuple):
    """Start position of a consumer: in each partition the first record at or after ``ms``,
    milliseconds since 1970."""

    ms: int


class BatchReceipt(NamedTuple):
    """Result of an append: the batch has offsets base_offset .. base_offset + count - 1.
    ``base_offset`` is -1 with ``acks="none"``."""

    topic: str
    partition: int
    base_offset: int
    count: int  # type: ignore[assignment]

    @property
    def log_append_time_ms(self) -> int | None:
        """Timestamp that the leader gave the records, milliseconds since 1970, of a topic with
        ``message.timestamp.type=LogAppendTime``; None = the timestamps are the producer's, or the
        leader did not tell: with ``acks="none"``, and for a batch that was sent twice."""
        return None


class TimedReceipt(BatchReceipt):
    """Receipt of a batch whose timestamps the leader set; as a tuple the ``BatchReceipt``."""

    log_append_time_ms: int = -1

    @classmethod
    def of(cls, topic: str, partition: int, base_offset: int, count: int,
           time_ms: int) -> "TimedReceipt":
        """Return the receipt of a batch with that timestamp."""
        made: TimedReceipt = tuple.__new__(cls, (topic, partition, base_offset, count))
        made.log_append_time_ms = time_ms
        return made


class RecordReceipt(BatchReceipt):
    """Receipt of a batch as one of its records sees it.  ``offset``: of that record, or of the
    first of several that were given together; -1 with ``acks="none"``.  As a tuple it is the
    ``BatchReceipt``."""

    offset: int
    log_append_time_ms: int | None = None

    @classmethod
    def at(cls, receipt: BatchReceipt, position: int) -> "RecordReceipt":
        """Return the receipt of the record at ``position`` in the batch, counted from 0."""
        made: RecordReceipt = tuple.__new__(cls, receipt)
        made.offset = receipt.base_offset + position if receipt.base_offset >= 0 else -1
        if type(receipt) is not BatchReceipt:
            made.log_append_time_ms = receipt.log_append_time_ms
        return made

    def __repr__(self) -> str:
        return (f"RecordReceipt(topic={self.topic!r}, partition={self.partition}, "
                f"offset={self.offset}, base_offset={self.base_offset}, count={self.count})")


class FetchedBatch:
    """One batch of a partition: ``topic``, ``partition``, ``base_offset`` and ``count`` of its
    records, and ``high_watermark``, the end of the partition for readers when it was fetched.  If
    the consumer started in the middle of a batch, ``base_offset`` is that offset.  Iteration yields
    ``Record`` values with ``offset``, ``timestamp_ms``, ``key``, ``value`` and ``headers``."""

    __slots__ = ("topic", "partition", "base_offset", "count", "high_watermark", "header", "_data")

    def __init__(self, topic: str, partition: int, data: memoryview, header: core.BatchHeader,
                 position: int, high_watermark: int):
        self.topic = topic
        self.partition = partition
        self.header = header
        self.base_offset = max(header.base_offset, position)
        self.count = header.base_offset + header.last_offset_delta + 1 - self.base_offset
        self.high_watermark = high_watermark
        self._data = data

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.count

    def first_at(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after ``timestamp_ms``; None = there is none.
        Raises as ``records``.  O(records)."""
        if self.header.max_timestamp_ms < timestamp_ms:
            return None
        return next((record.offset for record in self.records()
                     if record.timestamp_ms >= timestamp_ms), None)

    @property
    def data(self) -> memoryview:
        """Stored bytes of the batch (RecordBatch v2), with records before ``base_offset`` if
        any."""
        return self._data

    def records(self) -> list[core.Record]:
        """Return the records from ``base_offset`` on.  Raises ``UnreadableBatch`` when the batch
        cannot be decoded, ``OversizedBatch`` when it would exceed the limit decompressed.
        O(records)."""
        try:
            records = core.decode_records(self.header, self._block())
        except CodecError as error:
            raise self._unreadable(error) from error
        if self.header.base_offset < self.base_offset:
            records = [record for record in records if record.offset >= self.base_offset]
        return records

    def into(self, columns: core.ColumnBuilder, end_offset: int) -> int:
        """Add the records from ``base_offset`` on and below ``end_offset`` to columns.  Returns
        their number.  Raises as ``records``.  O(records)."""
        try:
            return columns.extend(self.header, self._block(), self.base_offset, end_offset)
        except CodecError as error:
            raise self._unreadable(error) from error

    def __reduce__(self) -> tuple:
        return _batch_from, (self.topic, self.partition, bytes(self._data), self.base_offset,
                             self.high_watermark)

    def _block(self) -> Buffer:
        """Return the records block, decompressed."""
        return decompress(self.header.attributes & layout.ATTRIBUTE_CODEC_MASK,
                          self._data[layout.BATCH_HEADER_BYTES:])

    def _unreadable(self, cause: Exception) -> UnreadableBatch:
        base = self.header.base_offset
        return unreadable(self.topic, self.partition, base, base + self.header.last_offset_delta,
                          cause)

    def __iter__(self) -> Iterator[core.Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return (f"FetchedBatch({self.topic}/{self.partition}, offsets {self.base_offset}.."
                f"{self.next_offset - 1}, {len(self._data)} B)")


def _batch_from(topic: str, partition: int, data: bytes, position: int,
                high_watermark: int) -> FetchedBatch:
    """Return a fetched batch from what its pickle holds."""
    return FetchedBatch(topic, partition, memoryview(data), core.batch_header(data), position,
                        high_watermark)
