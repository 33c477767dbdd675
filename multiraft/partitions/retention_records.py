"""Payloads of the entries that decide retention: clocks, log starts, deletions, compactions.

Contract.  Each ``parse_*`` reads the results of the ``*_payload`` beside it, and raises
``CorruptEntry`` for any other bytes.  A ``*_payload`` that would exceed a limit raises
``ProposalError``.  Bytes: docs/storage-format.md.

Theory.  A replica must not ask its own clock or disk what to delete: two replicas would differ.
The leader decides by both, and its entry says what it decided (docs/decisions/0060).  The entries
name incarnations and offsets, and nothing that a replica would have to look up elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from multiraft.errors import CorruptEntry, ProposalError
from multiraft.types import Payload

#: Partitions that one LOG_START or PARTITION_DELETE names.  A replica applies an entry in one turn
#: of its loop: some milliseconds with so many.
ROWS_PER_ENTRY_MAX = 4096

#: ``LogStart.live_bytes`` if the leader does not know them.
UNKNOWN_BYTES = -1

#: Kafka's timestamps are signed, and so is every time here.
CLOCK_MS_MAX = (1 << 63) - 1

#: CLOCK payload, little-endian: u64 milliseconds since 1970.
_CLOCK = struct.Struct("<Q")

#: LOG_START payload of version 2: u32 version, u32 rows; then per row u64 partition incarnation,
#: i64 new log start, i64 live bytes from there on.  Version 1 is empty.
LOG_START_HEAD = struct.Struct("<II")
LOG_START_ROW = struct.Struct("<Qqq")
LOG_START_VERSION = 2

#: PARTITION_DELETE payload: u32 version, u32 rows, u64 metadata index; then u64 incarnations.
DELETE_HEAD = struct.Struct("<IIQ")
DELETE_ROW = struct.Struct("<Q")
DELETE_VERSION = 1

#: COMPACT payload: u32 version, u32 generation, i64 up_to, i64 tombstones_below.
COMPACT_STRUCT = struct.Struct("<IIqq")
COMPACT_VERSION = 1

#: PRODUCERS_EXPIRE payload: u32 version, u64 log index.
EXPIRE_STRUCT = struct.Struct("<IQ")
EXPIRE_VERSION = 1


class LogStart(NamedTuple):
    """New log start of one partition."""

    partition: int  # incarnation
    log_start: int
    #: Payload bytes, padded as stored, of the group's batches from ``log_start`` to the entry
    #: itself, or ``UNKNOWN_BYTES``.
    live_bytes: int


class PartitionDelete(NamedTuple):
    """Parsed PARTITION_DELETE payload."""

    metadata_index: int  # of the metadata by which the leader decided
    partitions: tuple[int, ...]  # incarnations


class Compaction(NamedTuple):
    """Parsed COMPACT payload, and the last one of a partition."""

    generation: int
    up_to: int  # records below this offset are compacted
    tombstones_below: int  # records without a value below this offset may go


# ---- clocks -------------------------------------------------------------------------------------


def clock_payload(last_ms: int, now_ms: int) -> bytes:
    """Return the payload of a CLOCK entry: the later of the group's last CLOCK and the leader's
    clock, in milliseconds since 1970."""
    value = max(last_ms, now_ms)
    assert 0 <= value <= CLOCK_MS_MAX, f"clock of {value} ms"
    return _CLOCK.pack(value)


def parse_clock(payload: Payload) -> int:
    """Return the milliseconds since 1970 of a CLOCK payload. Raises ``CorruptEntry`` for another
    length, and for a time that no timestamp can have."""
    _require_size("CLOCK", payload, _CLOCK.size)
    value, = _CLOCK.unpack(payload)
    if value > CLOCK_MS_MAX:
        raise CorruptEntry(f"CLOCK of {value} ms, the limit is {CLOCK_MS_MAX}")
    return value


# ---- log starts and deletions -------------------------------------------------------------------


def log_starts_payload(rows: Sequence[LogStart]) -> bytes:
    """Return the payload of a LOG_START entry for 1 to ``ROWS_PER_ENTRY_MAX`` different
    partitions.  O(rows)."""
    _require_rows("LOG_START", len(rows))
    return (LOG_START_HEAD.pack(LOG_START_VERSION, len(rows))
            + b"".join([LOG_START_ROW.pack(*row) for row in rows]))


def parse_log_starts(payload: Payload) -> list[LogStart]:
    """Return the rows of a LOG_START payload of version 2.  O(rows).

    Raises ``CorruptEntry`` for another version or length, for a partition that is named twice, and
    for impossible numbers."""
    version, count = _head("LOG_START", payload, LOG_START_HEAD)
    _require_version("LOG_START", version, LOG_START_VERSION)
    _check_rows("LOG_START", payload, count, LOG_START_HEAD.size, LOG_START_ROW.size)
    packed = memoryview(payload)[LOG_START_HEAD.size:]
    rows = [LogStart(*fields) for fields in LOG_START_ROW.iter_unpack(packed)]
    for row in rows:
        if row.partition <= 0 or row.log_start < 0 or row.live_bytes < UNKNOWN_BYTES:
            raise CorruptEntry(f"LOG_START with {row}")
    _require_different("LOG_START", [row.partition for row in rows])
    return rows


def delete_payload(metadata_index: int, partitions: Sequence[int]) -> bytes:
    """Return the payload of a PARTITION_DELETE entry for 1 to ``ROWS_PER_ENTRY_MAX`` different
    incarnations, decided by the metadata at ``metadata_index``.  O(partitions)."""
    _require_rows("PARTITION_DELETE", len(partitions))
    return (DELETE_HEAD.pack(DELETE_VERSION, len(partitions), metadata_index)
            + b"".join([DELETE_ROW.pack(partition) for partition in partitions]))


def parse_delete(payload: Payload) -> PartitionDelete:
    """Return the fields of a PARTITION_DELETE payload.  O(partitions).  Raises ``CorruptEntry`` as
    ``parse_log_starts``."""
    version, count, metadata_index = _head("PARTITION_DELETE", payload, DELETE_HEAD)
    _require_version("PARTITION_DELETE", version, DELETE_VERSION)
    _check_rows("PARTITION_DELETE", payload, count, DELETE_HEAD.size, DELETE_ROW.size)
    packed = memoryview(payload)[DELETE_HEAD.size:]
    partitions = tuple([partition for partition, in DELETE_ROW.iter_unpack(packed)])
    if not all(partitions):
        raise CorruptEntry("PARTITION_DELETE of partition 0, which is no incarnation")
    _require_different("PARTITION_DELETE", partitions)
    return PartitionDelete(metadata_index, partitions)


# ---- compactions, producers ---------------------------------------------------------------------


def compact_payload(compaction: Compaction) -> bytes:
    """Return the payload of a COMPACT entry; the entry names the partition."""
    return COMPACT_STRUCT.pack(COMPACT_VERSION, *compaction)


def parse_compact(payload: Payload) -> Compaction:
    """Return the fields of a COMPACT payload. Raises ``CorruptEntry`` for another length or
    version, generation 0, and offsets out of order."""
    _require_size("COMPACT", payload, COMPACT_STRUCT.size)
    version, *fields = COMPACT_STRUCT.unpack(payload)
    _require_version("COMPACT", version, COMPACT_VERSION)
    found = Compaction(*fields)
    if not found.generation or not 0 <= found.tombstones_below <= found.up_to:
        raise CorruptEntry(f"COMPACT with {found}")
    return found


def expire_payload(below_index: int) -> bytes:
    """Return the payload of a PRODUCERS_EXPIRE entry, which forgets the producers whose last batch
    in a partition has an index below ``below_index``."""
    return EXPIRE_STRUCT.pack(EXPIRE_VERSION, below_index)


def parse_expire(payload: Payload) -> int:
    """Return the log index of a PRODUCERS_EXPIRE payload. Raises ``CorruptEntry`` for another
    length or version."""
    _require_size("PRODUCERS_EXPIRE", payload, EXPIRE_STRUCT.size)
    version, below_index = EXPIRE_STRUCT.unpack(payload)
    _require_version("PRODUCERS_EXPIRE", version, EXPIRE_VERSION)
    return below_index


# ---- checks -------------------------------------------------------------------------------------


def _require_rows(name: str, count: int) -> None:
    if not 0 < count <= ROWS_PER_ENTRY_MAX:
        raise ProposalError(f"{name} with {count} partitions; an entry has 1 to "
                            f"{ROWS_PER_ENTRY_MAX}")


def _require_size(name: str, payload: Payload, size: int) -> None:
    if len(payload) != size:
        raise CorruptEntry(f"a {name} payload has {size} bytes, this one {len(payload)}")


def _require_version(name: str, version: int, known: int) -> None:
    if version != known:
        raise CorruptEntry(f"{name} payload of version {version}, known is {known}")


def _head(name: str, payload: Payload, head: struct.Struct) -> tuple[int, ...]:
    if len(payload) < head.size:
        raise CorruptEntry(f"a {name} payload has {head.size} bytes or more, this one "
                           f"{len(payload)}")
    return head.unpack_from(payload)


def _check_rows(name: str, payload: Payload, count: int, head: int, row: int) -> None:
    if not 0 < count <= ROWS_PER_ENTRY_MAX:
        raise CorruptEntry(f"{name} with {count} partitions; an entry has 1 to "
                           f"{ROWS_PER_ENTRY_MAX}")
    _require_size(name, payload, head + count * row)


def _require_different(name: str, partitions: Sequence[int]) -> None:
    if len({*partitions}) != len(partitions):
        raise CorruptEntry(f"{name} names a partition twice")
