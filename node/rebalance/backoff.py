"""Throttle backoff: a plan that made appends slow resumes at half its rate.

Contract.  Call ``on_pause`` when a plan has paused itself because appends were slow, ``on_resume``
when it may resume because they became fast during the pause, and ``on_lowered`` once the throttle
that it returned is in force.  ``on_resume`` returns the new throttle in bytes per second; None =
unchanged.  The throttle is never below the append rate
of the groups whose replicas are still to be changed, measured over the pause, because replicas
would not catch up; nor below the least throttle that a plan may have.  When that rate is not known,
because another controller began the pause or a leader does not answer, the throttle is not changed.

Theory.  Without backoff such a plan would alternate between pause and resumption, and appends would
be slow half of the time.  Only the operator raises the throttle again; the plan's status shows it.
The throttle ends with the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from multiraft.wire.plans import REPLICA_CHANGE, PlannedMove
from node.metadata.plan_table import ActivePlan
from node.rebalance.observer import Observer
from node.rebalance.preconditions import least_throttle
from node.rebalance.runtime import Runtime
from placement.throttle import smallest


class _Seen(NamedTuple):
    """Sizes of the logs of the groups that are still to be changed, at one moment."""

    plan_id: str
    at_ms: int
    sizes: dict[int, int]  # group -> bytes


class Backoff:
    """Measures append rates over one pause.  Belongs to one controller.  ``observer()`` makes an
    observer."""

    def __init__(self, observer: Callable[[], Observer], runtime: Runtime):
        self._observer = observer
        self._runtime = runtime
        self._seen: _Seen | None = None

    async def on_pause(self, plan: ActivePlan) -> None:
        """Observe and keep the log sizes of the groups still to be changed, at the beginning of a
        pause for slow appends. O(moves)."""
        self._seen = None
        found = await self._observer().observe([move.subject for move in _left(plan)])
        self._seen = _Seen(plan.plan_id, self._runtime.monotonic_ms(),
                           {group: seen.bytes for group, seen in found.groups.items()})

    async def on_resume(self, plan: ActivePlan) -> int | None:
        """Return half of the present throttle in bytes per second, or more if replicas could not
        catch up otherwise or a plan may not have so little. None = leave it: no lower one is
        possible, or rates are not known, which are measured since ``on_pause``. O(moves)."""
        seen = self._seen
        moves = _left(plan)
        if seen is None or seen.plan_id != plan.plan_id or not moves:
            return None
        now = await self._observer().observe([move.subject for move in moves])
        ms = max(1, self._runtime.monotonic_ms() - seen.at_ms)
        rates = {group: max(0, here.bytes - seen.sizes[group]) * 1000 // ms
                 for group, here in now.groups.items() if group in seen.sizes}
        if any(move.subject not in rates for move in moves):
            return None
        least = least_throttle(moves, plan.limits, rates, now.leaders)
        throttle = max(smallest(plan.limits.in_per_node_max, plan.limits.out_per_node_max), least,
                       plan.limits.throttle // 2)
        return throttle if throttle < plan.limits.throttle else None

    def on_lowered(self) -> None:
        """Forget the measurement of this pause: the throttle is lowered once in a pause."""
        self._seen = None


def _left(plan: ActivePlan) -> tuple[PlannedMove, ...]:
    """Return the replica changes that have not ended."""
    return tuple(move for seq, move in plan.moves.items()
                 if move.kind == REPLICA_CHANGE and not plan.records[seq].has_ended)
