"""Verification of a plan against a snapshot: every invariant, judged apart from how it was made.

Contract.  ``verify`` compares a plan with a snapshot, the one it was made from or a later one, and
returns the faults, the plan's own first; empty = none.  ``move_progress`` judges one move by
observations: the executor of a plan calls it before each attempt, and after a restart to find the
moves that are done.  Nothing here changes anything, and nothing is taken from the planner's own
computations but the arithmetic of loads (``state``).

Faults that are ``stale`` mean that the cluster has changed: plan again.  The others mean that the
plan itself must not be executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from placement import cluster, outcome
from placement.cluster import DEAD, GroupRow, PartitionRow, Snapshot
from placement.describe import cool_down_text, iso
from placement.errors import PlacementError
from placement.plan import (
    DISK_HARD,
    DRAIN,
    MAINTENANCE,
    RACK_VIOLATION,
    REPAIR_DEAD,
    UNDER_REPLICATED,
    LeaderTransfer,
    Move,
    Plan,
    ReplicaChange,
    TopicSwitch,
    Total,
)
from placement.policy import (
    NODE_RESOURCES,
    SCOPE_DRAIN,
    SCOPE_LEADERS,
    SCOPE_NODE,
    SCOPE_REPAIR,
    Policy,
    check_options,
    check_policy,
)
from placement.state import R_DISK, State

# Of the plan against the cluster: stale.
FOREIGN = "FOREIGN"  # another cluster's
EXPIRED = "EXPIRED"
UNKNOWN = "UNKNOWN"  # the snapshot has no such node, group or partition, or no longer has it
CONF_CHANGED = "CONF_CHANGED"  # the group's members have changed
EPOCH_CHANGED = "EPOCH_CHANGED"  # the partition was switched since
NODE_STATE = "NODE_STATE"  # a node that should get something may not have it now
NO_MAJORITY = "NO_MAJORITY"  # of the old or the new voters
# Of the plan itself.
BAD_POLICY = "BAD_POLICY"
BAD_ORDER = "BAD_ORDER"
BAD_VOTERS = "BAD_VOTERS"
FACTOR = "FACTOR"  # another number of voters
RACKS = "RACKS"
SUBJECT_TWICE = "SUBJECT_TWICE"
COOL_DOWN = "COOL_DOWN"
EXCLUDED = "EXCLUDED"
OUT_OF_SCOPE = "OUT_OF_SCOPE"
CHAINS = "CHAINS"
DISK = "DISK"  # some prefix puts more on a disk than its cap
OVERSHOOT = "OVERSHOOT"  # some prefix is worse than both ends
WRONG_FIGURES = "WRONG_FIGURES"
LIMITS = "LIMITS"

STALE = (FOREIGN, EXPIRED, UNKNOWN, CONF_CHANGED, EPOCH_CHANGED, NODE_STATE, NO_MAJORITY)

# Standings of a move.
PENDING = "pending"
DONE = "done"
OUTDATED = "outdated"


class Fault(NamedTuple):
    """Something wrong, with the move it is about ("" = the whole plan)."""

    code: str
    move_id: str
    text: str

    @property
    def stale(self) -> bool:
        """True if planning again helps."""
        return self.code in STALE


def verify(made: Plan, snapshot: Snapshot, now_ms: int,
           policy: Policy | None = None) -> tuple[Fault, ...]:
    """Return the faults of the plan at ``now_ms``, () = none; ``policy`` overrides the plan's own.

    ``snapshot`` must have passed ``cluster.checked``. Rows that are missing or changed end the
    check; further faults are found only without these. O(moves * replicas + rows)."""
    policy = made.policy if policy is None else policy
    faults = [*_head_faults(made, snapshot, policy, now_ms)]
    faults += _order_faults(made)
    known = _Known(snapshot)
    for move in made.moves:
        faults += known.faults(move)
    if faults:
        return tuple(faults)  # what follows needs rows that are there
    state = State(snapshot, policy, made.options.drain)
    for move in made.moves:
        faults += _rule_faults(made, state, known, policy, move)
    faults += _direction_faults(made)
    faults += _limit_faults(made, state, policy)
    if any(fault.code == BAD_VOTERS for fault in faults):
        return tuple(faults)  # what follows carries the moves out, in thought
    faults += _disk_faults(made, state)
    faults += _overshoot_faults(made, snapshot, policy)
    if cluster.digest(snapshot) == made.snapshot_digest:
        faults += _figure_faults(made, snapshot, policy)
    return tuple(faults)


# ---- the plan as a whole ------------------------------------------------------------------------

def _head_faults(made: Plan, snapshot: Snapshot, policy: Policy, now_ms: int) -> Iterator[Fault]:
    try:
        check_policy(policy)
        check_options(made.options)
    except PlacementError as error:
        yield Fault(BAD_POLICY, "", str(error))
    if made.cluster_id != snapshot.cluster_id:
        yield Fault(FOREIGN, "", f"the plan is for cluster {made.cluster_id:.32}, this is "
                    f"{snapshot.cluster_id}")
    if now_ms > made.expires_ms:
        yield Fault(EXPIRED, "", f"the plan was valid until {iso(made.expires_ms)}, now is "
                    f"{iso(now_ms)}: what it was made from is too old")
    unknown = [node for node in made.options.drain
               if node not in {row.id: None for row in snapshot.nodes}]
    if unknown:
        yield Fault(UNKNOWN, "", f"the plan drains {unknown!r:.80}, which is no node")


def _order_faults(made: Plan) -> Iterator[Fault]:
    """Yield a fault for each move with a wrong seq, wave or dependency, and for each second move of
    a subject."""
    subjects: dict[object, None] = {}
    wave_of = [0]
    for seq, move in enumerate(made.moves, start=1):
        if move.seq != seq or move.wave < max(1, wave_of[-1]):
            yield Fault(BAD_ORDER, move.move_id, f"move {seq} has seq {move.seq} and wave "
                        f"{move.wave} after wave {wave_of[-1]}")
        if any(not 0 < other < seq or wave_of[other] >= move.wave for other in move.depends_on):
            yield Fault(BAD_ORDER, move.move_id, f"it depends on {move.depends_on!r:.80}, which "
                        f"are not in earlier waves")
        wave_of.append(move.wave)
        subject = ("p", move.incarnation) if isinstance(move, TopicSwitch) else ("g", move.group)
        if subject in subjects:
            yield Fault(SUBJECT_TWICE, move.move_id, "the plan moves it twice")
        subjects[subject] = None


def _limit_faults(made: Plan, state: State, policy: Policy) -> Iterator[Fault]:
    """Yield a fault for each number above its limit in the policy: moves, new chains, copies per
    wave."""
    if len(made.moves) > policy.moves_max:
        yield Fault(LIMITS, "", f"{len(made.moves)} moves, {policy.moves_max} are allowed")
    snapshot = state.snapshot
    chained = {row.incarnation for row in snapshot.partitions if row.links}
    fresh = sum(isinstance(move, TopicSwitch) and move.incarnation not in chained
                for move in made.moves)
    if fresh and snapshot.exceptions + fresh > policy.exceptions_max:
        yield Fault(CHAINS, "", f"{snapshot.exceptions} chains and {fresh} more are above the "
                    f"limit of {policy.exceptions_max}")
    yield from _wave_faults(made, state, policy)


def _wave_faults(made: Plan, state: State, policy: Policy) -> Iterator[Fault]:
    """Yield faults of waves: too many copies at once into a node, out of a leader, or in all.

    A single change may bring more replicas than a leader sends at once: it has the leader for
    itself."""
    under_way: dict[tuple, int] = {}
    for move in made.moves:
        if not isinstance(move, ReplicaChange):
            continue
        parts = [((move.wave, "to", node), 1, policy.in_per_node_max) for node in move.joining]
        parts.append(((move.wave, "in all", 0), 1, policy.at_once_max))
        if move.joining:
            parts.append(((move.wave, "from", state.ids[state.sender(move.group)]),
                          len(move.joining),
                          max(policy.out_per_node_max, len(move.joining))))
        for key, more, most in parts:
            under_way[key] = under_way.get(key, 0) + more
            if under_way[key] > most:
                yield Fault(LIMITS, move.move_id, f"wave {move.wave} has {under_way[key]} replica "
                            f"copies {key[1]} {key[2] or 'the cluster'}, {most} are allowed")


# ---- guards -------------------------------------------------------------------------------------

class _Known:
    """The snapshot's rows by id."""

    def __init__(self, snapshot: Snapshot):
        self.nodes = {row.id: row for row in snapshot.nodes}
        self.groups = {row.id: row for row in snapshot.groups}
        self.partitions = {row.incarnation: row for row in snapshot.partitions}

    def faults(self, move: Move) -> Iterator[Fault]:
        """Yield faults of the move's references: rows that are missing or have changed. A leader
        transfer that is done already has none."""
        if isinstance(move, TopicSwitch):
            yield from self._switch_faults(move)
            return
        row = self.groups.get(move.group)
        named = ((move.from_node, move.to_node) if isinstance(move, LeaderTransfer)
                 else move.new_voters)
        missing = [node for node in named if node not in self.nodes]
        if row is None or missing:
            what = f"group {move.group}" if row is None else f"node {_numbers(missing):.80}"
            yield Fault(UNKNOWN, move.move_id, f"there is no {what}")
            return
        progress = group_progress(move, row)
        if progress == DONE and isinstance(move, LeaderTransfer):
            return  # leaders drift: this one went to where it shall be
        if progress != PENDING and not row.leader:
            yield Fault(CONF_CHANGED, move.move_id, f"group {move.group} has no leader now: what "
                        f"its configuration is, nobody says")
        elif progress == DONE:
            yield Fault(CONF_CHANGED, move.move_id, f"group {move.group} has these voters already: "
                        f"{_numbers(row.voters)}")
        elif progress != PENDING:
            yield Fault(CONF_CHANGED, move.move_id, f"group {move.group} has the configuration "
                        f"{row.conf_index} of incarnation {row.incarnation}; the plan expects "
                        f"{move.expect_conf_index} of {move.group_incarnation}")
        elif isinstance(move, ReplicaChange) and move.old_voters != row.voters:
            yield Fault(BAD_VOTERS, move.move_id, f"the voters are {_numbers(row.voters)}, the "
                        f"plan says {_numbers(move.old_voters)}")

    def _switch_faults(self, move: TopicSwitch) -> Iterator[Fault]:
        name = f"{move.topic}/{move.partition}"
        for group in (move.from_group, move.to_group):
            if group not in self.groups or not group:
                yield Fault(UNKNOWN, move.move_id, f"there is no group {group} for partitions")
                return
        row = self.partitions.get(move.incarnation)
        if row is None:
            yield Fault(UNKNOWN, move.move_id, f"{name} is neither in group {move.from_group} nor "
                        f"in group {move.to_group}: it was switched to another one, or its topic "
                        f"was deleted")
            return
        progress = switch_progress(move, row)
        if progress == DONE:
            yield Fault(EPOCH_CHANGED, move.move_id, f"{name} is in group {row.group} already, "
                        f"since epoch {row.epoch}")
        elif progress != PENDING:
            yield Fault(EPOCH_CHANGED, move.move_id, f"{name} is in group {row.group} at epoch "
                        f"{row.epoch}; the plan expects group {move.from_group} at epoch "
                        f"{move.expect_epoch}")
        elif move.from_group == move.to_group:
            yield Fault(BAD_ORDER, move.move_id, "it leads to where the partition is")


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def switch_progress(move: TopicSwitch, row: PartitionRow) -> str:
    """Return PENDING if the partition is where the switch begins, DONE if it is in the new group at
    a later epoch, else OUTDATED."""
    if row.epoch == move.expect_epoch and row.group == move.from_group:
        return PENDING
    if row.epoch > move.expect_epoch and row.group == move.to_group:
        return DONE
    return OUTDATED


def group_progress(move: LeaderTransfer | ReplicaChange, row: GroupRow) -> str:
    """Return DONE if the group has the wanted leader or voters, PENDING if its configuration is the
    expected one, else OUTDATED."""
    if row.incarnation != move.group_incarnation:
        return OUTDATED
    if isinstance(move, LeaderTransfer):
        if row.leader == move.to_node:
            return DONE
        return PENDING if row.conf_index == move.expect_conf_index else OUTDATED
    if row.voters == move.new_voters and not row.in_joint:
        return DONE
    return PENDING if row.conf_index == move.expect_conf_index else OUTDATED


def move_progress(move: Move, row: GroupRow | PartitionRow | None) -> str:
    """Return the progress of a move, judged by the present row of its group or partition.  None =
    the row is gone: OUTDATED."""
    if row is None:
        return OUTDATED
    if isinstance(move, TopicSwitch):
        return switch_progress(move, cast(PartitionRow, row))
    return group_progress(move, cast(GroupRow, row))


# ---- rules of one move --------------------------------------------------------------------------

def _rule_faults(made: Plan, state: State, known: _Known, policy: Policy,
                 move: Move) -> Iterator[Fault]:
    if made.options.scope == SCOPE_REPAIR and move.why.reason not in _REPAIRS:
        yield Fault(OUT_OF_SCOPE, move.move_id, "only repairs were asked for")
    if isinstance(move, TopicSwitch):
        yield from _switch_faults(made, state, known, policy, move)
        return
    row = known.groups[move.group]
    if row.in_joint or not state.has_quorum(move.group):
        yield Fault(NO_MAJORITY, move.move_id, f"group {move.group} is in joint consensus or has "
                    f"no majority")
    if move.group in policy.excluded_groups and made.options.scope not in (SCOPE_DRAIN,) \
            and move.why.reason not in _FORCED:
        yield Fault(EXCLUDED, move.move_id, f"group {move.group} is excluded")
    if isinstance(move, LeaderTransfer):
        yield from _transfer_faults(made, state, policy, move, row)
    else:
        yield from _voters_faults(state, policy, move)
        yield from _change_faults(made, state, policy, move, row)


#: Reasons for which exclusions and cool-downs do not hold: data is at stake, or it was asked for.
_REPAIRS = (REPAIR_DEAD, UNDER_REPLICATED, RACK_VIOLATION, DISK_HARD)
_FORCED = (*_REPAIRS, DRAIN, MAINTENANCE)


def _switch_faults(made: Plan, state: State, known: _Known, policy: Policy,
                   move: TopicSwitch) -> Iterator[Fault]:
    row = known.partitions[move.incarnation]
    if row.topic in policy.excluded_topics or any(
            group in policy.excluded_groups for group in (move.from_group, move.to_group)):
        yield Fault(EXCLUDED, move.move_id, "its topic or one of the groups is excluded")
    if row.moved_ms and state.snapshot.taken_ms < row.moved_ms + policy.cool_down_ms:
        yield Fault(COOL_DOWN, move.move_id, cool_down_text(row.moved_ms, policy.cool_down_ms))
    if row.links >= policy.chain_links_max:
        yield Fault(CHAINS, move.move_id, f"its chain has {row.links} links already")
    if row.copied and not policy.switch_copied:
        yield Fault(CHAINS, move.move_id, "switching it would copy it, which the policy forbids")
    if move.bytes != (row.bytes if row.copied else 0):
        yield Fault(WRONG_FIGURES, move.move_id, f"it copies {move.bytes} bytes by the plan")
    for group in (move.from_group, move.to_group):
        if not state.has_quorum(group) or known.groups[group].in_joint:
            yield Fault(NO_MAJORITY, move.move_id, f"group {group} cannot seal or open now")
    if made.options.scope in (SCOPE_DRAIN, SCOPE_LEADERS, SCOPE_NODE):
        yield Fault(OUT_OF_SCOPE, move.move_id, f"no switch belongs to {made.options.scope!r}")


def _transfer_faults(made: Plan, state: State, policy: Policy, move: LeaderTransfer,
                     row: GroupRow) -> Iterator[Fault]:
    if move.to_node not in row.voters or move.from_node == move.to_node:
        yield Fault(BAD_VOTERS, move.move_id, f"node {move.to_node} is no other voter of the "
                    f"group")
    elif not state.nodes[state.index[move.to_node]].may_lead:
        yield Fault(NODE_STATE, move.move_id, f"node {move.to_node} may not lead now")
    if move.why.reason not in _FORCED and any(
            node in policy.excluded_nodes for node in (move.from_node, move.to_node)):
        yield Fault(EXCLUDED, move.move_id, "one of its nodes is excluded")
    if made.options.scope == SCOPE_NODE and made.options.node not in (move.from_node,
                                                                      move.to_node):
        yield Fault(OUT_OF_SCOPE, move.move_id, f"it does not touch node {made.options.node}")


def _voters_faults(state: State, policy: Policy, move: ReplicaChange) -> Iterator[Fault]:
    """Yield faults of the new voters that hold for any reason of the move."""
    new = move.new_voters
    if not new or list(new) != sorted({*new}) or new == move.old_voters:
        yield Fault(BAD_VOTERS, move.move_id, f"voters {new!r:.80} are not other, distinct and "
                    f"ascending")
        return
    factor = state.snapshot.replication_factor
    if len(new) != len(move.old_voters) and not len(move.old_voters) < len(new) <= factor:
        yield Fault(FACTOR, move.move_id, f"{len(move.old_voters)} voters would become {len(new)}; "
                    f"the replication factor is {factor}")
    if move.to_leader and move.to_leader not in new:
        yield Fault(BAD_VOTERS, move.move_id, f"node {move.to_leader} would lead and be no voter")
    for node in move.joining:
        place = state.index[node]
        if not state.nodes[place].accepts_replicas:
            yield Fault(NODE_STATE, move.move_id, f"node {node} is {state.nodes[place].state} and "
                        f"takes no replica")
        rack = state.nodes[place].rack
        together = sum(state.nodes[state.index[other]].rack == rack for other in new
                       if not state.nodes[state.index[other]].is_evacuated)
        if together > state.rack_limit[min(len(new), len(state.rack_limit) - 1)]:
            yield Fault(RACKS, move.move_id, f"{together} voters would stand in rack "
                        f"{state.racks[rack]!r}")
    living = sum(state.nodes[state.index[node]].state != DEAD for node in new)
    if 2 * living <= len(new):
        yield Fault(NO_MAJORITY, move.move_id, "the new voters would have no majority")


def _change_faults(made: Plan, state: State, policy: Policy, move: ReplicaChange,
                   row: GroupRow) -> Iterator[Fault]:
    """Yield faults against the rules of the move's reason and the plan's scope."""
    forced = move.why.reason in _FORCED
    left = [state.nodes[state.index[node]] for node in move.leaving]
    if not forced and row.moved_ms and \
            state.snapshot.taken_ms < row.moved_ms + policy.cool_down_ms:
        yield Fault(COOL_DOWN, move.move_id, cool_down_text(row.moved_ms, policy.cool_down_ms))
    if not forced and any(node in policy.excluded_nodes for node in (*move.joining,
                                                                     *move.leaving)):
        yield Fault(EXCLUDED, move.move_id, "one of its nodes is excluded")
    scope = made.options.scope
    if scope == SCOPE_LEADERS:
        yield Fault(OUT_OF_SCOPE, move.move_id, "only leaders were asked for")
    if scope == SCOPE_DRAIN and not all(node.is_evacuated for node in left):
        yield Fault(OUT_OF_SCOPE, move.move_id, "it leaves a node that is not drained")
    if scope == SCOPE_NODE:
        yield from _one_node_faults(made.options.node, state, move)


def _one_node_faults(only: int, state: State, move: ReplicaChange) -> Iterator[Fault]:
    """Yield a fault if a change moves more than one replica to or from the node ``only``, or a
    leader that need not move."""
    goes_in, goes_out = move.joining == (only,), move.leaving == (only,)
    if not (goes_in and len(move.leaving) <= 1 or goes_out and len(move.joining) <= 1):
        yield Fault(OUT_OF_SCOPE, move.move_id, f"it moves more than one replica to or from node "
                    f"{only}")
    leads, will_lead = move.from_leader, move.to_leader
    stays = leads in move.new_voters and state.nodes[state.index[leads]].may_lead
    if stays and will_lead not in (0, leads) and only not in (leads, will_lead):
        yield Fault(OUT_OF_SCOPE, move.move_id, f"it moves the leader from node {leads} to node "
                    f"{will_lead}, which does not concern node {only}")


def _direction_faults(made: Plan) -> Iterator[Fault]:
    """Yield a fault for each replica change of a plan for one node whose direction differs from
    that of its first one.

    What such a plan takes away to bring other things back is copied for nothing. Leaders, which
    copy nothing, go either way: a node that leads few large groups may hand one over and get small
    ones."""
    only = made.options.node
    if made.options.scope != SCOPE_NODE:
        return
    changes = [move for move in made.moves
               if isinstance(move, ReplicaChange) and only in (*move.joining, *move.leaving)]
    for move in changes:
        goes_in = only in move.joining
        if goes_in != (only in changes[0].joining):
            what = ("brings a replica to", "takes one from it") if goes_in else (
                "takes a replica from", "brings one there")
            yield Fault(OUT_OF_SCOPE, move.move_id, f"it {what[0]} node {only}, and "
                        f"{changes[0].move_id} {what[1]}: a plan for one node goes one way")


# ---- every prefix -------------------------------------------------------------------------------

def _disk_faults(made: Plan, state: State) -> Iterator[Fault]:
    """Yield a fault for each copy that may exceed the disk cap of its node. Copies count from their
    beginning; what leaves counts as gone only for moves that wait for it."""
    needs: list[frozenset[int]] = [frozenset()]  # seqs that are surely done before
    arrived: dict[int, int] = {}
    departed: dict[int, dict[int, int]] = {}
    for move in made.moves:
        before = frozenset().union(move.depends_on, *(needs[seq] for seq in move.depends_on))
        needs.append(before)
        if not isinstance(move, ReplicaChange):
            continue
        size = state.groups[move.group].bytes
        for node in move.joining:
            place = state.index[node]
            arrived[node] = arrived.get(node, 0) + size
            gone = sum(freed for seq, freed in departed.get(node, {}).items() if seq in before)
            peak = state.load[place][R_DISK] + arrived[node] - gone
            if size and peak > state.nodes[place].cap[R_DISK]:
                yield Fault(DISK, move.move_id, f"node {node} would have {peak} bytes while it is "
                            f"copied, {state.nodes[place].cap[R_DISK]} is what it may")
        for node in move.leaving:
            departed.setdefault(node, {})[move.seq] = size


def _overshoot_faults(made: Plan, snapshot: Snapshot, policy: Policy) -> Iterator[Fault]:
    """Yield a fault for each move that makes a node fuller, relative to weight, than the fullest
    node before or after the whole plan. A node may exceed that by the largest load that one move so
    far has added to a node.

    The same for a group that takes a partition, against the fullest group at either end and that
    partition's load."""
    state = State(snapshot, policy, made.options.drain)
    end = outcome.state_after(snapshot, policy, made.options, made.moves)
    worst = [_worst(state, end, resource) for resource in range(len(NODE_RESOURCES))]
    slack = [0] * len(NODE_RESOURCES)
    rates = {row.incarnation: row.ingress for row in snapshot.partitions}
    fullest = max([*state.ingress.values(), *end.ingress.values()], default=0)
    for move, before in zip(made.moves, outcome.walk(state, made.moves), strict=True):
        for node, old in before.items():
            weight = state.nodes[node].weight
            for resource, name in enumerate(NODE_RESOURCES):
                load = state.load[node][resource]
                slack[resource] = max(slack[resource], load - old[resource])
                over = (load - slack[resource]) * worst[resource][1] > worst[resource][0] * weight
                if over and weight and load > old[resource]:
                    yield Fault(OVERSHOOT, move.move_id, f"node {state.ids[node]} would have "
                                f"{load} of {name} for a time, more than before and after")
        if isinstance(move, TopicSwitch):
            if state.ingress[move.to_group] - rates[move.incarnation] > fullest:
                yield Fault(OVERSHOOT, move.move_id, f"group {move.to_group} would take "
                            f"{state.ingress[move.to_group]} for a time")


def _worst(state: State, end: State, resource: int) -> tuple[int, int]:
    """Return (load, weight) of the fullest node before or after the plan, relative to weight."""
    worst = (0, 1)
    for each in (state, end):
        for place, node in enumerate(each.nodes):
            load = each.load[place][resource]
            if node.weight and node.state != DEAD and load * worst[1] > worst[0] * node.weight:
                worst = (load, node.weight)
    return worst


def _figure_faults(made: Plan, snapshot: Snapshot, policy: Policy) -> Iterator[Fault]:
    """Yield a fault for each figure of the plan that its moves do not lead to, and if loads are
    lost on the way (conservation)."""
    state = State(snapshot, policy, made.options.drain)
    end = outcome.state_after(snapshot, policy, made.options, made.moves)
    grown = [0] * len(NODE_RESOURCES)
    for move in made.moves:
        if isinstance(move, ReplicaChange):
            more = len(move.new_voters) - len(move.old_voters)
            size = state.groups[move.group].bytes
            grown[R_DISK] += more * size
            if move.bytes != len(move.joining) * size:
                yield Fault(WRONG_FIGURES, move.move_id, f"it copies {len(move.joining) * size} "
                            f"bytes, the plan says {move.bytes}")
    before = sum(load[R_DISK] for load in state.load) + grown[R_DISK]
    if before != sum(load[R_DISK] for load in end.load) \
            or sum(state.ingress.values()) != sum(end.ingress.values()):
        yield Fault(WRONG_FIGURES, "", "the sums of loads before and after differ")
    for row, (place, _) in zip(made.nodes, enumerate(end.nodes), strict=False):
        if row.node != end.ids[place] \
                or [*row.after, row.replicas_after] != end.load[place] \
                or [*row.before, row.replicas_before] != state.load[place]:
            yield Fault(WRONG_FIGURES, "", f"the loads that the plan says node {row.node} has are "
                        f"not those that its moves lead to")
    for total in made.totals:
        moves = [move for move in made.moves if move.kind == total.kind]
        if total != Total(total.kind, len(moves), sum(move.bytes for move in moves)):
            yield Fault(WRONG_FIGURES, "", f"the totals of {total.kind} are not those of its moves")
