"""The throttle of the plan under way as rates of this node's streams.

Contract.  ``limits_of(plan)`` is a function of the replicated plan, so every node that has applied
the same metadata paces alike.  No message sets the rates and none resets them: without a plan, or
after its end, nothing is paced.  While the plan is paused, nothing is sent for its learners.

Theory.  The limit of a sender is its own bucket.  The limit of a receiver is divided evenly among
the streams to it, because their senders do not know of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.raft.recovery_throttle import ThrottleRates
from node.metadata.move_phases import Phase
from node.metadata.plan_table import PAUSED, ActivePlan

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: No pacing.
UNLIMITED = ThrottleRates(0, {})


def limits_of(plan: ActivePlan | None) -> ThrottleRates:
    """Return the plan's rate of this node's streams, and the rate by group and receiving node; 0 =
    stopped by a pause. O(moves under way)."""
    if plan is None:
        return UNLIMITED
    streams = [(plan.moves[seq].subject, node) for seq in plan.under_way
               if plan.records[seq].phase in (Phase.LEARNING, Phase.JOINT)
               for node in plan.moves[seq].joining]
    into: dict[int, int] = {}
    for _, node in streams:
        into[node] = into.get(node, 0) + 1
    # A move in phase JOINT cannot be undone, so its stream continues while the plan is paused.
    rate = plan.limits.throttle
    stopped = {plan.moves[seq].subject for seq in plan.under_way
               if plan.state == PAUSED and plan.records[seq].phase is Phase.LEARNING}
    return ThrottleRates(rate, {(group, node): 0 if group in stopped else max(1, rate // into[node])
                                for group, node in streams})


def catching_up_on(plan: ActivePlan | None, node: int) -> frozenset[int]:
    """Return groups of which the plan brings this node a replica that is not about to vote.

    JOINT is recorded before the vote is requested, so a replica in LEARNING or UNDOING does not
    vote yet.  O(moves under way).
    """
    if plan is None:
        return frozenset()
    return frozenset(plan.moves[seq].subject for seq in plan.under_way
                     if plan.records[seq].phase in (Phase.LEARNING, Phase.UNDOING)
                     and node in plan.moves[seq].joining)


class PlanThrottle:
    """Throttle of this node's streams for a plan: passes changed rates on to consensus."""

    def __init__(self, core: MultiRaft, request_round: Callable[[], None]):
        self._core = core
        self._request_round = request_round
        self._seen = UNLIMITED

    def follow(self, plan: ActivePlan | None) -> None:
        """Pass the rates of ``plan`` on to consensus and request a round, if the rates have
        changed."""
        limits = limits_of(plan)
        if limits != self._seen:
            self._seen = limits
            self._core.set_throttle_rates(limits)
            self._request_round()
