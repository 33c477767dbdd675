"""A plan that makes appends slow goes on at half its rate.

Contract.  ``paused`` is told when a plan has paused itself because appends are slow, ``eased`` when
it may go on because they were fast while it stood: that is what it should copy at from then on,
None = as before.  Never below what is appended to the groups whose replicas are still to be
changed, measured over the pause: replicas would not catch up; nor below what a plan may be
throttled to.  Where that is not known, because another controller saw the pause begin or a leader
does not answer, nothing is changed.

Theory.  Without it such a plan would pause and go on for ever, and appends would be slow half of
the time.  Nothing raises the throttle again but the operator, who sees it in the plan's status:
a plan ends, and its throttle with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from multiraft.wire.plans import REPLICA_CHANGE, PlannedMove
from node.metadata.plan_table import ActivePlan
from node.rebalance.observer import Observer
from node.rebalance.preconditions import floor
from node.rebalance.runtime import Tasks
from placement.throttle import smallest


class _Seen(NamedTuple):
    """The logs of the groups that are still to be changed, at one moment."""

    plan_id: str
    at_ms: int
    sizes: dict[int, int]  # group -> bytes


class Easing:
    """Memory of one controller.  ``observer()``: a new one."""

    def __init__(self, observer: Callable[[], Observer], tasks: Tasks):
        self._observer = observer
        self._tasks = tasks
        self._seen: _Seen | None = None

    async def paused(self, plan: ActivePlan) -> None:
        """It stands because appends are slow.  O(moves)."""
        found = await self._observer().look([move.subject for move in _left(plan)])
        self._seen = _Seen(plan.plan_id, self._tasks.monotonic_ms(),
                           {group: seen.bytes for group, seen in found.groups.items()})

    async def eased(self, plan: ActivePlan) -> int | None:
        """Bytes per second, below what they are now; None = leave them.  O(moves)."""
        seen, self._seen = self._seen, None
        moves = _left(plan)
        if seen is None or seen.plan_id != plan.plan_id or not moves:
            return None
        now = await self._observer().look([move.subject for move in moves])
        ms = max(1, self._tasks.monotonic_ms() - seen.at_ms)
        rates = {group: max(0, here.bytes - seen.sizes[group]) * 1000 // ms
                 for group, here in now.groups.items() if group in seen.sizes}
        if any(move.subject not in rates for move in moves):
            return None
        least = floor(moves, plan.limits, rates, now.leaders)
        throttle = max(smallest(plan.limits.in_per_node_max, plan.limits.out_per_node_max), least,
                       plan.limits.throttle // 2)
        return throttle if throttle < plan.limits.throttle else None


def _left(plan: ActivePlan) -> tuple[PlannedMove, ...]:
    """Replica changes that have not ended."""
    return tuple(move for seq, move in plan.moves.items()
                 if move.kind == REPLICA_CHANGE and not plan.records[seq].has_ended)
