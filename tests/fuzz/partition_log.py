"""A group's log, as operations in bytes: entries that open, fill, shorten and delete partitions.

Contract.  ``replay`` appends each entry that ``PartitionStates.check_entry`` accepts, applies and
truncates.  After each operation all invariants hold.  At the end the applied state is that of its
entries alone, and equal after a checkpoint.  Nothing is raised for any bytes.
"""

from __future__ import annotations

import struct

from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import (
    CLOCK_MS_MAX,
    UNKNOWN_BYTES,
    Compaction,
    LogStart,
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
)
from multiraft.partitions.state import PartitionStates
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

GROUP = 3
#: Operation, partition, a small number, a large one.
OPERATION = struct.Struct("<BBHQ")
(OPEN, DATA, SEAL, LOG_START_1, LOG_START, CLOCK, DELETE, COMPACT, EXPIRE, APPLY, TRUNCATE,
 RAW) = range(12)
PARTITIONS = 3
OPERATIONS_MAX = 200
#: Longest payload that the bytes behind an operation give.
RAW_BYTES_MAX = 64
_OFFSET_MAX = (1 << 63) - 1


def replay(data: bytes) -> None:
    """Carry out the operations, and check each step and the end."""
    log = _Log()
    at = 0
    for _ in range(OPERATIONS_MAX):
        if at + OPERATION.size > len(data):
            break
        kind, partition, number, value = OPERATION.unpack_from(data, at)
        at += OPERATION.size
        raw = data[at:at + number % (RAW_BYTES_MAX + 1)] if kind % 12 == RAW else b""
        at += len(raw)
        log.operate(kind % 12, 1 + partition % PARTITIONS, number, value, raw)
    log.check_end()


class _Log:
    """A log, and the state that it leads to."""

    def __init__(self) -> None:
        self._states = PartitionStates(GROUP)
        self._entries: list[Entry] = []

    def operate(self, kind: int, partition: int, number: int, value: int, raw: bytes) -> None:
        """Carry out one operation, and check all invariants."""
        states = self._states
        pending = states.last_index - states.applied_index
        if kind == APPLY:
            states.apply(states.applied_index + value % (pending + 1))
        elif kind == TRUNCATE:
            first_gone = states.applied_index + 1 + value % (pending + 1)
            states.truncate(first_gone)
            del self._entries[first_gone - 1:]
        else:
            self._append(self._entry(kind, partition, number, value, raw))
        states._check()

    def _append(self, entry: Entry) -> None:
        if not self._states.check_entry(entry):
            self._states.append(entry)
            self._entries.append(entry)

    def _entry(self, kind: int, partition: int, number: int, value: int, raw: bytes) -> Entry:
        states, offset = self._states, min(value, _OFFSET_MAX)
        at = states.next_offset(partition) if states.epoch_of(partition) else 0
        near = value % (at + 2)  # of the partition, or one beyond its end
        batch, base_offset = None, -1
        if kind == OPEN:
            made, payload = EntryKind.PARTITION_OPEN, open_payload(
                1 + number % 4, at + value % 3, number % 7, near)
        elif kind == DATA:
            made, payload, base_offset = EntryKind.DATA, bytes(number % 100), at
            batch = BatchInfo(1 + number % 9, -1 if value % 2 else 1 + value % 5, 0, value % 90, 0,
                              0)
        elif kind == SEAL:
            made, base_offset = EntryKind.PARTITION_SEAL, at
            payload = seal_payload(1 + number % 4)
        elif kind == LOG_START_1:
            made, payload, base_offset = EntryKind.LOG_START, b"", near
        elif kind == LOG_START:
            rows = [LogStart(partition, near, number)]
            if number % 2:
                rows.append(LogStart(1 + partition % PARTITIONS, offset % 20, UNKNOWN_BYTES))
            made, payload = EntryKind.LOG_START, log_starts_payload(rows)
        elif kind == CLOCK:
            made, payload = EntryKind.CLOCK, clock_payload(0, value % (CLOCK_MS_MAX + 1))
        elif kind == DELETE:
            made, payload = EntryKind.PARTITION_DELETE, delete_payload(number, [partition])
        elif kind == COMPACT:
            made, payload = EntryKind.COMPACT, compact_payload(
                Compaction(1 + number % 9, near, near // 2))
        elif kind == EXPIRE:
            made, payload = EntryKind.PRODUCERS_EXPIRE, expire_payload(
                1 + value % (states.last_index + 2))
        else:
            made, payload = EntryKind(1 + value % LAST_INDEXED_KIND), raw
        if kind in (CLOCK, DELETE, EXPIRE, LOG_START):
            partition = 0
        return Entry(made, GROUP, 1, 1 + len(self._entries) // 8, states.last_index + 1, partition,
                     base_offset, payload, batch)

    def check_end(self) -> None:
        """Check the applied state against its entries alone, and after a checkpoint."""
        applied = self._states.applied_index
        fresh = PartitionStates(GROUP)
        for entry in self._entries[:applied]:
            assert not fresh.check_entry(entry), f"{entry!r}: {fresh.check_entry(entry)}"
            fresh.append(entry)
        fresh.apply(applied)
        found = self._states.snapshot()
        assert fresh.snapshot() == found
        assert PartitionStates.restore(found).snapshot() == found


def seeds() -> list[bytes]:
    """Return a log with each kind of entry, and one that is applied and truncated in between."""
    each = [(OPEN, 0, 0, 0), (DATA, 0, 20, 0), (CLOCK, 0, 0, 1_700_000_000_000), (DATA, 0, 30, 3),
            (LOG_START, 0, 20, 1), (COMPACT, 0, 1, 2), (EXPIRE, 0, 0, 3), (LOG_START_1, 0, 0, 2),
            (SEAL, 0, 0, 0), (OPEN, 0, 1, 0), (APPLY, 0, 0, 9), (DELETE, 0, 17, 0), (OPEN, 0, 0, 0)]
    whole = b"".join(OPERATION.pack(*row) for row in each)
    opened = OPERATION.pack(OPEN, 1, 0, 0) + OPERATION.pack(DATA, 1, 9, 5)
    return [whole, whole + OPERATION.pack(APPLY, 0, 0, 1 << 40),
            opened + OPERATION.pack(APPLY, 0, 0, 2) + whole + OPERATION.pack(TRUNCATE, 0, 0, 4)
            + OPERATION.pack(RAW, 1, 8, 6) + bytes(8)]
