"""Faults of rebalancing: switches and plans in the middle of other faults, and crashes of their
driver.

Contract.  Each request is drawn from the committed metadata and sent once, to the leader of the
metadata group.  It may be lost, late, or out of date when it arrives.  A strike that finds nothing
to move is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults import PLANS, SWITCHES
from chaos.simulator.faults.injector import Injector, is_active
from chaos.simulator.faults.registry import fault
from chaos.simulator.node.metadata.membership import INCARNATION
from chaos.simulator.oracle import metadata_oracle
from multiraft.types import METADATA_GROUP
from multiraft.wire import plans as wire

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from multiraft.raft.status import GroupStatus

#: Upper bound (exclusive) of the moves of one plan, switches not counted.
MOVES_MAX = 8
#: Probabilities: a command goes to the active plan, and no new plan is made; a new plan is a
#: repair, which waits for no other plan; a move depends on the one before it.
CONTROLLED, REPAIRS, DEPENDS = 0.5, 0.3, 0.2
#: Expiry of plans, later than the end of any run.
FOREVER_MS = 1 << 40
#: The driver of a move crashes within so many steps, and so many effects after the last of them.
STEPS_MAX, EFFECTS_MAX = 8, 12


@fault(SWITCHES.kind)
def switch(injector: Injector) -> bool:
    """Send the command that switches a random partition of a topic to a random group. Uncounted
    when there is no topic."""
    state = injector.world.oracle.metadata.state
    places = [place for topic in metadata_oracle.topics_of(state) for place in topic.partitions]
    if not places:
        return False
    partition = injector.rng.choice(places)[0]
    place = metadata_oracle.place_of(state, partition)
    to_group = injector.rng.randrange(1, injector.world.parameters.groups + 1)
    injector.world.trace.line(0, place.group, "fault", f"switch of {partition} to g{to_group}")
    send_command(injector, metadata_oracle.decide_switch(partition, place.epoch + 1, to_group))
    return True
@fault(PLANS.kind)
def plan(injector: Injector) -> bool:
    """Send the command that applies a random plan; or, to an active plan, one that pauses, resumes,
    throttles or cancels it. Return False when there is nothing to move."""
    active = injector.world.oracle.metadata.state.plans.active
    if active is not None and injector.rng.random() < CONTROLLED:
        action = injector.rng.choice(wire.ACTIONS)
        value = _throttle(injector) if action == wire.THROTTLE else 0
        _trace_plan(injector, f"{action} {active.plan_id}")
        send_command(injector, metadata_oracle.control_plan(active.plan_id, action, value,
                                                            injector.world.queue.now_ms))
        return True
    moves = _draw_moves(injector)
    if not moves:
        return False
    scope = "repair" if injector.rng.random() < REPAIRS else "all"
    plan_id = f"{injector.rng.getrandbits(32):08x}"
    _trace_plan(injector, f"{scope} {plan_id}: " + ", ".join(
        f"{move.move_id} {move.old} to {move.new}" for move in moves))
    send_command(injector, metadata_oracle.apply_plan(
        plan_id, scope, FOREVER_MS, injector.world.queue.now_ms, _limits(injector), tuple(moves)))
    return True


def _trace_plan(injector: Injector, text: str) -> None:
    injector.world.trace.line(0, METADATA_GROUP, "fault", f"plan {text}")


def _throttle(injector: Injector) -> int:
    return injector.rng.choice((20_000, 200_000, 1 << 30))


def _limits(injector: Injector) -> wire.PlanLimits:
    rng = injector.rng
    return wire.PlanLimits(
        _throttle(injector), in_per_node_max=rng.randrange(1, 3),
        out_per_node_max=rng.randrange(1, 3), at_once_max=rng.randrange(1, 5),
        transfers_at_once_max=rng.randrange(1, 4), grace_ms=rng.choice((0, 500, 5000)),
        commit_ms_max=0)


def _draw_moves(injector: Injector) -> list[wire.PlannedMove]:
    """Draw moves of groups as their leaders see them now, each group once, and switches of
    partitions; empty = nothing was drawn."""
    led = {group: node.view.status(group) for _, node in sorted(injector.world.nodes.items())
           if is_active(node) for group in node.view.led_groups() if group}
    groups = injector.rng.sample(sorted(led), min(len(led), injector.rng.randrange(MOVES_MAX)))
    moves = [_draw_move(injector, seq, led[group]) for seq, group in enumerate(groups, 1)]
    moves += _draw_switches(injector, len(moves) + 1)
    return [move._replace(depends_on=(move.seq - 1,))
            if move.seq > 1 and injector.rng.random() < DEPENDS else move for move in moves]


def _draw_move(injector: Injector, seq: int, status: GroupStatus) -> wire.PlannedMove:
    rng, configuration = injector.rng, status.configuration
    voters = configuration.voters
    outside = [node for node in sorted(injector.world.nodes) if node not in voters]
    others = [node for node in voters if node != status.leader]
    factor = injector.world.parameters.replication_factor
    if others and (rng.random() < 0.4 or not outside and len(voters) <= factor):
        return _move(seq, wire.LEADER_TRANSFER, status, (rng.choice(others),), 0)
    new = list(voters)
    if outside and rng.random() < 0.8:
        new[rng.randrange(len(new))] = outside.pop(rng.randrange(len(outside)))
    if outside and len(new) < factor:
        new.append(outside[0])
    if new == list(voters):
        # One voter less: a move that must not start, unless the group had one too many.
        new.pop(rng.randrange(len(new)))
    leader = rng.choice(new) if rng.random() < 0.5 else 0
    return _move(seq, wire.REPLICA_CHANGE, status, tuple(new), leader)


def _move(seq: int, kind: str, status: GroupStatus, new: tuple[int, ...],
          leader: int) -> wire.PlannedMove:
    voters = status.configuration.voters
    old = (status.leader,) if kind == wire.LEADER_TRANSFER else voters
    return wire.PlannedMove(seq, kind, status.group, INCARNATION, status.configuration_index,
                            old, new, leader, 0, "OVERLOAD", ())


def _draw_switches(injector: Injector, seq: int) -> list[wire.PlannedMove]:
    state = injector.world.oracle.metadata.state
    partitions = [partition for topic in metadata_oracle.topics_of(state)
                  for partition, _ in topic.partitions]
    moves: list[wire.PlannedMove] = []
    count = min(len(partitions), injector.rng.randrange(3))
    for partition in injector.rng.sample(partitions, count):
        place = metadata_oracle.place_of(state, partition)
        to_group = injector.rng.randrange(1, injector.world.parameters.groups + 1)
        if to_group != place.group:
            moves.append(wire.PlannedMove(
                seq + len(moves), wire.TOPIC_SWITCH, partition - metadata_oracle.FIRST, 0,
                place.epoch, (place.group,), (to_group,), 0, 0, "OVERLOAD", ()))
    return moves


@fault("mover-crash")
def mover_crash(injector: Injector) -> bool:
    """Arm a crash of the node that takes one of the next steps of a switch or a plan.

    Counted when it happens.
    """
    injector.steps_to_crash = injector.rng.randrange(1, STEPS_MAX)
    return False


def count_step(injector: Injector, node: SimulatedNode, what: str) -> None:
    """Count a step of a move: a request or a command that ``node`` is about to send. At the step
    that ``mover_crash`` has drawn, arm a crash of the node within its next effects."""
    if not injector.is_running or not injector.steps_to_crash:
        return
    injector.steps_to_crash -= 1
    if not injector.steps_to_crash:
        effects = injector.rng.randrange(1, EFFECTS_MAX)
        injector.world.event_counts[f"dies at {what}"] += 1
        injector.trace(node.node, f"crash {effects} effects after {what}")
        injector.arm_crash(node, "mover-crash", effects, injector.rng.random() < 0.5)


def send_command(injector: Injector, payload: bytes) -> None:
    """Send a command to each running node that believes that it leads the metadata group; no-op
    without one."""
    for _, node in sorted(injector.world.nodes.items()):
        if is_active(node) and node.view.leads(METADATA_GROUP):
            node.boot.metadata.command(payload)
