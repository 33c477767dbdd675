"""Statements of a plan in the terminal about the imbalance that it leaves."""

from __future__ import annotations

import pytest

from admin_cli import plan_left, plan_view
from placement import plan as plans
from placement.planner import make_plan
from placement.policy import Band, Options, Policy
from tests.placement.clusters import MIB, STRICT, cluster, nodes

FAR = plans.ResourceOutcome("disk", 50, 900, 2_000_000, 2_000_000, 1_000_000, "mean", 1_000_000,
                            0, 300)


def left(made: plans.Plan, row: plans.ResourceOutcome, floor: int, *loads: int) -> list[str]:
    carriers = tuple(plans.NodeOutcome(number, "r", 100, "alive", (load, 0, 0, 0), (load, 0, 0, 0),
                                    (300, 0, 0, 0), bool(load), bool(load))
                  for number, load in enumerate(loads, 1))
    return [*plan_left.remaining_imbalance(made._replace(
        resources=(row,), nodes=carriers, policy=Policy((Band("disk", 50, floor),)),
        options=Options()))]


@pytest.mark.parametrize("row, floor, loads, said", [
    (FAR, 600, (600, 300, 300), ["no node has more than 600 B"]),
    (FAR, 599, (600, 300, 300), ["no move of a group that racks, disks and policy allow"]),
    (FAR._replace(level_ppm=1_950_000), 599, (600, 300, 300), ["within the band of its share"]),
    (FAR._replace(bound="racks", bound_ppm=1_950_000), 0, (600, 300, 300), ["by the racks"]),
    (FAR._replace(after_ppm=1_050_000), 600, (315, 300, 285), []),
    (FAR._replace(bound="largest", bound_ppm=1_950_000), 0, (600, 300, 300),
     ["one group alone is 195.0 % of the mean of the nodes"]),
    (FAR, 600, (600, 300, 0), ["no node has more than 600 B", "1 node (3)"])])
def test_a_plan_says_why_something_stays_out_of_balance(row, floor, loads, said):
    found = left(make_plan(cluster(nodes(3), 4, [MIB] * 8), STRICT), row, floor, *loads)
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


def outcome(*leaders, scope="all", floor=0):
    """Of nodes that lead so many groups, of which no move is planned; the last holds none."""
    made = make_plan(cluster(nodes(3), 4, [MIB] * 8), STRICT)
    mean = sum(leaders) / len(leaders)
    rows = tuple(plans.NodeOutcome(number, "r", 100, "alive", (0, 0, 0, led), (0, 0, 0, led),
                                   (0, 0, 0, int(mean)), number, number * (number < len(leaders)))
                 for number, led in enumerate(leaders, 1))
    worst = int(max(leaders) / mean * 1_000_000)
    return made._replace(moves=(), skipped=(), converged=True, nodes=rows, options=Options(scope),
                         policy=Policy((Band("leaders", 100, floor),)),
                         resources=(plans.ResourceOutcome("leaders", 100, sum(leaders), worst,
                                                          worst, 1_000_000, "mean", 1_000_000, 0,
                                                          0),))


def test_leaders_that_nobody_else_can_have_have_a_reason():
    told = [*plan_left.remaining_imbalance(outcome(6, 6, 5, 0))]
    assert told[0].startswith("Not balanced, leaders: only a node that holds a replica"), told
    assert "node 4 holds no replica" in told[0]
    assert plan_left.nothing_to_do(outcome(6, 6, 5, 0)) == (
        "Nothing to do: leaders is above its band, and stays so for the reasons above")


@pytest.mark.parametrize("made, said", [
    (outcome(2, 1, 1, 1), "Nothing to do: all loads are within their bands"),  # whole leaders
    (outcome(6, 6, 5, 0, floor=6), "Nothing to do: leaders is above its band, and stays so"),
    (outcome(6, 6, 5, 0, scope="leaders"), "Nothing to do: leaders is above its band, and stays"),
    (outcome(6, 6, 6, 6, scope="leaders"), "no node leads, or sends, more than its band allows"),
    (outcome(6, 6, 5, 0, scope="repair"), "Nothing to repair: no replica is lost or missing"),
    (outcome(6, 6, 5, 0, scope="drain"), "Nothing to drain: no draining node has a replica"),
    (outcome(6, 6, 5, 0, scope="node")._replace(options=Options("node", 2)),
     "no move from or to node 2 is needed. Other nodes were not considered")])
def test_a_plan_without_moves_says_what_is_true_of_its_scope(made, said):
    assert said in plan_left.nothing_to_do(made)


@pytest.mark.parametrize("scope", ["repair", "drain"])
def test_a_plan_that_balances_nothing_does_not_speak_of_balance(scope):
    assert not [*plan_left.remaining_imbalance(outcome(6, 6, 5, 0, scope=scope))]


def test_a_move_has_figures_only_when_they_say_something():
    move = plans.LeaderTransfer(1, 1, (), plans.Why("MAINTENANCE", "leaders", 1), 1, 1, 1, 1, 2)
    assert plan_view._why(move) == "MAINTENANCE leaders"
    skew = plans.Why("LEADER_SKEW", "egress", 3, 4_095_000, 1_595_000)
    assert plan_view._why(move._replace(why=skew)) == (
        "LEADER_SKEW egress: node 3 409.5 % of its share -> 159.5 %")
    switch = plans.TopicSwitch(1, 1, (), skew._replace(resource="group_ingress"), 1, "t", 0, 1, 3,
                               4, 0)
    assert plan_view._why(switch) == (
        "LEADER_SKEW group_ingress: group 3 409.5 % of the mean -> 159.5 %")


def test_the_table_and_the_bars_do_not_call_two_things_a_share(capsys):
    """One group is as large as all others: the worst node is far above the mean, and at its
    share."""
    made = make_plan(cluster(nodes(3), 4, [MIB] * 8), STRICT)
    plan_view.show_plan(made)
    shown = capsys.readouterr().out
    assert "of the mean by weight" in shown.split("resource")[0]
