"""What is to be done next for each move of a plan: a function of the plan and what is observed.

Contract.  ``decide(plan, world)`` returns steps to write down, things to do, and for every move
that does not get on the reason in words.  It keeps nothing between two calls and reads no clock
(``world.waited_ms``), so a controller that takes over decides as the one before would have.
    Nothing is done for a move before the phase that it belongs to is written down.  Everything that
is done names the configuration it was decided upon, and is refused by the group's leader when that
has changed.

Theory.  Level-triggered: the answer to "what next" is taken from the group's configuration, not
from what was done last.  So a message that was lost, doubled or late, and a controller killed
anywhere, cost one look.
"""

from __future__ import annotations

from collections.abc import Collection

from multiraft.wire.plans import LEADER_TRANSFER, REPLICA_CHANGE, LookedGroup, PlannedMove
from node.metadata.move_phases import ATTEMPTS_MAX, FIRST, Phase
from node.metadata.plan_table import CANCELLING, RUNNING, ActivePlan, Record
from node.rebalance import disk_room, replica_change
from node.rebalance.actions import Next, StepTo, Switch, Transfer
from node.rebalance.cluster_view import World
from node.rebalance.preconditions import off_factor

#: A transfer that has not happened by then is tried again, in milliseconds: a group gives one up
#: after ``transfer_timeout_ms``, and electing takes as long.
TRANSFER_PATIENCE_MS = 5_000
#: A switch that the metadata have not decided by then they refuse, in milliseconds: the partition
#: has been in too many groups, say.
SWITCH_PATIENCE_MS = 30_000

#: Moves that are looked at in order to start them, beyond those under way: what a few looks start.
CANDIDATES_MAX = 64

_UNSEEN = "the partition was not looked at yet"


def subjects(plan: ActivePlan) -> tuple[list[int], list[int]]:
    """(groups, partitions) that ``decide`` will want to know about: those of moves under way and of
    the next ones in order.  O(moves)."""
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
    """The next moves that have not begun, in order."""
    if plan.state != RUNNING:
        return []
    found: list[int] = []
    for seq, record in plan.records.items():
        if record.phase is Phase.PENDING:
            found.append(seq)
            if len(found) == CANDIDATES_MAX:
                break
    return found


def decide(plan: ActivePlan, world: World) -> Next:
    """See the module's docstring.  O(moves)."""
    from_here = Next([], {})
    for seq in plan.under_way:
        _go_on(plan, seq, world, from_here)
    _start_some(plan, world, from_here)
    return from_here


def _go_on(plan: ActivePlan, seq: int, world: World, result: Next) -> None:
    move, record = plan.moves[seq], plan.records[seq]
    if move.kind == REPLICA_CHANGE:
        replica_change.go_on(plan, move, record, world, result)
    elif move.kind == LEADER_TRANSFER:
        _transfer(plan, move, record, world, result)
    else:
        _switch(plan, move, record, world, result)


# ---- beginning ----------------------------------------------------------------------------------

def _start_some(plan: ActivePlan, world: World, result: Next) -> None:
    """Start what may start.  Moves of the same turn come from different senders first: the
    candidates are taken round-robin by who sends.  One step per sender and look, because the state
    machine counts the limits and each start changes them.  What one takes up of a disk is taken
    off what the next ones may."""
    started: dict[int, None] = {}
    coming = disk_room.coming(plan, world)
    for seq in candidates(plan):
        move, record = plan.moves[seq], plan.records[seq]
        ended = _ended_before(plan, move, record, world)
        if ended is not None:
            result.actions.append(ended)
            continue
        source, why = _ready(move, world)
        if not why:
            obstacle = plan.obstacle(move, source)
            if obstacle is not None:
                assert obstacle.error is not None
                why = obstacle.error.text
        why = why or disk_room.shortage(move, world, coming)
        if not why and source in started:
            others = f"others that node {source} sends" if source else "other switches"
            why = f"takes turns with {others}, of which one begins at a time"
        if why:
            result.waits[seq] = why
            continue
        started[source] = None
        disk_room.take(move, world, coming)
        result.actions.append(StepTo(seq, record.attempt, FIRST[move.kind], source=source))


def _ended_before(plan: ActivePlan, move: PlannedMove, record: Record,
                  world: World) -> StepTo | None:
    """The step that ends a move which need not or must not begin; None = it may begin."""
    for seq in move.depends_on:
        if plan.records[seq].phase in (Phase.SKIPPED, Phase.FAILED, Phase.CANCELLED):
            return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                          f"needs {plan.moves[seq].move_id}, which is "
                          f"{plan.records[seq].phase.name.lower()}")
    if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE):
        return _switch_ended(move, record, world)
    seen = world.groups.get(move.subject)
    if seen is None or seen.is_open:
        return None
    stale = _stale(move, seen, first=record.attempt == 0 and not plan.waited)
    if _is_done(move, seen, world):
        return StepTo(move.seq, record.attempt, Phase.DONE, "it was so already")
    # To wait for the end of a drain would be to wait for ever: the plan has to come to an end.
    why = stale or world.spared(move.receivers)
    if not why and (off := off_factor(move, world)):
        why = f"{off}. Make a new plan: `multiraft rebalance plan`"
    return StepTo(move.seq, record.attempt, Phase.SKIPPED, why) if why else None


def _stale(move: PlannedMove, seen: LookedGroup, first: bool) -> str:
    """Why the move was planned for something that is not so any more; empty when it is.  A second
    attempt finds the index that the first one left, and a repair that waited for another plan to be
    undone the one that this left."""
    if seen.incarnation != move.incarnation:
        return (f"group {seen.group} is in incarnation {seen.incarnation}, the plan was made for "
                f"{move.incarnation}")
    if first and seen.conf_index != move.guard:
        return (f"the members of group {seen.group} were changed at index {seen.conf_index}, the "
                f"plan was made for index {move.guard}")
    if move.kind == LEADER_TRANSFER and move.new[0] not in seen.voters:
        return f"node {move.new[0]} is no voter of group {seen.group}"
    if move.kind == REPLICA_CHANGE and {*seen.voters} != {*move.old}:
        return (f"the voters of group {seen.group} are {_named(seen.voters)}, not "
                f"{_named(move.old)}")
    return ""


def _is_done(move: PlannedMove, seen: LookedGroup, world: World) -> bool:
    if move.kind == LEADER_TRANSFER:
        return world.leaders.get(move.subject) == move.new[0]
    return {*seen.voters} == {*move.new} and not seen.outgoing


def _ready(move: PlannedMove, world: World) -> tuple[int, str]:
    """(who sends, why it cannot begin now or nothing)."""
    if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE):
        return 0, "" if move.subject in world.partitions else _UNSEEN
    seen = world.groups.get(move.subject)
    if seen is None:
        return 0, world.unreachable.get(move.subject, f"group {move.subject} has not answered yet")
    source = world.leaders[move.subject]
    if seen.is_open:
        return source, f"group {move.subject} is in the middle of a change of members"
    for node in move.receivers:
        if not world.is_up(node):
            return source, f"node {node} is not up"
    if seen.transferee:
        return source, f"group {move.subject} is being handed to node {seen.transferee}"
    if move.kind == REPLICA_CHANGE:
        lost = [node for node in seen.voters if not world.is_up(node)]
        if 2 * len(lost) >= len(seen.voters):
            return source, f"group {move.subject} has no majority: {_named(lost)} are not up"
    return source, ""


# ---- leader transfer ----------------------------------------------------------------------------

def _transfer(plan: ActivePlan, move: PlannedMove, record: Record, world: World,
              result: Next) -> None:
    """TRANSFERRING: until the new leader leads."""
    target = move.new[0]
    seen = world.groups.get(move.subject)
    if world.leaders.get(move.subject) == target and seen is not None:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.DONE))
    elif plan.state == CANCELLING:  # whatever becomes of the group: there is nothing to undo
        result.actions.append(StepTo(move.seq, record.attempt, Phase.CANCELLED, plan.reason))
    elif seen is None:
        result.waits[move.seq] = world.unreachable.get(move.subject, "has not answered yet")
    elif target not in seen.voters:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED,
                                     f"node {target} is no voter of group {move.subject}"))
    elif world.spared(move.receivers) and not seen.transferee:
        result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED,
                                     world.spared(move.receivers)))
    elif world.waited_ms.get(move.seq, 0) > TRANSFER_PATIENCE_MS:
        again = record.attempt + 1
        why = f"node {target} did not take over in {TRANSFER_PATIENCE_MS / 1000:g} s"
        result.actions.append(StepTo(move.seq, again, Phase.PENDING, why) if again < ATTEMPTS_MAX
                              else StepTo(move.seq, record.attempt, Phase.FAILED, why))
    elif plan.state == RUNNING and not seen.transferee:
        result.actions.append(Transfer(move.seq, move.subject, world.leaders[move.subject],
                                       target))
        result.waits[move.seq] = f"node {target} is asked to lead"
    else:
        result.waits[move.seq] = (f"group {move.subject} is being handed to node "
                                  f"{seen.transferee}" if seen.transferee else
                                  f"the plan is {plan.state}")


# ---- topic switch -------------------------------------------------------------------------------

def _switch_ended(move: PlannedMove, record: Record, world: World) -> StepTo | None:
    if move.subject not in world.partitions:
        return None  # the plan went on between the look and now
    place = world.partitions[move.subject]
    if place is None:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED, "the topic was deleted")
    if place.epoch > move.guard and place.group == move.new[0]:
        return StepTo(move.seq, record.attempt, Phase.DONE)
    if place.epoch != move.guard:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                      f"the partition is in group {place.group} at epoch {place.epoch}, the plan "
                      f"was made for epoch {move.guard}")
    if place.switch_epoch and place.switch_group != move.new[0]:
        return StepTo(move.seq, record.attempt, Phase.SKIPPED,
                      f"the partition is being switched to group {place.switch_group}")
    return None


def _switch(plan: ActivePlan, move: PlannedMove, record: Record, world: World,
            result: Next) -> None:
    """SWITCHING: decided, or about to be; from then on its own driver carries it out.  What the
    metadata do not decide can be left out."""
    ended = _switch_ended(move, record, world)
    if ended is not None:
        result.actions.append(ended)
        return
    place = world.partitions.get(move.subject)
    if place is None:
        result.waits[move.seq] = _UNSEEN
        return
    if not place.switch_epoch:
        if plan.state == CANCELLING:
            result.actions.append(StepTo(move.seq, record.attempt, Phase.SKIPPED, plan.reason))
            return
        if world.waited_ms.get(move.seq, 0) > SWITCH_PATIENCE_MS:
            result.actions.append(StepTo(
                move.seq, record.attempt, Phase.FAILED,
                f"the metadata have not decided it in {SWITCH_PATIENCE_MS / 1000:g} s"))
            return
        result.actions.append(Switch(move.seq, move.subject, move.guard + 1, move.new[0]))
    result.waits[move.seq] = f"group {move.old[0]} seals it, group {move.new[0]} opens it"


def _named(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
