"""Plans for clusters whose loads say nothing: replicas and leaders are spread by their number, but
only where it is far from a node's share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cluster import DEAD, DRAINING, MAINTENANCE, GroupRow, NodeRow
from placement.counts import Placed, numbers_of
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
from placement.state import State
from placement.verify import verify
from tests.placement import checked
from tests.placement.checked import ALL, changes_of_leaders, figures
from tests.placement.clusters import (
    MIB,
    NOW_MS,
    Dice,
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


#: Plans after one another, each cut short, until one is complete.
PLANS_MAX = 40


def checked_plan(before, policy=DEFAULT, options=ALL):
    """A plan as ``checked.checked_plan`` has it, that further plans continue if it was cut short.
    """
    made = checked.checked_plan(before, policy, options)
    if not made.converged:
        plans_until_empty(before, policy, options)
    return made


def plans_until_empty(before, policy=DEFAULT, options=ALL):
    """The cluster after plan upon plan until one is empty, and these plans; each of them leaves the
    numbers of replicas no further from their shares."""
    plans = []
    while not (made := make_plan(before, policy, options)).is_empty:
        assert verify(made, before, before.taken_ms) == ()
        assert_no_number_leaves_its_share(made, before, policy)
        plans.append(made)
        before = planned(before, made)
        assert len(plans) < PLANS_MAX, [len(each.moves) for each in plans]
    return before, plans


def assert_no_number_leaves_its_share(made, before, policy):
    """Check the number of replicas of each node, if replicas moved for nothing but their number
    (a drain that cannot be done changes the shares)."""
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    if made.infeasible or {move.why.resource for move in changes} != {REPLICAS}:
        return
    shares = numbers_of(State(before, policy), policy.excluded_nodes).shares
    for row, share, most in zip(made.nodes, shares.share, shares.high, strict=True):
        least = min(share, row.replicas_before)
        assert least <= row.replicas_after <= max(most, row.replicas_before), row


def prefix(before, made, count):
    """The cluster after the plan's first moves: it was cancelled, or a move failed."""
    return planned(before, made._replace(moves=made.moves[:count]))


def replicas(of):
    """The number of replicas of each node."""
    return [sum(row.id in group.voters for group in of.groups) for row in of.nodes]


def led_by(before, *counts):
    """The cluster with so many groups led by node 1, 2, ..., all of which hold every group."""
    leaders = [node for node, count in enumerate(counts, start=1) for _ in range(count)]
    return before._replace(groups=tuple(row._replace(leader=leader) for row, leader
                                        in zip(before.groups, leaders, strict=True)))


def test_a_node_that_joins_gets_its_share_of_replicas_and_leaders():
    made = checked_plan(FOUR)
    assert made.converged
    assert sorted(row.replicas_after for row in made.nodes) == [48, 49, 49, 49]
    assert made.nodes[3].after[LED] >= 16 and max(row.after[LED] for row in made.nodes) <= 17
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert len(changes) == 48 and all(move.joining == (4,) for move in changes)
    assert {move.why.resource for move in changes} == {REPLICAS}


def test_it_gets_its_share_of_the_groups_with_records_too():
    busy = {row.id for row in SMALL.groups if row.ingress}
    after = planned(FOUR, checked_plan(FOUR))
    mine = [row.id for row in after.groups if 4 in row.voters and row.id in busy]
    assert 0.5 <= len(mine) / (len(busy) * 3 / 4) <= 1.5


def test_no_more_moves_than_it_takes():
    row = figures(checked_plan(FOUR), REPLICAS)
    assert row.moved == row.moved_bound == 48 and row.total == 195
    assert (row.before_ppm, row.after_ppm) == (1_333_334, 1_005_129)


@pytest.mark.parametrize("count", range(3, 8))
@pytest.mark.parametrize("rates", [[], [2048] * 30])
def test_a_fresh_cluster_gets_no_plan(count, rates):
    fresh = cluster(nodes(count), 64, rates)
    made = checked_plan(fresh)
    assert made.is_empty and made.converged and figures(made, REPLICAS) is None


def test_the_metadata_group_is_not_moved_for_a_number():
    assert all(move.group for move in checked_plan(FOUR).moves
               if isinstance(move, ReplicaChange))


def test_where_bytes_say_something_they_alone_are_balanced():
    full = grown(cluster(nodes(3), 64, [MIB] * 400, retained_s=100), NodeRow(4))
    made = checked_plan(full)
    assert figures(made, REPLICAS) is None
    assert made.moves and REPLICAS not in {move.why.resource for move in made.moves}


def test_a_policy_without_a_floor_counts_nothing():
    policy = DEFAULT._replace(bands=(Band(DISK, 50), Band(LEADERS, 100)))
    assert figures(checked_plan(FOUR, policy), REPLICAS) is None


def test_a_policy_that_balances_no_replicas_counts_none():
    policy = DEFAULT._replace(bands=(Band(EGRESS, 50, 1 << 20), Band(LEADERS, 100, 4)))
    made = checked_plan(FOUR, policy)
    assert not [move for move in made.moves if isinstance(move, ReplicaChange)]


@pytest.mark.parametrize("counts", [(30, 20, 15), (31, 7, 27), (1, 43, 21)])
def test_leaders_stay_where_elections_of_an_idle_cluster_put_them(counts):
    assert checked_plan(led_by(SMALL, *counts)).is_empty


def test_a_plan_for_leaders_moves_them_all_the_same():
    made = checked_plan(led_by(SMALL, 31, 7, 27), options=Options("leaders"))
    assert max(row.after[LED] for row in made.nodes) <= 23


@pytest.mark.parametrize("counts", [(38, 27, 0), (23, 22, 20), (18, 17, 30), (54, 8, 3)])
def test_a_node_that_gives_leaders_away_gets_none_in_the_same_plan(counts):
    """The first gave more than its excess to the new node, and got leaders from the others."""
    made = checked_plan(grown(led_by(SMALL, *counts), NodeRow(4)))
    moved = changes_of_leaders(made)
    assert not {old for old, _ in moved} & {new for _, new in moved}
    assert figures(made, LEADERS).moved == len(moved)
    assert min(row.after[LED] for row in made.nodes) >= 14


def test_a_plan_for_leaders_takes_from_the_node_that_leads_most():
    """Node 4 can lead nothing, so that the others stay above their targets.  Taken from one after
    the other, node 1 would get some back from node 3."""
    made = checked_plan(grown(led_by(SMALL, 33, 1, 31), NodeRow(4)),
                        options=Options("leaders"))
    moved = changes_of_leaders(made)
    assert {new for _, new in moved} == {2} and len(moved) == figures(made, LEADERS).moved == 20
    assert [row.after[LED] for row in made.nodes] == [22, 21, 22, 0]


def test_a_node_that_leads_nothing_gets_its_share():
    made = checked_plan(led_by(SMALL, 0, 44, 21))
    assert all(isinstance(move, LeaderTransfer) for move in made.moves)
    assert [row.after[LED] for row in made.nodes] == [21, 23, 21]
    assert len(made.moves) == 21, "as many as the first lacks"


def test_a_node_whose_groups_must_not_move_leads_none():
    excluded = DEFAULT._replace(excluded_groups=tuple(row.id for row in SMALL.groups))
    assert checked_plan(led_by(SMALL, 0, 44, 21), excluded).is_empty


def test_leaders_that_send_much_are_judged_by_what_they_send_and_by_their_number():
    busy = cluster(nodes(3), 64, [200 * 1024] * 64, retained_s=1)
    made = checked_plan(led_by(busy, 30, 20, 15))
    assert made.moves and {move.why.reason for move in made.moves} == {"LEADER_SKEW"}


def test_racks_are_kept():
    before = grown(cluster(nodes(6, racks=3), 64, []), NodeRow(7, "r0"))
    made = checked_plan(before)
    rack_of = {row.id: row.rack for row in before.nodes}
    for row in planned(before, made).groups:
        assert len({rack_of[node] for node in row.voters}) == 3
    assert 20 <= made.nodes[6].replicas_after <= 22, "a third of its rack's 65"


def test_weights_are_kept():
    made = checked_plan(grown(SMALL, NodeRow(4, weight=300)))
    assert 64 <= made.nodes[3].replicas_after <= 65, "half of the weight, but a group only once"


def test_nodes_that_take_nothing_get_nothing():
    for state in (DRAINING, MAINTENANCE):
        made = checked_plan(grown(SMALL, NodeRow(4, state=state)))
        assert made.nodes[3].replicas_after == 0
    excluded = checked_plan(FOUR, DEFAULT._replace(excluded_nodes=(4,)))
    assert excluded.is_empty


def test_a_plan_for_the_node_moves_to_it_only():
    made = checked_plan(FOUR, options=Options("node", 4))
    assert made.nodes[3].replicas_after == 48 and 14 <= made.nodes[3].after[LED] <= 17
    assert all(4 in getattr(move, "joining", (getattr(move, "to_node", 0),))
               for move in made.moves)


def test_small_disks_are_kept_below_their_cap():
    tight = grown(cluster(nodes(3), 16, [MIB] * 16, retained_s=1),
                  NodeRow(4, disk_capacity=4 * MIB))
    made = checked_plan(tight)
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


def test_what_was_moved_lately_stays_and_is_named():
    """A node that can lead none of the groups is no reason to even the leaders of the others."""
    warm = FOUR._replace(groups=tuple(row._replace(moved_ms=NOW_MS - 60_000)
                                      for row in led_by(FOUR, 31, 7, 27).groups))
    made = checked_plan(warm, Policy())
    assert made.is_empty and made.converged, "nothing can be done now"
    assert (COOL_DOWN, REPLICAS) in {(row.reason, row.resource) for row in made.skipped}


def test_a_budget_cuts_moves_for_a_number_too():
    made = make_plan(FOUR, DEFAULT, Options(budget_bytes=1 << 20))
    assert made.bytes <= 1 << 20 and not made.converged
    assert made.nodes[3].replicas_after > 10, "groups without records cost nothing"
    assert BUDGET in {row.reason for row in made.skipped}


# ---- a plan that was cut short is continued -----------------------------------------------------

@pytest.mark.parametrize("moves_max", [3, 7, 30, 52])
@pytest.mark.parametrize("cool_down_ms", [0, Policy().cool_down_ms])
def test_a_plan_that_a_limit_cut_is_continued(moves_max, cool_down_ms):
    after, plans = plans_until_empty(FOUR, Policy(moves_max=moves_max, cool_down_ms=cool_down_ms))
    assert sorted(replicas(after)) == [48, 49, 49, 49]
    assert [made.converged for made in plans] == [False] * (len(plans) - 1) + [True]


def test_a_plan_that_its_budget_cut_is_continued():
    after, plans = plans_until_empty(FOUR, options=Options(budget_bytes=1 << 20))
    assert sorted(replicas(after)) == [48, 49, 49, 49] and len(plans) > 1


@pytest.mark.parametrize("count", range(0, 53, 4))
def test_a_plan_that_was_cancelled_is_continued(count):
    after, _ = plans_until_empty(prefix(FOUR, checked_plan(FOUR), count))
    assert sorted(replicas(after)) == [48, 49, 49, 49]


def test_the_last_replicas_move_too_when_the_cool_down_is_over():
    """Three nodes more: each group moves 1.5 times, so that the second plan has to wait."""
    before = grown(SMALL, NodeRow(4), NodeRow(5), NodeRow(6))
    cut = prefix(before, make_plan(before, Policy()), 60)
    later = planned(cut, make_plan(cut, Policy()))
    later = later._replace(taken_ms=later.taken_ms + Policy().cool_down_ms)
    after, _ = plans_until_empty(later, Policy())
    assert sorted(replicas(after)) == [32, 32, 32, 33, 33, 33]


def test_a_node_with_far_too_many_goes_on_giving():
    groups = [GroupRow(group, 1, 10, (1, 2 + group % 4), 1) for group in range(61)]
    before = snapshot(nodes(5), groups, factor=2)
    after, plans = plans_until_empty(before, DEFAULT._replace(moves_max=30))
    assert replicas(after) == [25, 25, 24, 24, 24] and len(plans) > 1


def test_the_other_nodes_of_a_large_cluster_stay_uneven_when_a_plan_is_continued():
    before = grown(cluster(nodes(40), 1000, []), NodeRow(41))
    after, plans = plans_until_empty(before, DEFAULT._replace(moves_max=50))
    changes = [move for made in plans for move in made.moves if isinstance(move, ReplicaChange)]
    assert len(plans) > 2 and all(move.joining == (41,) for move in changes)
    assert len(changes) == replicas(after)[40] == 3003 // 41
    assert 24 <= plans[-1].nodes[40].after[LED] <= 26, "it leads a 41st of the groups too"


def test_a_cluster_that_was_repaired_and_has_grown_gets_even():
    before = with_state(grown(SMALL, NodeRow(4), NodeRow(5)), 3, DEAD)
    made = checked_plan(before)
    assert [row.replicas_after for row in made.nodes] == [49, 49, 0, 49, 48]
    assert max(row.after[LED] for row in made.nodes) <= 17
    row = figures(made, REPLICAS)
    assert row.moved == row.moved_bound == 97, "65 for the lost ones, and 32 more"


def test_a_repair_alone_may_come_first():
    before = with_state(grown(SMALL, NodeRow(4), NodeRow(5)), 3, DEAD)
    repaired = planned(before, checked_plan(before, options=Options("repair")))
    after, _ = plans_until_empty(repaired)
    assert [count for count in sorted(replicas(after)) if count] == [48, 49, 49, 49]


@pytest.mark.parametrize("before, policy", [
    (grown(FOUR, NodeRow(5, state=MAINTENANCE)), DEFAULT),
    (grown(FOUR, NodeRow(5)), DEFAULT._replace(excluded_nodes=(5,)))])
def test_a_node_that_may_get_nothing_has_no_share(before, policy):
    made = checked_plan(before, policy)
    assert [row.replicas_after for row in made.nodes] == [49, 49, 49, 48, 0]
    row = figures(made, REPLICAS)
    assert row.moved == row.moved_bound == 48


def test_a_node_in_maintenance_gives_what_it_has_too_much():
    before = with_state(FOUR, 1, MAINTENANCE)
    made = checked_plan(before)
    assert sorted(row.replicas_after for row in made.nodes) == [48, 49, 49, 49]


def test_a_node_in_maintenance_keeps_what_is_less_than_its_share():
    few = with_state(prefix(FOUR, checked_plan(FOUR), 25), 4, MAINTENANCE)
    made = checked_plan(grown(few, NodeRow(5)))
    assert made.nodes[3].replicas_after == made.nodes[3].replicas_before > 0
    rest = 195 - made.nodes[3].replicas_after
    assert made.nodes[4].replicas_after == rest // 4


def test_the_metadata_group_is_no_example_of_what_stays():
    policy = DEFAULT._replace(bands=(Band(DISK, 50, MIB), Band(LEADERS, 100, 4)))
    before = cluster(nodes(3), 12, [])
    full = before._replace(groups=tuple(row._replace(bytes=MIB // 16) for row in before.groups))
    made = checked_plan(grown(full, NodeRow(4)), policy._replace(
        excluded_groups=tuple(range(2, 13))))
    assert made.converged
    texts = [row.text for row in made.skipped if row.resource == REPLICAS]
    assert texts and not any("group 0 " in text for text in texts), texts


@pytest.mark.parametrize("number, share, is_chance", [
    (49, 48, True), (38, 48, True), (37, 48, False), (58, 48, True), (59, 48, False),
    (0, 5, False), (1, 5, True), (65, 97, True)])
def test_chance_explains_what_three_standard_deviations_allow(number, share, is_chance):
    """Of 65 groups a node with a share of 48 gets 48 by chance, 3.5 more or less."""
    assert Placed(number, 65, number, 65).is_chance(share) is is_chance


def test_chance_explains_nothing_of_what_plans_have_moved():
    assert not Placed(28, 65, 0, 37).is_chance(48), "it has none of those that were not moved"
    assert not Placed(47, 65, 0, 0).is_chance(48) and Placed(48, 65, 0, 0).is_chance(48)


def test_a_number_is_judged_by_the_share_that_racks_leave():
    """Two of three racks have one node each and hold every group: these nodes' shares of bytes are
    above their mean, and so above the floor."""
    rows = (NodeRow(1, "a"), NodeRow(2, "b"), NodeRow(3, "c"), NodeRow(4, "c"), NodeRow(5, "c"))
    groups = [GroupRow(group, 1, 10, (1, 2, 3 + group % 2), 1, bytes=MIB) for group in range(40)]
    policy = DEFAULT._replace(bands=(Band(DISK, 50, 30 * MIB), Band(LEADERS, 100, 4)))
    made = checked_plan(snapshot(rows, groups), policy)
    assert figures(made, REPLICAS) is None, "24 MiB on average, and 40 MiB on nodes 1 and 2"


def test_a_node_that_joins_a_large_cluster_gets_its_share_and_nothing_else_moves():
    """The numbers of the other nodes are uneven by chance, and stay so."""
    before = grown(cluster(nodes(40), 1000, []), NodeRow(41))
    made = checked_plan(before)
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert all(move.joining == (41,) for move in changes)
    assert len(changes) == made.nodes[40].replicas_after == 3003 // 41
    assert figures(made, REPLICAS).moved_bound == len(changes)


def test_a_node_with_far_too_many_gives_away_what_is_above_its_share():
    groups = [GroupRow(group, 1, 10, (1, 2 + group % 4), 1) for group in range(61)]
    made = checked_plan(snapshot(nodes(5), groups, factor=2))
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert changes and all(move.leaving == (1,) for move in changes)
    assert made.nodes[0].replicas_after == 25, "a fifth of 122, rounded up"


@st.composite
def idle(draw):
    """A cluster as years have left it, with floors above all its loads."""
    before, policy = draw(clusters()), draw(policies())
    known = {row.id for row in before.groups}
    return before, _without_loads(policy)._replace(excluded_groups=tuple(
        group for group in policy.excluded_groups if group in known)), draw(asked(before))


def _without_loads(policy):
    return policy._replace(bands=tuple(
        band._replace(floor=4 if band.resource == LEADERS else 1 << 40) for band in policy.bands))


@given(idle())
@THOROUGH
def test_every_plan_for_an_idle_cluster_keeps_every_invariant(question):
    checked_plan(*question)


@st.composite
def changed(draw):
    """An idle cluster of 30 to 100 groups as its hash placed it, in which something has happened
    since: nodes joined, were emptied, died, or are in maintenance."""
    count, groups, dice = draw(st.integers(3, 9)), draw(st.integers(30, 100)), Dice(
        draw(st.integers(0, 1 << 32)))
    before = cluster(nodes(count, dice.choice((0, 0, 3))), groups,
                     [dice.randint(0, 4096) for _ in range(dice.randint(0, 40))])
    for _ in range(dice.randint(1, 3)):
        before = _happened(before, dice)
    policy = Policy(cool_down_ms=dice.choice((0, 60_000)),
                    moves_max=dice.choice((15, 10_000, 10_000)),
                    excluded_nodes=dice.some((1,), 1))
    return before, policy, Options(budget_bytes=dice.choice((0, 0, 1 << 20)))


def _happened(before, dice):
    last = len(before.nodes)
    event = dice.choice(("joined", "joined", "emptied", "died", "maintenance", "moved"))
    if event == "joined":
        return grown(before, NodeRow(last + 1, before.nodes[0].rack, dice.choice((100, 100, 200)),
                                     state=dice.choice(("alive", "alive", MAINTENANCE))))
    if event == "moved":
        made = make_plan(before, DEFAULT)
        return prefix(before, made, dice.randint(0, len(made.moves)))
    state = {"emptied": DRAINING, "died": DEAD, "maintenance": MAINTENANCE}[event]
    return with_state(before, dice.randint(1, last), state)


def test_no_number_goes_away_from_its_share():
    """A node far below its share ends at it or below, and no number of another node gets worse;
    a plan that was cut short is continued until nothing is left to do."""
    counted = []

    @given(changed())
    @THOROUGH
    def check(question):
        before, policy, options = question
        made = checked_plan(before, policy, options)
        assert_no_number_leaves_its_share(made, before, policy)
        counted.append(figures(made, REPLICAS) is not None)

    check()
    assert sum(counted) >= len(counted) // 4, "too few of these plans move anything for a number"


def test_a_drained_node_that_comes_back_gets_its_share():
    drained = planned(FOUR, checked_plan(FOUR))
    emptied = planned(drained, checked_plan(with_state(drained, 2, DRAINING)))
    assert not [row for row in emptied.groups if 2 in row.voters]
    back = with_state(emptied, 2, "alive")
    made = checked_plan(back)
    assert sorted(row.replicas_after for row in made.nodes) == [48, 49, 49, 49]
