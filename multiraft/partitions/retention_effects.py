"""Effects of the entries that decide retention on the state of a group and its partitions.

Contract.  ``fault`` says why an entry cannot follow a tail; ``changes`` returns what an entry
without a fault changes.  Both are functions of the entry and the tail alone, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from multiraft.errors import CorruptEntry
from multiraft.partitions.clock_list import with_clock
from multiraft.partitions.partition_state import GroupState, PartitionState, with_log_start
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    LogStart,
    parse_clock,
    parse_compact,
    parse_delete,
    parse_expire,
    parse_log_starts,
)
from multiraft.types import Entry, EntryKind

#: Kinds of entries that this module knows.
KINDS = frozenset({EntryKind.LOG_START, EntryKind.CLOCK, EntryKind.PARTITION_DELETE,
                   EntryKind.COMPACT, EntryKind.PRODUCERS_EXPIRE})

States = Mapping[int, PartitionState]


class Changes(NamedTuple):
    """Changes by one entry: the group's state afterwards, and (partition, state before, state
    after) of each changed partition; None after = the partition is deleted."""

    group_state: GroupState
    partitions: tuple[tuple[int, PartitionState, PartitionState | None], ...] = ()


def fault(entry: Entry, states: States, group_state: GroupState) -> str:
    """Return why ``entry`` does not fit; empty if it does.  O(partitions that it names)."""
    try:
        return "".join(_faults(entry, states, group_state))
    except CorruptEntry as error:
        return str(error)


def _faults(entry: Entry, states: States, group_state: GroupState) -> Iterator[str]:
    """Yield at most one reason.  Raises ``CorruptEntry`` for a malformed payload."""
    kind = entry.kind
    if kind == EntryKind.LOG_START:
        yield _log_starts_fault(entry, states)
    elif kind == EntryKind.COMPACT:
        yield _compact_fault(entry, states)
    elif kind == EntryKind.PARTITION_DELETE:
        parse_delete(entry.payload)
    elif kind == EntryKind.CLOCK:
        clock_ms = parse_clock(entry.payload)
        if clock_ms < group_state.clock_ms:
            yield f"CLOCK of {clock_ms} ms after one of {group_state.clock_ms} ms"
    else:
        assert kind == EntryKind.PRODUCERS_EXPIRE, f"{entry!r}"
        below_index = parse_expire(entry.payload)
        if below_index > entry.index:
            yield f"PRODUCERS_EXPIRE below index {below_index}, its own is {entry.index}"


def _log_starts_fault(entry: Entry, states: States) -> str:
    for partition, log_start, _ in _log_starts(entry):
        state = states.get(partition)
        if state is None:
            return f"LOG_START of partition {partition}, which is not open"
        if not 0 <= log_start <= state.next_offset:
            return (f"log start {log_start} of partition {partition}, its end is "
                    f"{state.next_offset}")
    return ""


def _compact_fault(entry: Entry, states: States) -> str:
    found, state = parse_compact(entry.payload), states.get(entry.partition)
    if state is None:
        return f"COMPACT of partition {entry.partition}, which is not open"
    last = state.compaction
    if found.generation <= last.generation:
        return (f"COMPACT of partition {entry.partition} with generation {found.generation} after "
                f"{last.generation}")
    if found.up_to > state.next_offset:
        return (f"COMPACT of partition {entry.partition} up to {found.up_to}, its end is "
                f"{state.next_offset}")
    if found.up_to < last.up_to or found.tombstones_below < last.tombstones_below:
        return f"COMPACT of partition {entry.partition} goes back: {found} after {last}"
    return ""


def changes(entry: Entry, states: States, group_state: GroupState) -> Changes:
    """Return the changes by an entry that has no fault.  O(partitions that it names)."""
    kind = entry.kind
    if kind == EntryKind.LOG_START:
        rows = [(row.partition, states[row.partition], with_log_start(states[row.partition], row))
                for row in _log_starts(entry)]
        return Changes(group_state, tuple([row for row in rows if row[1] != row[2]]))
    if kind == EntryKind.COMPACT:
        before = states[entry.partition]
        details = before.details._replace(compaction=parse_compact(entry.payload))
        return Changes(group_state, ((entry.partition, before, before._replace(details=details)),))
    if kind == EntryKind.PARTITION_DELETE:
        metadata_index, partitions = parse_delete(entry.payload)
        return Changes(
            group_state._replace(opens_from=max(group_state.opens_from, metadata_index)),
            tuple([(partition, states[partition], None) for partition in partitions
                   if partition in states]))
    if kind == EntryKind.CLOCK:
        clock_ms = parse_clock(entry.payload)
        return Changes(group_state._replace(
            clock_ms=clock_ms, clocks=with_clock(group_state.clocks, entry.index, clock_ms)))
    assert kind == EntryKind.PRODUCERS_EXPIRE, f"{entry!r}"
    below_index = max(group_state.expired_below, parse_expire(entry.payload))
    return Changes(group_state._replace(expired_below=below_index))


def _log_starts(entry: Entry) -> list[LogStart]:
    """Return the rows of a LOG_START of either version.  Raises ``CorruptEntry``."""
    if len(entry.payload):
        return parse_log_starts(entry.payload)
    return [LogStart(entry.partition, entry.base_offset, UNKNOWN_BYTES)]
