"""Values that both twins of the hot path return: one definition, so that results compare equal.

Contract.  Plain named tuples, no behaviour.  ``core`` re-exports them; nobody imports this module
but the two twins.
"""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class BatchHeader(NamedTuple):
    """The 61 bytes, parsed; no check but the length of the buffer and the length field."""

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
    count: int


class BytesColumn(NamedTuple):
    """Byte strings, null or not, one behind the other."""

    nulls: int
    valid: bytearray | None  # a bit per row, lowest first, 1 = not null; None without nulls
    ends: bytearray  # i32 of this machine's byte order, 0 and the end of each row
    content: bytearray


class HeadersColumn(NamedTuple):
    """A list of (name, value) per row."""

    ends: bytearray  # i32, 0 and the end of each row's headers
    names: BytesColumn  # UTF-8
    values: BytesColumn


class Columns(NamedTuple):
    """Records as columns, in the memory layout of Apache Arrow."""

    count: int
    offsets: bytearray  # i64 per row
    timestamps_us: bytearray  # i64 per row, microseconds since 1970
    timestamps_valid: bytearray | None  # as in ``BytesColumn``
    keys: BytesColumn | None  # None: not asked for
    values: BytesColumn | None
    headers: HeadersColumn | None


class ScannedEntry(NamedTuple):
    """An intact entry found by ``scan_entries``."""

    at: int  # byte in the scanned buffer where its header starts
    length: int  # header + payload
    kind: int
    group: int
    incarnation: int
    term: int
    index: int
    partition: int
    base_offset: int
    durable: int
    payload_intact: bool  # False: header fine, but a DATA payload is not an intact batch


class Scan(NamedTuple):
    """What a scan found: entries in order, where it stopped and why."""

    entries: list[ScannedEntry]
    stopped_at: int  # first byte not consumed (aligned; up to 7 past an unpadded end)
    reason: str  # "end", "zeros", "torn", "crc", "chain", "format"; "limit" = as far as was asked
    last_crc: int  # prev_crc for what would follow


class Checked(NamedTuple):
    """What ``check_entries`` found: as a ``Scan``, but without the entries."""

    count: int  # intact entries, those with damaged payloads included
    damaged: list[tuple[int, int]]  # (byte, length) of entries whose payload is no intact batch
    stopped_at: int  # as of a scan
    reason: str  # as of a scan, but never "limit"
    last_crc: int  # prev_crc for what would follow
    last_durable: int  # mark of the last entry; 0 = there was none


class Indexed(NamedTuple):
    """Where ``SegmentIndexer.take`` stopped and why."""

    stopped_at: int  # as of a scan
    reason: str  # as of a scan, but never "limit"; "payload" = a damaged batch; "special" = an
    # entry that is neither the next of its group's log nor its hard state
    last_crc: int  # prev_crc for what would follow
