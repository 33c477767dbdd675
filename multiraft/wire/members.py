"""Requests and responses about the members of a group, and its forced recovery.

Contract.  As ``messages.py``, whose tables take in those of this module.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Members of a group.
NODES_MAX = 10_000
TEXT_MAX = 4096


class GroupMembers(NamedTuple):
    """Request to the group's leader.  With ``voters``: change the members to ``voters`` and
    ``learners``, if the configuration in force is still the one at ``expected_index`` (-1 = any).
    Without: return the members only.  ``local``: return those that the answering node's replica
    knows, whether it leads or not."""

    group: int
    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    expected_index: int = -1
    local: bool = False


class RecoverGroup(NamedTuple):
    """Request to the metadata group's leader: continue the group from the replica of node
    ``survivor``, as its only voter, in ``incarnation``.  Entries that only other replicas had are
    lost."""

    group: int
    survivor: int
    incarnation: int


class MemberRow(NamedTuple):
    """A member as the leader sees it: ``state`` of its Progress, and its matched index."""

    node: int
    state: str
    match: int


class GroupMembersReply(NamedTuple):
    """A replica and the members that it knows.  ``index``: log index of the configuration in force;
    ``is_open``: a configuration change is not complete.  ``rows``: only from the leader."""

    group: int
    incarnation: int
    node: int
    leader: int
    term: int
    last_term: int
    last_index: int
    commit: int
    index: int  # type: ignore[assignment]
    is_open: bool
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    outgoing: tuple[int, ...]
    rows: tuple[MemberRow, ...]
    quarantined: str = ""


class RecoverGroupReply(NamedTuple):
    incarnation: int


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_node = schema.integer(0, schema.I32_MAX)
_nodes = list_of(_node, NODES_MAX)
_text = schema.text(TEXT_MAX)

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "group_members": Shape(GroupMembers, {
        "group": _u32, "voters": _nodes, "learners": _nodes,
        "expected_index": schema.integer(-1, schema.I64_MAX), "local": schema.boolean}),
    "recover_group": Shape(RecoverGroup, {"group": _u32, "survivor": _node, "incarnation": _u32}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "group_members": Shape(GroupMembersReply, {
        "group": _u32, "incarnation": _u32, "node": _node, "leader": _node, "term": _u64,
        "last_term": _u64, "last_index": _u64, "commit": _u64, "index": _u64,
        "is_open": schema.boolean, "voters": _nodes, "learners": _nodes, "outgoing": _nodes,
        "rows": list_of(row(MemberRow, _node, _text, _u64), NODES_MAX), "quarantined": _text}),
    "recover_group": Shape(RecoverGroupReply, {"incarnation": _u32}),
}

Request = GroupMembers | RecoverGroup
Reply = GroupMembersReply | RecoverGroupReply
