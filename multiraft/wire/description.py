"""Request ``group_describe``: state of a replica, and the progress of members if it leads.

Contract.  As ``messages.py``, which puts these shapes into its tables.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Members of a group and nodes of a cluster.
NODES_MAX = 10_000
TEXT_MAX = 4096


class GroupDescribe(NamedTuple):
    """Request the state of the answering node's replica of a group, with its members if it
    leads."""

    group: int


class MemberProgress(NamedTuple):
    """One member as its leader sees it.  ``lag_bytes``: bytes of the leader's log that it lacks."""

    node: int
    #: probe, replicate, copying (records, after a snapshot), snapshot, unknown_group (no replica),
    #: quarantined
    state: str
    match: int
    next_index: int
    commit_known: int
    inflight_bytes: int
    lag_bytes: int


class GroupDescribeReply(NamedTuple):
    """State of a replica.  ``outgoing`` is not empty while the configuration is joint.
    ``committed_in_term``: it leads, and has committed an entry of its term.  ``quiesced``: no timer
    is armed.  ``quarantined``: the reason, or empty.  ``leader_commit_seen``: highest commit index
    that a leader has named since the node started, -1 = none.  ``members``: only from the
    leader.  ``first_index`` is the Raft start; ``records`` and ``record_bytes`` are of the entries
    below it that are kept to be read, and part of ``log_bytes``.  Earlier releases tell neither."""

    node: int
    group: int
    incarnation: int
    role: str
    term: int
    vote: int
    leader: int
    first_index: int
    last_index: int
    durable_index: int
    commit: int
    applied_index: int
    leader_commit_seen: int
    committed_in_term: bool
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    outgoing: tuple[int, ...]
    quarantined: str
    quiesced: bool
    transferee: int
    uncommitted_bytes: int
    log_bytes: int
    partitions: int
    members: tuple[MemberProgress, ...]
    records: int = 0
    record_bytes: int = 0


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_int_or_none = schema.integer(-1, schema.I64_MAX)
_node = schema.integer(0, schema.I32_MAX)
_text = schema.text(TEXT_MAX)
_nodes = list_of(_node, NODES_MAX)

GROUP_DESCRIBE = Shape(GroupDescribe, {"group": _u32})
GROUP_DESCRIBE_REPLY = Shape(GroupDescribeReply, {
    "node": _node, "group": _u32, "incarnation": _u32,
    "role": schema.one_of("follower", "pre_candidate", "candidate", "leader"),
    "term": _u64, "vote": _node, "leader": _node, "first_index": _u64, "last_index": _u64,
    "durable_index": _u64, "commit": _u64, "applied_index": _u64,
    "leader_commit_seen": _int_or_none,
    "committed_in_term": schema.boolean, "voters": _nodes, "learners": _nodes, "outgoing": _nodes,
    "quarantined": _text, "quiesced": schema.boolean, "transferee": _node,
    "uncommitted_bytes": _u64, "log_bytes": _u64, "partitions": _u64,
    "members": list_of(row(MemberProgress, _node, _text, _u64, _u64, _u64, _u64, _u64),
                       NODES_MAX),
    "records": _u64, "record_bytes": _u64})
