"""Plans for clusters whose loads say nothing: replicas and leaders are spread by their number, but
only where it is far from a node's share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cluster import DRAINING, MAINTENANCE, GroupRow, NodeRow
from placement.counts import near
from placement.outcome import planned
from placement.plan import BUDGET, COOL_DOWN, LeaderTransfer, ReplicaChange
from placement.planner import make_plan
from placement.policy import (
    DISK,
    EGRESS,
    LEADERS,
    NODE_RESOURCES,
    REPLICAS,
    Band,
    Options,
    Policy,
)
from tests.placement.checked import ALL, changes_of_leaders, checked_plan, figures
from tests.placement.clusters import (
    MIB,
    NOW_MS,
    asked,
    cluster,
    clusters,
    grown,
    nodes,
    policies,
    snapshot,
    with_state,
)
from tests.placement.test_planner_properties import THOROUGH

DEFAULT = Policy(cool_down_ms=0)
LED = NODE_RESOURCES.index(LEADERS)
#: As a development cluster with some small topics: three nodes, 64 groups, 60 KiB/s in all.
SMALL = cluster(nodes(3), 64, [2048] * 30)
FOUR = grown(SMALL, NodeRow(4))


def default_plan(before, options=ALL):
    """A checked plan by the default floors."""
    return checked_plan(before, DEFAULT, options)


def led_by(before, *counts):
    """The cluster with so many groups led by node 1, 2, ..., all of which hold every group."""
    leaders = [node for node, count in enumerate(counts, start=1) for _ in range(count)]
    return before._replace(groups=tuple(row._replace(leader=leader) for row, leader
                                        in zip(before.groups, leaders, strict=True)))


def test_a_node_that_joins_gets_its_share_of_replicas_and_leaders():
    made = default_plan(FOUR)
    assert made.converged
    assert sorted(row.replicas_after for row in made.nodes) == [48, 49, 49, 49]
    assert made.nodes[3].after[LED] >= 16 and max(row.after[LED] for row in made.nodes) <= 17
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert len(changes) == 48 and all(move.joining == (4,) for move in changes)
    assert {move.why.resource for move in changes} == {REPLICAS}


def test_it_gets_its_share_of_the_groups_with_records_too():
    busy = {row.id for row in SMALL.groups if row.ingress}
    after = planned(FOUR, default_plan(FOUR))
    mine = [row.id for row in after.groups if 4 in row.voters and row.id in busy]
    assert 0.5 <= len(mine) / (len(busy) * 3 / 4) <= 1.5


def test_no_more_moves_than_it_takes():
    row = figures(default_plan(FOUR), REPLICAS)
    assert row.moved == row.moved_bound == 48 and row.total == 195
    assert (row.before_ppm, row.after_ppm) == (1_333_334, 1_005_129)


@pytest.mark.parametrize("count", range(3, 8))
@pytest.mark.parametrize("rates", [[], [2048] * 30])
def test_a_fresh_cluster_gets_no_plan(count, rates):
    fresh = cluster(nodes(count), 64, rates)
    made = default_plan(fresh)
    assert made.is_empty and made.converged and figures(made, REPLICAS) is None


def test_the_metadata_group_is_not_moved_for_a_number():
    assert all(move.group for move in default_plan(FOUR).moves
               if isinstance(move, ReplicaChange))


def test_where_bytes_say_something_they_alone_are_balanced():
    full = grown(cluster(nodes(3), 64, [MIB] * 400, retained_s=100), NodeRow(4))
    made = default_plan(full)
    assert figures(made, REPLICAS) is None
    assert made.moves and REPLICAS not in {move.why.resource for move in made.moves}


def test_a_policy_without_a_floor_counts_nothing():
    policy = DEFAULT._replace(bands=(Band(DISK, 50), Band(LEADERS, 100)))
    assert figures(checked_plan(FOUR, policy), REPLICAS) is None


def test_a_policy_that_balances_no_replicas_counts_none():
    policy = DEFAULT._replace(bands=(Band(EGRESS, 50, 1 << 20), Band(LEADERS, 100, 4)))
    made = checked_plan(FOUR, policy)
    assert not [move for move in made.moves if isinstance(move, ReplicaChange)]


@pytest.mark.parametrize("counts", [(38, 27, 0), (23, 22, 20), (18, 17, 30), (54, 8, 3)])
def test_a_node_that_gives_leaders_away_gets_none_in_the_same_plan(counts):
    """The first gave more than its excess to the new node, and got leaders from the others."""
    made = default_plan(grown(led_by(SMALL, *counts), NodeRow(4)))
    moved = changes_of_leaders(made)
    assert not {old for old, _ in moved} & {new for _, new in moved}
    assert figures(made, LEADERS).moved == len(moved)
    assert min(row.after[LED] for row in made.nodes) >= 14


def test_a_plan_for_leaders_takes_from_the_node_that_leads_most():
    """Node 4 can lead nothing, so that the others stay above their targets.  Taken from one after
    the other, node 1 would get some back from node 3."""
    made = default_plan(grown(led_by(SMALL, 33, 1, 31), NodeRow(4)), Options("leaders"))
    moved = changes_of_leaders(made)
    assert {new for _, new in moved} == {2} and len(moved) == figures(made, LEADERS).moved == 20
    assert [row.after[LED] for row in made.nodes] == [22, 21, 22, 0]


@pytest.mark.parametrize("counts", [(30, 20, 15), (31, 7, 27), (1, 43, 21)])
def test_leaders_stay_where_elections_of_an_idle_cluster_put_them(counts):
    assert default_plan(led_by(SMALL, *counts)).is_empty


def test_a_plan_for_leaders_moves_them_all_the_same():
    made = default_plan(led_by(SMALL, 31, 7, 27), Options("leaders"))
    assert max(row.after[LED] for row in made.nodes) <= 23


def test_a_node_that_leads_nothing_gets_its_share():
    made = default_plan(led_by(SMALL, 0, 44, 21))
    assert all(isinstance(move, LeaderTransfer) for move in made.moves)
    assert [row.after[LED] for row in made.nodes] == [21, 23, 21]
    assert len(made.moves) == 21, "as many as the first lacks"


def test_leaders_that_send_much_are_judged_by_what_they_send_and_by_their_number():
    busy = cluster(nodes(3), 64, [200 * 1024] * 64, retained_s=1)
    made = default_plan(led_by(busy, 30, 20, 15))
    assert made.moves and {move.why.reason for move in made.moves} == {"LEADER_SKEW"}


def test_racks_are_kept():
    before = grown(cluster(nodes(6, racks=3), 64, []), NodeRow(7, "r0"))
    made = default_plan(before)
    rack_of = {row.id: row.rack for row in before.nodes}
    for row in planned(before, made).groups:
        assert len({rack_of[node] for node in row.voters}) == 3
    assert 20 <= made.nodes[6].replicas_after <= 22, "a third of its rack's 65"


def test_weights_are_kept():
    made = default_plan(grown(SMALL, NodeRow(4, weight=300)))
    assert 64 <= made.nodes[3].replicas_after <= 65, "half of the weight, but a group only once"


def test_nodes_that_take_nothing_get_nothing():
    for state in (DRAINING, MAINTENANCE):
        made = default_plan(grown(SMALL, NodeRow(4, state=state)))
        assert made.nodes[3].replicas_after == 0
    excluded = checked_plan(FOUR, DEFAULT._replace(excluded_nodes=(4,)))
    assert excluded.is_empty


def test_a_plan_for_the_node_moves_to_it_only():
    made = default_plan(FOUR, Options("node", 4))
    assert made.nodes[3].replicas_after == 48 and 14 <= made.nodes[3].after[LED] <= 17
    assert all(4 in getattr(move, "joining", (getattr(move, "to_node", 0),))
               for move in made.moves)


def test_small_disks_are_kept_below_their_cap():
    tight = grown(cluster(nodes(3), 16, [MIB] * 16, retained_s=1),
                  NodeRow(4, disk_capacity=4 * MIB))
    made = default_plan(tight)
    assert made.nodes[3].after[0] <= 4 * MIB * 9 // 10
    assert made.nodes[3].replicas_after > 0


def test_a_move_for_a_number_makes_no_node_exceed_a_floor():
    """Only three groups may move, and node 4 has room for two of them below the floor."""
    policy = DEFAULT._replace(bands=(Band(DISK, 50, 3 * MIB), Band(LEADERS, 100, 4)),
                              excluded_groups=tuple(range(4, 13)))
    pairs = ((1, 2), (2, 3), (1, 3))
    groups = [GroupRow(group, 1, 10, pairs[group % 3], pairs[group % 3][0],
                       bytes=MIB if group in (1, 2, 3) else 0) for group in range(13)]
    assert checked_plan(snapshot(nodes(4), groups, factor=2), policy).nodes[3].after[0] == 3 * MIB
    policy = policy._replace(bands=(Band(DISK, 50, 5 * MIB // 2), Band(LEADERS, 100, 4)))
    made = checked_plan(snapshot(nodes(4), groups, factor=2), policy)
    assert made.nodes[3].after[0] == 2 * MIB and made.nodes[3].replicas_after == 2


def test_what_was_moved_lately_stays_and_is_figures():
    warm = FOUR._replace(groups=tuple(row._replace(moved_ms=NOW_MS - 60_000)
                                      for row in FOUR.groups))
    made = checked_plan(warm, Policy())
    assert not [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert (COOL_DOWN, REPLICAS) in {(row.reason, row.resource) for row in made.skipped}


def test_a_budget_cuts_moves_for_a_number_too():
    made = make_plan(FOUR, DEFAULT, Options(budget_bytes=1 << 20))
    assert made.bytes <= 1 << 20 and not made.converged
    assert made.nodes[3].replicas_after > 10, "groups without records cost nothing"
    assert BUDGET in {row.reason for row in made.skipped}


@pytest.mark.parametrize("share, least, most", [
    (4, 0, 10), (5, 1, 11), (21, 8, 34), (49, 25, 73), (400, 200, 600)])
def test_a_number_is_near_a_share_when_chance_explains_it(share, least, most):
    assert near(share) == (least, most)


def test_a_node_that_joins_a_large_cluster_gets_its_share_and_nothing_else_moves():
    """The numbers of the other nodes are uneven by chance, and stay so."""
    before = grown(cluster(nodes(40), 1000, []), NodeRow(41))
    made = default_plan(before)
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert all(move.joining == (41,) for move in changes)
    assert len(changes) == made.nodes[40].replicas_after == 3003 // 41
    assert figures(made, REPLICAS).moved_bound == len(changes)


def test_a_node_with_far_too_many_gives_away_what_is_above_its_share():
    groups = [GroupRow(group, 1, 10, (1, 2 + group % 4), 1) for group in range(61)]
    made = default_plan(snapshot(nodes(5), groups, factor=2))
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert changes and all(move.leaving == (1,) for move in changes)
    assert made.nodes[0].replicas_after == 25, "a fifth of 122, rounded up"


@st.composite
def idle(draw):
    """A cluster as years have left it, with floors above all its loads."""
    before, policy = draw(clusters()), draw(policies())
    known = {row.id for row in before.groups}
    bands = tuple(band._replace(floor=4 if band.resource == LEADERS else 1 << 40)
                  for band in policy.bands)
    return before, policy._replace(bands=bands, excluded_groups=tuple(
        group for group in policy.excluded_groups if group in known)), draw(asked(before))


@given(idle())
@THOROUGH
def test_every_plan_for_an_idle_cluster_keeps_every_invariant(question):
    checked_plan(*question)


@given(idle())
@THOROUGH
def test_no_number_is_further_from_its_share_afterwards(question):
    before, policy, options = question
    made = checked_plan(before, policy, options._replace(scope="all", node=0, drain=()))
    row = figures(made, REPLICAS)
    if row is not None and {move.why.reason for move in made.moves} <= {"OVERLOAD", "NEW_NODE",
                                                                        "LEADER_SKEW"}:
        assert row.after_ppm <= row.before_ppm


def test_a_drained_node_that_comes_back_gets_its_share():
    drained = planned(FOUR, default_plan(FOUR))
    emptied = planned(drained, default_plan(with_state(drained, 2, DRAINING)))
    assert not [row for row in emptied.groups if 2 in row.voters]
    back = with_state(emptied, 2, "alive")
    made = default_plan(back)
    assert sorted(row.replicas_after for row in made.nodes) == [48, 49, 49, 49]
