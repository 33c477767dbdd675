"""Reasons of moves that wait for a limit: the moves under way, the limit, and the end of the wait.
"""

from __future__ import annotations

import pytest

from multiraft.wire.plans import PlanLimits
from node.metadata.move_phases import Phase
from node.rebalance.cluster_view import SeenPartition
from node.rebalance.scheduler import decide, subjects
from tests.node.rebalance.cases import change, plan, step, switch, transfer
from tests.node.rebalance.model import Cluster, Group


def waits(moves, begun, **limits):
    """Return the reasons of moves that have not started, with these limits."""
    groups = {number: Group(number, (1, 2, 3), leader=1 if number < 5 else 2, last_index=2_000,
                            match=dict.fromkeys((1, 2, 3), 2_000)) for number in range(1, 9)}
    made = Cluster(1, groups, nodes=6)
    made.apply(plan(*moves, limits=PlanLimits(10_000_000, **limits)))
    for seq, phase in begun:
        assert made.table.step(step(seq, phase)).value
    return decide(made.table.active, made.view(*subjects(made.table.active))).waits


CHANGES = (change(1, new=(1, 2, 4)), change(2, new=(1, 2, 5)), change(5, new=(1, 2, 4)),
           change(6, new=(1, 4, 5)))


@pytest.mark.parametrize("moves, begun, limits, seq, told", [
    (CHANGES, [(1, "LEARNING")], {"in_per_node_max": 1}, 5,
     "node 4 receives 1 replica, and in_per_node_max of the plan is 1"),
    (CHANGES, [(1, "LEARNING")], {"out_per_node_max": 1}, 2,
     "node 1 sends 1 replica, and out_per_node_max of the plan is 1"),
    ((change(1, new=(1, 2, 4)), change(2, new=(1, 5, 6))), [(1, "LEARNING")],
     {"out_per_node_max": 2}, 2,
     "node 1 sends 1 replica, this move is 2 more, and out_per_node_max of the plan is 2"),
    (CHANGES, [(1, "LEARNING"), (2, "LEARNING")], {"at_once_max": 2}, 5,
     "2 replica changes copy, and at_once_max of the plan is 2")])
def test_a_limit_of_copies_is_named_with_its_number_its_end_and_how_to_change_it(
        moves, begun, limits, seq, told):
    why = waits(moves, begun, **limits)[seq]
    assert why.startswith(told), why
    assert "begins when one of them has caught up" in why
    (name,) = (name for name in limits if f"--policy` with a larger {name}" in why)
    assert f"{name} of the plan is {limits[name]}" in why
    assert "exceed" not in why


def test_a_limit_of_what_copies_nothing_ends_by_itself():
    why = waits((transfer(1, new=2), transfer(2, new=3)), [(1, "TRANSFERRING")],
                transfers_at_once_max=1)[2]
    assert why == ("1 leader transfer or switch is under way, and transfers_at_once_max of the "
                   "plan is 1: begins when it is through, which takes seconds")
    why = waits((transfer(1, new=2), transfer(2, new=3), transfer(5, new=3)),
                [(1, "TRANSFERRING"), (2, "TRANSFERRING")], transfers_at_once_max=2)[5]
    assert why == ("2 leader transfers and switches are under way, and transfers_at_once_max of "
                   "the plan is 2: begins when one of them is through, which takes seconds")


def test_a_move_that_needs_the_room_of_another_says_how_far_that_is():
    moves = (change(1, old=(1, 2, 3), new=(1, 2, 4)), change(2, new=(1, 2, 5), depends_on=(1,)))
    assert waits(moves, [(1, "LEARNING")])[2] == (
        "needs the room that replicas:g1 frees, which is learning: begins when that is done and "
        "its old replica is removed")


def test_taking_turns_is_no_matter_of_a_node_0():
    made = Cluster(1, {}, nodes=3)
    made.partitions = {103: SeenPartition(1, 1, 0, 0), 104: SeenPartition(1, 1, 0, 0)}
    made.apply(plan(switch(3, partition=103), switch(4, partition=104)))
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert found.waits[4] == "waits for its turn: the plan starts one switch at a time"


@pytest.mark.parametrize("joining, told", [((4,), "node 4 got nothing for 61 s"),
                                           ((4, 5), "nodes 4, 5 got nothing for 61 s")])
def test_what_got_nothing_is_given_up_and_named(joining, told):
    groups = {1: Group(1, (1, 2, 3), leader=1, last_index=2_000,
                       match=dict.fromkeys((1, 2, 3), 2_000))}
    made = Cluster(1, groups, nodes=5)
    made.apply(plan(change(1, old=(1, 2, 3), new=(1, *joining)[:3])))
    assert made.table.step(step(1, "LEARNING")).value
    view = made.view(*subjects(made.table.active))
    (found,) = decide(made.table.active, view._replace(stalled_ms={1: 61_000})).actions
    assert (found.phase, found.reason) == (Phase.UNDOING, told)
