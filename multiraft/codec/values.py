"""Values that both twins of the hot path return: one definition, so that results compare equal.

Contract.  Named tuples and type aliases without behaviour.  Both twins import them, and ``core``
re-exports the named tuples.
"""

from __future__ import annotations

from typing import NamedTuple

#: One contiguous run of bytes; functions that stamp need it writable.
Buffer = bytes | bytearray | memoryview
#: Name and value of a record header.
Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One decoded record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class BatchHeader(NamedTuple):
    """The 61 header bytes of a RecordBatch v2, parsed; only lengths are checked."""

    base_offset: int
    total_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]


class BytesColumn(NamedTuple):
    """Column of byte strings and nulls, as an Arrow binary array."""

    nulls: int
    valid: bytearray | None  # a bit per row, lowest first, 1 = not null; None without nulls
    ends: bytearray  # i32 of this machine's byte order, 0 and the end of each row
    content: bytearray


class HeadersColumn(NamedTuple):
    """Column of lists of (name, value), as an Arrow list array."""

    ends: bytearray  # i32, 0 and the end of each row's headers
    names: BytesColumn  # UTF-8
    values: BytesColumn


class Columns(NamedTuple):
    """Records as columns, in the memory layout of Apache Arrow."""

    count: int  # type: ignore[assignment]
    offsets: bytearray  # i64 per row
    timestamps_us: bytearray  # i64 per row, microseconds since 1970
    timestamps_valid: bytearray | None  # as in ``BytesColumn``
    keys: BytesColumn | None  # None: not requested
    values: BytesColumn | None
    headers: HeadersColumn | None


class ScannedEntry(NamedTuple):
    """An entry with an intact header, found by ``scan_entries``."""

    at: int  # byte in the scanned buffer where its header starts
    length: int  # header + payload
    kind: int
    group: int
    incarnation: int
    term: int
    index: int  # type: ignore[assignment]
    partition: int
    base_offset: int
    durable: int
    payload_intact: bool  # False: header fine, but a DATA payload is not an intact batch


class Scan(NamedTuple):
    """Result of ``scan_entries``: the entries in order, the stop and its reason."""

    entries: list[ScannedEntry]
    stopped_at: int  # first byte not consumed (aligned; up to 7 past an unpadded end)
    reason: str  # "end": fewer bytes than a header are left; "limit": ``upto`` is reached; or the
    # fault of the entry there: "zeros", "torn" (reaches past the buffer), "crc", "chain", "format"
    last_crc: int  # prev_crc for an entry at ``stopped_at``


class Checked(NamedTuple):
    """Result of ``check_entries``: a ``Scan`` without the entries."""

    count: int  # type: ignore[assignment]  # intact entries, those with damaged payloads included
    damaged: list[tuple[int, int]]  # (byte, length) of entries whose payload is no intact batch
    stopped_at: int  # as in ``Scan``
    reason: str  # as in ``Scan``, never "limit"
    last_crc: int  # prev_crc for an entry at ``stopped_at``
    last_durable: int  # ``durable`` of the last entry; 0 = no entry


class Indexed(NamedTuple):
    """Result of ``SegmentIndexer.take``: the stop and its reason."""

    stopped_at: int  # as in ``Scan``
    reason: str  # as in ``Scan``, never "limit"; "payload" = a damaged batch; "special" = an
    # entry that is neither the next of its group's log nor its hard state
    last_crc: int  # prev_crc for an entry at ``stopped_at``


class PackedIndex(NamedTuple):
    """Result of ``SegmentIndexer.pack``: contents of an index file, bytes as on disk."""

    entries: int  # rows in the blocks of entries
    batches: int  # rows in the blocks of batches
    blocks: bytes  # those of entries, then those of batches
    #: (group, incarnation, entries, partitions, rows of partitions, hard state) of each group, in
    #: ascending order.  Entries: [first index, framed bytes, rows, run starts, run terms], None
    #: without any.  Hard state: the last (term, vote), None without one.
    runs: list[tuple]
