"""What applications give and get: records, receipts, fetched batches.

Contract.  Values.  A ``FetchedBatch`` holds the verified bytes of one batch; its records are
decoded (and decompressed) when they are asked for, not before.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

from multiraft import _layout as layout
from multiraft import core
from multiraft.client._compression import decompress
from multiraft.client._unreadable import UnreadableBatch, unreadable
from multiraft.errors import CodecError

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record to append.  ``partition`` None = by the key's murmur2, or without a key wherever the
    current batch goes; ``timestamp_ms`` None = now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()


class Timestamp(NamedTuple):
    """A place in a topic: the first record of each partition at or after ``ms``, milliseconds since
    1970."""

    ms: int


class BatchReceipt(NamedTuple):
    """Where a batch was appended: offsets base_offset .. base_offset + count - 1.  ``base_offset``
    is -1 with ``acks="none"``."""

    topic: str
    partition: int
    base_offset: int
    count: int


class FetchedBatch:
    """One batch of a partition.  ``base_offset`` and ``count`` describe what the consumer has not
    had yet: a batch that was entered in its middle starts there."""

    __slots__ = ("topic", "partition", "base_offset", "count", "high_watermark", "header", "_data")

    def __init__(self, topic: str, partition: int, data: memoryview, header, position: int,
                 high_watermark: int):
        self.topic = topic
        self.partition = partition
        self.header = header
        self.base_offset = max(header.base_offset, position)
        self.count = header.base_offset + header.last_offset_delta + 1 - self.base_offset
        self.high_watermark = high_watermark
        self._data = data

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.count

    def first_at(self, timestamp_ms: int) -> int | None:
        """Offset of the first record at or after ``timestamp_ms``; None = none.  O(records).
        Raises as ``records``."""
        if self.header.max_timestamp_ms < timestamp_ms:
            return None
        return next((record.offset for record in self.records()
                     if record.timestamp_ms >= timestamp_ms), None)

    @property
    def data(self) -> memoryview:
        """The batch as it is stored, RecordBatch v2, with records before ``base_offset`` if any."""
        return self._data

    def records(self) -> list[core.Record]:
        """The records from ``base_offset`` on.  Raises ``UnreadableBatch``, which is an
        ``OversizedBatch`` when the batch would exceed the limit decompressed.  O(records)."""
        try:
            records = core.decode_records(self.header, self._block())
        except CodecError as error:
            raise self._unreadable(error) from error
        if self.header.base_offset < self.base_offset:
            records = [record for record in records if record.offset >= self.base_offset]
        return records

    def into(self, columns: core.ColumnBuilder, end_offset: int) -> int:
        """Add the records from ``base_offset`` on and below ``end_offset`` to columns; how many.
        Raises as ``records``."""
        try:
            return columns.extend(self.header, self._block(), self.base_offset, end_offset)
        except CodecError as error:
            raise self._unreadable(error) from error

    def _block(self):
        """The records as they are decoded."""
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
