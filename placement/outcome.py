"""What a plan leads to: the planned cluster, and the figures before and after.

Contract.  ``planned`` is the snapshot as it will be when every move is done and nothing else has
changed: configurations and epochs are one further, loads go with what carries them.  The rest fills
the plan's tables.  Whole numbers, rounded up where a load is judged and down where a bound is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from placement.cluster import DEAD, GroupRow, PartitionRow, Snapshot
from placement.plan import (
    GroupOutcome,
    LeaderTransfer,
    Move,
    NodeOutcome,
    Plan,
    ReplicaChange,
    ResourceOutcome,
    TopicSwitch,
)
from placement.policy import (
    GROUP_INGRESS,
    NODE_RESOURCES,
    SCOPE_DRAIN,
    SCOPE_REPAIR,
    Band,
    Options,
    Policy,
)
from placement.shares import POSITION, PPM, Shares, group_shares, node_shares
from placement.state import NOBODY, R_DISK, R_EGRESS, R_INGRESS, R_LEADERS, State


class Before(NamedTuple):
    """Nodes' loads when replicas, and when leaders, began to be moved, and who led then."""

    replicas: list[list[int]]
    leaders: list[list[int]]
    leader: dict[int, int]


# ---- the planned cluster ------------------------------------------------------------------------

def planned(snapshot: Snapshot, made: Plan) -> Snapshot:
    """The cluster after all moves of the plan.  O(rows)."""
    groups = {row.id: row for row in snapshot.groups}
    partitions = {row.incarnation: row for row in snapshot.partitions}
    exceptions = snapshot.exceptions
    for move in made.moves:
        if isinstance(move, TopicSwitch):
            row = partitions[move.incarnation]
            exceptions += not row.links
            partitions[move.incarnation] = _switched(row, move, snapshot.taken_ms)
            _carry(groups, row, move)
        elif isinstance(move, LeaderTransfer):
            groups[move.group] = groups[move.group]._replace(leader=move.to_node)
        else:
            groups[move.group] = _changed(groups[move.group], move, snapshot.taken_ms)
    return snapshot._replace(exceptions=exceptions, groups=tuple(groups.values()),
                             partitions=tuple(partitions.values()))


def _switched(row: PartitionRow, move: TopicSwitch, now_ms: int) -> PartitionRow:
    return row._replace(group=move.to_group, epoch=row.epoch + 1, moved_ms=now_ms,
                        links=max(row.links, 1) + 1)


def _carry(groups: dict[int, GroupRow], row: PartitionRow, move: TopicSwitch) -> None:
    for group, sign in ((move.from_group, -1), (move.to_group, 1)):
        old = groups[group]
        groups[group] = old._replace(ingress=old.ingress + sign * row.ingress,
                                     read=old.read + sign * row.read)


def _changed(row: GroupRow, move: ReplicaChange, now_ms: int) -> GroupRow:
    learners = tuple(node for node in row.learners if node not in move.new_voters)
    return row._replace(voters=move.new_voters, leader=move.to_leader, learners=learners,
                        conf_index=row.conf_index + 1, moved_ms=now_ms)


def state_after(snapshot: Snapshot, policy: Policy, options: Options,
                moves: Iterable[Move]) -> State:
    """The state after these moves."""
    state = State(snapshot, policy, options.drain)
    rows = {row.incarnation: row for row in snapshot.partitions}
    for move in moves:
        if isinstance(move, TopicSwitch):
            row = rows[move.incarnation]
            state.switch(row.incarnation, row.ingress, row.read, move.to_group)
        elif isinstance(move, LeaderTransfer):
            state.set_members(move.group, state.voters[move.group], state.index[move.to_node])
        else:
            state.set_members(move.group, [state.index[node] for node in move.new_voters],
                              state.index.get(move.to_leader, NOBODY))
    return state


# ---- figures ------------------------------------------------------------------------------------

def resources(start: State, end: State, before: Before, policy: Policy,
              options: Options) -> tuple[ResourceOutcome, ...]:
    """One row per balanced resource, in the order of the policy's bands."""
    rows = []
    for band in policy.bands:
        if band.resource == GROUP_INGRESS:
            rows.append(_groups_outcome(start, end, band, options))
        else:
            rows.append(_nodes_outcome(start, end, before, band, options))
    return tuple(rows)


def _nodes_outcome(start: State, end: State, before: Before, band: Band,
                   options: Options) -> ResourceOutcome:
    shares = node_shares(end, band)
    position = POSITION[band.resource]
    weights = [node.weight for node in end.nodes]
    judged = [node.holds and (node.may_lead or position in (R_DISK, R_INGRESS))
              for node in end.nodes]
    at_first = [node.state != DEAD for node in start.nodes]
    loads = (before.replicas if position in (R_DISK, R_INGRESS) else before.leaders)
    moved = _moved(start, end, before, position)
    return ResourceOutcome(
        band.resource, band.permille, shares.total,
        _worst(shares, (load[position] for load in start.load), weights, at_first),
        _worst(shares, (load[position] for load in end.load), weights, judged),
        shares.bound_ppm, shares.bound, shares.level_ppm, moved,
        _moved_bound([load[position] for load in loads], shares,
                     [node.leaves for node in end.nodes], judged, options))


def _worst(shares: Shares, loads: Iterable[int], weights: Sequence[int],
           judged: Sequence[bool]) -> int:
    return max((shares.ppm(load, weight) for load, weight, counts
                in zip(loads, weights, judged, strict=True) if counts), default=0)


def _moved(start: State, end: State, before: Before, position: int) -> int:
    """Load that changes its node."""
    if position in (R_DISK, R_INGRESS):
        return sum(end.replica_load(group, position)
                   * sum(node not in start.voters[group] for node in voters)
                   for group, voters in end.voters.items())
    return sum(1 if position == R_LEADERS else end.leader_egress(group)
               for group, leader in end.leader.items() if leader != before.leader[group])


def _moved_bound(loads: Sequence[int], shares: Shares, leaves: Sequence[bool],
                 judged: Sequence[bool], options: Options) -> int:
    """Load that has to change its node so that every node is inside the band: what is on nodes that
    are left and what is above targets, and at least what is missing elsewhere."""
    forced = sum(load for load, leaving in zip(loads, leaves, strict=True) if leaving)
    if options.scope in (SCOPE_REPAIR, SCOPE_DRAIN):
        return forced
    excess = missing = 0
    for node, counts in enumerate(judged):
        if counts:
            excess += max(0, loads[node] - shares.high[node])
            missing += max(0, shares.low[node] - loads[node])
    return max(forced + excess, missing)


def _groups_outcome(start: State, end: State, band: Band, options: Options) -> ResourceOutcome:
    groups, shares = group_shares(end, band)
    moved = sum(row.ingress for row in end.snapshot.partitions
                if end.where[row.incarnation] != row.group)
    excess = sum(max(0, start.ingress[group] - high)
                 for group, high in zip(groups, shares.high, strict=True))
    return ResourceOutcome(
        band.resource, band.permille, shares.total,
        max((shares.ppm(start.ingress[group], 1) for group in groups), default=0),
        max((shares.ppm(end.ingress[group], 1) for group in groups), default=0),
        shares.bound_ppm, shares.bound, shares.level_ppm, moved,
        0 if options.scope in (SCOPE_REPAIR, SCOPE_DRAIN) else excess)


def nodes(start: State, end: State, policy: Policy) -> tuple[NodeOutcome, ...]:
    """Each node before and after, by id."""
    shares = []
    for resource in NODE_RESOURCES:
        band = policy.band(resource) or Band(resource, 0)
        shares.append(node_shares(end, band).share)
    return tuple(
        NodeOutcome(node.id, end.racks[node.rack], node.weight, node.state,
                    tuple(start.load[place]), tuple(end.load[place]),
                    tuple(share[place] for share in shares),
                    len(start.held[place]), len(end.held[place]))
        for place, node in enumerate(end.nodes))


def groups(start: State, end: State) -> tuple[GroupOutcome, ...]:
    """What is appended to each group of the pool, before and after."""
    return tuple(GroupOutcome(group, start.ingress[group], end.ingress[group])
                 for group in sorted(end.groups) if group)


def warnings(end: State) -> Iterator[str]:
    """What an operator should know of the planned cluster."""
    for place, node in enumerate(end.nodes):
        for position, name in ((R_DISK, "bytes of its disk"), (R_INGRESS, "ingress"),
                               (R_EGRESS, "egress")):
            if node.state != DEAD and end.load[place][position] > node.cap[position]:
                yield (f"node {node.id} would carry {end.load[place][position]} of {name}, and "
                       f"{node.cap[position]} is what it may")
    factor = end.snapshot.replication_factor
    many = [group for group, voters in sorted(end.voters.items()) if len(voters) > factor]
    if many:
        yield (f"{len(many)} groups have more voters than the replication factor of {factor}, "
               f"the first is group {many[0]}: plans leave them as they are")
    leaderless = sorted(group for group, leader in end.leader.items() if leader == NOBODY)
    if leaderless:
        yield f"{len(leaderless)} groups have no leader, the first is group {leaderless[0]}"
