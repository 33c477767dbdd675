"""Outcome of a plan: the planned cluster, and the figures before and after.

Contract.  ``planned`` is the snapshot after every move if nothing else changes: configurations and
epochs are one further, and loads move with their carriers.  The other functions fill the plan's
tables.  Whole numbers, rounded up where a load is judged and down where a bound is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from placement import counts
from placement.cluster import DEAD, MAINTENANCE, GroupRow, PartitionRow, Snapshot
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
    SCOPE_ALL,
    SCOPE_LEADERS,
    SCOPE_NODE,
    Band,
    Options,
    Policy,
)
from placement.shares import POSITION, Shares, group_shares, node_shares
from placement.state import (
    NO_NODE,
    R_DISK,
    R_EGRESS,
    R_INGRESS,
    R_LEADERS,
    R_REPLICAS,
    REPLICA_LOADS,
    State,
)

#: Scopes in which a node's resource is balanced.
BALANCED_BY = {position: (SCOPE_ALL, SCOPE_NODE) if position in REPLICA_LOADS
               else (SCOPE_ALL, SCOPE_NODE, SCOPE_LEADERS) for position in POSITION.values()}


# ---- the planned cluster ------------------------------------------------------------------------

def planned(snapshot: Snapshot, made: Plan) -> Snapshot:
    """Return the cluster after all moves of the plan.  O(rows)."""
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
    """Return the state of the snapshot after these moves."""
    state = State(snapshot, policy, options.drain)
    for _ in walk(state, moves):
        pass
    return state


def walk(state: State, moves: Iterable[Move]) -> Iterator[dict[int, list[int]]]:
    """Apply the moves to ``state`` one by one. After each, yield the loads *before* it of the nodes
    that it changed, by node."""
    rows = {row.incarnation: row for row in state.snapshot.partitions}
    for move in moves:
        before = {node: list(state.load[node]) for node in touched(state, move)}
        apply_move(state, move, rows)
        yield before


def touched(state: State, move: Move) -> list[int]:
    """Return the nodes whose loads the move changes, ascending."""
    if isinstance(move, TopicSwitch):
        return sorted({*state.voters[move.from_group], *state.voters[move.to_group]})
    if isinstance(move, LeaderTransfer):
        return sorted((state.index[move.from_node], state.index[move.to_node]))
    return sorted(state.index[node] for node in (*move.old_voters, *move.joining))


def apply_move(state: State, move: Move, rows: dict[int, PartitionRow],
               backwards: bool = False) -> None:
    """Apply the move to the state; ``backwards``: undo it. ``rows`` are the partitions by
    incarnation."""
    if isinstance(move, TopicSwitch):
        row = rows[move.incarnation]
        state.switch(move.incarnation, row.ingress, row.read,
                     move.from_group if backwards else move.to_group)
    elif isinstance(move, LeaderTransfer):
        leader = move.from_node if backwards else move.to_node
        state.set_members(move.group, state.voters[move.group], state.index[leader])
    else:
        voters, leader = ((move.old_voters, move.from_leader) if backwards
                          else (move.new_voters, move.to_leader))
        state.set_members(move.group, [state.index[node] for node in voters],
                          state.index.get(leader, NO_NODE))


# ---- figures ------------------------------------------------------------------------------------

def resources(start: State, end: State, policy: Policy, options: Options,
              far: counts.Far | None) -> tuple[ResourceOutcome, ...]:
    """Return one row of figures per balanced resource, in the order of the policy's bands, and then
    the number of replicas if nodes that were ``far`` from their share of it came nearer; None = no
    replica was moved for that."""
    rows = []
    for band in policy.bands:
        if band.resource == GROUP_INGRESS:
            rows.append(_groups_outcome(start, end, band, options))
        else:
            rows.append(_nodes_outcome(start, end, band, options, node_shares(end, band)))
    if far is not None:
        numbers = counts.numbers_of(end, policy.excluded_nodes)
        shares = counts.targets(numbers.shares, far, [load[R_REPLICAS] for load in start.load],
                                numbers.takes_part)
        rows.append(_nodes_outcome(start, end, counts.REPLICAS_BAND, options, shares,
                                   numbers.takes_part))
    return tuple(rows)


def _nodes_outcome(start: State, end: State, band: Band, options: Options, shares: Shares,
                   takes_part: Sequence[bool] = ()) -> ResourceOutcome:
    """Return the row of figures of the nodes' loads in a band's resource. ``shares``: those of
    ``end``; ``takes_part``: the nodes that have one, if not all do."""
    position = POSITION[band.resource]
    weights = [node.weight for node in end.nodes]
    judged = [node.has_share and (node.may_lead or position in REPLICA_LOADS)
              and (not takes_part or takes_part[place]) for place, node in enumerate(end.nodes)]
    at_first = [node.state != DEAD and (not takes_part or takes_part[place] or not node.has_share)
                for place, node in enumerate(start.nodes)]
    held = (_replicas_held(start, end, position) if position in REPLICA_LOADS
            else _led(start, end, position))
    return ResourceOutcome(
        band.resource, band.permille, shares.total,
        _worst(shares, (load[position] for load in start.load), weights, at_first),
        _worst(shares, (load[position] for load in end.load), weights, judged),
        shares.bound_ppm, shares.bound, shares.level_ppm, _moved(start, end, position),
        _moved_bound(held, shares, [node.is_evacuated for node in end.nodes],
                     [is_judged and options.node in (0, node.id)
                      for is_judged, node in zip(judged, end.nodes, strict=True)],
                     options.scope in BALANCED_BY[position]))


def _replicas_held(start: State, end: State, position: int) -> list[list[int]]:
    """Return the loads of each node's replicas at the plan's start, with the loads that groups have
    after its switches."""
    return [[end.replica_load(group, position) for group in held] for held in start.held]


def _led(start: State, end: State, position: int) -> list[list[int]]:
    """Return the loads of the groups that each node leads at the plan's start, with the loads that
    groups have at its end."""
    held: list[list[int]] = [[] for _ in end.nodes]
    for group, leader in start.leader.items():
        if leader != NO_NODE:
            held[leader].append(1 if position == R_LEADERS else end.leader_egress(group))
    return held


def _worst(shares: Shares, loads: Iterable[int], weights: Sequence[int],
           judged: Sequence[bool]) -> int:
    return max((shares.ppm(load, weight) for load, weight, is_judged
                in zip(loads, weights, judged, strict=True) if is_judged), default=0)


def _moved(start: State, end: State, position: int) -> int:
    """Return the load in the resource ``position`` that the plan brings to another node: of
    leaders, by a transfer or together with a replica."""
    if position in REPLICA_LOADS:
        return sum(end.replica_load(group, position)
                   * sum(node not in start.voters[group] for node in voters)
                   for group, voters in end.voters.items())
    return sum(1 if position == R_LEADERS else end.leader_egress(group)
               for group, leader in end.leader.items()
               if NO_NODE != start.leader[group] != leader != NO_NODE)


def _moved_bound(held: Sequence[Sequence[int]], shares: Shares, leaves: Sequence[bool],
                 judged: Sequence[bool], balances: bool, negligible: Sequence[int] = ()) -> int:
    """Return a lower bound of the load that has to change its bin so that every bin is inside the
    band.

    That is the load of bins that are left and the load above targets, and at least the load that is
    missing elsewhere.  ``held`` are the items of each bin; one that is larger than the target may
    stay, alone.  ``negligible`` is other load of each bin: items too small and too many to be
    listed, of which any part can move.  O(items).

    Nothing less than an item can move, and no bin keeps two *large* items, of more than half of any
    target.  All but one of them leave, each to a bin that gets no other, and that bin has to pass
    on its excess."""
    forced = sum(sum(items) for items, leaving in zip(held, leaves, strict=True) if leaving)
    if not balances:
        return forced
    targets = [high for high, is_judged in zip(shares.high, judged, strict=True) if is_judged]
    half = max(targets, default=0) // 2
    excess = missing = 0
    displaced: list[int] = []  # large items that have to leave
    headroom: list[int] = []  # free capacity below each target, after only the obligatory moves
    loose = negligible or (0,) * len(held)
    for items, rest, high, low, is_judged in zip(held, loose, shares.high, shares.low, judged,
                                                 strict=True):
        if is_judged:
            load = sum(items) + rest
            large = sorted(item for item in items if item > half)[:-1]
            over = load - max(high, max(items, default=0))
            least = 0 if rest else min(filter(None, items), default=0)
            leaving = max(over, least) if over > 0 else 0
            leaving = max(leaving, sum(large))
            excess += leaving
            missing += max(0, low - load)
            displaced += large
            headroom.append(high - load + leaving)
  # a plan for one node does not judge where its items move
    passed_on = _passed_on(displaced, headroom, min(targets)) if len(targets) > 1 else 0
    return max(forced + excess + passed_on, missing)


def _passed_on(displaced: Iterable[int], headroom: Iterable[int], narrowest: int) -> int:
    """Return the least load that has to leave bins for items of which each needs a bin of its own.

    The excess is convex in item minus free capacity: the sum is smallest when the largest item
    moves to the bin with most free capacity, and so on.  An item above the ``narrowest`` target is
    alone."""
    pairs = zip(sorted(displaced, reverse=True), sorted(headroom, reverse=True), strict=False)
    return sum(max(0, min(item, narrowest) - free) for item, free in pairs)


def _groups_outcome(start: State, end: State, band: Band, options: Options) -> ResourceOutcome:
    groups, shares = group_shares(end, band)
    moved = sum(row.ingress for row in end.snapshot.partitions
                if end.where[row.incarnation] != row.group)
    held: dict[int, list[int]] = {group: [] for group in groups}
    for row in end.snapshot.partitions:
        held[row.group].append(row.ingress)
    bound = _moved_bound([held[group] for group in groups], shares._replace(
        low=(0,) * len(groups)), [False] * len(groups), [True] * len(groups),
        options.scope == SCOPE_ALL,
        [start.ingress[group] - sum(held[group]) for group in groups])
    return ResourceOutcome(
        band.resource, band.permille, shares.total,
        max((shares.ppm(start.ingress[group], 1) for group in groups), default=0),
        max((shares.ppm(end.ingress[group], 1) for group in groups), default=0),
        shares.bound_ppm, shares.bound, shares.level_ppm, moved, bound)


def nodes(start: State, end: State, policy: Policy) -> tuple[NodeOutcome, ...]:
    """Return each node before and after, by id.  A draining node that cannot be emptied, and keeps
    its replicas like one in maintenance, is reported as draining."""
    shares = []
    for resource in NODE_RESOURCES:
        band = policy.band(resource) or Band(resource, 0)
        shares.append(node_shares(end, band).share)
    return tuple(
        NodeOutcome(node.id, end.racks[node.rack], node.weight,
                    start.nodes[place].state if node.state == MAINTENANCE else node.state,
                    tuple(start.load[place][:R_REPLICAS]), tuple(end.load[place][:R_REPLICAS]),
                    tuple(share[place] for share in shares),
                    start.load[place][R_REPLICAS], end.load[place][R_REPLICAS])
        for place, node in enumerate(end.nodes))


def groups(start: State, end: State) -> tuple[GroupOutcome, ...]:
    """Return the appended bytes per second of each group of the pool, before and after."""
    return tuple(GroupOutcome(group, start.ingress[group], end.ingress[group])
                 for group in sorted(end.groups) if group)


def warnings(end: State) -> Iterator[str]:
    """Yield a warning for each node of the planned cluster above a capacity, and for groups with
    too many voters or without a leader."""
    for place, node in enumerate(end.nodes):
        for position, name in ((R_DISK, "bytes of its disk"), (R_INGRESS, "ingress"),
                               (R_EGRESS, "egress")):
            if node.state != DEAD and end.load[place][position] > node.cap[position]:
                yield (f"node {node.id} would carry {end.load[place][position]} of {name}, and "
                       f"{node.cap[position]} is what it may")
    factor = end.snapshot.replication_factor
    many = [group for group, voters in sorted(end.voters.items()) if len(voters) > factor]
    if many:
        told = (f"group {many[0]} has" if len(many) == 1 else
                f"{len(many)} groups, the first of them group {many[0]}, have")
        yield (f"{told} more voters than the replication factor of {factor}: plans do not change "
               f"that")
    leaderless = sorted(group for group, leader in end.leader.items() if leader == NO_NODE)
    if leaderless:
        yield (f"group {leaderless[0]} has no leader" if len(leaderless) == 1 else
               f"{len(leaderless)} groups have no leader, the first is group {leaderless[0]}")
