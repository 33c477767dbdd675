"""The throttle of the plan under way, made into rates for this node's streams.

Contract.  ``limits_of(plan)`` is a function of the replicated plan, so every node that has applied
the same metadata paces alike, without being told and without anything to clean up: when the plan is
over, or there is none, nothing is paced.  While it is paused nothing is sent for it at all.

Theory.  The limit of a sender is its own bucket.  That of a receiver is divided evenly among the
streams that go to it, because their senders do not know of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.raft.recovery_throttle import Limits
from node.metadata.move_phases import Phase
from node.metadata.plan_table import PAUSED, ActivePlan

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Nothing is paced.
FREE = Limits(0, {})


def limits_of(plan: ActivePlan | None) -> Limits:
    """Rates by group and receiving node.  O(moves under way)."""
    if plan is None:
        return FREE
    streams = [(plan.moves[seq].subject, node) for seq in plan.under_way
               if plan.records[seq].phase in (Phase.LEARNING, Phase.JOINT)
               for node in plan.moves[seq].joining]
    into: dict[int, int] = {}
    for _, node in streams:
        into[node] = into.get(node, 0) + 1
    # What has been decided goes on while the plan is paused.
    rate = plan.limits.throttle
    stopped = {plan.moves[seq].subject for seq in plan.under_way
               if plan.state == PAUSED and plan.records[seq].phase is Phase.LEARNING}
    return Limits(rate, {(group, node): 0 if group in stopped else max(1, rate // into[node])
                         for group, node in streams})


def filled_by(plan: ActivePlan | None, node: int) -> frozenset[int]:
    """Groups of which the plan brings this node a replica that it has not made a voter yet: that is
    written down as JOINT before it is asked for.  O(moves under way)."""
    if plan is None:
        return frozenset()
    return frozenset(plan.moves[seq].subject for seq in plan.under_way
                     if plan.records[seq].phase in (Phase.LEARNING, Phase.UNDOING)
                     and node in plan.moves[seq].joining)


class PlanThrottle:
    """Tells consensus, when something changed."""

    def __init__(self, core: MultiRaft, request_round: Callable[[], None]):
        self._core = core
        self._request_round = request_round
        self._seen = FREE

    def follow(self, plan: ActivePlan | None) -> None:
        """Metadata were applied."""
        limits = limits_of(plan)
        if limits != self._seen:
            self._seen = limits
            self._core.pace_catch_up(limits)
            self._request_round()
