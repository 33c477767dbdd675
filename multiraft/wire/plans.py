"""Requests and responses about rebalance plans: apply, status and control; requests between nodes
while a plan is carried out; and the facts from which a plan is computed.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.  Nodes send
``PEER_REQUESTS`` to each other, on the peer port.  This module has the part of a plan that is
carried out; the plan itself, with its predictions and reasons, is a file (``placement.plan``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Moves of one plan: with nine replicas each, they fit into one request's header (1 MiB) and one
#: command of the metadata group.  Further moves belong to the next plan.
MOVES_MAX = 4096
#: Nodes of a cluster and members of a group.
NODES_MAX = 10_000
REPLICAS_MAX = 16
#: Groups in one request to a node.
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

#: Beginning of the ``wait`` text of a move whose target disk has no space for its replica.
NO_DISK_SPACE = "NO_DISK_SPACE"

ALIVE = "alive"
DRAINING = "draining"
MAINTENANCE = "maintenance"
NODE_STATES = (ALIVE, DRAINING, MAINTENANCE)


class PlannedMove(NamedTuple):
    """A move of a plan, with the fields that its execution needs.

    ``subject``: the group; for a switch the partition's incarnation.  ``expected``: log index of
    the configuration that the plan was made for; for a switch the partition's epoch.  ``old`` and
    ``new``: leaders, voters, or groups of the partition.  ``leader``: node that leads the group
    after a replica change, 0 = any.  ``bytes``: to be copied."""

    seq: int
    kind: str
    subject: int
    incarnation: int
    expected: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    leader: int
    bytes: int
    reason: str
    depends_on: tuple[int, ...]

    @property
    def move_id(self) -> str:
        """Id as in the plan's file: ``leader:g7``, ``replicas:g7``, ``switch:p1042``."""
        return {LEADER_TRANSFER: "leader:g", TOPIC_SWITCH: "switch:p",
                REPLICA_CHANGE: "replicas:g"}[self.kind] + str(self.subject)

    @property
    def joining(self) -> tuple[int, ...]:
        """Nodes that get a replica by this move; empty unless it is a replica change."""
        if self.kind != REPLICA_CHANGE:
            return ()
        return tuple(node for node in self.new if node not in self.old)

    @property
    def leaving(self) -> tuple[int, ...]:
        """Nodes that lose their replica by this move; empty unless it is a replica change."""
        if self.kind != REPLICA_CHANGE:
            return ()
        return tuple(node for node in self.old if node not in self.new)

    @property
    def receivers(self) -> tuple[int, ...]:
        """Nodes that get a replica, or the group's leadership."""
        return self.new if self.kind == LEADER_TRANSFER else self.joining


class PlanLimits(NamedTuple):
    """Limits of a plan's pace.  ``throttle``: bytes per second that a node sends to replicas that
    catch up, and that a node receives for them.  ``in_per_node_max``, ``out_per_node_max``:
    replicas that one node receives and sends at a time; ``at_once_max``,
    ``transfers_at_once_max``: moves and leadership transfers at a time.  ``grace_ms``: time for
    which a replaced replica is still replicated to.  ``commit_ms_max``: the plan pauses while one
    in 100 appends of a node takes longer, in milliseconds; 0 = it never pauses."""

    throttle: int
    in_per_node_max: int = 2
    out_per_node_max: int = 2
    at_once_max: int = 50
    transfers_at_once_max: int = 8
    grace_ms: int = 5_000
    commit_ms_max: int = 2_000


class ApplyPlan(NamedTuple):
    """Request to the metadata group's leader: carry out this plan.  A repetition has no second
    effect."""

    plan_id: str
    cluster_id: str
    scope: str
    expires_ms: int
    limits: PlanLimits
    moves: tuple[PlannedMove, ...]


class ControlPlan(NamedTuple):
    """Request to pause, resume or cancel a plan, or to set its throttle to ``value`` bytes per
    second.  ``plan_id`` "" = the plan that is being carried out."""

    action: str
    plan_id: str = ""
    value: int = 0


class PlanStatus(NamedTuple):
    """Request to the metadata group's leader for the progress of the plan."""


class SetNodeState(NamedTuple):
    """Request to set the intended state of a node: alive, draining (to lose all replicas), or
    maintenance (to lead nothing)."""

    node: int
    state: str


class PlacementFacts(NamedTuple):
    """Request for the facts that a plan needs beside nodes, groups and loads."""


class GroupLoads(NamedTuple):
    """Request for the loads of the groups that the answering node leads, from group ``first`` on,
    at most ``count_max``."""

    first: int = 0
    count_max: int = ROWS_MAX


class PartitionLoads(NamedTuple):
    """Request for the loads of the partitions in those ``groups`` that the answering node leads,
    with incarnations above ``after``."""

    groups: tuple[int, ...]
    after: int = 0  # incarnation


class ProbeGroups(NamedTuple):
    """Request between nodes for the state of the ``groups`` that the answering node leads, and of
    its disk."""

    groups: tuple[int, ...]


class StartReplicaChange(NamedTuple):
    """Request between nodes, to the leader of a group: change its members, if the configuration in
    force is the one at log index ``expected_index``."""

    group: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    expected_index: int


class StartLeaderTransfer(NamedTuple):
    """Request between nodes, to the leader of a group: transfer leadership to node ``to``."""

    group: int
    to: int


class ApplyPlanReply(NamedTuple):
    """Reply to an applied plan.  ``state``: running, or waiting for another plan to end."""

    plan_id: str
    state: str


class ControlPlanReply(NamedTuple):
    plan_id: str
    state: str


class MoveStatus(NamedTuple):
    """Progress of one move.  ``wait``: the reason why it is blocked, or its present step."""

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
    """Progress of a plan.  ``plan_id`` "" = there never was a plan.  ``rate``: bytes per second
    copied recently; ``eta_ms``: milliseconds to the end, -1 = not known.  ``moves``: those in
    progress, the slowest first, then those that wait or failed."""

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


class DesiredState(NamedTuple):
    """The state that the operator wants of a node."""

    node: int
    state: str


class PlacementFactsReply(NamedTuple):
    """Facts that a plan is computed from.  ``desired_states``: nodes whose intended state is not
    alive. ``incarnations``: (group, incarnation) of groups after forced recovery.  ``preferred``:
    (group, node) of preferred leaders that a plan chose.  ``plan_id``: of the plan in progress, ""
    = none."""

    cluster_id: str
    metadata_version: int
    pool_size: int
    replication_factor: int
    hash_seed: int
    exceptions: int
    desired_states: tuple[DesiredState, ...]
    incarnations: tuple[tuple[int, int], ...]
    preferred: tuple[tuple[int, int], ...]
    plan_id: str


class GroupLoad(NamedTuple):
    """Load of a group, as its leader sees it.  ``bytes``: of its log; ``read_bytes``: fetched of it
    from this node while it led, since the node started; rates are differences of two answers.
    ``moved_ms``: time of the last change of its voters by a plan, in milliseconds since 1970, 0 =
    never."""

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
    """Loads of the groups that a node leads.  ``taken_ms``: the node's monotonic time.
    ``disk_used``: bytes of its data directory; ``disk_total``: these and the free bytes of the
    disk."""

    node: int
    taken_ms: int
    disk_used: int
    disk_total: int
    groups: tuple[GroupLoad, ...]
    more: bool = False


class PartitionLoad(NamedTuple):
    """Load of a partition.  ``moved_ms``: time of its last switch by a plan, in milliseconds since
    1970, 0 = never.  ``is_compacted``: its records are compacted by key, so that it stays."""

    incarnation: int
    topic: str
    partition: int
    group: int
    epoch: int
    epoch_entries: int
    next_offset: int
    moved_ms: int = 0
    is_compacted: bool = False


class PartitionLoadsReply(NamedTuple):
    partitions: tuple[PartitionLoad, ...]
    more: bool = False


class ProbedMember(NamedTuple):
    """A member as the leader sees it; ``bytes_left``: bytes of the log that it lacks."""

    node: int
    state: str
    match: int
    bytes_left: int


class ProbedGroup(NamedTuple):
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
    members: tuple[ProbedMember, ...]


class ProbeGroupsReply(NamedTuple):
    """State of a node for a plan.  ``groups``: the requested ones that it leads.  Disk: as in
    ``GroupLoadsReply``.  ``damaged``: number of quarantined replicas that are voters.
    ``commit_ms``: one in 100 recent appends took at least so long, -1 = there were too few."""

    groups: tuple[ProbedGroup, ...]
    disk_used: int
    disk_total: int
    disk_full: bool
    damaged: int
    commit_ms: int


class StartReplicaChangeReply(NamedTuple):
    pass


class StartLeaderTransferReply(NamedTuple):
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
#: Plan id: 64 hexadecimal digits.
read_plan_id = schema.text(64)
_groups = list_of(_u32, GROUPS_MAX)


def _pair(value: Any) -> Any:
    if type(value) is not list or len(value) != 2:
        raise schema.Malformed("expected a pair")
    return tuple(map(_u64, value))


#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "apply_plan": Shape(ApplyPlan, {
        "plan_id": read_plan_id, "cluster_id": _name, "scope": _name, "expires_ms": _u64,
        "limits": read_limits, "moves": read_moves}),
    "control_plan": Shape(ControlPlan, {
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
    "apply_plan": Shape(ApplyPlanReply, {"plan_id": read_plan_id, "state": _name}),
    "control_plan": Shape(ControlPlanReply, {"plan_id": read_plan_id, "state": _name}),
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
        "desired_states": list_of(row(DesiredState, _id, _state), NODES_MAX),
        "incarnations": list_of(_pair, ROWS_MAX), "preferred": list_of(_pair, 1 << 16),
        "plan_id": read_plan_id}),
    "group_loads": Shape(GroupLoadsReply, {
        "node": _id, "taken_ms": _u64, "disk_used": _u64, "disk_total": _u64,
        "groups": list_of(row(GroupLoad, _u32, _u64, _u64, schema.boolean, _few, _nodes, _u64,
                              _u64, _u64, _u64), ROWS_MAX), "more": schema.boolean}),
    "partition_loads": Shape(PartitionLoadsReply, {
        "partitions": list_of(row(PartitionLoad, _u64, _topic, _u32, _u32, _u64, _u32, _u64,
                                  _u64, schema.boolean, last_is_optional=True), ROWS_MAX),
        "more": schema.boolean}, encoded={"partitions": schema.each_without_default}),
}

Request = (ApplyPlan | ControlPlan | PlanStatus | SetNodeState | PlacementFacts | GroupLoads
           | PartitionLoads)
Reply = (ApplyPlanReply | ControlPlanReply | PlanStatusReply | SetNodeStateReply
         | PlacementFactsReply | GroupLoadsReply | PartitionLoadsReply)

#: Requests and responses between nodes.
PEER_REQUESTS: dict[str, Shape] = {
    "probe_groups": Shape(ProbeGroups, {"groups": _groups}),
    "start_replica_change": Shape(StartReplicaChange, {
        "group": _u32, "voters": _few, "learners": _nodes, "expected_index": _u64}),
    "start_leader_transfer": Shape(StartLeaderTransfer, {"group": _u32, "to": _id}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "probe_groups": Shape(ProbeGroupsReply, {
        "groups": list_of(row(
            ProbedGroup, _u32, _u64, _u64, schema.boolean, _few, _nodes, _few, _u64, _u64, _id,
            list_of(row(ProbedMember, _id, _name, _u64, _u64), NODES_MAX)), GROUPS_MAX),
        "disk_used": _u64, "disk_total": _u64, "disk_full": schema.boolean, "damaged": _u32,
        "commit_ms": _i64}),
    "start_replica_change": Shape(StartReplicaChangeReply, {}),
    "start_leader_transfer": Shape(StartLeaderTransferReply, {}),
}
