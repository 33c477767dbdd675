"""Plans for clusters that an operator would recognise: what is moved, why, and what is not."""

from __future__ import annotations

import pytest

from placement import plan
from placement.cluster import (
    ALIVE,
    DEAD,
    DRAINING,
    MAINTENANCE,
    GroupRow,
    NodeRow,
    checked,
)
from placement.errors import InvalidPolicy
from placement.outcome import planned
from placement.planner import choices, make_plan
from placement.policy import (
    DISK,
    EGRESS,
    GROUP_INGRESS,
    LEADERS,
    MOVES_MAX,
    Band,
    Options,
    Policy,
    check_policy,
)
from tests.placement.checked import checked_plan, figures
from tests.placement.clusters import (
    MIB,
    NOW_MS,
    STRICT,
    cluster,
    grown,
    nodes,
    only,
    snapshot,
    with_state,
)

RATES = [MIB + 1000 * number for number in range(400)]
SIX = cluster(nodes(6, racks=3), 64, RATES)


def changes(made):
    """Replica changes only."""
    return [move for move in made.moves if move.kind == plan.REPLICA_CHANGE]


def test_a_balanced_cluster_is_left_alone():
    made = checked_plan(planned(SIX, make_plan(SIX, STRICT)))
    assert made.is_empty and made.converged
    assert made.waves == 0 and made.estimated_ms == 0 and made.bytes == 0


def test_three_nodes_become_four_and_are_balanced_within_the_band():
    before = grown(cluster(nodes(3), 64, RATES), NodeRow(4))
    made = checked_plan(before, only(DISK, 50))
    after = [row.after[0] for row in made.nodes]
    assert max(after) <= 1.05 * sum(after) / 4 and min(after) >= 0.95 * sum(after) / 4
    assert all(move.joining == (4,) for move in changes(made))
    assert figures(made, DISK).moved <= 1.02 * figures(made, DISK).moved_bound


def test_a_plan_for_a_new_node_moves_only_to_it():
    before = grown(SIX, NodeRow(7, "r1"))
    made = checked_plan(before, STRICT, Options("node", 7))
    assert made.moves
    for move in made.moves:
        assert (move.joining == (7,) if move.kind == plan.REPLICA_CHANGE else move.to_node == 7)
    row = made.nodes[-1]
    assert row.before[0] == 0 and 0.9 * row.share[0] <= row.after[0] <= 1.05 * row.share[0] + 1


def test_a_dead_node_s_replicas_go_elsewhere_first_and_nothing_else_moves():
    made = checked_plan(with_state(SIX, 2, DEAD), STRICT, Options("repair"))
    assert changes(made) == list(made.moves)
    lost = [group.id for group in SIX.groups if 2 in group.voters]
    assert sorted(move.group for move in made.moves) == lost
    assert all(move.leaving == (2,) and move.why.reason == plan.REPAIR_DEAD
               for move in made.moves)


def test_repairs_come_before_balance():
    crooked = grown(with_state(SIX, 2, DEAD), NodeRow(7, "r2"), NodeRow(8, "r0"))
    made = checked_plan(crooked)
    assert len({move.why.reason for move in made.moves}) > 1
    for wave in range(1, made.waves + 1):
        others = [move.why.reason != plan.REPAIR_DEAD for move in made.moves if move.wave == wave]
        assert others == sorted(others)
    assert made.moves[0].why.reason == plan.REPAIR_DEAD


def test_a_drained_node_is_empty_and_only_it_moves():
    made = checked_plan(SIX, STRICT, Options("drain", drain=(5,)))
    assert all(move.leaving == (5,) and move.why.reason == plan.DRAIN for move in changes(made))
    assert made.nodes[4].after == (0, 0, 0, 0) and made.nodes[4].replicas_after == 0
    sizes = [move.bytes for move in changes(made)]
    assert sizes == sorted(sizes, reverse=True) or made.waves > 1


@pytest.mark.parametrize("before, drain, cause", [
    (cluster(nodes(3), 8, RATES), (1,), plan.TOO_FEW_NODES),
    (SIX, (3, 6), plan.LAST_RACK),
    (cluster(nodes(6, disk_capacity=150_000 * MIB // 1000), 8, RATES), (1,), plan.CAPACITY),
    (cluster(nodes(2), 8, RATES, factor=2), (1, 2), plan.TOO_FEW_NODES),
])
def test_a_drain_that_cannot_be_done_is_refused_whole(before, drain, cause):
    made = make_plan(before, STRICT, Options("drain", drain=drain))
    assert made.is_empty and made.infeasible[0].cause == cause
    named = f"node{'s' if len(drain) > 1 else ''} {' and '.join(map(str, drain))}"
    assert named in made.infeasible[0].text
    assert made.infeasible[0].text and made.infeasible[0].way_out
    assert "fewer racks" not in made.infeasible[0].way_out, "no command has that"


@pytest.mark.parametrize("count, drain, told", [
    (3, (1,), "without node 1, 2 nodes would remain for groups with 3 replicas"),
    (4, (2, 3), "without nodes 2 and 3, 2 nodes would remain"),
    (4, (1, 2, 3), "without nodes 1, 2 and 3, 1 node would remain")])
def test_how_many_nodes_would_remain_is_said_in_a_sentence(count, drain, told):
    made = make_plan(cluster(nodes(count), 8, RATES), STRICT, Options("drain", drain=drain))
    assert made.infeasible[0].text.startswith(told)


def spared(before, *ids):
    """The cluster with these nodes in maintenance."""
    for node in ids:
        before = with_state(before, node, MAINTENANCE)
    return before


@pytest.mark.parametrize("scope", ["drain", "all"])
@pytest.mark.parametrize("state", ["alive", DRAINING])
def test_a_node_that_holds_nothing_is_drained_though_no_other_takes_replicas(scope, state):
    """It is shown as what it is, too, where its drain was a fault it was called in maintenance."""
    crowd = spared(grown(cluster(nodes(3), 8, RATES), NodeRow(4, state=state)), 1, 2, 3)
    made = make_plan(crowd, STRICT, Options(scope, drain=(4,)))
    assert not changes(made) and not made.infeasible
    assert [row.state for row in made.nodes] == [MAINTENANCE] * 3 + [DRAINING]


def test_a_drain_that_nobody_takes_anything_of_names_the_maintenance_of_the_others():
    crowd = spared(cluster(nodes(4), 8, RATES), 1, 2, 3)
    made = make_plan(crowd, STRICT, Options("drain", drain=(4,)))
    assert made.is_empty and made.infeasible[0].cause == plan.TOO_FEW_NODES
    assert "every node that remains is in maintenance" in made.infeasible[0].text
    assert "node undrain" in made.infeasible[0].way_out
    assert made.nodes[3].state == "alive", "nothing is kept of a drain that is refused"


def test_a_last_rack_may_be_drained_when_asked_for():
    made = checked_plan(SIX, STRICT, Options("drain", drain=(3, 6), fewer_racks=True))
    assert changes(made) and not made.infeasible
    assert made.nodes[2].replicas_after == made.nodes[5].replicas_after == 0


def test_a_node_that_drains_and_cannot_keeps_its_replicas_and_the_plan_says_why():
    made = checked_plan(with_state(cluster(nodes(3), 8, RATES), 1, DRAINING))
    assert [cause.cause for cause in made.infeasible] == [plan.TOO_FEW_NODES]
    assert made.nodes[0].replicas_after == made.nodes[0].replicas_before
    assert made.nodes[0].state == DRAINING


def test_maintenance_moves_leaders_away_and_replicas_not():
    made = checked_plan(with_state(SIX, 1, MAINTENANCE), STRICT, Options("leaders"))
    away = [move for move in made.moves if move.from_node == 1]
    assert away and {move.why.reason for move in away} == {plan.MAINTENANCE}
    assert made.nodes[0].after[3] == 0 and made.bytes == 0


def test_one_hot_partition_is_not_moved_around_but_named_for_a_split():
    rates = [*[rate // 10 for rate in RATES] * 10, 400 * MIB]
    made = checked_plan(cluster(nodes(6, racks=3), 64, rates), only(GROUP_INGRESS))
    hot = next(row for row in made.skipped if row.reason == plan.SPLIT)
    assert hot.subject == "p4001" and hot.load == 400 * MIB and "more partitions" in hot.text
    assert not any(getattr(move, "incarnation", 0) == 4001 for move in made.moves)
    outcome = figures(made, GROUP_INGRESS)
    assert outcome.bound == "largest" and outcome.gap_ppm < 1000
    level = outcome.level_ppm * 1.02 * outcome.total / 64 / 1_000_000
    others = [row.after for row in made.groups if row.after < 400 * MIB]
    assert len(others) == 63 and max(others) <= level + 1


def test_leaders_are_moved_before_data():
    """A node that only leads too much gives leaderships away, and no replica moves."""
    lopsided = SIX._replace(groups=tuple(
        row._replace(leader=row.voters[0]) for row in SIX.groups))
    made = checked_plan(lopsided, Policy(bands=(Band(DISK, 1000), Band(EGRESS, 100),
                                                Band(LEADERS, 150)), cool_down_ms=0))
    assert {move.kind for move in made.moves} == {plan.LEADER_TRANSFER}
    assert figures(made, EGRESS).after_ppm <= 1_100_001


def test_racks_are_kept_apart_when_a_rack_comes_back():
    """Repaired into two racks while the third was away; now it is there again."""
    away = SIX
    for node in (3, 6):
        away = with_state(away, node, DEAD)
    repaired = planned(away, checked_plan(away, STRICT, Options("repair")))
    back = repaired
    for node in (3, 6):
        back = with_state(back, node, ALIVE)
    made = checked_plan(checked(back), STRICT, Options("repair"))
    assert {move.why.reason for move in made.moves} == {plan.RACK_VIOLATION}
    rack_of = {row.id: row.rack for row in SIX.nodes}
    for row in planned(back, made).groups:
        assert len({rack_of[node] for node in row.voters}) == 3


def test_a_full_disk_is_relieved_by_repair_alone():
    full = SIX._replace(nodes=tuple(
        row._replace(disk_capacity=int(2.0e10 if row.id == 1 else 1e12)) for row in SIX.nodes))
    made = checked_plan(full, STRICT, Options("repair"))
    assert made.moves and all(move.leaving == (1,) and move.why.reason == plan.DISK_HARD
                              for move in made.moves)
    assert made.nodes[0].after[0] <= 1.8e10


def test_no_disk_is_filled_above_its_cap_while_copies_are_under_way():
    """Two nodes have to swap what they hold, and neither has room for more than one."""
    rows = nodes(4, disk_capacity=1000)
    groups = [plan_group(group, (1, 2), 200) for group in range(1, 5)]
    groups += [plan_group(group, (3, 4), 20) for group in range(5, 9)]
    before = snapshot(rows, groups, factor=2)
    made = checked_plan(before, only(DISK, 20))
    assert made.moves
    assert max(row.after[0] for row in made.nodes) < 800


def plan_group(group, voters, size):
    """A group of that size on these nodes."""
    return GroupRow(group, 1, 3, voters, voters[0], bytes=size)


def test_a_group_without_a_quorum_is_named_and_left_alone():
    away = with_state(with_state(SIX, 1, DEAD), 2, DEAD)
    made = checked_plan(away)
    lost = [cause for cause in made.infeasible if cause.cause == plan.NO_QUORUM]
    assert lost and "recover" in lost[0].way_out
    touched = {f"g{move.group}" for move in changes(made)}
    assert not touched & {cause.subject for cause in lost}


def test_a_group_in_joint_consensus_waits():
    joint = SIX._replace(groups=tuple(row._replace(in_joint=row.id == 5) for row in SIX.groups))
    made = checked_plan(with_state(joint, 2, DEAD))
    assert all(getattr(move, "group", 0) != 5 for move in made.moves)


def test_missing_voters_are_added():
    thin = SIX._replace(groups=tuple(
        row._replace(voters=row.voters[:2], leader=row.voters[0]) if row.id == 9 else row
        for row in SIX.groups))
    made = checked_plan(thin, STRICT, Options("repair"))
    (move,) = made.moves
    assert move.group == 9 and len(move.new_voters) == 3
    assert move.why.reason == plan.UNDER_REPLICATED


def test_a_budget_of_bytes_is_kept_and_buys_the_worst_first():
    before = grown(SIX, NodeRow(7, "r1"), NodeRow(8, "r2"))
    full = checked_plan(before)
    part = checked_plan(before, STRICT, Options(budget_bytes=full.bytes // 4))
    assert 0 < part.bytes <= full.bytes // 4 and not part.converged
    assert figures(full, DISK).after_ppm <= figures(part, DISK).after_ppm \
        <= figures(part, DISK).before_ppm
    assert any(row.reason == plan.BUDGET for row in part.skipped)


def test_choices_go_from_repairs_alone_to_everything():
    points = choices(grown(SIX, NodeRow(7, "r1")), STRICT)
    assert [point.bytes for point in points] == sorted(point.bytes for point in points)
    assert points[0].bytes == 0 and points[-1].worst_ppm <= points[0].worst_ppm


def test_what_was_moved_a_short_while_ago_stays():
    warm = SIX._replace(groups=tuple(row._replace(moved_ms=NOW_MS - 60_000) for row in SIX.groups),
                        partitions=tuple(row._replace(moved_ms=NOW_MS - 60_000)
                                         for row in SIX.partitions))
    made = checked_plan(grown(warm, NodeRow(7, "r1")), STRICT._replace(cool_down_ms=3_600_000))
    assert not changes(made)
    assert {row.reason for row in made.skipped} >= {plan.COOL_DOWN}


def test_excluded_topics_groups_and_nodes_stay():
    before = grown(SIX, NodeRow(7, "r1"))
    policy = STRICT._replace(excluded_nodes=(7,), excluded_groups=(3, 4), excluded_topics=("t1",))
    made = checked_plan(before, policy)
    assert all(7 not in move.joining and move.group not in (3, 4) for move in changes(made))


def test_more_moves_than_a_plan_may_have_are_left_for_the_next():
    before = grown(SIX, NodeRow(7, "r1"))
    made = checked_plan(before, STRICT._replace(moves_max=5))
    assert len(made.moves) == 5 and not made.converged
    assert made.skipped[0].reason == plan.MOVES_LIMIT


def test_growing_the_pool_moves_partitions_to_the_new_groups_by_a_plan_only():
    larger = SIX._replace(pool_size=80, groups=SIX.groups + tuple(
        SIX.groups[group - 64]._replace(id=group, bytes=0, ingress=0, read=0)
        for group in range(65, 81)))
    made = checked_plan(checked(larger), only(GROUP_INGRESS, 50))
    switches = [move for move in made.moves if move.kind == plan.TOPIC_SWITCH]
    assert switches and made.bytes == 0
    assert {move.to_group for move in switches} >= set(range(65, 81))


def test_compacted_partitions_are_switched_only_when_asked_for_and_then_cost_bytes():
    sticky = SIX._replace(partitions=tuple(row._replace(copied=True) for row in SIX.partitions))
    made = checked_plan(sticky, only(GROUP_INGRESS))
    assert made.is_empty and {row.reason for row in made.skipped} == {plan.COPIED}
    made = checked_plan(sticky, only(GROUP_INGRESS, switch_copied=True))
    assert made.bytes == sum(move.bytes for move in made.moves) > 0


@pytest.mark.parametrize("policy, options, complaint", [
    (STRICT, Options(drain=(99,)), "no node 99"),
    (STRICT, Options("node", 99), "no node 99"),
    (STRICT, Options("node"), "named with the scope"),
    (STRICT, Options("everything"), "everything"),
    (STRICT, Options(drain=(1, 1)), "twice"),
    (STRICT, Options("leaders", drain=(1,)), "scopes 'all' and 'drain'"),
    (STRICT, Options(budget_bytes=-1), "budget_bytes"),
    (STRICT, Options(copy_rate=0), "copy_rate"),
    (STRICT._replace(bands=(Band("colour", 5),)), Options(), "colour"),
    (STRICT._replace(bands=(Band(DISK, 5), Band(DISK, 6))), Options(), "two bands"),
    (STRICT._replace(bands=(Band(DISK, -1),)), Options(), "band of disk"),
    (STRICT._replace(moves_max=MOVES_MAX + 1), Options(), "moves_max"),
    (STRICT._replace(in_per_node_max=0), Options(), "in_per_node_max"),
    (STRICT._replace(excluded_nodes=(77,)), Options(), "no node 77"),
    (STRICT._replace(excluded_groups=(77,)), Options(), "no group 77"),
])
def test_what_cannot_be_followed_is_refused(policy, options, complaint):
    with pytest.raises(InvalidPolicy, match=complaint):
        make_plan(SIX, policy, options)


def test_the_default_policy_is_one():
    check_policy(Policy())


# ---- what is not worth a move -------------------------------------------------------------------

GIB = 1 << 30


def test_a_new_node_is_not_filled_with_groups_that_hold_nothing():
    """Six groups have all there is to balance, the others little more than their first entry."""
    groups = [GroupRow(group, 1, 10, (1, 2, 3), 1 + group % 3,
                       bytes=3 * GIB if 1 <= group <= 6 else 128 + 400 * group)
              for group in range(25)]
    made = checked_plan(grown(snapshot(nodes(3), groups), NodeRow(4, "")), Policy(cool_down_ms=0))
    assert made.moves
    assert {move.bytes for move in made.moves if move.kind == plan.REPLICA_CHANGE} == {3 * GIB}


def test_many_small_groups_together_are_not_negligible():
    groups = [GroupRow(group, 1, 10, (1, 2, 3), 1 + group % 3, bytes=16 * MIB)
              for group in range(1025)]
    made = checked_plan(grown(snapshot(nodes(3), groups), NodeRow(4, "")), Policy(cool_down_ms=0))
    assert figures(made, DISK).after_ppm <= 1_050_000


def test_leaders_are_not_moved_for_a_resource_below_its_floor():
    """Some bytes a second, all of them sent by one node, and that is the fullest there can be; what
    is above its target is the number of leaders."""
    groups = [GroupRow(group, 1, 10, (1, 2, 3), 1 if group < 20 else 2, bytes=128,
                       ingress=100 if group < 20 else 0, read=50) for group in range(25)]
    made = checked_plan(snapshot(nodes(3), groups), Policy())
    assert made.moves
    assert {move.why.resource for move in made.moves} == {LEADERS}
