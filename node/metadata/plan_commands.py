"""Commands of the metadata group about plans and node states.

Contract.  As ``commands.py``, which includes ``COMMANDS``.  Every command names the state that it
was decided upon, so that a repeated, late or reordered one changes nothing: the plan's id; for a
step also the number of the move, its attempt and the phase it leads to.  Times are the proposer's
wall clock, in milliseconds since 1970.  The state machine stores them and compares none but a
plan's expiry.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import plans as wire
from multiraft.wire import schema
from multiraft.wire.plans import PlanLimits, PlannedMove
from multiraft.wire.schema import Shape
from node.metadata.move_phases import PHASE_MAX
from placement.topology import NODE_ID_MAX

#: Characters of the reason why a plan or a move waits, stopped or was skipped.
REASON_MAX = 300


class ApplyPlan(NamedTuple):
    """Apply a plan.  ``now_ms``: time of the proposal, compared with ``expires_ms``."""

    plan_id: str
    cluster_id: str
    scope: str
    expires_ms: int
    now_ms: int
    limits: PlanLimits
    moves: tuple[PlannedMove, ...]


class ControlPlan(NamedTuple):
    """Pause, resume or cancel a plan, or set its throttle to ``value`` bytes per second.
    ``by_safety``: the controller's safety check asks for it, not an operator."""

    plan_id: str
    action: str
    value: int
    reason: str
    by_safety: bool
    now_ms: int


class StepMove(NamedTuple):
    """Set a move to ``phase``.  ``source``: the node that sends the copied data; ``reason``: the
    cause of an end other than success."""

    plan_id: str
    seq: int
    attempt: int
    phase: int
    source: int
    reason: str
    now_ms: int


class SetNodeState(NamedTuple):
    """Set the state that the operator wants of a node."""

    node: int
    state: str


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_reason = schema.text(REASON_MAX)
_plan_id = schema.text(64)
_name = schema.text(wire.NAME_MAX)

#: Op -> type of the command and its fields.
COMMANDS: dict[str, Shape] = {
    "apply_plan": Shape(ApplyPlan, {
        "plan_id": _plan_id, "cluster_id": _name, "scope": _name, "expires_ms": _u64,
        "now_ms": _u64, "limits": wire.read_limits, "moves": wire.read_moves}),
    "control_plan": Shape(ControlPlan, {
        "plan_id": _plan_id, "action": schema.one_of(*wire.ACTIONS), "value": _u64,
        "reason": _reason, "by_safety": schema.boolean, "now_ms": _u64}),
    "step_move": Shape(StepMove, {
        "plan_id": _plan_id, "seq": _u32, "attempt": _u32,
        "phase": schema.integer(0, PHASE_MAX), "source": schema.integer(0, NODE_ID_MAX),
        "reason": _reason, "now_ms": _u64}),
    "set_node_state": Shape(SetNodeState, {
        "node": schema.integer(1, NODE_ID_MAX), "state": schema.one_of(*wire.NODE_STATES)}),
}
