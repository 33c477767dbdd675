"""Requests and responses about the pool of groups: its size, and its growth.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Nodes of a cluster.
NODES_MAX = 10_000
#: Groups that an answer names; it always has their number.
GROUPS_NAMED_MAX = 64
NAME_MAX = 64
#: Bytes of a rack's name.
RACK_MAX = 255


class GrowPool(NamedTuple):
    """Request to grow the pool to ``groups`` groups.  ``dry_run``: only return the effect."""

    groups: int
    dry_run: bool = False


class PoolStatus(NamedTuple):
    """Request for the size of the pool and the progress of its growth."""


class NewReplicas(NamedTuple):
    """Replicas that a node has, and new replicas and first leaderships that it gets."""

    node: int
    rack: str
    state: str
    replicas: int
    new_replicas: int
    new_leads: int


class GrowPoolReply(NamedTuple):
    """Growth from ``pool_size`` to ``groups`` groups, and the new replicas of each node."""

    pool_size: int
    groups: int
    replication_factor: int
    nodes: tuple[NewReplicas, ...]


class PoolStatusReply(NamedTuple):
    """Size of the pool.  ``groups`` above ``pool_size``: it is growing to that size.
    ``groups_leaderless``: number of new groups without a leader, of which ``leaderless`` lists
    some.  ``groups_max``: the answering node's limit."""

    pool_size: int
    groups: int
    groups_leaderless: int
    leaderless: tuple[int, ...]
    groups_max: int


_u32 = schema.integer(0, schema.U32_MAX)

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "grow_pool": Shape(GrowPool, {
        "groups": schema.integer(1, schema.U32_MAX), "dry_run": schema.boolean}),
    "pool_status": Shape(PoolStatus, {}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "grow_pool": Shape(GrowPoolReply, {
        "pool_size": _u32, "groups": _u32, "replication_factor": _u32,
        "nodes": list_of(row(NewReplicas, _u32, schema.text(RACK_MAX), schema.text(NAME_MAX), _u32,
                             _u32, _u32), NODES_MAX)}),
    "pool_status": Shape(PoolStatusReply, {
        "pool_size": _u32, "groups": _u32, "groups_leaderless": _u32,
        "leaderless": list_of(_u32, GROUPS_NAMED_MAX), "groups_max": _u32}),
}

Request = GrowPool | PoolStatus
Reply = GrowPoolReply | PoolStatusReply
