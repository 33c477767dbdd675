"""The scheduler: the next actions for each move of a plan, as a function of plan and observations.

Contract.  ``decide(plan, view)`` returns steps to record, requests to send, and the reason of
every move that waits.  It keeps no state between calls and reads no clock (``view.waited_ms``), so
a new controller decides as the previous one would have.  No action is taken for a move before its
phase is recorded.  Every action names the configuration that it was decided upon, and the group's
leader refuses it when the configuration has changed.

Theory.  Level-triggered: the next action follows from the group's configuration, not from the last
action.  So a message that was lost, duplicated or late, and a controller killed at any point, cost
one iteration.
"""

from __future__ import annotations

from collections.abc import Collection

from multiraft.wire.plans import LEADER_TRANSFER, REPLICA_CHANGE, PlannedMove, ProbedGroup
from node.metadata.move_phases import ATTEMPTS_MAX, FIRST, Phase
from node.metadata.plan_table import CANCELLING, RUNNING, ActivePlan, Record
from node.rebalance import disk_room, replica_change
from node.rebalance.actions import Next, StepTo, Switch, Transfer
from node.rebalance.cluster_view import ClusterView
from node.rebalance.preconditions import COMPACTED, wrong_factor

#: A transfer that has not happened by then is tried again, in milliseconds: a group aborts one
#: after ``transfer_timeout_ms``, and an election takes as long.
TRANSFER_PATIENCE_MS = 5_000
#: A switch that the metadata have not decided by then fails, in milliseconds: the metadata refuse
#: it, for example because the partition has been in too many groups.
SWITCH_PATIENCE_MS = 30_000

#: Moves considered for a start in one iteration, besides those under way: as many as a few
#: iterations start.
CANDIDATES_MAX = 64

_UNSEEN = "the partition was not observed yet"


def subjects(plan: ActivePlan) -> tuple[list[int], list[int]]:
    """Return (groups, partitions) that ``decide`` needs observations of: those of moves under way
    and of the next ones in order.  O(moves)."""
    groups: dict[int, None] = {}
    partitions: dict[int, None] = {}
    for seq in [*plan.under_way, *candidates(plan)]:
        move = plan.moves[seq]
        if move.kind in (LEADER_TRANSFER, REPLICA_CHANGE):
            groups[move.subject] = None
        else:
            partitions[move.subject] = None
    return list(groups), list(partitions)


def candidates(plan: ActivePlan) -> list[int]:
    """Return the first ``CANDIDATES_MAX`` moves that have not started, in the plan's order; none
    unless the plan runs."""
    if plan.state != RUNNING:
        return []
    found: list[int] = []
    for seq, record in plan.records.items():
        if record.phase is Phase.PENDING:
            found.append(seq)
            if len(found) == CANDIDATES_MAX:
                break
    return found


def decide(plan: ActivePlan, view: ClusterView) -> Next:
    """Return the next actions of a plan and the reasons of moves that wait.  O(moves)."""
    from_here = Next([], {})
    for seq in plan.under_way:
        _continue_move(plan, seq, view, from_here)
    _start_moves(plan, view, from_here)
    return from_here


def _continue_move(plan: ActivePlan, seq: int, view: ClusterView, result: Next) -> None:
    move, record = plan.moves[seq], plan.records[seq]
    if move.kind == REPLICA_CHANGE:
        replica_change.next_step(plan, move, record, view, result)
    elif move.kind == LEADER_TRANSFER:
        _transfer(plan, move, record, view, result)
    else:
        _switch(plan, move, record, view, result)


# ---- beginning ----------------------------------------------------------------------------------

def _start_moves(plan: ActivePlan, view: ClusterView, result: Next) -> None:
    """Add a start to ``result`` for each candidate that may start, its early end, or the reason for
    which it waits.

    One start per sender and iteration, because the state machine counts the limits and each start
    changes them. Disk space that a started move takes is not available to the next ones."""
    started: dict[int, None] = {}
    incoming = disk_room.incoming_bytes(plan, view)
    for seq in candidates(plan):
        move, record = plan.moves[seq], plan.records[seq]
        ended = _early_end(plan, move, record, view)
        if ended is not None:
            result.actions.append(ended)
            continue
        source, why = _ready(move, view)
        if not why:
            obstacle = plan.obstacle(move, source)
            if obstacle is not None:
                assert obstacle.error is not None
                why = obstacle.error.text
        why = why or disk_room.shortage(move, view, incoming)
        if not why and source in started:
            others = f"node {source} starts" if source else "the plan starts"
            why = f"waits for its turn: {others} one {'move' if source else 'switch'} at a time"
        if why:
            result.waits[seq] = why
            continue
        started[source] = None
        disk_room.reserve(move, view, incoming)
        result.actions.append(StepTo(seq, record.attempt, FIRST[move.kind], source=source))


def _early_end(plan: ActivePlan, move: PlannedMove, record: Record,
                  view: ClusterView) -> StepTo | None:
    """Return the step to DONE or SKIPPED of a move that need not or must not start; None = it may
    start or waits."""
    for seq in move.depends_on:
        if plan.records[seq].phase in (Phase.SKIPPED, Phase.FAILED, Phase.CANCELLED):
            return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                          f"needs {plan.moves[seq].move_id}, which is "
                          f"{plan.records[seq].phase.name.lower()}")
    if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE):
        return _switch_ended(move, record, view)
    seen = view.groups.get(move.subject)
    if seen is None or seen.is_open:
        return None
    stale = _stale(move, seen, first=record.attempt == 0 and not plan.waited)
    if _is_done(move, seen, view):
        return StepTo(move.seq, record.attempt, Phase.DONE, "it was so already")
    # Waiting for the end of a drain could block the plan without limit.  The move is skipped.
    why = stale or view.exclusion(move.receivers)
    if not why and (off := wrong_factor(move, view)):
        why = f"{off}. Make a new plan: `multiraft rebalance plan`"
    return StepTo(move.seq, record.attempt, Phase.SKIPPED, why) if why else None


def _stale(move: PlannedMove, seen: ProbedGroup, first: bool) -> str:
    """Return the reason why the state that the move was planned for has changed; empty when it has
    not.

    A second attempt finds the configuration index that the first one left; a repair that waited for
    another plan to be undone finds the one that this plan left.  Both skip the comparison of
    indexes.
    """
    if seen.incarnation != move.incarnation:
        return (f"group {seen.group} is in incarnation {seen.incarnation}, the plan was made for "
                f"{move.incarnation}")
    if first and seen.conf_index != move.expected:
        return (f"the members of group {seen.group} were changed at index {seen.conf_index}, the "
                f"plan was made for index {move.expected}")
    if move.kind == LEADER_TRANSFER and move.new[0] not in seen.voters:
        return f"node {move.new[0]} is no voter of group {seen.group}"
    if move.kind == REPLICA_CHANGE and {*seen.voters} != {*move.old}:
        return (f"the voters of group {seen.group} are {_named(seen.voters)}, not "
                f"{_named(move.old)}")
    return ""


def _is_done(move: PlannedMove, seen: ProbedGroup, view: ClusterView) -> bool:
    if move.kind == LEADER_TRANSFER:
        return view.leaders.get(move.subject) == move.new[0]
    return {*seen.voters} == {*move.new} and not seen.outgoing


def _ready(move: PlannedMove, view: ClusterView) -> tuple[int, str]:
    """Return (node that sends the data, 0 = none; reason why the move cannot start now, "" = it
    can)."""
    if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE):
        return 0, "" if move.subject in view.partitions else _UNSEEN
    seen = view.groups.get(move.subject)
    if seen is None:
        return 0, view.unreachable.get(move.subject, f"group {move.subject} has not answered yet")
    source = view.leaders[move.subject]
    if seen.is_open:
        return source, f"group {move.subject} is in the middle of a change of members"
    for node in move.receivers:
        if not view.is_up(node):
            return source, f"node {node} is not up"
    if seen.transferee:
        return source, f"group {move.subject} is transferring leadership to node {seen.transferee}"
    if move.kind == REPLICA_CHANGE:
        lost = [node for node in seen.voters if not view.is_up(node)]
        if 2 * len(lost) >= len(seen.voters):
            return source, f"group {move.subject} has no majority: {_named(lost)} are not up"
    return source, ""


# ---- leader transfer ----------------------------------------------------------------------------

def _transfer(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
              result: Next) -> None:
    """Add the next action of a move in phase TRANSFERRING to ``result``: ask the group's leader
    again, end the move, or try anew; or why it waits."""
    target = move.new[0]
    seen = view.groups.get(move.subject)
    if view.leaders.get(move.subject) == target and seen is not None:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.DONE))
    elif plan.state == CANCELLING:  # a transfer leaves nothing to undo
        result.actions.append(StepTo(move.seq, record.attempt, Phase.CANCELLED, plan.reason))
    elif seen is None:
        result.waits[move.seq] = view.unreachable.get(move.subject, "has not answered yet")
    elif target not in seen.voters:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED,
                                     f"node {target} is no voter of group {move.subject}"))
    elif view.exclusion(move.receivers) and not seen.transferee:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED,
                                     view.exclusion(move.receivers)))
    elif view.waited_ms.get(move.seq, 0) > TRANSFER_PATIENCE_MS:
        again = record.attempt + 1
        why = f"node {target} did not take over in {TRANSFER_PATIENCE_MS / 1000:g} s"
        result.actions.append(StepTo(move.seq, again, Phase.PENDING, why) if again < ATTEMPTS_MAX
                              else StepTo(move.seq, record.attempt, Phase.FAILED, why))
    elif plan.state == RUNNING and not seen.transferee:
        result.actions.append(Transfer(move.seq, move.subject, view.leaders[move.subject],
                                       target))
        result.waits[move.seq] = f"node {target} is asked to lead"
    else:
        result.waits[move.seq] = (f"group {move.subject} is transferring leadership to node "
                                  f"{seen.transferee}" if seen.transferee else
                                  f"the plan is {plan.state}")


# ---- topic switch -------------------------------------------------------------------------------

def _switch_ended(move: PlannedMove, record: Record, view: ClusterView) -> StepTo | None:
    if move.subject not in view.partitions:
        return None  # the plan advanced between observation and decision
    place = view.partitions[move.subject]
    if place is None:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED, "the topic was deleted")
    if place.epoch > move.expected and place.group == move.new[0]:
        return StepTo(move.seq, record.attempt, Phase.DONE)
    if place.epoch != move.expected:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                      f"the partition is in group {place.group} at epoch {place.epoch}, the plan "
                      f"was made for epoch {move.expected}")
    if place.switch_epoch and place.switch_group != move.new[0]:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                      f"the partition is being switched to group {place.switch_group}")
    return None


def _switch(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
            result: Next) -> None:
    """Add the next action of a move in phase SWITCHING to ``result``: propose the switch, or end
    the move. A decided switch is carried out by the leaders of the two groups.

    A switch that the metadata have not decided can be skipped."""
    ended = _switch_ended(move, record, view)
    if ended is not None:
        result.actions.append(ended)
        return
    place = view.partitions.get(move.subject)
    if place is None:
        result.waits[move.seq] = _UNSEEN
        return
    if not place.switch_epoch:
        if plan.state == CANCELLING:
            result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED, plan.reason))
            return
        if view.waited_ms.get(move.seq, 0) > SWITCH_PATIENCE_MS:
            result.actions.append(StepTo(
                move.seq, record.attempt, Phase.FAILED,
                f"the metadata have not decided it in {SWITCH_PATIENCE_MS / 1000:g} s"))
            return
        if place.is_compacted:
            result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED, COMPACTED))
            return
        result.actions.append(Switch(move.seq, move.subject, move.expected + 1, move.new[0]))
    result.waits[move.seq] = f"group {move.old[0]} seals it, group {move.new[0]} opens it"


def _named(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
