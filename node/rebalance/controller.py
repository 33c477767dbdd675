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
from node.rebalance.backoff import Backoff
from node.rebalance.cluster_view import ClusterView
from node.rebalance.observer import Observer
from node.rebalance.progress import Meter
from node.rebalance.runtime import RUNTIME, Runtime
from node.rebalance.scheduler import decide, subjects
from node.rebalance.throttle import PlanThrottle

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Interval between iterations while a plan is under way, in seconds, unless an event comes first.
POLL_S = 0.25
#: Time for a leader's answer, in seconds; then the request is repeated in the next iteration.
#: Requests to one node share a queue, and a node that hangs must not block an iteration.
REQUEST_TIMEOUT_S = 2.0
#: After this node became leader, it waits so long for nodes that it has not heard of yet, in
#: milliseconds.
DISCOVERY_MS = 3_000


class Controller:
    """Task that carries out plans.  ``ask(peer, request)`` reaches any node, this one included."""

    def __init__(
        self,
        core: MultiRaft,
        metadata_log: MetadataLog,
        ask: Callable[[int, object], Awaitable],
        throttle: PlanThrottle,
        log: logging.Logger,
        runtime: Runtime = RUNTIME,
    ):
        self._runtime = runtime
        self._throttle = throttle
        self._core = core
        self._metadata_log = metadata_log
        self._ask = ask
        self._log = log
        self.observer = Observer(core, metadata_log, ask, runtime)
        self.meter = Meter()
        self._leads_since_ms: int | None = None
        self._monitor = safety.Monitor()
        self._backoff = Backoff(lambda: Observer(core, metadata_log, ask, runtime), runtime)
        self._refused: dict[int, str] = {}

    async def run(self) -> None:
        """Pace this node's streams, and carry out the plan under way while this node leads the
        metadata group, until cancelled."""
        while True:
            plan = self._plan
            self._throttle.follow(plan)
            if plan is None or not self._core.status.has_applied_in_term(METADATA_GROUP):
                self._leads_since_ms = None
                await self._metadata_log.applied(self._metadata_log.state.version + 1,
                                                 POLL_S if plan is not None else float("inf"))
                continue
            if self._leads_since_ms is None:
                self._leads_since_ms = self._runtime.monotonic_ms()
                self._log.info("plan_controller_started", extra={"plan": plan.plan_id[:12]})
            version = self._metadata_log.state.plans.version
            await self.step(plan)
            if self._metadata_log.state.plans.version == version:
                await self._metadata_log.applied(self._metadata_log.state.version + 1, POLL_S)

    async def step(self, plan: ActivePlan) -> None:
        """Observe, decide and act once: execute the actions that are due, and pause or resume the
        plan. Does nothing if another plan took its place meanwhile, or nodes are not heard of yet.
        """
        view = await self.observer.observe_plan(plan, *subjects(plan))
        if plan is not self._plan or self._is_discovering(view):
            return
        self._refused = {}
        due = self._monitor.judge(plan, view, self._runtime.monotonic_ms())
        if due is not None:
            await self._control(plan, *due)
        found = decide(plan, view)
        await self._runtime.run_all(
            [partial(self._execute, plan, action) for action in found.actions]
        )
        self.meter.update(plan, view, {**found.waits, **self._refused},
                        self._runtime.monotonic_ms())

    @property
    def _plan(self) -> ActivePlan | None:
        return self._metadata_log.state.plans.active

    def _is_discovering(self, view: ClusterView) -> bool:
        """Return True for ``DISCOVERY_MS`` after this node began to lead, while the state of a node
        is unknown."""
        assert self._leads_since_ms is not None
        return (self._runtime.monotonic_ms() - self._leads_since_ms < DISCOVERY_MS
                and any(node.state == "unknown" for node in view.nodes.values()))

    # ---- doing ----------------------------------------------------------------------------------

    async def _execute(self, plan: ActivePlan, action: Action) -> None:
        try:
            await self._perform(plan, action)
        except MultiRaftError as error:  # the next iteration decides again
            self._refused[action.seq] = str(error)

    async def _perform(self, plan: ActivePlan, action: Action) -> None:
        if isinstance(action, StepTo):
            result = await self._metadata_log.propose(StepMove(
                plan.plan_id, action.seq, action.attempt, int(action.phase), action.source,
                action.reason[:REASON_MAX], self._runtime.wall_ms()))
            if result.code == Code.OK and result.value:
                self._log.info("plan_move_advanced", extra={
                    "plan": plan.plan_id[:12], "move": plan.moves[action.seq].move_id,
                    "phase": action.phase.name.lower(), "reason": action.reason})
        elif isinstance(action, Change):
            await self._send(action, StartReplicaChange(
                action.group, action.voters, action.learners, action.expected_index))
            return
        elif isinstance(action, Transfer):
            await self._send(action, StartLeaderTransfer(action.group, action.to))
            return
        else:
            assert isinstance(action, Switch)
            result = await self._metadata_log.propose(DecideSwitch(*action[1:]))
        if result.error is not None:
            self._refused[action.seq] = result.error.text

    async def _send(self, action: Change | Transfer, request: Any) -> None:
        """Send the request of an action to the leader of its group and wait at most
        ``REQUEST_TIMEOUT_S``. Record a refusal as the reason for which the move waits."""
        why = await self._runtime.run_with_timeout(
            REQUEST_TIMEOUT_S, partial(self._request, action.leader, request)
        )
        if why is None:
            why = f"node {action.leader} did not answer"
        if why:
            self._refused[action.seq] = why

    async def _request(self, node: int, request: Any) -> str:
        """Return the reason why a node did not carry out a request; empty when it did."""
        try:
            await self._ask(node, request)
        except MultiRaftError as error:
            return str(error)
        return ""

    async def _control(self, plan: ActivePlan, action: str, why: str) -> None:
        """Propose the pause or resumption that the safety check asks for; before a resumption lower
        the throttle if the plan made appends slow. A failed proposal is logged."""
        self._log.warning("plan_control_proposed", extra={
            "plan": plan.plan_id[:12], "action": action, "reason": why})
        try:
            if action == RESUME and plan.reason.startswith(SLOW_COMMITS) and self._monitor.is_cause:
                await self._reduce_throttle(plan)
            await self._metadata_log.propose(ControlPlan(
                plan.plan_id, action, 0, why[:REASON_MAX], True, self._runtime.wall_ms()))
            if action == PAUSE and why.startswith(SLOW_COMMITS):
                await self._backoff.on_pause(plan)
        except MultiRaftError as error:
            self._log.info("plan_control_deferred", extra={"reason": str(error)})

    async def _reduce_throttle(self, plan: ActivePlan) -> None:
        """Propose the lower throttle that ``Backoff.on_resume`` returns; nothing if it returns
        None."""
        throttle = await self._backoff.on_resume(plan)
        if throttle is not None:
            why = f"{plan.limits.throttle} bytes per second made appends slow"
            self._log.warning("plan_control_proposed", extra={
                "plan": plan.plan_id[:12], "action": THROTTLE,
                "reason": f"{throttle} from now on: {why}"})
            await self._metadata_log.propose(ControlPlan(
                plan.plan_id, THROTTLE, throttle, why, True, self._runtime.wall_ms()))
            self._backoff.on_lowered()
