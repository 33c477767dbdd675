"""Requests and responses about the placement of partitions: epoch histories, and switches to
another group.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.  Nodes send
``PEER_REQUESTS`` to each other, on the peer port.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Partitions in one answer: with full epoch histories it stays below the limit of a header.
ROWS_MAX = 1_000
#: Entries of one epoch history, more than this release creates.
EPOCH_ENTRIES_MAX = 256
TOPIC_NAME_MAX = 4096
#: Bytes of producer state that a partition open carries: 1,024 producers take 93 KiB.
PRODUCER_STATE_BYTES_MAX = 256 << 10


class EpochRow(NamedTuple):
    """Entry of an epoch history: ``group`` has the offsets from ``start_offset`` on, up to the next
    entry's."""

    epoch: int
    group: int
    start_offset: int


class PlacementRow(NamedTuple):
    """Placement of one partition.  ``epoch_history``: its epoch history, oldest first, never empty;
    the group of the last entry takes appends.  ``hashed_group``: its group by the hash.
    ``switch_epoch`` 0 = no switch is in progress."""

    partition: int
    incarnation: int
    hashed_group: int
    epoch_history: tuple[EpochRow, ...]
    switch_epoch: int
    switch_group: int


class ReplicaRow(NamedTuple):
    """State of a partition in one group, as the answering node has applied it.  ``epoch`` 0 = it
    was never opened there."""

    group: int
    leads: bool
    epoch: int
    sealed: bool
    next_offset: int


class ExplainPlacement(NamedTuple):
    """Request for the placements of ``topic`` from partition ``first`` on, at most
    ``count_max``."""

    topic: str
    first: int = 0
    count_max: int = ROWS_MAX


class PartitionReplicas(NamedTuple):
    """Request for the answering node's state of a partition, in each group of its epoch history and
    of its switch."""

    incarnation: int


class SwitchPartition(NamedTuple):
    """Request to switch a partition to ``to_group`` at ``epoch``, which is its present epoch plus
    1.  A repetition has no second effect."""

    incarnation: int
    epoch: int
    to_group: int


class OpenPartition(NamedTuple):
    """Request between nodes, to the leader of ``to_group``: open the partition with the state that
    the applied seal of the former group has.  ``prepare``: only answer if that is possible."""

    incarnation: int
    epoch: int
    to_group: int
    metadata_index: int  # of the requesting node
    prepare: bool = False
    end_offset: int = 0
    log_start: int = 0
    leader_epoch: int = 0
    producer_state: bytes = b""


class PublishSwitch(NamedTuple):
    """Request between nodes, to the metadata leader: record that the partition is open in its new
    group."""

    incarnation: int
    epoch: int
    start_offset: int
    leader_epoch_base: int


class TrimEpochHistory(NamedTuple):
    """Request between nodes, to the metadata leader: drop entries of the epoch history below
    ``log_start``, where no record exists."""

    incarnation: int
    log_start: int


class ExplainPlacementReply(NamedTuple):
    pool_size: int  # in groups, when the topic was created
    partitions: tuple[PlacementRow, ...]
    more: bool = False


class PartitionReplicasReply(NamedTuple):
    replicas: tuple[ReplicaRow, ...]


class SwitchPartitionReply(NamedTuple):
    """Reply when the switch is decided, not yet complete."""

    epoch: int
    to_group: int


class OpenPartitionReply(NamedTuple):
    pass


class PublishSwitchReply(NamedTuple):
    pass


class TrimEpochHistoryReply(NamedTuple):
    pass


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_i64 = schema.integer(0, schema.I64_MAX)
_i32 = schema.integer(0, schema.I32_MAX)
_epoch_row = row(EpochRow, _u64, _u32, _i64)
_placement = row(PlacementRow, _u32, _u64, _u32, list_of(_epoch_row, EPOCH_ENTRIES_MAX), _u64, _u32)
_replica = row(ReplicaRow, _u32, schema.boolean, _u64, schema.boolean, _i64)

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "explain_placement": Shape(ExplainPlacement, {
        "topic": schema.text(TOPIC_NAME_MAX), "first": _u32,
        "count_max": schema.integer(1, ROWS_MAX)}),
    "partition_replicas": Shape(PartitionReplicas, {"incarnation": _u64}),
    "switch_partition": Shape(SwitchPartition, {
        "incarnation": _u64, "epoch": _u64, "to_group": _u32}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "explain_placement": Shape(ExplainPlacementReply, {
        "pool_size": _u32, "partitions": list_of(_placement, ROWS_MAX), "more": schema.boolean}),
    "partition_replicas": Shape(PartitionReplicasReply, {
        "replicas": list_of(_replica, EPOCH_ENTRIES_MAX + 1)}),
    "switch_partition": Shape(SwitchPartitionReply, {"epoch": _u64, "to_group": _u32}),
}

Request = ExplainPlacement | PartitionReplicas | SwitchPartition
Reply = ExplainPlacementReply | PartitionReplicasReply | SwitchPartitionReply

#: Requests and responses between nodes.
PEER_REQUESTS: dict[str, Shape] = {
    "open_partition": Shape(OpenPartition, {
        "incarnation": _u64, "epoch": _u64, "to_group": _u32, "metadata_index": _u64,
        "prepare": schema.boolean, "end_offset": _i64, "log_start": _i64, "leader_epoch": _i32,
        "producer_state": schema.byte_string(PRODUCER_STATE_BYTES_MAX)}),
    "publish_switch": Shape(PublishSwitch, {
        "incarnation": _u64, "epoch": _u64, "start_offset": _i64, "leader_epoch_base": _i32}),
    "trim_epoch_history": Shape(TrimEpochHistory, {"incarnation": _u64, "log_start": _i64}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "open_partition": Shape(OpenPartitionReply, {}),
    "publish_switch": Shape(PublishSwitchReply, {}),
    "trim_epoch_history": Shape(TrimEpochHistoryReply, {}),
}
