"""Requests and responses about where partitions are: explain it, and switch one to another group.

Contract.  As ``messages.py``, whose tables take in ``REQUESTS`` and ``RESPONSES``; those that begin
with ``PEER_`` are asked by nodes, on the peer port.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Partitions in one answer: with full chains it stays below the limit of a header.
ROWS_MAX = 1_000
#: Links of one chain, with room for a later release that allows more.
LINKS_MAX = 256
TOPIC_NAME_MAX = 4096
#: Producer windows that an opening carries: those of 1,024 producers take 93 KiB.
WINDOWS_BYTES_MAX = 256 << 10


class LinkRow(NamedTuple):
    """Where a partition's offsets from ``start_offset`` on are, up to the next link's."""

    epoch: int
    group: int
    start_offset: int


class PlacementRow(NamedTuple):
    """``links``: oldest first, never empty; the last one takes the appends.  ``hashed_group``:
    where the hash puts the partition.  ``switch_epoch`` 0 = no switch is under way."""

    partition: int
    incarnation: int
    hashed_group: int
    links: tuple[LinkRow, ...]
    switch_epoch: int
    switch_group: int


class ReplicaRow(NamedTuple):
    """A partition in one group, as the answering node has applied it.  ``epoch`` 0 = never opened
    there."""

    group: int
    leads: bool
    epoch: int
    sealed: bool
    next_offset: int


class PlacementExplain(NamedTuple):
    """Partitions of ``topic`` from number ``first`` on, in order, at most ``count_max``."""

    topic: str
    first: int = 0
    count_max: int = ROWS_MAX


class PartitionReplicas(NamedTuple):
    """What the answering node has of a partition, in all groups of its chain and its switch."""

    incarnation: int


class SwitchPartition(NamedTuple):
    """Decide that the partition goes on in ``to_group`` at ``epoch``, which is the one after its
    present one.  Asked twice it is decided once."""

    incarnation: int
    epoch: int
    to_group: int


class OpenPartition(NamedTuple):
    """Between nodes, to the leader of ``to_group``: go on with the partition as the applied seal of
    the group before says.  ``prepare``: only say whether you would."""

    incarnation: int
    epoch: int
    to_group: int
    metadata_index: int  # what the asking node knows
    prepare: bool = False
    end_offset: int = 0
    log_start: int = 0
    leader_epoch: int = 0
    windows: bytes = b""


class PublishSwitch(NamedTuple):
    """Between nodes, to the metadata leader: the partition is open in its new group."""

    incarnation: int
    epoch: int
    start_offset: int
    leader_epoch_base: int


class TrimChain(NamedTuple):
    """Between nodes, to the metadata leader: nothing below ``log_start`` can be read any more."""

    incarnation: int
    log_start: int


class PlacementExplainReply(NamedTuple):
    pool_size: int  # that the topic was created with
    partitions: tuple[PlacementRow, ...]
    more: bool = False


class PartitionReplicasReply(NamedTuple):
    replicas: tuple[ReplicaRow, ...]


class SwitchPartitionReply(NamedTuple):
    """It is decided."""

    epoch: int
    to_group: int


class OpenPartitionReply(NamedTuple):
    pass


class PublishSwitchReply(NamedTuple):
    pass


class TrimChainReply(NamedTuple):
    pass


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_i64 = schema.integer(0, schema.I64_MAX)
_i32 = schema.integer(0, schema.I32_MAX)
_link = row(LinkRow, _u64, _u32, _i64)
_placement = row(PlacementRow, _u32, _u64, _u32, list_of(_link, LINKS_MAX), _u64, _u32)
_replica = row(ReplicaRow, _u32, schema.boolean, _u64, schema.boolean, _i64)

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "placement_explain": Shape(PlacementExplain, {
        "topic": schema.text(TOPIC_NAME_MAX), "first": _u32,
        "count_max": schema.integer(1, ROWS_MAX)}),
    "partition_replicas": Shape(PartitionReplicas, {"incarnation": _u64}),
    "switch_partition": Shape(SwitchPartition, {
        "incarnation": _u64, "epoch": _u64, "to_group": _u32}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "placement_explain": Shape(PlacementExplainReply, {
        "pool_size": _u32, "partitions": list_of(_placement, ROWS_MAX), "more": schema.boolean}),
    "partition_replicas": Shape(PartitionReplicasReply, {
        "replicas": list_of(_replica, LINKS_MAX + 1)}),
    "switch_partition": Shape(SwitchPartitionReply, {"epoch": _u64, "to_group": _u32}),
}

Request = PlacementExplain | PartitionReplicas | SwitchPartition
Reply = PlacementExplainReply | PartitionReplicasReply | SwitchPartitionReply

#: The same between nodes.
PEER_REQUESTS: dict[str, Shape] = {
    "open_partition": Shape(OpenPartition, {
        "incarnation": _u64, "epoch": _u64, "to_group": _u32, "metadata_index": _u64,
        "prepare": schema.boolean, "end_offset": _i64, "log_start": _i64, "leader_epoch": _i32,
        "windows": schema.byte_string(WINDOWS_BYTES_MAX)}),
    "publish_switch": Shape(PublishSwitch, {
        "incarnation": _u64, "epoch": _u64, "start_offset": _i64, "leader_epoch_base": _i32}),
    "trim_chain": Shape(TrimChain, {"incarnation": _u64, "log_start": _i64}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "open_partition": Shape(OpenPartitionReply, {}),
    "publish_switch": Shape(PublishSwitchReply, {}),
    "trim_chain": Shape(TrimChainReply, {}),
}
