"""Predictions of ``whatif``: the imagined cluster is planned for like a real one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import cluster, plan, replicas, verify, whatif
from placement.cluster import NodeRow
from placement.errors import InvalidChange, InvalidTopology, LimitExceeded, NotEnoughNodes
from placement.outcome import planned
from placement.planner import make_plan
from placement.policy import Options
from placement.topology import NodePlace, Topology
from placement.whatif import Change, hypothetical
from tests.placement.clusters import MIB, NOW_MS, STRICT, clusters, nodes
from tests.placement.clusters import cluster as built

FOUR = built(nodes(4, racks=4), 16, [MIB * (1 + number % 5) for number in range(200)])


def planned_for(change, before=FOUR, policy=STRICT):
    """The imagined cluster and its plan, which is sound."""
    after = hypothetical(before, change)
    made = make_plan(after, policy, whatif.drained(change, Options()))
    assert not verify.verify(made, after, NOW_MS)
    return after, made


def test_nothing_is_imagined_without_a_change():
    assert hypothetical(FOUR, Change()) == FOUR


def test_a_node_that_joins_is_empty_and_gets_its_share():
    after, made = planned_for(Change(joins=(NodeRow(5, "r9"),)))
    assert FOUR.groups == after.groups
    row = next(row for row in made.nodes if row.node == 5)
    assert (row.replicas_before, row.before) == (0, (0, 0, 0, 0))
    assert row.after[1] >= row.share[1] * 9 // 10


def test_a_node_that_leaves_is_empty_afterwards():
    after, made = planned_for(Change(leaves=(2,)))
    assert not any(2 in row.voters for row in planned(after, made).groups)


def test_a_node_that_is_lost_is_repaired_around():
    after, made = planned_for(Change(lost=(2,)))
    assert all(2 not in row.voters and len(row.voters) == 3
               for row in planned(after, made).groups)
    assert {move.why.reason for move in made.moves} >= {plan.REPAIR_DEAD}


def test_the_last_rack_is_not_left():
    before = built(nodes(4, racks=3), 8, [MIB] * 50)
    _, made = planned_for(Change(leaves=(2,)), before)
    assert made.is_empty and made.infeasible[0].cause == plan.LAST_RACK


def test_new_groups_are_where_a_growth_would_put_them_and_take_what_is_too_much():
    after, made = planned_for(Change(pool_size=24, leaves=(4,)))
    topology = Topology.of(NodePlace(row.id, row.rack, row.weight) for row in FOUR.nodes
                           if row.id != 4)
    new = {row.id: row for row in after.groups if row.id > 16}
    assert {group: (row.leader, row.voters) for group, row in new.items()} == {
        group: (placed[0], tuple(sorted(placed))) for group in range(17, 25)
        for placed in [replicas(group, 3, topology, FOUR.hash_seed)]}
    switched = {move.to_group for move in made.moves if move.kind == plan.TOPIC_SWITCH}
    assert switched >= set(new), "partitions that exist go there by a plan only"


@pytest.mark.parametrize("change, error, why", [
    (Change(joins=(NodeRow(2),)), InvalidChange, "node 2 is there already"),
    (Change(joins=(NodeRow(5), NodeRow(5))), InvalidChange, "node 5 joins twice"),
    (Change(joins=(NodeRow(0),)), InvalidTopology, "node id 0"),
    (Change(joins=(NodeRow(5, weight=-1),)), InvalidTopology, "weight"),
    (Change(leaves=(9,)), InvalidChange, "no node 9 that could leave; the nodes are 1, 2, 3, 4"),
    (Change(lost=(9,)), InvalidChange, "no node 9"),
    (Change(leaves=(2,), lost=(2,)), InvalidChange, "node 2 leaves or is lost twice"),
    (Change(pool_size=16), InvalidChange, "only grows: 16 is not more"),
    (Change(pool_size=1 << 20), LimitExceeded, "pool_size"),
    (Change(lost=(1, 2), pool_size=20), NotEnoughNodes, "needs as many nodes")])
def test_what_cannot_be_is_refused(change, error, why):
    with pytest.raises(error, match=why):
        hypothetical(FOUR, change)


def test_a_partition_is_followed_through_the_plan():
    after, made = planned_for(Change(pool_size=32, leaves=(4,)))
    groups = {row.incarnation: row.group for row in FOUR.partitions}
    found = whatif.places(after, made, planned(after, made), groups)
    moved = {move.incarnation: move.to_group for move in made.moves
             if move.kind == plan.TOPIC_SWITCH}
    assert moved and {incarnation: there.group for incarnation, (_, there) in found.items()} == {
        **groups, **moved}
    here, there = found[1]
    assert here.voters == next(row.voters for row in FOUR.groups if row.id == groups[1])
    assert 4 not in there.voters and there.leader in there.voters


@settings(max_examples=30, derandomize=True, deadline=None)
@given(clusters(), st.data())
def test_whatever_the_cluster_is_a_change_is_refused_or_planned_for(before, data):
    ids = [row.id for row in before.nodes]
    change = Change(joins=tuple(NodeRow(max(ids) + 1, "new") for _ in range(data.draw(
        st.integers(0, 1)))), leaves=tuple(data.draw(st.lists(st.sampled_from(ids), max_size=1))),
        pool_size=data.draw(st.sampled_from((0, before.pool_size + 3))))
    try:
        after = hypothetical(before, change)
    except NotEnoughNodes:
        return
    made = make_plan(after, STRICT, whatif.drained(change, Options()))
    assert not verify.verify(made, after, NOW_MS)
    old = {row.id: row for row in before.groups}
    assert all(old.get(row.id, row) == row for row in after.groups), "nothing has moved"
    assert cluster.checked(after) == after
