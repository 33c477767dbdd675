"""Requests and responses about nodes: join, register, list, describe, remove, scrub, cleaner; and
records of group members.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.  Nodes send
``PEER_REQUESTS`` to each other, on the peer port.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Nodes of a cluster and members of a group.
NODES_MAX = 10_000
GROUPS_MAX = 65_536
ADDRESS_MAX = 300
RACK_MAX = 255
VERSION_MAX = 64

#: Actions of ``control_cleaner``.
PAUSE, RESUME = "pause", "resume"


class NodeRow(NamedTuple):
    """A node in the metadata.  ``incarnation``: of its data directory, 0 = it has never been
    started; ``started_ms``: wall-clock time of its last start in milliseconds, 0 = not known;
    ``kafka_address``: the one for Kafka's clients, "" = it has no port for them."""

    id: int
    incarnation: int
    boot_epoch: int
    client_address: str
    peer_address: str
    rack: str
    weight: int
    version: str
    started_ms: int
    kafka_address: str = ""


class NodeState(NamedTuple):
    """A node and its state.  ``state``: up, down or unknown, as the answering node sees it;
    ``replicas``: number of groups that it is a member of; ``leads``: number that it leads."""

    node: NodeRow
    state: str
    replicas: int
    leads: int


class JoinCluster(NamedTuple):
    """Request to register a data directory as a node.  Id 0 = the next free id.  A repetition with
    the same incarnation returns the same node."""

    node: NodeRow


class RegisterNode(NamedTuple):
    """Request of a node that has started, with its addresses and boot epoch."""

    node: NodeRow


class KnownNodes(NamedTuple):
    """Request for the nodes that a peer knows; a node that was down may not know the metadata
    leader."""


class ListNodes(NamedTuple):
    pass


class DescribeNode(NamedTuple):
    node: int


class RemoveNode(NamedTuple):
    """Request to remove a node that is no longer a member of any group; its id is never reused."""

    node: int


class ScrubNode(NamedTuple):
    """Request to node ``node``, sent to that node: read and verify all stored data now.
    ``bytes_per_second`` 0 = the configured maximum."""

    node: int
    bytes_per_second: int = 0


class ControlCleaner(NamedTuple):
    """Request to node ``node``, sent to that node: pause or resume its cleaner.
    ``bytes_per_second`` 0 = the pace that it has."""

    node: int
    action: str  # "pause", "resume"
    bytes_per_second: int = 0


class ReportMembers(NamedTuple):
    """Report of the leader of ``group`` to the metadata leader: record the members, as of the
    committed configuration at log index ``version``."""

    group: int
    incarnation: int
    version: int
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()


class JoinClusterReply(NamedTuple):
    """Facts that a new node needs to find the others; ``node`` is its id."""

    node: int
    cluster: bytes
    groups: int
    replication_factor: int
    nodes: tuple[NodeRow, ...]
    removed: tuple[int, ...]
    version: int  # metadata index of ``nodes`` and ``removed``


class KnownNodesReply(NamedTuple):
    """``nodes`` and ``removed`` at metadata index ``version``; 0 = from a configuration file."""

    nodes: tuple[NodeRow, ...]
    removed: tuple[int, ...]
    version: int


class ListNodesReply(NamedTuple):
    nodes: tuple[NodeState, ...]
    removed: tuple[int, ...]


class DescribeNodeReply(NamedTuple):
    node: NodeState
    voter_of: tuple[int, ...]
    learner_of: tuple[int, ...]
    leader_of: tuple[int, ...]


class RemoveNodeReply(NamedTuple):
    pass


class ScrubNodeReply(NamedTuple):
    """Reply at the start of a scrub pass, of ``total_bytes``.  It is complete when ``scrub_passes``
    of ``node_status`` is above ``passes``."""

    total_bytes: int
    bytes_per_second: int
    passes: int


class ControlCleanerReply(NamedTuple):
    """Reply with the cleaner's pace, which lasts until the node stops."""

    is_paused: bool
    bytes_per_second: int


class ReportMembersReply(NamedTuple):
    pass


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_id = schema.integer(0, schema.I32_MAX)
_ids = list_of(_id, NODES_MAX)
_groups = list_of(_u32, GROUPS_MAX)
_address = schema.text(ADDRESS_MAX)
_node = row(NodeRow, _id, _u64, _u64, _address, _address, schema.text(RACK_MAX), _u32,
            schema.text(VERSION_MAX), _u64, _address, last_is_optional=True)
#: Fields with rows of nodes, as they are encoded.
_ENCODED_NODE = {"node": schema.without_default}
_ENCODED_NODES = {"nodes": schema.each_without_default}
_state = row(NodeState, _node, schema.one_of("up", "down", "unknown"), _u32, _u32)


def _encoded_state(state: NodeState) -> tuple[Any, ...]:
    return (schema.without_default(state.node), *state[1:])


#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "join_cluster": Shape(JoinCluster, {"node": _node}, encoded=_ENCODED_NODE),
    "list_nodes": Shape(ListNodes, {}),
    "describe_node": Shape(DescribeNode, {"node": _id}),
    "remove_node": Shape(RemoveNode, {"node": _id}),
    "scrub_node": Shape(ScrubNode, {"node": _id, "bytes_per_second": _u64}),
    "control_cleaner": Shape(ControlCleaner, {
        "node": _id, "action": schema.one_of(PAUSE, RESUME), "bytes_per_second": _u64}),
}

_joined = Shape(JoinClusterReply, {
    "node": _id, "cluster": schema.fixed_bytes(16), "groups": _u32, "replication_factor": _id,
    "nodes": list_of(_node, NODES_MAX), "removed": _ids, "version": _u64}, encoded=_ENCODED_NODES)

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "join_cluster": _joined,
    "list_nodes": Shape(
        ListNodesReply, {"nodes": list_of(_state, NODES_MAX), "removed": _ids},
        encoded={"nodes": lambda states: tuple(map(_encoded_state, states))}),
    "describe_node": Shape(DescribeNodeReply, {
        "node": _state, "voter_of": _groups, "learner_of": _groups, "leader_of": _groups},
        encoded={"node": _encoded_state}),
    "remove_node": Shape(RemoveNodeReply, {}),
    "scrub_node": Shape(ScrubNodeReply, {"total_bytes": _u64, "bytes_per_second": _u64,
                                         "passes": _u64}),
    "control_cleaner": Shape(ControlCleanerReply, {"is_paused": schema.boolean,
                                                   "bytes_per_second": _u64}),
}

Request = JoinCluster | ListNodes | DescribeNode | RemoveNode | ScrubNode | ControlCleaner
Reply = (JoinClusterReply | ListNodesReply | DescribeNodeReply | RemoveNodeReply | ScrubNodeReply
         | ControlCleanerReply)

#: Requests and responses between nodes.
PEER_REQUESTS: dict[str, Shape] = {
    "register_node": Shape(RegisterNode, {"node": _node}, encoded=_ENCODED_NODE),
    "known_nodes": Shape(KnownNodes, {}),
    "report_members": Shape(ReportMembers, {
        "group": _u32, "incarnation": _u64, "version": _u64, "voters": _ids, "learners": _ids,
        "outgoing": _ids}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "register_node": _joined,
    "known_nodes": Shape(KnownNodesReply, {
        "nodes": list_of(_node, NODES_MAX), "removed": _ids, "version": _u64},
        encoded=_ENCODED_NODES),
    "report_members": Shape(ReportMembersReply, {}),
}
