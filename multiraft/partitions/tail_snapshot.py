"""Partition states of a group as CBOR-able values, in checkpoints and snapshots: versions, shape.

Contract.  ``rows`` and ``head`` make the object of ``PartitionStates.snapshot``; ``read`` checks
such an object of any known version and returns it in the present one.  Layout:
docs/storage-format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from multiraft.codec import shapes
from multiraft.errors import CodecError
from multiraft.partitions.clock_list import checked, last_clock
from multiraft.partitions.partition_state import (
    NEVER_COMPACTED,
    NO_DETAILS,
    GroupState,
    PartitionDetails,
    PartitionState,
    details_of,
    leader_epochs,
)
from multiraft.partitions.retention_records import UNKNOWN_BYTES, Compaction

#: Version of the object.  Version 1 has no seals, version 2 nothing of retention but log starts.
SNAPSHOT_VERSION = 3
SNAPSHOT_VERSIONS_READ = (1, 2, SNAPSHOT_VERSION)

#: Per partition its incarnation and state, and (producer, window).
_SNAPSHOT = {
    "group": shapes.UINT, "applied": shapes.UINT, "clock": shapes.UINT, "clocks": shapes.BYTES,
    "opens_from": shapes.UINT,
    "expired_below": shapes.UINT,
    "partitions": [(
        *[shapes.UINT] * 5, shapes.FLAG, shapes.UINT, shapes.UINT, shapes.INT_OR_NONE,
        shapes.Optional((shapes.UINT,) * 3), [(shapes.UINT, shapes.UINT)],
        [(shapes.UINT, shapes.BYTES)])]}


def head(group: int, applied: int, state: GroupState) -> dict[str, Any]:
    """Return the object without its partitions."""
    return {"version": SNAPSHOT_VERSION, "group": group, "applied": applied,
            "clock": state.clock_ms, "clocks": state.clocks, "opens_from": state.opens_from,
            "expired_below": state.expired_below}


def row(partition: int, state: PartitionState, windows: list[tuple[int, bytes]]) -> list:
    """Return the row of one partition."""
    *fields, details = state
    compaction = details.compaction
    return [partition, *fields, list(compaction) if compaction.generation else None,
            leader_epochs(details), windows]


def read(snapshot: dict) -> tuple[GroupState, Iterator[tuple[int, PartitionState, list]]]:
    """Return the group's state, and per partition its incarnation, state and windows.  Raises
    ``CodecError``, ``KeyError``, ``TypeError`` or ``ValueError`` for what is no such object."""
    if snapshot["version"] not in SNAPSHOT_VERSIONS_READ:
        raise CodecError(f"tail state of version {snapshot['version']}, known are "
                         f"{SNAPSHOT_VERSIONS_READ}")
    snapshot = _upgraded(snapshot)
    shapes.check(snapshot, _SNAPSHOT, "tail state")
    clocks = checked(snapshot["clocks"])
    last_index, last_ms = last_clock(clocks)
    if last_index > snapshot["applied"] or last_ms != snapshot["clock"]:
        raise ValueError(f"the last clock is {last_ms} ms at index {last_index}, not "
                         f"{snapshot['clock']} ms")
    state = GroupState(snapshot["clock"], clocks, snapshot["opens_from"],
                       snapshot["expired_below"])
    return state, _partitions(snapshot["partitions"])


def _partitions(rows: Iterable[list]) -> Iterator[tuple[int, PartitionState, list]]:
    #: Equal details are one object again.
    shared: dict[PartitionDetails, PartitionDetails] = {NO_DETAILS: NO_DETAILS}
    for partition, *fields, compaction, epochs, windows in rows:
        details = NO_DETAILS
        if compaction is not None or epochs:
            details = details_of([tuple(each) for each in epochs], Compaction(*compaction)
                                 if compaction is not None else NEVER_COMPACTED)
            details = shared.setdefault(details, details)
        state = PartitionState._make([*fields, details])
        if state.log_start > state.next_offset:
            raise ValueError(f"partition {partition} begins behind its end: {state}")
        yield partition, state, windows


def _upgraded(snapshot: dict) -> dict:
    """Return a snapshot of an earlier version in the present shape, one of this version
    unchanged."""
    version = snapshot["version"]
    if version == SNAPSHOT_VERSION:
        return snapshot
    rows = snapshot["partitions"]
    if version == 1:  # no partition was sealed
        rows = [[*row[:-1], 0, 0, row[-1]] for row in rows]
    rows = [[*row[:-1], _live_bytes(row), None, [], row[-1]] for row in rows]
    return {**snapshot, "clock": 0, "clocks": b"", "opens_from": 0, "expired_below": 0,
            "partitions": rows}


def _live_bytes(row: list) -> int:
    """Return the live bytes of a partition in version 2: known only without records."""
    next_offset, log_start = row[3:5]
    return 0 if next_offset == log_start else UNKNOWN_BYTES
