"""A plan for one node moves what leaves it or what reaches it, one of the two, and nothing else:
each way of doing more is found out when the plan is verified."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from placement.cluster import ALIVE, MAINTENANCE, GroupRow, NodeRow
from placement.outcome import planned
from placement.plan import NEW_NODE, OVERLOAD, USER, LeaderTransfer, ReplicaChange, Why, identify
from placement.planner import make_plan
from placement.policy import DISK, INGRESS, Band, Options, Policy
from placement.verify import verify
from tests.placement.clusters import (
    NOW_MS,
    STRICT,
    Dice,
    clusters,
    elected,
    nodes,
    only,
    policies,
    snapshot,
    with_state,
)

#: Group -> its voters, of which the first leads; all are of one size.
VOTERS = {1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 5), 4: (4, 5, 1), 5: (5, 1, 2), 6: (1, 2),
          7: (4, 5)}
CLUSTER = snapshot(nodes(6), [GroupRow(group, 1, 10, voters, voters[0], bytes=100)
                              for group, voters in VOTERS.items()])
EMPTY = make_plan(CLUSTER, STRICT._replace(bands=()), Options("node", 4))


def change(group, new, leader=None, why=NEW_NODE):
    old = VOTERS[group]
    to_leader = leader if leader is not None else old[0] if old[0] in new else min(new)
    joining = [node for node in new if node not in old]
    return ReplicaChange(0, 0, (), Why(why), group, 1, 10, tuple(sorted(old)), tuple(sorted(new)),
                         old[0], to_leader, 100 * len(joining))


def transfer(group, to_node):
    return LeaderTransfer(0, 0, (), Why(USER), group, 1, 10, VOTERS[group][0], to_node)


def out_of_scope(*moves, of=CLUSTER):
    """Return the faults of moves outside the scope of a plan for node 4, by move."""
    numbered = tuple(move._replace(seq=seq, wave=seq) for seq, move in enumerate(moves, 1))
    made = identify(EMPTY._replace(moves=numbered))
    return {fault.move_id: fault.text for fault in verify(made, of, NOW_MS)
            if fault.code == "OUT_OF_SCOPE"}


INTO = change(1, (1, 2, 4))
OUT = change(2, (2, 3, 6), why=OVERLOAD)


@pytest.mark.parametrize("moves", [
    (INTO,), (OUT,), (INTO, change(5, (4, 5, 1))), (OUT, change(3, (3, 5, 6))),
    (change(6, (1, 2, 4)),),  # it lacked one
    (INTO, transfer(2, 4)), (INTO, transfer(4, 5)), (transfer(2, 4), transfer(4, 5)),
    (change(1, (2, 3, 4), leader=2),),  # the leader leaves, so that another one leads
    (change(1, (1, 2, 4), leader=4),), (change(4, (1, 5, 6), leader=5),)])
def test_what_concerns_the_node_is_of_its_plan(moves):
    assert out_of_scope(*moves) == {}


@pytest.mark.parametrize("move", [
    change(1, (1, 2, 5)), change(2, (3, 4, 6)),  # with a replica on node 4 that stays
    change(6, (1, 2, 5)),  # a repair of others
    change(1, (1, 4, 5)), change(2, (2, 5, 6)),  # node 4 and others
    change(6, (1, 4, 5)), change(7, (1, 5, 6)), transfer(1, 2), transfer(2, 3)])
def test_what_does_not_concern_it_or_not_alone_is_found_out(move):
    (text,) = out_of_scope(move).values()
    assert "node 4" in text


def test_a_plan_that_moves_replicas_both_ways_is_found_out():
    found = out_of_scope(INTO, OUT, change(5, (4, 5, 1)))
    assert list(found) == ["replicas:g2"]
    assert found["replicas:g2"] == ("it takes a replica from node 4, and replicas:g1 brings one "
                                    "there: a plan for one node goes one way")
    assert list(out_of_scope(OUT, INTO)) == ["replicas:g1"]


def test_a_leader_that_could_stay_is_not_changed_between_others():
    moved = change(1, (1, 2, 4), leader=2)
    (text,) = out_of_scope(moved).values()
    assert "node 1 to node 2" in text and "node 4" in text
    assert out_of_scope(moved, of=with_state(CLUSTER, 1, MAINTENANCE)) == {}, "it may not lead"


@st.composite
def questions(draw):
    """A cluster, a policy, and a node of it."""
    drawn = draw(clusters(states=(ALIVE,)))
    policy = draw(policies())._replace(excluded_groups=(), excluded_nodes=())
    dice = Dice(draw(st.integers(0, 1 << 32)))
    return drawn, policy, Options("node", dice.choice([row.id for row in drawn.nodes]))


@given(questions())
@settings(max_examples=200, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_plans_for_one_node_that_are_made_are_not_refused(question):
    drawn, policy, options = question
    assert verify(make_plan(drawn, policy, options), drawn, drawn.taken_ms) == ()


@given(st.integers(0, 1 << 32))
@example(714)  # a leader reached the node with its replica, and could not leave it again
@example(812)
@example(1595)
@settings(max_examples=40, deadline=None)
def test_a_plan_for_one_node_that_is_converged_leaves_nothing_to_do(seed):
    before = elected(seed)
    policy = Policy(cool_down_ms=0)
    for row in before.nodes:
        made = make_plan(before, policy, Options("node", row.id))
        if made.converged:
            assert make_plan(planned(before, made), policy, made.options).moves == ()


def test_a_replica_that_the_node_has_does_not_stand_for_one_that_it_could_get():
    """Group 2 is the smallest that covers the excess of node 1, and node 3 holds it already."""
    before = snapshot(nodes(3), [GroupRow(group, 1, 10, voters, voters[0], ingress=ingress)
                                 for group, voters, ingress in (
                                     (1, (1, 2), 780), (2, (1, 3), 110), (3, (1, 2), 120),
                                     (4, (3,), 500), (5, (1, 3), 240))], factor=2)
    made = make_plan(before, only(INGRESS, 200), Options("node", 3))
    assert [move.move_id for move in made.moves] == ["replicas:g3"]


#: (node -> its rack, group -> its ingress and voters): giants move and shares with them,
#: so that what gave was soon below its band, and took.
TURNING = [
    ({1: "r", 2: "r", 3: "r", 5: "", 6: "r"},
     {2: (10, 2, 5, 6), 5: (33, 1), 8: (36, 2, 3), 10: (39, 1, 2), 11: (29, 1, 2)}, 2),
    ({1: "r", 2: "", 4: "r"}, {4: (1, 2), 5: (33, 1, 2), 10: (39, 1, 2), 11: (29, 1, 2)}, 1)]


@pytest.mark.parametrize("racks, loads, node", TURNING)
def test_a_plan_for_one_node_ends_where_it_would_turn_back(racks, loads, node):
    """Or a replica went from the node, and another, or the same one, came to it."""
    turning = snapshot([NodeRow(*each) for each in racks.items()],
                       [GroupRow(group, 1, 10, tuple(voters), voters[0], ingress=ingress)
                        for group, (ingress, *voters) in loads.items()],
                       factor=2, pool_size=11)
    policy = Policy(bands=(Band(INGRESS, 0, floor=100),), cool_down_ms=0)
    made = make_plan(turning, policy, Options("node", node))
    assert verify(made, turning, NOW_MS) == ()
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert changes and all(move.leaving == (node,) for move in changes)


@pytest.mark.parametrize("node, way", [(1, "leaving"), (6, "joining")])
def test_a_full_node_gives_and_an_empty_one_takes(node, way):
    full = snapshot(nodes(6), [GroupRow(group, 1, 10, (1, 2 + group % 4), 1, bytes=100)
                               for group in range(1, 13)], factor=2)
    made = make_plan(full, only(DISK), Options("node", node))
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    assert changes and all(getattr(move, way) == (node,) for move in changes)
    assert verify(made, full, NOW_MS) == ()
