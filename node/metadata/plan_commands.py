"""Commands of the metadata group about plans: apply, control, one step of one move; node states.

Contract.  As ``commands.py``, which takes in ``COMMANDS``.  Every command names what it
was decided upon, so that a repeated, late or reordered one changes nothing: the plan's id; for a
step also the move's number, its attempt and the phase it leads to.  Times are the proposer's, in
milliseconds since 1970, and are shown and never compared by the state machine, but for a plan's
expiry.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import plans as wire
from multiraft.wire import schema
from multiraft.wire.plans import PlanLimits, PlannedMove
from multiraft.wire.schema import Shape
from node.metadata.move_phases import PHASE_MAX
from placement.topology import NODE_ID_MAX

#: Why something waits, stopped or was left out, in words.
REASON_MAX = 300


class ApplyPlan(NamedTuple):
    """Carry a plan out.  ``now_ms``: when it was proposed, compared with ``expires_ms``."""

    plan_id: str
    cluster_id: str
    scope: str
    expires_ms: int
    now_ms: int
    limits: PlanLimits
    moves: tuple[PlannedMove, ...]


class ControlPlan(NamedTuple):
    """Pause, resume, cancel, or set the throttle to ``value`` bytes per second.  ``by_safety``:
    not an operator but what watches over the cluster says so."""

    plan_id: str
    action: str
    value: int
    reason: str
    by_safety: bool
    now_ms: int


class StepMove(NamedTuple):
    """A move goes to ``phase``.  ``source``: the node that sends what is copied; ``reason``: why it
    ended so."""

    plan_id: str
    seq: int
    attempt: int
    phase: int
    source: int
    reason: str
    now_ms: int


class SetNodeState(NamedTuple):
    """What the operator wants of a node."""

    node: int
    state: str


_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_reason = schema.text(REASON_MAX)
_plan_id = schema.text(64)
_name = schema.text(wire.NAME_MAX)

#: op -> fields.
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
