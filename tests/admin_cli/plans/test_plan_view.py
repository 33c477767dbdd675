"""Statements of a plan in the terminal about the imbalance that it leaves."""

from __future__ import annotations

import re

import pytest

from admin_cli.plans import load_view, plan_left, plan_view, plan_words
from placement import plan as plans
from placement.cluster import NodeRow
from placement.describe import iso
from placement.planner import make_plan
from placement.policy import REPLICAS, RESOURCES, Band, Options, Policy
from tests.placement.clusters import MIB, STRICT, cluster, grown, nodes

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
    (FAR, 600, (600, 300, 300), []),  # below its floor
    (FAR, 599, (600, 300, 300), ["no move of a group that racks, disks and policy allow"]),
    (FAR._replace(level_ppm=1_950_000), 599, (600, 300, 300), ["within the band of its share"]),
    (FAR._replace(bound="racks", bound_ppm=1_950_000), 0, (600, 300, 300), ["by the racks"]),
    (FAR._replace(after_ppm=1_050_000), 600, (315, 300, 285), []),
    (FAR._replace(bound="largest", bound_ppm=1_950_000), 0, (600, 300, 300),
     ["one group alone is 195.0 % of the mean of the nodes"]),
    (FAR, 600, (600, 300, 0), ["1 node (3)"])])
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
        "Nothing to do: 1 load (leaders) stays above its band, for the reasons above")


@pytest.mark.parametrize("made, said", [
    (outcome(2, 1, 1, 1), "Nothing to do: all loads are within their bands"),  # whole leaders
    (outcome(6, 6, 5, 0, floor=6), "the loads are too small to balance, and each node has about"),
    (outcome(6, 6, 5, 0, scope="leaders"), "Nothing to do: 1 load (leaders) stays above its band"),
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


MOVE = plans.LeaderTransfer(1, 1, (), plans.Why("MAINTENANCE", "leaders", 1), 1, 1, 1, 1, 2)
SWITCH = plans.TopicSwitch(2, 1, (), plans.Why("OVERLOAD", "group_ingress", 3), 1, "t", 0, 3, 4, 1,
                           0)
CHANGE = plans.ReplicaChange(3, 1, (), plans.Why("NEW_NODE", "replicas", 4), 1, 1, 1, (1, 2, 3),
                             (1, 2, 4), 1, 1, 0)


@pytest.mark.parametrize("move, why, said", [
    (MOVE, MOVE.why, "node 1 shall lead nothing"),
    (MOVE, plans.Why("LEADER_SKEW", "egress", 3, 4_095_000, 1_595_000), "node 3 sends too much"),
    (SWITCH, SWITCH.why, "group 3 takes in too much"),
    (CHANGE, CHANGE.why, "node 4 has too few replicas"),
    (CHANGE, plans.Why("OVERLOAD", "disk", 2), "node 2 has too many bytes"),
    (CHANGE, plans.Why("REPAIR_DEAD", "", 2), "node 2 is lost"),
    (CHANGE, plans.Why("UNDER_REPLICATED"), "a replica is missing")])
def test_a_move_says_why_in_words(move, why, said):
    assert plan_words.why(move._replace(why=why)) == said


@pytest.mark.parametrize("reason", plans.REASONS)
@pytest.mark.parametrize("resource", ["", *RESOURCES, REPLICAS])
def test_every_reason_has_words(reason, resource):
    told = plan_words.why(CHANGE._replace(why=plans.Why(reason, resource, 2)))
    assert reason not in told


def test_each_kind_of_reason_is_told_once_with_its_number():
    made = outcome(6, 6, 5, 0)._replace(moves=(MOVE, SWITCH, CHANGE, CHANGE, CHANGE))
    assert plan_words.reasons(made) == [
        "1 leader transfer: a node shall lead nothing (MAINTENANCE)",
        "1 partition switch: a group takes in too much (OVERLOAD)",
        "3 replica changes: a node has too few replicas (NEW_NODE)"]


def test_leaders_that_change_with_a_replica_are_counted_with_the_transfers(capsys):
    """Of three nodes the first leads all groups, and a fourth one joins: most leaders move together
    with a replica, and the table has the sum."""
    idle = cluster(nodes(3), 64, [100])
    made = make_plan(grown(idle._replace(groups=tuple(
        row._replace(leader=1) for row in idle.groups)), NodeRow(4)), Policy())
    changed = [move for move in made.moves
               if move.kind == plans.REPLICA_CHANGE and move.from_leader != move.to_leader]
    transfers = [move for move in made.moves if move.kind == plans.LEADER_TRANSFER]
    assert changed and transfers
    assert any(line.startswith(f"48 replica changes, {len(changed)} with another leader: ")
               for line in plan_words.reasons(made))
    plan_view.show_plan(made, True)
    shown = capsys.readouterr().out
    total = len(changed) + len(transfers)
    (row,) = (row for row in made.resources if row.resource == "leaders")
    assert row.moved == total >= row.moved_bound
    assert re.search(rf"^leaders +.* {total} leaders +{row.moved_bound} leaders$", shown, re.M)
    moves = shown.split("The moves")[1]
    assert len(re.findall(r"  \d -> \d  ", moves)) == total, "each has a leader before and after"
    assert max(map(len, shown.splitlines())) <= 80


def test_plans_that_differ_in_a_leader_only_are_told_apart(capsys):
    first = CHANGE._replace(to_leader=2)
    plan_view.show_difference(plans.Difference((), (), ((CHANGE, first),)))
    assert "first: group 1: nodes 1 2 3 -> 1 2 4; second: group 1: nodes 1 2 3 -> 1 2 4, leader " \
        "1 -> 2" in capsys.readouterr().out


@pytest.mark.parametrize("before, after, said", [
    (1_243_000, 1_008_000, "worst node 24 % above its share before, 0.8 % after"),
    (1_243_000, 1_243_000, "worst node 24 % above its share, as before"),
    (1_050_000, 900_000, "worst node 5 % above its share before, 0 % after")])
def test_how_far_the_worst_node_is_above_its_share_is_said_in_words(before, after, said):
    assert plan_words.worst(FAR._replace(before_ppm=before, after_ppm=after)) == said


@pytest.mark.parametrize("moves, size, said", [
    (0, 0, "No moves"), (1, 0, "1 move, no data copied"), (22, 0, "22 moves, no data copied"),
    (2, 1 << 20, "2 moves, 1.0 MiB to copy")])
def test_the_title_says_what_the_plan_does(moves, size, said):
    made = outcome(6, 6, 5, 0)._replace(
        moves=(CHANGE,) * moves, totals=(plans.Total("replica_change", moves, size),))
    assert plan_words.title(made) == said


def test_an_idle_cluster_needs_no_plan_and_is_told_why():
    made = make_plan(cluster(nodes(3), 64, [100]), Policy())
    assert not made.moves and not plan_words.judged(made)
    told = plan_left.nothing_to_do(made)
    assert "too small to balance" in told and "--scope leaders" in told
    assert not [*plan_left.remaining_imbalance(made)]


def test_a_node_that_joins_an_idle_cluster_is_told_of_by_numbers(capsys):
    made = make_plan(grown(cluster(nodes(3), 64, [100]), NodeRow(4)), Policy())
    plan_view.show_plan(made)
    load_view.show(made)
    shown, notes = capsys.readouterr()
    assert "node 4 has too few replicas" in shown and "disk per node" not in shown
    assert re.search(r"^replicas +33 % +0\.5 % +0 % +48 replicas +48 replicas$", shown, re.M)
    assert "disk (below 1.0 GiB per node)" in shown
    assert not notes
    assert max(map(len, shown.splitlines())) <= 80


def test_the_table_and_the_bars_do_not_call_two_things_a_share(capsys):
    """One group is as large as all others: the worst node is far above the mean, and at its
    share."""
    made = make_plan(cluster(nodes(3), 4, [MIB] * 8), STRICT)
    plan_view.show_plan(made)
    shown = capsys.readouterr().out
    assert "above an even share by weight" in shown.split("at best")[0]
    names = re.split(r"  +", next(line for line in shown.splitlines() if "at best" in line))
    assert len(set(names)) == len(names), "one name per column"


def test_a_node_that_gets_a_part_of_its_share_is_named_with_the_time_of_the_rest():
    """The other groups rest, because a plan moved them lately."""
    before = grown(cluster(nodes(3), 48, [0] * 8), NodeRow(4))
    moved = before.taken_ms - 1_000
    before = before._replace(groups=tuple(
        row._replace(moved_ms=moved) if row.id > 8 else row for row in before.groups))
    made = make_plan(before, Policy())
    has = next(row.replicas_after for row in made.nodes if row.node == 4)
    assert any(row.reason == plans.COOL_DOWN for row in made.skipped)
    [told] = plan_left.short_of_replicas(made)
    until = iso(moved + made.policy.cool_down_ms)
    assert told == (f"Node 4 gets {has} of its 36 replicas now; the rest can be planned after "
                    f"{until}.")
    calm = make_plan(before._replace(groups=tuple(row._replace(moved_ms=0)
                                                  for row in before.groups)), Policy())
    assert not [*plan_left.short_of_replicas(calm)]
