"""The simulator's model of the entries that decide retention."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle.partition_invariants import RetentionFollows
from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import (
    Compaction,
    LogStart,
    clock_payload,
    compact_payload,
    delete_payload,
    log_starts_payload,
)
from multiraft.types import BatchInfo, Entry, EntryKind

P = 7
OPEN = (EntryKind.PARTITION_OPEN, P, -1, open_payload(1))
DATA = (EntryKind.DATA, P, 0, b"x")


def starts(log_start):
    return EntryKind.LOG_START, 0, -1, log_starts_payload([LogStart(P, log_start, 0)])


def compact(generation, up_to):
    return EntryKind.COMPACT, P, -1, compact_payload(Compaction(generation, up_to, 0))


DELETE = (EntryKind.PARTITION_DELETE, 0, -1, delete_payload(1, [P]))


def commit(*rows):
    """Commit entries of (kind, partition, base offset, payload); a batch has three records."""
    entries = [Entry(kind, 1, 1, 1, 1 + at, partition, offset, payload,
                     BatchInfo(3, -1, -1, -1, 0, 0) if kind == EntryKind.DATA else None)
               for at, (kind, partition, offset, payload) in enumerate(rows)]
    group = SimpleNamespace(group=1, entries=entries, committed=range(len(entries)))
    RetentionFollows().on_commit(SimpleNamespace(group=group), len(entries), len(entries))


def clock(now_ms):
    return EntryKind.CLOCK, 0, -1, clock_payload(0, now_ms)


def test_a_history_that_follows_the_rules():
    commit(OPEN, DATA, clock(5), clock(5), starts(3), compact(1, 2), compact(2, 3), DELETE, OPEN,
           DATA, compact(1, 3), (EntryKind.LOG_START, P, 2, b""))


@pytest.mark.parametrize(("rows", "why"), [
    ((clock(5), clock(4)), "a clock of 4 ms follows one of 5 ms"),
    ((OPEN, DATA, starts(4)), "log start 4 of partition 7, which ends at 3"),
    ((OPEN, DATA, (EntryKind.LOG_START, P, 4, b"")), "log start 4 of partition 7"),
    ((OPEN, DATA, compact(1, 2), compact(1, 3)), "after generation 1"),
    ((OPEN, DATA, compact(1, 4)), "which ends at 3"),
    ((OPEN, DELETE, DATA), "DATA of partition 7, which the group does not have"),
    ((OPEN, DELETE, starts(0)), "LOG_START of partition 7"),
    ((OPEN, DELETE, compact(1, 0)), "COMPACT of partition 7"),
    ((OPEN, DELETE, (EntryKind.PARTITION_SEAL, P, -1, seal_payload(1))), "PARTITION_SEAL of"),
])
def test_a_history_that_breaks_one(rows, why):
    with pytest.raises(Violation, match=why):
        commit(*rows)
