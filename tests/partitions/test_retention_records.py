"""Payloads of the entries that decide retention: golden bytes, limits, foreign bytes, texts."""

from __future__ import annotations

import pytest

from multiraft.errors import CorruptEntry, ProposalError
from multiraft.partitions import entry_text
from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import (
    CLOCK_MS_MAX,
    COMPACT_STRUCT,
    DELETE_HEAD,
    DELETE_ROW,
    EXPIRE_STRUCT,
    LOG_START_HEAD,
    LOG_START_ROW,
    ROWS_PER_ENTRY_MAX,
    UNKNOWN_BYTES,
    Compaction,
    LogStart,
    PartitionDelete,
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
    parse_clock,
    parse_compact,
    parse_delete,
    parse_expire,
    parse_log_starts,
)
from multiraft.types import EntryKind

ROWS = [LogStart(7, 40, 900), LogStart((1 << 64) - 1, 3, UNKNOWN_BYTES)]


def test_payloads_are_packed_little_endian_and_come_back():
    golden = {
        parse_clock: (clock_payload(0, 1_700_000_000_000), "0068e5cf8b010000", 1_700_000_000_000),
        parse_log_starts: (log_starts_payload(ROWS), "02000000" "02000000"
                           "0700000000000000" "2800000000000000" "8403000000000000"
                           "ffffffffffffffff" "0300000000000000" "ffffffffffffffff", ROWS),
        parse_delete: (delete_payload(12, [7, 9]), "01000000" "02000000" "0c00000000000000"
                       "0700000000000000" "0900000000000000", PartitionDelete(12, (7, 9))),
        parse_compact: (compact_payload(Compaction(2, 40, 30)), "01000000" "02000000"
                        "2800000000000000" "1e00000000000000", Compaction(2, 40, 30)),
        parse_expire: (expire_payload(17), "01000000" "1100000000000000", 17),
    }
    for parse, (payload, bytes_wanted, value) in golden.items():
        assert payload.hex() == bytes_wanted
        assert parse(payload) == parse(memoryview(payload)) == value


def test_a_clock_never_runs_back():
    assert parse_clock(clock_payload(500, 400)) == 500
    assert parse_clock(clock_payload(500, 600)) == 600


@pytest.mark.parametrize("count", [0, ROWS_PER_ENTRY_MAX + 1])
def test_an_entry_has_a_bounded_number_of_partitions(count):
    for name, encode in (
        ("LOG_START", lambda: log_starts_payload([LogStart(n + 1, 0, 0) for n in range(count)])),
        ("PARTITION_DELETE", lambda: delete_payload(1, range(1, count + 1))),
    ):
        with pytest.raises(ProposalError, match=f"{name} with {count} .* 1 to 4096"):
            encode()
    too_many = LOG_START_HEAD.pack(2, count) + b"".join(
        LOG_START_ROW.pack(n + 1, 0, 0) for n in range(count))
    with pytest.raises(CorruptEntry, match="1 to 4096"):
        parse_log_starts(too_many)
    with pytest.raises(CorruptEntry, match="1 to 4096"):
        parse_delete(DELETE_HEAD.pack(1, count, 1)
                     + b"".join(DELETE_ROW.pack(n + 1) for n in range(count)))


def test_the_largest_entries_come_back():
    rows = [LogStart(n + 1, n, n) for n in range(ROWS_PER_ENTRY_MAX)]
    assert parse_log_starts(log_starts_payload(rows)) == rows
    partitions = tuple(range(1, ROWS_PER_ENTRY_MAX + 1))
    assert parse_delete(delete_payload(3, partitions)).partitions == partitions


@pytest.mark.parametrize(("parse", "payload"), [
    (parse_clock, b""), (parse_clock, bytes(7)), (parse_clock, bytes(9)),
    (parse_clock, (CLOCK_MS_MAX + 1).to_bytes(8, "little")),
    (parse_log_starts, b""), (parse_log_starts, LOG_START_HEAD.pack(1, 1) + bytes(24)),
    (parse_log_starts, LOG_START_HEAD.pack(3, 1) + LOG_START_ROW.pack(7, 0, 0)),
    (parse_log_starts, LOG_START_HEAD.pack(2, 1)),
    (parse_log_starts, LOG_START_HEAD.pack(2, 1) + LOG_START_ROW.pack(7, 0, 0) + b"x"),
    (parse_log_starts, LOG_START_HEAD.pack(2, 1) + LOG_START_ROW.pack(0, 0, 0)),
    (parse_log_starts, LOG_START_HEAD.pack(2, 1) + LOG_START_ROW.pack(7, -1, 0)),
    (parse_log_starts, LOG_START_HEAD.pack(2, 1) + LOG_START_ROW.pack(7, 0, -2)),
    (parse_log_starts, LOG_START_HEAD.pack(2, 2) + LOG_START_ROW.pack(7, 0, 0) * 2),
    (parse_delete, b""), (parse_delete, DELETE_HEAD.pack(2, 1, 1) + DELETE_ROW.pack(7)),
    (parse_delete, DELETE_HEAD.pack(1, 1, 1)),
    (parse_delete, DELETE_HEAD.pack(1, 1, 1) + DELETE_ROW.pack(0)),
    (parse_delete, DELETE_HEAD.pack(1, 2, 1) + DELETE_ROW.pack(7) * 2),
    (parse_compact, b""), (parse_compact, COMPACT_STRUCT.pack(2, 1, 4, 2)),
    (parse_compact, COMPACT_STRUCT.pack(1, 0, 4, 2)),
    (parse_compact, COMPACT_STRUCT.pack(1, 1, 4, 5)),
    (parse_compact, COMPACT_STRUCT.pack(1, 1, 4, -1)),
    (parse_compact, COMPACT_STRUCT.pack(1, 1, 4, 2) + b"x"),
    (parse_expire, b""), (parse_expire, EXPIRE_STRUCT.pack(2, 1)),
])
def test_foreign_payloads_are_refused(parse, payload):
    with pytest.raises(CorruptEntry):
        parse(payload)


# ---- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "payload", "text"), [
    (EntryKind.PARTITION_OPEN, open_payload(1, 5, 2),
     "epoch 1 from offset 5, leader epochs from 2"),
    (EntryKind.PARTITION_OPEN, open_payload(2, 5, 2, 4),
     "epoch 2 from offset 5, leader epochs from 2, carried: log start 4, 0 producers"),
    (EntryKind.PARTITION_SEAL, seal_payload(3), "epoch 3"),
    (EntryKind.LOG_START, b"", ""),
    (EntryKind.LOG_START, log_starts_payload(ROWS),
     "p7 from 40 (900 bytes kept), p18446744073709551615 from 3"),
    (EntryKind.LOG_START, log_starts_payload([LogStart(n, 0, -1) for n in range(1, 7)]),
     "p1 from 0, p2 from 0, p3 from 0, p4 from 0 and 2 more"),
    (EntryKind.CLOCK, clock_payload(0, 500), "500 ms since 1970"),
    (EntryKind.PARTITION_DELETE, delete_payload(12, range(1, 6)),
     "p1, p2, p3, p4 and 1 more, by metadata 12"),
    (EntryKind.COMPACT, compact_payload(Compaction(2, 40, 30)),
     "generation 2 up to offset 40, tombstones below 30"),
    (EntryKind.PRODUCERS_EXPIRE, expire_payload(17),
     "producers without a batch from index 17 on"),
    (EntryKind.CLOCK, b"x", "malformed: a CLOCK payload has 8 bytes, this one 1"),
    (EntryKind.DATA, b"anything", ""), (EntryKind.NOOP, b"", ""), (99, b"", ""),
])
def test_the_text_of_an_entry(kind, payload, text):
    assert entry_text.describe(kind, payload) == text
