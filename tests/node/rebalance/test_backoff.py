"""A plan that makes appends slow finds a rate at which it does not; never one at which replicas
would not catch up."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import trio

from multiraft.wire.errors import NotLeader
from multiraft.wire.plans import PAUSE, RESUME, THROTTLE, ProbedGroup
from node.metadata.plan_commands import ControlPlan, StepMove
from node.metadata.plan_table import PlanTable
from node.rebalance.cluster_view import ClusterView, SeenNode
from node.rebalance.controller import Controller
from node.rebalance.safety import CALM_MS, SLOW_PATIENCE_MS
from tests.node.rebalance.cases import CLUSTER, LIMITS, change, control, plan

POLL_MS = 250
BOUND_MS = 2_000
START = 40_000_000


class Cluster:
    """Group 1, to which ``appended`` bytes per second are appended, and a plan that moves a replica
    of it: one append in a hundred is slow while more than ``bearable`` bytes per second are copied,
    or all the time."""

    def __init__(self, bearable: int, appended: int = 1_000_000, slow_anyhow: bool = False):
        self.bearable, self.appended, self.slow_anyhow = bearable, appended, slow_anyhow
        self.plans = PlanTable()
        self.plans.apply(plan(change(1), limits=LIMITS._replace(
            throttle=START, commit_ms_max=BOUND_MS)), CLUSTER)
        self.now_ms = 0
        self.silent = False
        self.told: list[str] = []
        self.controller = Controller(SimpleNamespace(), self, self.ask, SimpleNamespace(),
                             logging.getLogger("test"), self)
        self.controller.observer = self
        self.controller._backoff._observer = lambda: self
        self.controller._leads_since_ms = 0

    state = property(lambda self: self)
    active = property(lambda self: self.plans.active)

    # ---- tasks, metadata log, observer ----

    def monotonic_ms(self):
        return self.now_ms

    wall_ms = monotonic_ms

    async def run_all(self, calls):
        for call in calls:
            await call()

    async def run_with_timeout(self, _limit_s, call):
        return await call()

    async def propose(self, command):
        if isinstance(command, ControlPlan):
            self.told.append(command.action)
            return self.plans.control(command)
        assert isinstance(command, StepMove)
        return self.plans.step(command)

    async def ask(self, _node, _request):
        """A change of members is asked for; it takes its time."""

    async def observe(self, groups, _partitions=()):
        copies = self.plan.state == "running" and self.plan.limits.throttle > self.bearable
        slow = copies or self.slow_anyhow
        nodes = {node: SeenNode(node, "up", "alive", commit_ms=9_000 if slow else 20)
                 for node in range(1, 5)}
        size = self.appended * self.now_ms // 1000
        found = {} if self.silent else {group: ProbedGroup(
            group, 1, 0, False, (1, 2, 3), (), (), 9, size, 0, ()) for group in groups}
        return ClusterView(nodes, found, dict.fromkeys(found, 1), {}, {}, (), {}, {}, 3)

    async def observe_plan(self, _plan, groups, partitions):
        return await self.observe(groups, partitions)

    # ---- the test's ----

    @property
    def plan(self):
        return self.plans.plan

    def run(self, seconds: int) -> list[str]:
        """Return the controls that the plan received meanwhile."""
        async def looks():
            until_ms = self.now_ms + 1000 * seconds
            while self.now_ms < until_ms:
                self.now_ms += POLL_MS
                await self.controller.step(self.plan)

        before = len(self.told)
        trio.run(looks)
        return self.told[before:]


def test_it_goes_on_at_a_rate_that_appends_bear():
    cluster = Cluster(bearable=12_000_000)
    cluster.run(60)
    assert cluster.plan.limits.throttle == START // 4
    assert cluster.plan.state == "running"
    assert cluster.run(600) == [], "it paused again"


def test_not_below_what_is_appended():
    cluster = Cluster(bearable=1_000_000, appended=10_000_000)
    cluster.run(60)
    assert cluster.plan.limits.throttle == 12_000_000


def test_appends_that_are_slow_anyhow_leave_the_throttle():
    cluster = Cluster(bearable=START, slow_anyhow=True)
    cluster.run((SLOW_PATIENCE_MS + 4 * CALM_MS) // 1000)
    assert cluster.plan.state == "running"
    assert THROTTLE not in cluster.told


@pytest.mark.parametrize("when", ["pause", "resume"])
def test_what_cannot_be_measured_changes_nothing(when):
    cluster = Cluster(bearable=12_000_000)
    cluster.silent = when == "pause"
    cluster.run(1)
    assert cluster.plan.state == "paused"
    cluster.silent = when == "resume"
    cluster.run(CALM_MS // 1000)
    assert THROTTLE not in cluster.told


def test_a_throttle_that_could_not_be_proposed_is_proposed_again():
    """The metadata group had no leader just then: the measurement of the pause is not lost."""
    cluster = Cluster(bearable=12_000_000)
    propose, refusals = cluster.propose, iter([True])

    async def unreliable(command):
        if getattr(command, "action", "") == THROTTLE and next(refusals, False):
            raise NotLeader()
        return await propose(command)

    cluster.propose = unreliable
    assert cluster.run(60)[:3] == [PAUSE, THROTTLE, RESUME]


def test_the_operator_has_the_last_word():
    cluster = Cluster(bearable=12_000_000)
    cluster.run(60)
    cluster.bearable = START
    cluster.plans.control(control(THROTTLE, START))
    assert cluster.run(60) == []
    assert cluster.plan.limits.throttle == START
