"""The controller: the metadata leader advances the plan under way.

Contract.  Every node runs the task.  On every node it paces the streams that the node sends; on the
metadata leader it also carries the plan out, and it does nothing without a plan.  Each iteration
gathers a ``ClusterView``, decides, records steps and sends requests to leaders of groups.  An
action that fails is decided again in the next iteration; the controller keeps no record of its
actions.

Theory.  Two controllers can overlap while a leader does not know yet that it was replaced.  Their
steps are commands of the metadata group, of which only one leader's are committed, and their
requests to groups name a configuration.  So the later request is refused, or repeats the earlier
one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import Code
from multiraft.wire.plans import PAUSE, RESUME, THROTTLE, StartLeaderTransfer, StartReplicaChange
from node.metadata.commands import DecideSwitch
from node.metadata.plan_commands import REASON_MAX, ControlPlan, StepMove
from node.metadata.plan_table import SLOW_COMMITS, ActivePlan
from node.rebalance import safety
from node.rebalance.actions import Action, Change, StepTo, Switch, Transfer
from node.rebalance.backoff import Easing
from node.rebalance.cluster_view import ClusterView
from node.rebalance.observer import Observer
from node.rebalance.progress import Meter
from node.rebalance.runtime import TASKS, Tasks
from node.rebalance.scheduler import decide, subjects
from node.rebalance.throttle import PlanThrottle

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Interval between iterations while a plan is under way, in seconds, unless an event comes first.
LOOK_S = 0.25
#: Time for a leader's answer, in seconds; then the request is repeated in the next iteration.
#: Requests to one node share a queue, and a node that hangs must not block an iteration.
DO_S = 2.0
#: After this node became leader, it waits so long for nodes that it has not heard of yet, in
#: milliseconds.
HEARING_MS = 3_000


class Driver:
    """Task that carries out plans.  ``ask(peer, request)`` reaches any node, this one included."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 ask: Callable[[int, object], Awaitable], pacing: PlanThrottle, log: logging.Logger,
                 tasks: Tasks = TASKS):
        self._tasks = tasks
        self._pacing = pacing
        self._core = core
        self._metadata_log = metadata_log
        self._ask = ask
        self._log = log
        self.observer = Observer(core, metadata_log, ask, tasks)
        self.meter = Meter()
        self._leads_since_ms: int | None = None
        self._watch = safety.Watch()
        self._easing = Easing(lambda: Observer(core, metadata_log, ask, tasks), tasks)
        self._refused: dict[int, str] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            plan = self._plan
            self._pacing.follow(plan)
            if plan is None or not self._core.status.is_settled(METADATA_GROUP):
                self._leads_since_ms = None
                await self._metadata_log.applied(self._metadata_log.state.version + 1,
                                                 LOOK_S if plan is not None else float("inf"))
                continue
            if self._leads_since_ms is None:
                self._leads_since_ms = self._tasks.monotonic_ms()
                self._log.info("plan is carried out from here", extra={"plan": plan.plan_id[:12]})
            version = self._metadata_log.state.plans.version
            await self.look(plan)
            if self._metadata_log.state.plans.version == version:
                await self._metadata_log.applied(self._metadata_log.state.version + 1, LOOK_S)

    async def look(self, plan: ActivePlan) -> None:
        """Observe, decide and act once."""
        world = await self.observer.look_for(plan, *subjects(plan))
        if plan is not self._plan or self._is_new_here(world):
            return
        self._refused = {}
        due = self._watch.judge(plan, world, self._tasks.monotonic_ms())
        if due is not None:
            await self._control(plan, *due)
        found = decide(plan, world)
        await self._tasks.together([partial(self._do, plan, action) for action in found.actions])
        self.meter.look(plan, world, {**found.waits, **self._refused},
                        self._tasks.monotonic_ms())

    @property
    def _plan(self) -> ActivePlan | None:
        return self._metadata_log.state.plans.active

    def _is_new_here(self, world: ClusterView) -> bool:
        """Return True if nodes may be up that this new leader has not heard of yet."""
        assert self._leads_since_ms is not None
        return (self._tasks.monotonic_ms() - self._leads_since_ms < HEARING_MS
                and any(node.state == "unknown" for node in world.nodes.values()))

    # ---- doing ----------------------------------------------------------------------------------

    async def _do(self, plan: ActivePlan, action: Action) -> None:
        try:
            await self._done(plan, action)
        except MultiRaftError as error:  # the next iteration decides again
            self._refused[action.seq] = str(error)

    async def _done(self, plan: ActivePlan, action: Action) -> None:
        if isinstance(action, StepTo):
            result = await self._metadata_log.propose(StepMove(
                plan.plan_id, action.seq, action.attempt, int(action.phase), action.source,
                action.reason[:REASON_MAX], self._tasks.wall_ms()))
            if result.code == Code.OK and result.value:
                self._log.info("move", extra={
                    "plan": plan.plan_id[:12], "move": plan.moves[action.seq].move_id,
                    "phase": action.phase.name.lower(), "reason": action.reason})
        elif isinstance(action, Change):
            await self._begun(action, StartReplicaChange(
                action.group, action.voters, action.learners, action.expected_index))
            return
        elif isinstance(action, Transfer):
            await self._begun(action, StartLeaderTransfer(action.group, action.to))
            return
        else:
            assert isinstance(action, Switch)
            result = await self._metadata_log.propose(DecideSwitch(*action[1:]))
        if result.error is not None:
            self._refused[action.seq] = result.error.text

    async def _begun(self, action: Change | Transfer, request: Any) -> None:
        """Send the request of an action to the leader of its group; record a refusal."""
        why = await self._tasks.within(DO_S, partial(self._asked, action.leader, request))
        if why is None:
            why = f"node {action.leader} did not answer"
        if why:
            self._refused[action.seq] = why

    async def _asked(self, node: int, request: Any) -> str:
        """Return the reason why a node did not carry out a request; empty when it did."""
        try:
            await self._ask(node, request)
        except MultiRaftError as error:
            return str(error)
        return ""

    async def _control(self, plan: ActivePlan, action: str, why: str) -> None:
        """Propose the pause or resumption that the safety check asks for."""
        self._log.warning("plan", extra={"plan": plan.plan_id[:12], "action": action,
                                         "reason": why})
        try:
            if action == RESUME and plan.reason.startswith(SLOW_COMMITS) and self._watch.is_cause:
                await self._ease(plan)
            await self._metadata_log.propose(ControlPlan(
                plan.plan_id, action, 0, why[:REASON_MAX], True, self._tasks.wall_ms()))
            if action == PAUSE and why.startswith(SLOW_COMMITS):
                await self._easing.paused(plan)
        except MultiRaftError as error:
            self._log.info("plan control waits", extra={"reason": str(error)})

    async def _ease(self, plan: ActivePlan) -> None:
        """Lower the throttle of a plan that made appends slow."""
        throttle = await self._easing.eased(plan)
        if throttle is not None:
            why = f"{plan.limits.throttle} bytes per second made appends slow"
            self._log.warning("plan", extra={"plan": plan.plan_id[:12], "action": THROTTLE,
                                             "reason": f"{throttle} from now on: {why}"})
            await self._metadata_log.propose(ControlPlan(
                plan.plan_id, THROTTLE, throttle, why, True, self._tasks.wall_ms()))
