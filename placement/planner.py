"""Planner: moves after which every group is safe and no node carries more than its share.

Contract.  ``make_plan`` is a function of its three arguments: the same snapshot gives the same
bytes, in any order of its rows.  It starts from the present placement and moves only what has to
move.  A plan that is ``converged`` leaves nothing to do: planning on ``outcome.planned`` of it
gives an empty plan.  Requests that cannot be met are in ``infeasible``, with cause and remedy; a
drain that cannot be done for every replica is not begun.

Order of the levers: switches (they decide the loads of replicas), then repairs, drains, full disks
and balance of replicas, then leaders (they depend on the voters).  No later stage changes the input
of an earlier one, so each runs until it does nothing, and that is the end.  Execution uses the
reverse order where that is cheaper: see ``sequence``.

Raises ``InvalidSnapshot``, ``InvalidPolicy``, ``LimitExceeded``.
"""

from __future__ import annotations

from typing import NamedTuple

from placement import cluster, counts, outcome, plan
from placement.balance import balance_replicas, explain_nodes
from placement.cluster import DEAD, MAINTENANCE, Snapshot, checked
from placement.errors import InvalidPolicy
from placement.leaders import balance_leaders
from placement.plan import (
    DISK_PEAK,
    KINDS,
    MOVES_LIMIT,
    Infeasible,
    Plan,
    Skipped,
    Total,
)
from placement.policy import (
    SCOPE_ALL,
    SCOPE_DRAIN,
    SCOPE_LEADERS,
    SCOPE_NODE,
    SCOPE_REPAIR,
    Options,
    Policy,
    check_options,
    check_policy,
)
from placement.repair import (
    drain,
    drain_faults,
    empty_full_disks,
    repair_dead,
    spread_over_racks,
)
from placement.replica_changes import ReplicaChanges
from placement.sequence import Reasons, Sequence, sequenced
from placement.state import State
from placement.switches import Switches, balance_groups

#: From the first release on, another way of planning is another version: plans of two versions need
#: not agree.
PLANNER_VERSION = 1

#: Non-moves in a plan; the most important ones come first.
SKIPPED_MAX = 200

#: Repair, drain and balance take turns until none does anything; two turns are usual.
ROUNDS_MAX = 64

DEFAULT_POLICY = Policy()
DEFAULT_OPTIONS = Options()


class _Stages(NamedTuple):
    """Result of the stages: the states at their ends and the reasons."""

    state: State
    reasons: Reasons
    skipped: list[Skipped]
    infeasible: list[Infeasible]
    complete: bool
    far: counts.Far | None = None  # nodes that came to their share of replicas; None = not judged


def make_plan(snapshot: Snapshot, policy: Policy = DEFAULT_POLICY,
              options: Options = DEFAULT_OPTIONS) -> Plan:
    """Return the plan for a snapshot. A drain in ``options`` that cannot be done gives a plan
    without moves, with the causes in ``infeasible``.

    O(partitions log partitions + replicas * nodes) if the cluster is balanced already, and as much
    again for each round. Raises ``InvalidSnapshot``, ``InvalidPolicy``, ``LimitExceeded``."""
    check_policy(policy)
    check_options(options)
    snapshot = checked(snapshot)
    _check_nodes_named(snapshot, policy, options)
    probe = State(snapshot, policy, options.drain)
    faults = drain_faults(probe, options.fewer_racks)
    if faults and options.drain:
        return _refused(snapshot, policy, options, faults)
    if faults:
        snapshot_planned = _without_drains(snapshot)
    else:
        snapshot_planned = snapshot
    stages = _run_stages(snapshot_planned, policy, options)
    if options.drain and stages.infeasible and _left_on(stages.state, options.drain):
        return _refused(snapshot, policy, options, stages.infeasible)
    start = State(snapshot_planned, policy, options.drain)
    sequence = sequenced(start, stages.state, stages.reasons, policy, options)
    stages = stages._replace(infeasible=[*faults, *stages.infeasible])
    return _assemble(snapshot, policy, options, stages, start, sequence)


def _check_nodes_named(snapshot: Snapshot, policy: Policy, options: Options) -> None:
    known = {node.id: None for node in snapshot.nodes}
    groups = {group.id: None for group in snapshot.groups}
    for node in (*options.drain, *([options.node] if options.node else []),
                 *policy.excluded_nodes):
        if node not in known:
            raise InvalidPolicy(f"there is no node {node!r:.40} in the snapshot; its nodes are "
                                f"{', '.join(map(str, list(known)[:16]))}")
    for group in policy.excluded_groups:
        if group not in groups:
            raise InvalidPolicy(f"there is no group {group!r:.40} in the snapshot to exclude")


def _without_drains(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with draining nodes in maintenance: they keep their replicas and get no
    new ones."""
    return snapshot._replace(nodes=tuple(
        node._replace(state=MAINTENANCE) if node.state == cluster.DRAINING else node
        for node in snapshot.nodes))


def _left_on(state: State, drained: tuple[int, ...]) -> bool:
    return any(state.held[state.index[node]] for node in drained
               if state.nodes[state.index[node]].state != DEAD)


# ---- stages -------------------------------------------------------------------------------------

def _run_stages(snapshot: Snapshot, policy: Policy, options: Options) -> _Stages:
    state = State(snapshot, policy, options.drain)
    switches = balance_groups(state, policy) if options.scope == SCOPE_ALL else Switches(
        {}, [], True)
    changes = ReplicaChanges(state, policy, options)
    complete = _replica_stages(changes, options.scope)
    if options.scope in (SCOPE_ALL, SCOPE_NODE):
        changes.skipped += explain_nodes(changes)
    far = changes.far if changes.moves_for_counts else None
    led, balanced = balance_leaders(state, policy, options, far) if options.scope in (
        SCOPE_ALL, SCOPE_LEADERS, SCOPE_NODE) else ({}, True)
    reasons = Reasons(changes.why, led, switches.why)
    return _Stages(state, reasons,
                   [*switches.skipped, *changes.skipped], changes.infeasible,
                   complete and switches.complete and balanced
                   and not (changes.cut_by_budget or changes.direction_changed),
                   far)


def _replica_stages(changes: ReplicaChanges, scope: str) -> bool:
    """Run the stages of ``scope`` until nothing changes. Return False if that took too many rounds,
    or the last balance did not end."""
    if scope == SCOPE_LEADERS:
        return True
    for _ in range(ROUNDS_MAX):
        before = {group: tuple(voters) for group, voters in changes.state.voters.items()}
        changes.infeasible.clear()
        finished = True
        changes.judge_bytes()
        if scope in (SCOPE_ALL, SCOPE_REPAIR):
            repair_dead(changes)
        if scope in (SCOPE_ALL, SCOPE_DRAIN):
            drain(changes)
        if scope in (SCOPE_ALL, SCOPE_REPAIR):
            spread_over_racks(changes)
            empty_full_disks(changes)
        if scope in (SCOPE_ALL, SCOPE_NODE):
            finished = balance_replicas(changes)
        if before == {group: tuple(voters) for group, voters in changes.state.voters.items()}:
            return finished
    return False


# ---- the plan -----------------------------------------------------------------------------------

def _refused(snapshot: Snapshot, policy: Policy, options: Options,
             faults: list[Infeasible]) -> Plan:
    """Return a plan without moves for a request that cannot be met."""
    state = State(snapshot, policy)
    stages = _Stages(state, Reasons({}, {}, {}), [], faults, True)
    return _assemble(snapshot, policy, options, stages, state, Sequence([], [], 0, 0))


def _assemble(snapshot: Snapshot, policy: Policy, options: Options, stages: _Stages, end: State,
              sequence: Sequence) -> Plan:
    moves = sequence.moves
    skipped = [*(_left_out(move) for move in sequence.left_out), *stages.skipped]
    if len(moves) > policy.moves_max:
        skipped = [_beyond_limit(move, policy) for move in moves[policy.moves_max:]] + skipped
        moves = moves[:policy.moves_max]
        end = outcome.state_after(snapshot, policy, options, moves)
    start = State(snapshot, policy, options.drain)
    complete = stages.complete and len(moves) == len(sequence.moves) and not sequence.left_out
    return plan.identify(Plan(
        plan_id="", format=plan.PLAN_FORMAT, planner_version=PLANNER_VERSION,
        cluster_id=snapshot.cluster_id, snapshot_digest=cluster.digest(snapshot),
        metadata_version=snapshot.metadata_version, created_ms=snapshot.taken_ms,
        expires_ms=snapshot.taken_ms + policy.valid_ms, options=options, policy=policy,
        converged=complete, waves=max((move.wave for move in moves), default=0),
        estimated_ms=sequence.estimated_ms, totals=_totals(moves),
        resources=outcome.resources(start, end, policy, options, stages.far),
        nodes=outcome.nodes(start, end, policy), groups=outcome.groups(start, end),
        warnings=tuple(outcome.warnings(end)), infeasible=tuple(stages.infeasible),
        skipped=tuple(skipped[:SKIPPED_MAX]), moves=tuple(moves)))


def _totals(moves: list[plan.Move]) -> tuple[Total, ...]:
    return tuple(Total(kind, sum(move.kind == kind for move in moves),
                       sum(move.bytes for move in moves if move.kind == kind)) for kind in KINDS)


def _subject(move: plan.Move) -> str:
    return move.move_id.split(":")[1]


def _left_out(move: plan.Move) -> Skipped:
    return Skipped(DISK_PEAK, _subject(move), 0, move.why.resource, move.bytes,
                   f"{move.move_id} is left out: in no order of the moves there is room for it "
                   f"all the time")


def _beyond_limit(move: plan.Move, policy: Policy) -> Skipped:
    return Skipped(MOVES_LIMIT, _subject(move), 0, move.why.resource, move.bytes,
                   f"{move.move_id} is beyond the {policy.moves_max} moves that a plan may have; "
                   f"plan again after this one")


# ---- choices ------------------------------------------------------------------------------------

class Choice(NamedTuple):
    """One compromise between moving nothing and moving everything: the bytes copied, and the worst
    node afterwards (in millionths of its share) in the resource that is worst."""

    budget_bytes: int
    bytes: int
    moves: int
    worst_ppm: int


def choices(snapshot: Snapshot, policy: Policy = DEFAULT_POLICY,
            options: Options = DEFAULT_OPTIONS) -> tuple[Choice, ...]:
    """Return the effect of repairs alone, and of plans with a quarter, a half and all of the full
    plan's bytes. Costs as much as four plans."""
    full = make_plan(snapshot, policy, options._replace(budget_bytes=0))
    repair = make_plan(snapshot, policy, options._replace(scope=SCOPE_REPAIR, node=0))
    points = [_choice(repair, 0)]
    for part in (1, 2):
        budget = max(1, full.bytes * part // 4)
        points.append(_choice(make_plan(snapshot, policy, options._replace(budget_bytes=budget)),
                              budget))
    return (*points, _choice(full, full.bytes))


def _choice(made: Plan, budget: int) -> Choice:
    worst = max((each.after_ppm for each in made.resources), default=0)
    return Choice(budget, made.bytes, len(made.moves), worst)

