"""The expected end of a plan: the planner's model, corrected by the progress so far."""

from __future__ import annotations

import pytest

from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from node.rebalance import progress
from node.rebalance.progress import Meter
from tests.node.rebalance.cases import LIMITS, change

COUNT = 48
SECOND = 1_000


class View:
    """No group is known: its moves lack all of their bytes."""

    groups: dict = {}


class Table:
    """A table with one plan."""

    next = None

    def __init__(self, plan: ActivePlan):
        self.plan = plan


@pytest.fixture
def plan(monkeypatch) -> ActivePlan:
    """48 small replicas for one node, two at a time."""
    monkeypatch.setattr(progress, "wall_ms", lambda: 100 * SECOND)
    moves = tuple(change(seq, new=(2, 3, 4)) for seq in range(1, COUNT + 1))
    return ActivePlan("p", "all", 0, LIMITS._replace(grace_ms=5_000), moves)


def end(plan: ActivePlan, count: int) -> None:
    """End the first moves."""
    for seq in range(1, count + 1):
        plan.records[seq] = plan.records[seq]._replace(phase=Phase.DONE)


def eta_ms(meter: Meter, plan: ActivePlan, now_ms: int) -> int:
    meter.update(plan, View(), {}, now_ms)
    return meter.report(Table(plan)).eta_ms


@pytest.mark.parametrize("took_s", [4, 12, 36])
def test_the_estimate_holds_within_a_factor_of_three_all_the_time(plan, took_s):
    """The moves take as long as the model says, a third, or three times of that."""
    meter = Meter()
    for done in range(0, COUNT, 4):
        end(plan, done)
        now_ms = took_s * SECOND * done // COUNT
        left_ms = took_s * SECOND - now_ms + 5_000
        said_ms = eta_ms(meter, plan, now_ms)
        assert left_ms / 3 <= said_ms <= left_ms * 3, (done, left_ms, said_ms)


def test_a_copy_that_is_slower_than_its_throttle_is_noticed(plan):
    plan.moves = {1: change(1, bytes=1_000_000_000)}
    plan.records = {1: plan.records[1]._replace(phase=Phase.LEARNING)}
    meter = Meter()
    assert eta_ms(meter, plan, 0) == 105_000
    meter._lacking[1] = (1_000_000_000, 800_000_000)
    assert 2 * 80_000 < eta_ms(meter, plan, 60_000) < 3 * 80_000, "it took three times as long"


def test_a_pause_is_no_slowness(plan):
    meter = Meter()
    before = eta_ms(meter, plan, 0)
    plan.state = "paused"
    assert eta_ms(meter, plan, 1 * SECOND) == -1
    assert eta_ms(meter, plan, 1_000 * SECOND) == -1
    plan.state = "running"
    assert eta_ms(meter, plan, 1_000 * SECOND) == before


def test_the_rest_of_a_grace_period_is_counted(plan):
    meter = Meter()
    eta_ms(meter, plan, 0)
    end(plan, COUNT)
    plan.records[1] = plan.records[1]._replace(phase=Phase.GRACE, since_ms=98 * SECOND)
    meter.update(plan, View(), {}, 12 * SECOND)
    assert 2_000 < meter.report(Table(plan)).eta_ms < 4_000


def test_a_controller_that_has_not_looked_yet_knows_no_end(plan):
    assert Meter().report(Table(plan)).eta_ms == -1


@pytest.mark.parametrize("name", ["throttle", "in_per_node_max", "out_per_node_max", "at_once_max",
                                  "transfers_at_once_max"])
def test_a_plan_that_no_limit_lets_begin_has_an_estimate_all_the_same(plan, name):
    """A node that applies such a command, proposed before it was refused, must not end with it."""
    plan.limits = plan.limits._replace(**{name: 0})
    assert eta_ms(Meter(), plan, 0) > 0
