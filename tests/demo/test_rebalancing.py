"""The demo's plan: made from measured loads, carried out by the cluster, failures reported."""

from __future__ import annotations

import io

import planning
import pytest
import rebalancing
from rebalancing import Rebalancing, leads, measured, told
from rich.console import Console
from screen import Screen

from admin_cli.failures import CommandFailed
from admin_cli.plans import rebalance
from admin_cli.session import Session
from multiraft.wire import plans as wire
from placement import plan as plans
from placement.policy import Options
from tests.admin_cli.plans.test_rebalance import BUSY, PlanClient, PlanCluster


class Client(PlanClient):
    """A cluster that carries a plan out at once; ``phases`` is how its moves end."""

    phases = (wire.PhaseCount("done", 3),)
    state = "done"

    def plan_request(self, request):
        reply = super().plan_request(request)
        if isinstance(request, wire.ApplyPlan):
            self._cluster.status = BUSY._replace(plan_id=request.plan_id, state=self.state,
                                                 phases=self.phases)
            self._cluster.leaders.update((move.subject, move.new[0]) for move in request.moves)
        return reply


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(rebalancing, "WINDOW_S", 0.001)
    monkeypatch.setattr(rebalancing, "PATIENCE_S", 0.2)


@pytest.fixture
def client():
    return Client(PlanCluster())


@pytest.fixture
def planner(client):
    return lambda policy: measured(client, policy)


@pytest.fixture
def screen():
    return Screen(Console(file=io.StringIO(), width=200))


def test_leaders_are_spread_and_the_busy_group_stays(client, planner, screen, tmp_path):
    moving = Rebalancing(tmp_path)
    moving.run(client, 3, screen, planner)
    assert moving.leads_before == {1: 5, 2: 0, 3: 0}
    assert client._cluster.leaders[3] == 1
    assert max(moving.leads_after.values()) <= 2, moving.leads_after
    shown = screen.console.file.getvalue()
    assert "leader transfers" in shown and "node 1: 5, node 2: 0, node 3: 0" in shown
    assert plans.load(moving.plan_file.read_bytes()) == moving.made
    moving.draw()
    assert moving.picture.read_bytes().startswith(b"<?xml")
    Rebalancing(tmp_path).forget()
    assert not [*tmp_path.iterdir()], "or the next demo would find no empty directory"
    moving.forget()


def test_a_plan_that_did_not_come_about_ends_the_demo(client, planner, screen, tmp_path):
    client.phases = (wire.PhaseCount("done", 2), wire.PhaseCount("skipped", 1))
    with pytest.raises(CommandFailed, match="'skipped': 1"):
        Rebalancing(tmp_path).run(client, 3, screen, planner)


def test_a_plan_that_stands_still_ends_the_demo_with_the_reason(client, planner, screen, tmp_path):
    client.state = "paused"
    with pytest.raises(CommandFailed, match="the plan is paused after 0 s"):
        Rebalancing(tmp_path).run(client, 3, screen, planner)


def test_nothing_to_move_is_no_success(client, planner, screen, tmp_path):
    client._cluster.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
    with pytest.raises(CommandFailed, match="nothing to rebalance"):
        Rebalancing(tmp_path).run(client, 3, screen, planner)


def test_nodes_that_lead_nothing_are_counted_too(client):
    assert told(leads(client)) == "node 1: 5, node 2: 0, node 3: 0"


def test_whoever_plans_is_told_the_policy_and_its_plan_is_carried_out(client, screen, tmp_path):
    asked = []

    def planner(policy):
        asked.append(policy)
        return rebalance.make(client, Options(), policy, 0.001, Session({}))

    Rebalancing(tmp_path).run(client, 3, screen, planner)
    (policy,) = asked
    assert policy.excluded_groups == (3,) and client._cluster.leaders[3] == 1


def test_without_java_the_demo_says_the_line_to_run(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    why = planning.lacking()
    assert "Java 17 or newer, and there is none" in why
    assert "apt-get install -y default-jre-headless" in why
