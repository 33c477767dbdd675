"""Faults of rebalancing: switches and plans in the middle of other faults, and crashes of their
driver.

Contract.  Part of ``nemesis.Nemesis``.  Each request is drawn from the committed metadata and sent
once, to the leader of the metadata group.  It may be lost, late, or out of date when it arrives.  A
strike that finds nothing to move is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults.topics_and_wipes import Lifetimes
from chaos.simulator.node.membership import INCARNATION
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


class Moves(Lifetimes):
    """Part of ``Nemesis``: switches and plans."""

    #: Steps of moves until a node crashes; 0 = no crash is armed.
    _steps_left: int = 0

    def cause_switch(self) -> None:
        """Decide the switch of a topic's partition to another group."""
        state = self._world.truth.metadata.state
        places = [
            place for living in metadata_oracle.topics_of(state) for place in living.partitions
        ]
        if not places:
            self._world.faults["switch"] -= 1
            return
        partition = self._rng.choice(places)[0]
        place = metadata_oracle.place_of(state, partition)
        to_group = self._rng.randrange(1, self._world.parameters.groups + 1)
        self._world.trace.line(0, place.group, "fault", f"switch of {partition} to g{to_group}")
        self._command(metadata_oracle.decide_switch(partition, place.epoch + 1, to_group))

    def cause_plan(self) -> None:
        """Apply a plan; or pause, resume, throttle or cancel the active one."""
        active = self._world.truth.metadata.state.plans.active
        if active is not None and self._rng.random() < CONTROLLED:
            action = self._rng.choice(wire.ACTIONS)
            value = self._throttle() if action == wire.THROTTLE else 0
            self._tell_plan(f"{action} {active.plan_id}")
            self._command(metadata_oracle.control_plan(active.plan_id, action, value,
                                                self._world.queue.now_ms))
            return
        moves = self._draw_moves()
        if not moves:
            self._world.faults["plan"] -= 1
            return
        scope = "repair" if self._rng.random() < REPAIRS else "all"
        plan_id = f"{self._rng.getrandbits(32):08x}"
        self._tell_plan(f"{scope} {plan_id}: " + ", ".join(
            f"{move.move_id} {move.old} to {move.new}" for move in moves))
        self._command(
            metadata_oracle.apply_plan(
                plan_id, scope, FOREVER_MS, self._world.queue.now_ms, self._limits(), tuple(moves)
            )
        )

    def _tell_plan(self, text: str) -> None:
        self._world.trace.line(0, METADATA_GROUP, "fault", f"plan {text}")

    def _throttle(self) -> int:
        return self._rng.choice((20_000, 200_000, 1 << 30))

    def _limits(self) -> wire.PlanLimits:
        rng = self._rng
        return wire.PlanLimits(
            self._throttle(), in_per_node_max=rng.randrange(1, 3),
            out_per_node_max=rng.randrange(1, 3), at_once_max=rng.randrange(1, 5),
            transfers_at_once_max=rng.randrange(1, 4), grace_ms=rng.choice((0, 500, 5000)),
            commit_ms_max=0)

    def _draw_moves(self) -> list[wire.PlannedMove]:
        """Draw moves of groups as their leaders see them now, each group once."""
        led = {group: node.status(group) for _, node in sorted(self._world.nodes.items())
               if node.is_up and not node.paused for group in node.led_groups() if group}
        groups = self._rng.sample(sorted(led), min(len(led), self._rng.randrange(MOVES_MAX)))
        moves = [self._draw_move(seq, led[group]) for seq, group in enumerate(groups, 1)]
        moves += self._draw_switches(len(moves) + 1)
        return [move._replace(depends_on=(move.seq - 1,))
                if move.seq > 1 and self._rng.random() < DEPENDS else move for move in moves]

    def _draw_move(self, seq: int, status: GroupStatus) -> wire.PlannedMove:
        rng, configuration = self._rng, status.configuration
        voters = configuration.voters
        outside = [node for node in sorted(self._world.nodes) if node not in voters]
        others = [node for node in voters if node != status.leader]
        factor = self._world.parameters.replication_factor
        if others and (rng.random() < 0.4 or not outside and len(voters) <= factor):
            return self._move(seq, wire.LEADER_TRANSFER, status, (rng.choice(others),), 0)
        new = list(voters)
        if outside and rng.random() < 0.8:
            new[rng.randrange(len(new))] = outside.pop(rng.randrange(len(outside)))
        if outside and len(new) < factor:
            new.append(outside[0])
        if new == list(voters):
            # One voter less: a move that must not start, unless the group had one too many.
            new.pop(rng.randrange(len(new)))
        leader = rng.choice(new) if rng.random() < 0.5 else 0
        return self._move(seq, wire.REPLICA_CHANGE, status, tuple(new), leader)

    @staticmethod
    def _move(seq: int, kind: str, status: GroupStatus, new: tuple[int, ...],
              leader: int) -> wire.PlannedMove:
        voters = status.configuration.voters
        old = (status.leader,) if kind == wire.LEADER_TRANSFER else voters
        return wire.PlannedMove(seq, kind, status.group, INCARNATION, status.configuration_index,
                                old, new, leader, 0, "OVERLOAD", ())

    def _draw_switches(self, seq: int) -> list[wire.PlannedMove]:
        state = self._world.truth.metadata.state
        partitions = [partition for living in metadata_oracle.topics_of(state)
                      for partition, _ in living.partitions]
        moves: list[wire.PlannedMove] = []
        for partition in self._rng.sample(partitions, min(len(partitions),
                                                          self._rng.randrange(3))):
            place = metadata_oracle.place_of(state, partition)
            to_group = self._rng.randrange(1, self._world.parameters.groups + 1)
            if to_group != place.group:
                moves.append(wire.PlannedMove(
                    seq + len(moves), wire.TOPIC_SWITCH, partition - metadata_oracle.FIRST, 0,
                    place.epoch, (place.group,), (to_group,), 0, 0, "OVERLOAD", ()))
        return moves

    def cause_mover_crash(self) -> None:
        """Crash the node that executes one of the next steps of a switch or a plan.

        Counted when it happens.
        """
        self._world.faults["mover-crash"] -= 1
        self._steps_left = self._rng.randrange(1, STEPS_MAX)

    def mover_steps(self, node: SimulatedNode, what: str) -> None:
        """Count a step of a move: a request or a command that ``node`` is about to send."""
        if not self._running or not self._steps_left:
            return
        self._steps_left -= 1
        if not self._steps_left:
            effects = self._rng.randrange(1, EFFECTS_MAX)
            self._world.marks[f"dies at {what}"] += 1
            self._say(node.node, f"crash {effects} effects after {what}")
            self._arm_crash(node, "mover-crash", effects, self._rng.random() < 0.5)

    def _command(self, payload: bytes) -> None:
        for _, node in sorted(self._world.nodes.items()):
            if node.is_up and not node.paused and node.leads(METADATA_GROUP):
                node.command(payload)
