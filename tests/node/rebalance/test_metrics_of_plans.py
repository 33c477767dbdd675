"""Metrics and status of a node about the plan under way."""

from __future__ import annotations

from multiraft.wire.plans import LEADER_TRANSFER, PlanLimits, PlannedMove
from node.metadata.plan_table import PAUSED, ActivePlan
from node.observability.statistics import of_plan


def test_no_plan_is_no_moves():
    assert of_plan(None) == {"plan_state": "none", "plan_moves": 0, "plan_moves_remaining": 0,
                             "plan_moves_in_progress": 0}


def test_moves_are_counted_by_how_far_they_are():
    moves = tuple(PlannedMove(seq, LEADER_TRANSFER, seq, 1, 7, (1,), (2,), 0, 0, "LEADER_SKEW", ())
                  for seq in range(3))
    plan = ActivePlan("ab" * 32, "all", 1, PlanLimits(1_000_000), moves)
    plan.under_way[1] = None
    plan.left -= 1
    plan.state = PAUSED
    assert of_plan(plan) == {"plan_state": PAUSED, "plan_moves": 3, "plan_moves_remaining": 2,
                             "plan_moves_in_progress": 1}
