"""Rebalance plan: moves with reasons, order and cost, and what the plan cannot do.

Contract.  A plan is a value.  ``save`` writes it as JSON, one row per line.  ``load`` reads it and
refuses an edited plan: ``plan_id`` is the digest of everything else.  A plan proposes; its executor
compares each move's guards with the present cluster (``guards`` below) and calls
``placement.verify`` before the first move.

A subject has at most one move in a plan: a group one ``LeaderTransfer`` *or* one ``ReplicaChange``
(which names the leader it wants afterwards), a partition one ``TopicSwitch``.  So ``move_id``,
which is made from the subject, is unique in the plan and the same in the next plan for the same
subject.

    seq         1 .. n: the order in which moves are started; every prefix of it is safe
    wave        moves that may be under way together under the policy's limits; for estimates and
                for people.  The executor may run ahead of it, but never past
    depends_on  seqs that have to be done before this one starts (it needs the disk space they free)
    why         the reason, and the worst share of the node or group it relieves before and after
    guards      LeaderTransfer, ReplicaChange: the group's incarnation and the index of its
                configuration (compare and set).  TopicSwitch: the epoch of the partition's last
                link, and the group it is in

Execution is level-triggered: ``done_by`` of each move can be judged from observations alone.
Ratios are in millionths (ppm) of a node's or group's share, rounded up: 1,000,000 = exactly its
share.  Sizes are bytes, rates bytes per second, times milliseconds since 1970.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from placement import canonical
from placement.errors import EditedPlan, InvalidDocument, LimitExceeded
from placement.policy import MOVES_MAX, Options, Policy

#: Version of the file.  Another meaning of any field is another version.
PLAN_FORMAT = 1

#: A plan of MOVES_MAX moves over a pool of 32,768 groups has some 10 MiB.
PLAN_BYTES_MAX = 64 << 20

LEADER_TRANSFER = "leader_transfer"
TOPIC_SWITCH = "topic_switch"
REPLICA_CHANGE = "replica_change"
KINDS = (LEADER_TRANSFER, TOPIC_SWITCH, REPLICA_CHANGE)

# Reasons of moves.
REPAIR_DEAD = "REPAIR_DEAD"  # a replica's node is dead
UNDER_REPLICATED = "UNDER_REPLICATED"  # fewer voters than the replication factor
DRAIN = "DRAIN"  # the node shall be empty
MAINTENANCE = "MAINTENANCE"  # the node shall lead nothing; its replicas stay
RACK_VIOLATION = "RACK_VIOLATION"  # more replicas in one rack than its even share
DISK_HARD = "DISK_HARD"  # the disk is above the policy's cap
OVERLOAD = "OVERLOAD"  # above the band in ``resource``
NEW_NODE = "NEW_NODE"  # the receiver is below the band: it is new, or was empty
LEADER_SKEW = "LEADER_SKEW"  # leaders, or what they send, are above the band
USER = "USER"  # asked for by hand
REASONS = (REPAIR_DEAD, UNDER_REPLICATED, DRAIN, MAINTENANCE, RACK_VIOLATION, DISK_HARD, OVERLOAD,
           NEW_NODE, LEADER_SKEW, USER)

# Reasons of what was not moved.
SPLIT = "SPLIT"  # one partition alone is above a group's share: more partitions help, moves do not
TOO_LARGE = "TOO_LARGE"  # larger than the headroom of any receiver
NO_SLACK = "NO_SLACK"  # no permitted node has free capacity
COOL_DOWN = "COOL_DOWN"  # moved a short while ago
EXCLUDED = "EXCLUDED"  # the policy says so
COPIED = "COPIED"  # compacted or unlimited: switching would copy it
CHAIN_FULL = "CHAIN_FULL"  # its chain has as many links as are allowed
EXCEPTIONS_FULL = "EXCEPTIONS_FULL"  # the cluster's table of exceptions is full
IN_CHANGE = "IN_CHANGE"  # the group is in the middle of a change of members
NO_QUORUM = "NO_QUORUM"  # the group has no majority: only forced recovery helps
BUDGET = "BUDGET"  # the byte budget is spent
MOVES_LIMIT = "MOVES_LIMIT"  # the plan has as many moves as it may
DISK_PEAK = "DISK_PEAK"  # while copies are under way a disk would exceed its cap
NON_MOVES = (SPLIT, TOO_LARGE, NO_SLACK, COOL_DOWN, EXCLUDED, COPIED, CHAIN_FULL, EXCEPTIONS_FULL,
             IN_CHANGE, NO_QUORUM, BUDGET, MOVES_LIMIT, DISK_PEAK)

# Causes of what cannot be done at all.
NO_TARGET = "NO_TARGET"  # no node may take a replica of the group
LAST_RACK = "LAST_RACK"  # draining would leave no rack, or fewer than replicas stay apart in now
TOO_FEW_NODES = "TOO_FEW_NODES"  # fewer nodes than replicas
CAPACITY = "CAPACITY"  # the disks that remain are too small
CAUSES = (NO_QUORUM, NO_TARGET, LAST_RACK, TOO_FEW_NODES, CAPACITY, IN_CHANGE)


class Why(NamedTuple):
    """Reason of a move.

    ``subject`` is the node, or for switches the group, that is relieved (0 = none).  ``before_ppm``
    and ``after_ppm`` are its share of ``resource`` before and after this move, as computed when the
    planner chose the move."""

    reason: str
    resource: str = ""
    subject: int = 0
    before_ppm: int = 0
    after_ppm: int = 0


class LeaderTransfer(NamedTuple):
    """Transfer of the leadership of ``group`` to ``to_node``, one of its voters.  Copies nothing.

    Done when ``to_node`` leads; skipped if it is no longer a voter.  ``to_node`` becomes the
    preferred leader."""

    seq: int
    wave: int
    depends_on: tuple[int, ...]
    why: Why
    group: int
    group_incarnation: int
    expect_conf_index: int
    from_node: int
    to_node: int

    @canonical.ClassConstant
    def kind(cls) -> str:
        return LEADER_TRANSFER

    @property
    def move_id(self) -> str:
        """``leader:g7``."""
        return f"leader:g{self.group}"

    @property
    def bytes(self) -> int:
        """Bytes copied: none."""
        return 0


class TopicSwitch(NamedTuple):
    """Seal of a partition in ``from_group`` and opening in ``to_group`` at ``expect_epoch`` + 1.

    Done when the partition's last link is ``to_group`` at a greater epoch than ``expect_epoch``;
    stale when its epoch differs otherwise.  ``bytes`` is 0 unless the partition is compacted or
    kept without limit, when it has to be copied."""

    seq: int
    wave: int
    depends_on: tuple[int, ...]
    why: Why
    incarnation: int  # of the partition
    topic: str
    partition: int
    from_group: int
    to_group: int
    expect_epoch: int
    bytes: int

    @canonical.ClassConstant
    def kind(cls) -> str:
        return TOPIC_SWITCH

    @property
    def move_id(self) -> str:
        """``switch:p1042``, by the partition's incarnation."""
        return f"switch:p{self.incarnation}"


class ReplicaChange(NamedTuple):
    """Change of the voters of ``group`` to ``new_voters``: learners, catch-up, joint consensus,
    removal.

    Voters are in ascending order.  ``to_leader`` is one of the new ones and should lead afterwards;
    0 = no preference.  ``bytes`` is the sum that the joining replicas copy.  Done when the voters
    are ``new_voters`` and the group is not in joint consensus."""

    seq: int
    wave: int
    depends_on: tuple[int, ...]
    why: Why
    group: int
    group_incarnation: int
    expect_conf_index: int
    old_voters: tuple[int, ...]
    new_voters: tuple[int, ...]
    from_leader: int
    to_leader: int
    bytes: int

    @canonical.ClassConstant
    def kind(cls) -> str:
        return REPLICA_CHANGE

    @property
    def move_id(self) -> str:
        """``replicas:g7``."""
        return f"replicas:g{self.group}"

    @property
    def joining(self) -> tuple[int, ...]:
        """Nodes that get a replica, ascending."""
        return tuple(node for node in self.new_voters if node not in self.old_voters)

    @property
    def leaving(self) -> tuple[int, ...]:
        """Nodes that lose theirs, ascending."""
        return tuple(node for node in self.old_voters if node not in self.new_voters)


Move = LeaderTransfer | TopicSwitch | ReplicaChange


class Skipped(NamedTuple):
    """A move that the plan leaves out, and the reason.  ``subject`` reads ``g7`` or ``p1042``;
    ``load`` is in the unit of ``resource``; ``text`` is for people."""

    reason: str
    subject: str
    node: int
    resource: str
    load: int
    text: str


class Infeasible(NamedTuple):
    """Something that was asked for or is necessary, cannot be done, and what would help."""

    cause: str
    subject: str
    text: str
    way_out: str


class ResourceOutcome(NamedTuple):
    """One resource before and after.

    ``bound_ppm`` is a lower bound over all placements of the same loads on the same bins; ``bound``
    names its source (mean, largest, pigeonhole, racks).  ``level_ppm`` is the share that bins
    without an oversized item can have, at which balancing aims within the band.  ``moved`` is the
    load that changes its bin, ``moved_bound`` a lower bound of what any plan has to move until
    every bin is inside its band."""

    resource: str
    band_permille: int
    total: int
    before_ppm: int
    after_ppm: int
    bound_ppm: int
    bound: str
    level_ppm: int
    moved: int
    moved_bound: int

    @property
    def gap_ppm(self) -> int:
        """Distance of the worst bin above the bound afterwards: 20,000 = 2 %."""
        return self.after_ppm * 1_000_000 // self.bound_ppm - 1_000_000 if self.bound_ppm else 0


class NodeOutcome(NamedTuple):
    """A node before and after: disk bytes, ingress, egress, leaders (``policy.NODE_RESOURCES``),
    then its share of each, and the number of replicas."""

    node: int
    rack: str
    weight: int
    state: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    share: tuple[int, ...]
    replicas_before: int
    replicas_after: int


class GroupOutcome(NamedTuple):
    """Bytes per second appended to a group, before and after."""

    group: int
    before: int
    after: int


class Total(NamedTuple):
    """Number of moves of one kind and the bytes that they copy."""

    kind: str
    moves: int
    bytes: int


class Plan(NamedTuple):
    """A rebalance plan with its input's digests, moves, omissions and figures.

    ``created_ms`` is the time of the snapshot: a plan is a function of its input, and reads no
    clock."""

    plan_id: str
    format: int
    planner_version: int
    cluster_id: str
    snapshot_digest: str
    metadata_version: int
    created_ms: int
    expires_ms: int
    options: Options
    policy: Policy
    converged: bool  # planning on the planned state gives an empty plan
    waves: int
    estimated_ms: int
    totals: tuple[Total, ...]
    resources: tuple[ResourceOutcome, ...]
    nodes: tuple[NodeOutcome, ...]
    groups: tuple[GroupOutcome, ...]
    warnings: tuple[str, ...]
    infeasible: tuple[Infeasible, ...]
    skipped: tuple[Skipped, ...]
    moves: tuple[Move, ...]

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.moves

    @property
    def bytes(self) -> int:
        """Bytes copied by all moves."""
        return sum(total.bytes for total in self.totals)


def identify(plan: Plan) -> Plan:
    """Return the plan with ``plan_id`` set to the digest of its other contents. O(bytes)."""
    return plan._replace(plan_id=canonical.digest(plan._replace(plan_id="")))


def save(plan: Plan) -> bytes:
    """Return the plan's file: JSON with sorted keys, one line per field and per row.  O(bytes)."""
    fields = canonical.to_plain(plan)
    lines = ",\n".join(f"{json.dumps(name)}: {_laid_out(fields[name])}" for name in sorted(fields))
    return b"{\n" + lines.encode() + b"\n}\n"


def _laid_out(value: object) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value, sort_keys=True)
    return "[\n" + ",\n".join(json.dumps(row, sort_keys=True) for row in value) + "\n]"


def load(data: bytes) -> Plan:
    """Return the plan of a file.  Raises ``InvalidDocument`` (no plan, or of another version),
    ``EditedPlan``, ``LimitExceeded``.  O(bytes)."""
    fields = canonical.parse(data, PLAN_BYTES_MAX)
    version = fields.get("format") if isinstance(fields, dict) else None
    if version != PLAN_FORMAT:
        raise InvalidDocument(f"a plan has the format {PLAN_FORMAT}; this has {version!r:.60}")
    plan = canonical.from_plain(Plan, fields, "plan")
    computed = identify(plan).plan_id
    if plan.plan_id != computed:
        raise EditedPlan(plan.plan_id, computed)
    if len(plan.moves) > MOVES_MAX:
        raise LimitExceeded("moves of a plan", MOVES_MAX, len(plan.moves))
    return plan


class Difference(NamedTuple):
    """Two plans by ``move_id``: only in the first, only in the second, in both with another
    destination."""

    removed: tuple[Move, ...]
    added: tuple[Move, ...]
    changed: tuple[tuple[Move, Move], ...]

    @property
    def is_empty(self) -> bool:
        """True if both plans move the same subjects to the same destinations."""
        return not (self.removed or self.added or self.changed)


def destination(move: Move) -> tuple[int, ...]:
    """Return a move's destination: the new leader, the new group, or the new voters and their
    leader."""
    if isinstance(move, LeaderTransfer):
        return (move.to_node,)
    if isinstance(move, TopicSwitch):
        return (move.to_group,)
    return (*move.new_voters, move.to_leader)


def diff(first: Plan, second: Plan) -> Difference:
    """Compare two plans by ``move_id`` and destination; order, waves and reasons are ignored.
    O(moves)."""
    old = {move.move_id: move for move in first.moves}
    new = {move.move_id: move for move in second.moves}
    return Difference(
        tuple(move for name, move in old.items() if name not in new),
        tuple(move for name, move in new.items() if name not in old),
        tuple((move, new[name]) for name, move in old.items()
              if name in new and destination(move) != destination(new[name])))
