"""Output about a plan under way, about a second plan beside it, and at its end."""

from __future__ import annotations

import json

import pytest

from multiraft.wire import plans as wire
from placement import plan as plans
from tests.admin_cli.plans.test_rebalance import BUSY, IDLE, PlanCluster


@pytest.fixture
def cluster():
    return PlanCluster()


@pytest.fixture
def path(run, tmp_path):
    """A plan for this cluster."""
    policy, made = tmp_path / "policy.json", tmp_path / "plan.json"
    policy.write_text(json.dumps({"bands": [{"resource": "leaders", "permille": 100, "floor": 0}]}))
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", "--output", str(made))
    assert done.exit_code == 0, done.output
    return made


def test_a_plan_beside_another_one_says_that_what_that_moves_counts_where_it_is(run, cluster):
    cluster.status = BUSY
    done = run("rebalance", "plan", "--window", "0.2")
    assert "contains the moves that the other one has not made yet" in done.stderr, done.output
    assert "cannot be applied before that one has ended" in done.stderr


def test_who_waited_is_told_what_was_done(run, cluster, path):
    plan_id = plans.load(path.read_bytes()).plan_id
    cluster.statuses = [IDLE, BUSY._replace(plan_id=plan_id)]
    cluster.status = BUSY._replace(plan_id=plan_id, state="done", phases=(
        wire.PhaseCount("done", 3),), bytes_done=4 << 30, applied_ms=5_000, now_ms=128_000)
    done = run("rebalance", "apply", str(path), "--yes", "--wait")
    assert done.exit_code == 0, done.output
    assert f"Plan {plan_id[:12]} is done: 3 moves, 4.0 GiB copied, in 2 min 3 s." in done.stderr


def test_a_rate_of_nothing_yet_is_no_time(run, cluster):
    cluster.status = BUSY._replace(eta_ms=-1)
    shown = run("rebalance", "status").output
    assert "no estimate yet" in shown and "ends in" not in shown


def test_the_reason_of_a_state_is_said_once(run, cluster):
    cluster.status = BUSY._replace(state="cancelled", reason="cancelled by the operator",
                                   phases=(wire.PhaseCount("done", 1),
                                           wire.PhaseCount("cancelled", 2)), moves_total=3)
    shown = run("rebalance", "status").output
    assert ", scope all: cancelled by the operator\n" in shown
    cluster.status = BUSY._replace(state="running", reason="resumed by the operator")
    assert "running (resumed by the operator)" in run("rebalance", "status").output


def test_a_plan_that_was_cancelled_too_late_says_so(run, cluster):
    cluster.status = BUSY._replace(state="cancelled", reason="cancelled by the operator",
                                   phases=(wire.PhaseCount("done", 3),), moves_total=3)
    shown = run("rebalance", "status").output
    assert "cancelled by the operator; every move was already made" in shown


def test_the_estimate_is_of_the_whole_plan_also_when_nothing_is_copied(run, cluster):
    cluster.status = BUSY._replace(eta_ms=7_200, bytes_total=0)
    assert "ends in about 7 s" in run("rebalance", "status").output


def test_a_plan_beside_another_one_is_not_applied_and_one_sentence_says_why(run, cluster):
    cluster.status = BUSY
    refused = run("rebalance", "plan", "--window", "0.2", "--yes")
    assert refused.exit_code == 1
    assert refused.output.splitlines() == [
        "Error: plan abababababab is running, and only one plan can be under way. Nothing was "
        "changed.",
        "  Run this again when it has ended (multiraft rebalance status --watch), or end it: "
        "multiraft rebalance cancel"]
    assert not any(isinstance(request, wire.ApplyPlan) for request in cluster.requests)


def test_a_number_without_its_scope_is_answered_with_the_flag(run):
    refused = run("rebalance", "plan", "4")
    assert refused.exit_code == 64
    assert "give --scope node 4, or no number" in refused.stderr
