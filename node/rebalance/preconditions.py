"""Preconditions of a plan, checked once before the plan is recorded.

Contract.  ``faults`` compares every move with the present reports of the groups' leaders and with
the metadata; pure.  The scheduler compares the same guards again when each move starts, because
hours may lie between.  ``least_throttle`` is the least throttle at which a plan can finish;
``too_low`` refuses one below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multiraft.wire.plans import LEADER_TRANSFER, REPLICA_CHANGE, PlanLimits, PlannedMove
from node.rebalance.cluster_view import ClusterView
from placement import throttle

#: Why a partition of a compacted topic is not switched: a key would have records in two groups.
COMPACTED = ("its topic is compacted by key (cleanup.policy=compact), and such partitions stay in "
             "their groups")
#: Moves that a refusal names.
NAMED_MAX = 3


def faults(moves: Iterable[PlannedMove], view: ClusterView) -> list[str]:
    """Return one text for each move that is stale or impossible by ``view``. Moves of groups
    without a report are not judged (``unseen``). O(moves)."""
    found = []
    for move in moves:
        why = _fault(move, view)
        if why:
            found.append(f"{move.move_id}: {why}")
    return found


def unseen(moves: Iterable[PlannedMove], view: ClusterView) -> list[str]:
    """Return one text for each leader transfer and replica change whose group has no report in
    ``view``, with the reason. O(moves)."""
    return [f"{move.move_id}: {view.unreachable.get(move.subject, 'its leader did not answer')}"
            for move in moves if move.kind in (LEADER_TRANSFER, REPLICA_CHANGE)
            and move.subject not in view.groups]


def _fault(move: PlannedMove, view: ClusterView) -> str:
    if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE):
        place = view.partitions.get(move.subject)
        if place is None:
            return "the partition no longer exists"
        if (place.epoch, place.group) != (move.expected, move.old[0] if move.old else 0):
            return (f"it is in group {place.group} at epoch {place.epoch}, the plan was made for "
                    f"group {move.old[0] if move.old else 0} at epoch {move.expected}")
        return COMPACTED if place.is_compacted else ""
    for node in move.receivers:
        if node not in view.nodes:
            return f"there is no node {node}"
    why = view.exclusion(move.receivers) or wrong_factor(move, view)
    if why:
        return why
    seen = view.groups.get(move.subject)
    if seen is None:
        return ""  # without a report: see ``unseen``
    if seen.incarnation != move.incarnation:
        return f"it is in incarnation {seen.incarnation}, the plan was made for {move.incarnation}"
    if move.kind == LEADER_TRANSFER and view.leaders.get(move.subject) == move.new[0]:
        return ""  # leaders drift: this move has nothing left to do
    if seen.conf_index != move.expected:
        return (f"its members were changed at index {seen.conf_index}, the plan was made for index "
                f"{move.expected}")
    if move.kind == REPLICA_CHANGE and {*seen.voters} != {*move.old}:
        return f"its voters are {seen.voters}, not {move.old}"
    if move.kind == LEADER_TRANSFER and move.new[0] not in seen.voters:
        return f"node {move.new[0]} is no voter of it"
    return ""


def wrong_factor(move: PlannedMove, view: ClusterView) -> str:
    """Return the reason why the number of voters after the move is not allowed; empty when it is.

    A move keeps the number, also in a group that has fewer or more voters than the replication
    factor: a drain does not wait for a repair.  Or it brings the number nearer to the factor, as a
    repair does.  Intermediate states of a change, learners and two sets of voters, do not count.
    The controller checks this and not the state machine, which must accept on replay what it
    accepted once.
    """
    before, after, factor = len(move.old), len(move.new), view.replication_factor
    if move.kind != REPLICA_CHANGE or min(before, factor) <= after <= max(before, factor):
        return ""
    return (f"group {move.subject} has {before} voters and would have {after}, the replication "
            f"factor is {factor}: a move keeps the number, or brings it nearer to the factor")


def least_throttle(moves: Iterable[PlannedMove], limits: PlanLimits, rates: Mapping[int, int],
          leaders: Mapping[int, int]) -> int:
    """Return the throttle in bytes per second below which some replica might never catch up
    (``placement.throttle``).  ``rates``: appended bytes per second by group.  O(moves log moves).
    """
    return throttle.least(_copies(moves, rates, leaders), limits.in_per_node_max,
                          limits.out_per_node_max)


def too_low(moves: Iterable[PlannedMove], limits: PlanLimits, rates: Mapping[int, int],
            leaders: Mapping[int, int]) -> throttle.TooLow | None:
    """Return the least throttle and the reason if the throttle of ``limits`` is below it; None = it
    is high enough. ``rates``: appended bytes per second by group."""
    return throttle.too_low(limits.throttle, _copies(moves, rates, leaders),
                            limits.in_per_node_max, limits.out_per_node_max)


def _copies(moves: Iterable[PlannedMove], rates: Mapping[int, int],
            leaders: Mapping[int, int]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(rates.get(move.subject, 0), leaders.get(move.subject, 0), move.joining)
            for move in moves if move.kind == REPLICA_CHANGE]
