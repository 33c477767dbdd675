"""Requests and responses about plans that are carried out: apply one, see how far it is, control
it; what nodes ask each other meanwhile; and the facts a plan is made from.

Contract.  As ``messages.py``, whose tables take in ``REQUESTS`` and ``RESPONSES``; those that begin
with ``PEER_`` are asked by nodes, on the peer port.  What is *carried out* of a plan is here; the
plan itself, with its predictions and reasons, is a file (``placement.plan``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Moves of a plan that is carried out: with nine replicas each, one request's header (1 MiB) and
#: one command of the metadata group hold them.  Whoever has more makes the next plan afterwards.
MOVES_MAX = 4096
#: Nodes of a cluster and members of a group.
NODES_MAX = 10_000
REPLICAS_MAX = 16
#: Groups that one node is asked about at once.
GROUPS_MAX = 4096
#: Rows of one answer.
ROWS_MAX = 4096
TEXT_MAX = 400
NAME_MAX = 64

LEADER_TRANSFER = "leader_transfer"
TOPIC_SWITCH = "topic_switch"
REPLICA_CHANGE = "replica_change"
KINDS = (LEADER_TRANSFER, TOPIC_SWITCH, REPLICA_CHANGE)

PAUSE = "pause"
RESUME = "resume"
CANCEL = "cancel"
THROTTLE = "throttle"
ACTIONS = (PAUSE, RESUME, CANCEL, THROTTLE)

#: What a move waits for begins with this when a disk has no room for its replica.
NO_ROOM = "NO_ROOM"

ALIVE = "alive"
DRAINING = "draining"
MAINTENANCE = "maintenance"
NODE_STATES = (ALIVE, DRAINING, MAINTENANCE)


class PlannedMove(NamedTuple):
    """A move, as far as carrying it out needs it.

    ``subject``: the group; for a switch the partition's incarnation.  ``guard``: the index of the
    configuration that the plan was made for; for a switch the partition's epoch.  ``old`` and
    ``new``: nodes, voters, or the group left and entered.  ``leader``: who is to lead a replica
    change's group afterwards, 0 = whoever is elected.  ``bytes``: what is copied."""

    seq: int
    kind: str
    subject: int
    incarnation: int
    guard: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    leader: int
    bytes: int
    reason: str
    depends_on: tuple[int, ...]

    @property
    def move_id(self) -> str:
        """As in the plan's file: ``leader:g7``, ``replicas:g7``, ``switch:p1042``."""
        return {LEADER_TRANSFER: "leader:g", TOPIC_SWITCH: "switch:p",
                REPLICA_CHANGE: "replicas:g"}[self.kind] + str(self.subject)

    @property
    def joining(self) -> tuple[int, ...]:
        """Nodes that get a replica."""
        if self.kind != REPLICA_CHANGE:
            return ()
        return tuple(node for node in self.new if node not in self.old)

    @property
    def leaving(self) -> tuple[int, ...]:
        """Nodes that lose theirs."""
        if self.kind != REPLICA_CHANGE:
            return ()
        return tuple(node for node in self.old if node not in self.new)

    @property
    def receivers(self) -> tuple[int, ...]:
        """Nodes that get a replica, or the group's leadership."""
        return self.new if self.kind == LEADER_TRANSFER else self.joining


class PlanLimits(NamedTuple):
    """How fast a plan is carried out.  ``throttle``: bytes per second that a node sends to, and
    that a node takes in as, replicas that catch up.  ``grace_ms``: a replica that was replaced is
    kept in step for so long.  ``commit_ms_max``: the plan pauses while one append in a hundred of
    some node takes longer; 0 = it never does."""

    throttle: int
    in_per_node_max: int = 2
    out_per_node_max: int = 2
    at_once_max: int = 50
    transfers_at_once_max: int = 8
    grace_ms: int = 5_000
    commit_ms_max: int = 2_000


class PlanApply(NamedTuple):
    """To the metadata group's leader: carry this plan out.  Applied twice it is applied once."""

    plan_id: str
    cluster_id: str
    scope: str
    expires_ms: int
    limits: PlanLimits
    moves: tuple[PlannedMove, ...]


class PlanControl(NamedTuple):
    """Pause, resume or cancel a plan, or change its throttle to ``value`` bytes per second.
    ``plan_id`` "" = whichever is being carried out."""

    action: str
    plan_id: str = ""
    value: int = 0


class PlanStatus(NamedTuple):
    """To the metadata group's leader: how far is it?"""


class SetNodeState(NamedTuple):
    """What the operator wants of a node: alive, draining (to be empty), maintenance (to lead
    nothing)."""

    node: int
    state: str


class PlacementFacts(NamedTuple):
    """What a plan needs beside nodes, groups and loads."""


class GroupLoads(NamedTuple):
    """Of the answering node: the groups that it leads, from ``first`` on, at most
    ``count_max``."""

    first: int = 0
    count_max: int = ROWS_MAX


class PartitionLoads(NamedTuple):
    """Of the answering node: the partitions of these groups, if it leads them."""

    groups: tuple[int, ...]
    after: int = 0  # incarnation


class PlanProbe(NamedTuple):
    """Between nodes: what do you see of these groups, and how are you?"""

    groups: tuple[int, ...]


class PlanChange(NamedTuple):
    """Between nodes, to the leader of a group: make these the members, if the configuration in
    force is the one at ``expected_index``."""

    group: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    expected_index: int


class PlanTransfer(NamedTuple):
    """Between nodes, to the leader of a group: let ``to`` lead it."""

    group: int
    to: int


class PlanApplyReply(NamedTuple):
    """``state``: running, or waiting for another plan to end."""

    plan_id: str
    state: str


class PlanControlReply(NamedTuple):
    plan_id: str
    state: str


class MoveStatus(NamedTuple):
    """One move.  ``wait`` says why it does not get on, or what it is doing."""

    seq: int
    move_id: str
    kind: str
    phase: str
    attempt: int
    since_ms: int  # wall-clock time of its last step
    bytes_total: int
    bytes_done: int
    reason: str
    wait: str
    old: tuple[int, ...]
    new: tuple[int, ...]


class PhaseCount(NamedTuple):
    phase: str
    moves: int


class NodeTraffic(NamedTuple):
    """Replicas that a node receives and sends for the plan."""

    node: int
    into: int
    out: int


class PlanStatusReply(NamedTuple):
    """``plan_id`` "" = there never was a plan.  ``rate``: bytes per second copied lately,
    ``eta_ms`` -1 = not known.  ``moves``: those under way, the slowest first, then those that wait
    or did not end well."""

    plan_id: str
    scope: str
    state: str
    reason: str
    applied_ms: int
    now_ms: int
    limits: PlanLimits
    moves_total: int
    bytes_total: int
    bytes_done: int
    rate: int
    eta_ms: int
    phases: tuple[PhaseCount, ...]
    moves: tuple[MoveStatus, ...]
    nodes: tuple[NodeTraffic, ...]
    next_plan_id: str


class SetNodeStateReply(NamedTuple):
    pass


class NodeIntent(NamedTuple):
    node: int
    state: str


class PlacementFactsReply(NamedTuple):
    """``intents``: nodes that are not simply alive.  ``incarnations``: (group, incarnation) of
    those that were recovered by force.  ``preferred``: (group, node) of leaders that were asked
    for.  ``plan_id``: of the plan under way, "" = none."""

    cluster_id: str
    metadata_version: int
    pool_size: int
    replication_factor: int
    hash_seed: int
    exceptions: int
    intents: tuple[NodeIntent, ...]
    incarnations: tuple[tuple[int, int], ...]
    preferred: tuple[tuple[int, int], ...]
    plan_id: str


class GroupLoad(NamedTuple):
    """A group, as its leader sees it.  ``bytes``: of its log; ``read_bytes``: fetched of it from
    this node while it led, since the node started.  Differences of two answers make rates.
    ``moved_ms``: when a plan last changed its voters, in milliseconds since 1970, 0 = never."""

    group: int
    incarnation: int
    conf_index: int
    in_joint: bool
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    bytes: int
    last_index: int
    read_bytes: int = 0
    moved_ms: int = 0


class GroupLoadsReply(NamedTuple):
    """``taken_ms``: the answering node's monotonic time.  ``disk_used`` and ``disk_total`` in
    bytes: what its data directory has, and what it could have with all that is free."""

    node: int
    taken_ms: int
    disk_used: int
    disk_total: int
    groups: tuple[GroupLoad, ...]
    more: bool = False


class PartitionLoad(NamedTuple):
    """A partition.  ``moved_ms``: when a plan last switched it, in milliseconds since 1970, 0 =
    never."""

    incarnation: int
    topic: str
    partition: int
    group: int
    epoch: int
    links: int
    next_offset: int
    moved_ms: int = 0


class PartitionLoadsReply(NamedTuple):
    partitions: tuple[PartitionLoad, ...]
    more: bool = False


class LookedMember(NamedTuple):
    """A member as the leader sees it; ``bytes_left``: what it lacks of the log."""

    node: int
    state: str
    match: int
    bytes_left: int


class LookedGroup(NamedTuple):
    """A group that the answering node leads."""

    group: int
    incarnation: int
    conf_index: int
    is_open: bool
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    outgoing: tuple[int, ...]
    last_index: int
    bytes: int
    transferee: int
    members: tuple[LookedMember, ...]


class PlanLookReply(NamedTuple):
    """``groups``: those of the ones asked for that it leads.  Disk: as in ``GroupLoadsReply``;
    ``damaged``: replicas that are quarantined and vote.  ``commit_ms``: one in 100 appends lately
    took at least so long, -1 = there were too few."""

    groups: tuple[LookedGroup, ...]
    disk_used: int
    disk_total: int
    disk_full: bool
    damaged: int
    commit_ms: int


class PlanChangeReply(NamedTuple):
    pass


class PlanTransferReply(NamedTuple):
    pass


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_i64 = schema.integer(-1, schema.I64_MAX)
_id = schema.integer(0, schema.I32_MAX)
_few = list_of(_u32, REPLICAS_MAX)
_nodes = list_of(_id, NODES_MAX)
_text = schema.text(TEXT_MAX)
_name = schema.text(NAME_MAX)
_topic = schema.text(4096)
_state = schema.one_of(*NODE_STATES)
_count = schema.integer(1, schema.U32_MAX)

read_move = row(PlannedMove, _count, schema.one_of(*KINDS), _u64, _u64, _u64, _few, _few, _id,
                _u64, _name, list_of(_u32, MOVES_MAX))
read_limits = row(PlanLimits, schema.integer(1, schema.I64_MAX), _count, _count, _count, _count,
                  _u32, _u32)
read_moves = list_of(read_move, MOVES_MAX)
#: A plan's identity: 64 hexadecimal digits.
read_plan_id = schema.text(64)
_groups = list_of(_u32, GROUPS_MAX)


def _pair(value: Any) -> Any:
    if type(value) is not list or len(value) != 2:
        raise schema.Malformed("expected a pair")
    return tuple(map(_u64, value))


#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "plan_apply": Shape(PlanApply, {
        "plan_id": read_plan_id, "cluster_id": _name, "scope": _name, "expires_ms": _u64,
        "limits": read_limits, "moves": read_moves}),
    "plan_control": Shape(PlanControl, {
        "action": schema.one_of(*ACTIONS), "plan_id": read_plan_id, "value": _u64}),
    "plan_status": Shape(PlanStatus, {}),
    "set_node_state": Shape(SetNodeState, {"node": _id, "state": _state}),
    "placement_facts": Shape(PlacementFacts, {}),
    "group_loads": Shape(GroupLoads, {
        "first": _u32, "count_max": schema.integer(1, ROWS_MAX)}),
    "partition_loads": Shape(PartitionLoads, {"groups": _groups, "after": _u64}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "plan_apply": Shape(PlanApplyReply, {"plan_id": read_plan_id, "state": _name}),
    "plan_control": Shape(PlanControlReply, {"plan_id": read_plan_id, "state": _name}),
    "plan_status": Shape(PlanStatusReply, {
        "plan_id": read_plan_id, "scope": _name, "state": _name, "reason": _text,
        "applied_ms": _u64, "now_ms": _u64, "limits": read_limits, "moves_total": _u32,
        "bytes_total": _u64, "bytes_done": _u64, "rate": _u64, "eta_ms": _i64,
        "phases": list_of(row(PhaseCount, _name, _u32), NAME_MAX),
        "moves": list_of(row(MoveStatus, _u32, _name, _name, _name, _u32, _u64, _u64, _u64, _name,
                             _text, _few, _few), ROWS_MAX),
        "nodes": list_of(row(NodeTraffic, _id, _u32, _u32), NODES_MAX),
        "next_plan_id": read_plan_id}),
    "set_node_state": Shape(SetNodeStateReply, {}),
    "placement_facts": Shape(PlacementFactsReply, {
        "cluster_id": _name, "metadata_version": _u64, "pool_size": _u32,
        "replication_factor": _u32, "hash_seed": _u64, "exceptions": _u32,
        "intents": list_of(row(NodeIntent, _id, _state), NODES_MAX),
        "incarnations": list_of(_pair, ROWS_MAX), "preferred": list_of(_pair, 1 << 16),
        "plan_id": read_plan_id}),
    "group_loads": Shape(GroupLoadsReply, {
        "node": _id, "taken_ms": _u64, "disk_used": _u64, "disk_total": _u64,
        "groups": list_of(row(GroupLoad, _u32, _u64, _u64, schema.boolean, _few, _nodes, _u64,
                              _u64, _u64, _u64), ROWS_MAX), "more": schema.boolean}),
    "partition_loads": Shape(PartitionLoadsReply, {
        "partitions": list_of(row(PartitionLoad, _u64, _topic, _u32, _u32, _u64, _u32, _u64,
                                  _u64), ROWS_MAX), "more": schema.boolean}),
}

Request = (PlanApply | PlanControl | PlanStatus | SetNodeState | PlacementFacts | GroupLoads
           | PartitionLoads)
Reply = (PlanApplyReply | PlanControlReply | PlanStatusReply | SetNodeStateReply
         | PlacementFactsReply | GroupLoadsReply | PartitionLoadsReply)

#: The same between nodes.
PEER_REQUESTS: dict[str, Shape] = {
    "plan_look": Shape(PlanProbe, {"groups": _groups}),
    "plan_change": Shape(PlanChange, {
        "group": _u32, "voters": _few, "learners": _nodes, "expected_index": _u64}),
    "plan_transfer": Shape(PlanTransfer, {"group": _u32, "to": _id}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "plan_look": Shape(PlanLookReply, {
        "groups": list_of(row(
            LookedGroup, _u32, _u64, _u64, schema.boolean, _few, _nodes, _few, _u64, _u64, _id,
            list_of(row(LookedMember, _id, _name, _u64, _u64), NODES_MAX)), GROUPS_MAX),
        "disk_used": _u64, "disk_total": _u64, "disk_full": schema.boolean, "damaged": _u32,
        "commit_ms": _i64}),
    "plan_change": Shape(PlanChangeReply, {}),
    "plan_transfer": Shape(PlanTransferReply, {}),
}
