"""Requests about plans and node states.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  The metadata leader makes
changes, and reports the status, because only the controller knows the reasons of waits.  A plan is
compared with the cluster before any of it is recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from multiraft.wire import plans as wire
from multiraft.wire.errors import (
    Code,
    InvalidRequest,
    LeaderUnknown,
    LimitExceeded,
    StalePlan,
    exception_for,
)
from node.clock import wall_ms
from node.loop.steps import parts
from node.metadata.commands import ApplyPlan, Command, ControlPlan, SetNodeState
from node.rebalance.cluster_view import ClusterView
from node.rebalance.controller import Controller
from node.rebalance.observer import Observer
from node.rebalance.participant import yield_once
from node.rebalance.preconditions import NAMED_MAX, faults, too_low, unseen
from placement import throttle

if TYPE_CHECKING:
    from node.metadata.log import MetadataLog

#: Duration of the measurement of append rates, in seconds.
MEASURE_S = 1.0


class PlanRequests:
    """Handlers of requests about plans."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        controller: Controller,
        observer: Callable[[], Observer],
        take: Callable[[int], Awaitable[None]] = yield_once,
    ):
        """Create the handlers.  ``take(rows)`` waits until the loop has capacity for so many rows.
        """
        self._metadata_log = metadata_log
        self._controller = controller
        self._observer = observer  # makes an observer
        self._take = take

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler."""
        return {wire.ApplyPlan: self._apply, wire.PlanStatus: self._status,
                wire.ControlPlan: self._control, wire.SetNodeState: self._set_node_state,
                wire.PlacementFacts: self._facts}

    # ---- apply ----------------------------------------------------------------------------------

    async def _apply(self, request: wire.ApplyPlan) -> wire.ApplyPlanReply:
        self._metadata_log.check_leading()
        table = self._metadata_log.state.plans
        known = table.plan is not None and table.plan.plan_id == request.plan_id
        if not known:
            await self._check(request)
        state = await self._propose(ApplyPlan(
            request.plan_id, request.cluster_id, request.scope, request.expires_ms, wall_ms(),
            request.limits, request.moves))
        return wire.ApplyPlanReply(request.plan_id, state)

    async def _check(self, request: wire.ApplyPlan) -> None:
        """Compare the plan with the cluster and return if it fits.

        Raises ``InvalidRequest`` if it moves a subject twice, or if no move could ever begin under
        one of its limits, and ``StalePlan`` if the cluster is another one or has changed. Raises
        ``LeaderUnknown`` if groups cannot be observed, and ``LimitExceeded`` if the throttle is too
        low or too high."""
        _check_limits(request.limits)
        state = self._metadata_log.state
        if len({(move.kind, move.subject) for move in request.moves}) < len(request.moves):
            raise InvalidRequest("the plan moves one of its subjects twice in the same way")
        if request.cluster_id != state.cluster_id.hex():
            raise StalePlan(f"the plan is for cluster {request.cluster_id:.40}, this is "
                            f"{state.cluster_id.hex()}")
        view = await self._observe(request.moves)
        found: list[str] = []
        missing: list[str] = []
        for part in parts(len(request.moves)):
            await self._take(len(part))
            found += faults(request.moves[part.start:part.stop], view)
            missing += unseen(request.moves[part.start:part.stop], view)
        if found:
            more = f"; and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
            raise StalePlan(f"{'; '.join(found[:NAMED_MAX])}{more}. Make a new plan")
        if missing:
            raise LeaderUnknown(f"{len(missing)} of {len(request.moves)} moves cannot be compared "
                                f"with the cluster now: {'; '.join(missing[:NAMED_MAX])}")
        await self._check_throttle(request.moves, request.limits, view)

    async def _observe(self, moves: tuple[wire.PlannedMove, ...]) -> ClusterView:
        groups = [move.subject for move in moves
                  if move.kind in (wire.LEADER_TRANSFER, wire.REPLICA_CHANGE)]
        return await self._observer().observe(groups, [move.subject for move in moves
                                                    if move.kind == wire.TOPIC_SWITCH])

    async def _check_throttle(self, moves: tuple[wire.PlannedMove, ...], limits: wire.PlanLimits,
                              before: ClusterView) -> None:
        """Measure append rates for ``MEASURE_S`` if the moves change replicas, and return if the
        throttle suffices. Raises ``LimitExceeded`` if replicas could not catch up, or the throttle
        is above the maximum."""
        changes = tuple(move for move in moves if move.kind == wire.REPLICA_CHANGE)
        _check_throttle_max(limits.throttle)
        if not changes:
            return
        await trio.sleep(MEASURE_S)
        after = await self._observe(changes)
        rates = {group: max(0, int((seen.bytes - before.groups[group].bytes) / MEASURE_S))
                 for group, seen in after.groups.items() if group in before.groups}
        found = too_low(changes, limits, rates, after.leaders)
        if found is not None:
            raise LimitExceeded(found.text, limit=found.least, value=limits.throttle)

    # ---- status and control ---------------------------------------------------------------------

    async def _status(self, _request: wire.PlanStatus) -> wire.PlanStatusReply:
        self._metadata_log.check_leading()
        return self._controller.meter.report(self._metadata_log.state.plans)

    async def _control(self, request: wire.ControlPlan) -> wire.ControlPlanReply:
        self._metadata_log.check_leading()
        plan = self._metadata_log.state.plans.plan
        if plan is None or (plan.is_over and not request.plan_id):
            raise StalePlan("no plan is being carried out")
        plan_id = request.plan_id or plan.plan_id
        if request.action == wire.THROTTLE and plan_id == plan.plan_id and not plan.is_over:
            if request.value < 1:
                raise InvalidRequest("a throttle is at least 1 byte per second; to stop copying, "
                                     "pause the plan")
            left = tuple(move for seq, move in plan.moves.items()
                         if not plan.records[seq].has_ended)
            await self._check_throttle(left, plan.limits._replace(throttle=request.value),
                                       await self._observe(left))
        state = await self._propose(ControlPlan(plan_id, request.action, request.value, "", False,
                                                wall_ms()))
        return wire.ControlPlanReply(plan_id, state)

    # ---- nodes and facts ------------------------------------------------------------------------

    async def _set_node_state(self, request: wire.SetNodeState) -> wire.SetNodeStateReply:
        await self._propose(SetNodeState(*request))
        return wire.SetNodeStateReply()

    async def _facts(self, _request: wire.PlacementFacts) -> wire.PlacementFactsReply:
        state = self._metadata_log.state
        if not state.cluster_id:
            raise LeaderUnknown("this node does not know the cluster's metadata yet; try again")
        active = state.plans.active
        return wire.PlacementFactsReply(
            state.cluster_id.hex(), state.version, state.pool_size, state.replication_factor,
            state.hash_seed, state.exceptions_count,
            tuple(wire.DesiredState(*item) for item in sorted(state.table.states.items())),
            tuple((group, incarnation) for group, (incarnation, _)
                  in state.recovered_groups()[:wire.ROWS_MAX]),
            tuple(state.plans.preferred.items()), active.plan_id if active is not None else "")

    async def _propose(self, command: Command) -> Any:
        """Propose a command and return the value of its result once it is applied here. Raises the
        error of a refusal, and what ``MetadataLog.propose`` raises."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value


#: Limits of a plan that are at least 1.
_POSITIVE_LIMITS = ("throttle", "in_per_node_max", "out_per_node_max", "at_once_max",
                    "transfers_at_once_max")


def _check_limits(limits: wire.PlanLimits) -> None:
    for name in _POSITIVE_LIMITS:
        value = getattr(limits, name)
        if value < 1:
            raise InvalidRequest(f"the plan's limit {name} is {value}: no move could ever begin; "
                                 "it is at least 1")


def _check_throttle_max(rate: int) -> None:
    if rate > throttle.THROTTLE_MAX:
        raise LimitExceeded(f"a throttle of {rate:,} bytes per second is above THROTTLE_MAX, "
                            f"{throttle.THROTTLE_MAX:,}: no node sends that much",
                            limit=throttle.THROTTLE_MAX, value=rate)
