"""Decisions of the scheduler from any state, with every message lost, doubled or late, and nodes
killed.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.wire.errors import Code
from multiraft.wire.plans import ALIVE, CANCEL, DRAINING, MAINTENANCE, PAUSE, RESUME, PlanLimits
from node.metadata.move_phases import Phase
from node.metadata.plan_table import REPAIR, ActivePlan
from node.rebalance import preconditions
from node.rebalance.actions import Change, StepTo, Switch, Transfer
from node.rebalance.cluster_view import ClusterView, SeenNode, SeenPartition
from node.rebalance.replica_change import preference_order
from node.rebalance.safety import pause_reason
from node.rebalance.scheduler import decide, subjects
from node.rebalance.throttle import UNLIMITED, limits_of
from tests.node.rebalance.cases import LIMITS, change, control, plan, step, switch, transfer
from tests.node.rebalance.model import Cluster, Group


def group(number, voters=(1, 2, 3), leader=1, last=2_000, **fields):
    return Group(number, voters, leader, last_index=last, match=dict.fromkeys(voters, last),
                 **fields)


def cluster(seed=1, nodes=5):
    made = Cluster(seed, {number: group(number, leader=1 + number % 3) for number in range(1, 6)},
                   nodes)
    made.groups[6] = group(6, voters=(1, 2))
    made.partitions[104] = SeenPartition(1, 1, 0, 0)
    return made


MOVES = (change(1, new=(2, 3, 4), leader=4), change(2, new=(1, 4, 5)), transfer(3, old=1, new=3),
         switch(4, partition=104), change(5, new=(3, 4, 5), depends_on=(1,)),
         change(6, old=(1, 2), new=(1, 2, 4)))


# ---- golden -------------------------------------------------------------------------------------


def test_a_change_of_replicas_step_by_step():
    made = cluster()
    made.apply(plan(change(1, group=3, new=(2, 3, 4)), limits=LIMITS))
    told = []
    while made.table.active is not None:
        found = decide(made.table.active, made.view(*subjects(made.table.active)))
        told += [_line(action) for action in found.actions]
        for action in found.actions:
            made.do(made.table.plan, action)
        made.now_ms += 250
        for each in made.groups.values():
            each.match = {node: each.last_index
                          for node in (*each.voters, *each.learners, *each.outgoing)}
            while each.is_open:
                each._commit(made.up)
    assert list(dict.fromkeys(told)) == [
        "move 1 learning from n1",
        "g3 (n1) voters 1 2 3 learners 4",
        "move 1 joint",
        "g3 (n1) to n2",  # the leader leaves: it hands over first
        "g3 (n2) voters 4 2 3 learners 1",
        "move 1 grace",
        "g3 (n2) voters 4 2 3 learners",
        "move 1 done"]


def test_a_plan_that_goes_on_during_a_look_skips_nothing_that_the_look_left_out():
    """The plan was paused, so moves that could start were not observed; then it was resumed."""
    made = cluster()
    made.apply(plan(switch(4, partition=104), limits=LIMITS))
    made.table.control(control(PAUSE, by_safety=True))
    view = made.view(*subjects(made.table.active))
    made.table.control(control(RESUME, by_safety=True))
    found = decide(made.table.active, view)
    assert found.actions == [] and "not observed" in found.waits[4]
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert [_line(action) for action in found.actions] == ["move 4 switching"]


def test_a_switch_of_a_deleted_topic_is_skipped():
    made = cluster()
    del made.partitions[104]
    made.apply(plan(switch(4, partition=104), limits=LIMITS))
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert [_line(action) for action in found.actions] == ["move 4 skipped"]


def _line(action) -> str:
    if isinstance(action, StepTo):
        source = f" from n{action.source}" if action.source else ""
        return f"move {action.seq} {action.phase.name.lower()}{source}"
    if isinstance(action, Transfer):
        return f"g{action.group} (n{action.leader}) to n{action.to}"
    assert isinstance(action, Change)
    voters, learners = (" ".join(map(str, nodes)) for nodes in (action.voters, action.learners))
    return f"g{action.group} (n{action.leader}) voters {voters} learners {learners}".rstrip()


def test_the_order_of_the_new_voters_keeps_preferences():
    assert preference_order(change(1, new=(2, 3, 4)), (3, 1, 2)) == (3, 4, 2)
    assert preference_order(change(1, new=(2, 3, 4), leader=4), (3, 1, 2)) == (4, 3, 2)
    assert preference_order(change(1, new=(1, 2)), (3, 1, 2)) == (1, 2)
    assert preference_order(change(1, new=(1, 2, 3, 5)), (3, 1, 2)) == (3, 1, 2, 5)


def test_moves_of_one_look_come_from_different_senders():
    made = cluster()
    for each in made.groups.values():
        each.leader = 1 if each.id < 5 else 2
    made.apply(plan(*(change(seq, new=(1, 3, 3 + seq % 3)) for seq in (1, 2, 4, 5))))
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert [action.seq for action in found.actions] == [1, 5]
    assert "waits for its turn" in found.waits[2]


@pytest.mark.parametrize("spoil, why", [
    (lambda view: view.groups[1].__setattr__("conf_index", 9), "index 9"),
    (lambda view: view.groups[1].__setattr__("voters", (1, 2, 5)), "are 1, 2, 5")])
def test_a_move_whose_guard_does_not_hold_is_skipped(spoil, why):
    made = cluster()
    made.apply(plan(change(1)))
    spoil(made)
    made.look(faults=False)
    record = made.table.plan.records[1]
    assert record.phase is Phase.SKIPPED and why in record.reason


def test_a_repair_that_waited_is_judged_by_voters_and_not_by_what_undoing_left():
    made = cluster()
    made.apply(plan(change(1)))
    while made.groups[1].learners != (4,):
        made.look(faults=False)
    made.groups[1].match[4] = 0
    repair = change(1, new=(1, 2, 5), expected=made.groups[1].conf_index)
    assert made.apply(plan(repair, plan_id="fix", scope=REPAIR)).value == "waiting"
    made.finish()
    assert made.table.plan.plan_id == "fix"
    assert made.table.plan.records[1].phase is Phase.DONE
    assert {*made.groups[1].voters} == {1, 2, 5}


def test_a_move_that_somebody_else_made_is_done():
    made = cluster()
    made.groups[1].voters = (2, 3, 4)
    made.groups[3].leader = 3
    made.apply(plan(change(1), transfer(3, new=3)))
    made.look(faults=False)
    assert {record.phase for record in made.table.plan.records.values()} == {Phase.DONE}


def test_what_waits_says_why():
    made = cluster()
    made.up.discard(4)
    made.apply(plan(change(1), change(2, new=(1, 2, 5)), transfer(3, old=1, new=3)))
    made.groups[2].is_open = True
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert found.waits == {1: "node 4 is not up",
                           2: "group 2 is in the middle of a change of members"}


def test_voters_are_not_exchanged_for_some_of_which_most_are_down():
    made = cluster()
    made.apply(plan(change(1, new=(2, 3, 4))))
    while made.table.active.records[1].phase is not Phase.JOINT:
        made.look(faults=False)
    assert made.groups[1].voters == (1, 2, 3) and not made.groups[1].outgoing
    made.up -= {3, 4}
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert found.actions == []
    assert found.waits == {1: "nodes 3, 4 are not up: the new voters would have no majority"}
    made.up |= {3, 4}
    made.finish()
    assert {*made.groups[1].voters} == {2, 3, 4}


@pytest.mark.parametrize("is_learner", [True, False])
def test_a_plan_whose_new_voter_is_lost_before_it_votes_comes_to_its_end(is_learner):
    """The vote was recorded, and the node died before its group was asked for the change."""
    made = cluster()
    made.apply(plan(change(1, new=(2, 3, 4))))
    while made.table.active.records[1].phase is not Phase.JOINT:
        made.look(faults=False)
    assert made.groups[1].learners == (4,) and not made.groups[1].outgoing
    made.up.discard(4)
    made.groups[1].last_index += 5_000
    if not is_learner:  # an operator took it away
        made.groups[1].learners = ()
    repair = change(1, group=2, old=(1, 2, 3), new=(1, 2, 5), expected=made.groups[2].conf_index)
    assert made.apply(plan(repair, plan_id="fix", scope=REPAIR)).value == "waiting"
    for _ in range(400):
        made.look(faults=False)
    assert (made.groups[1].voters, made.groups[1].learners) == ((1, 2, 3), ())
    assert {*made.groups[2].voters} == {1, 2, 5} and made.table.plan.state == "done"


def test_a_transfer_of_a_group_without_a_leader_keeps_no_cancelled_plan():
    made = cluster()
    made.apply(plan(transfer(1, old=2, new=3)))
    while made.table.active.records[1].phase is not Phase.TRANSFERRING:
        for action in decide(made.table.active, made.view((1,), ())).actions:
            made.do(made.table.active, action)
    made.up -= {1, 2}
    made.groups[1].leader = 2
    made.table.control(control(CANCEL))
    for _ in range(100):
        made.look(faults=False)
    assert made.table.plan.state == "cancelled"


def test_a_switch_of_a_topic_that_is_compacted_meanwhile_is_skipped():
    made = cluster()
    made.apply(plan(switch(4, partition=104), limits=LIMITS))
    made.partitions[104] = made.partitions[104]._replace(is_compacted=True)
    found = []
    while made.table.active is not None:
        found += decide(made.table.active, made.view(*subjects(made.table.active))).actions
        for action in found[-1:]:
            made.do(made.table.plan, action)
    assert [_line(action) for action in found] == ["move 4 switching", "move 4 skipped"]
    assert "cleanup.policy=compact" in made.table.plan.records[4].reason
    assert made.partitions[104].epoch == 1


def test_a_switch_that_is_decided_ends_although_its_topic_is_compacted_meanwhile():
    made = cluster()
    made.apply(plan(switch(4, partition=104), limits=LIMITS))
    made.do(made.table.plan, decide(made.table.active, made.view(
        *subjects(made.table.active))).actions[0])
    made.partitions[104] = SeenPartition(1, 1, 2, 2, is_compacted=True)
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert found.actions == [] and "seals it" in found.waits[4]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_switch_that_is_never_decided_keeps_no_plan(cancelled):
    """The metadata refuse it: the partition has too many links, or there is no such group."""
    made = cluster()
    made.apply(plan(switch(1, partition=104), transfer(2, old=2, new=3)))
    do, refuse = made.do, lambda plan, action: isinstance(action, Switch) or do(plan, action)
    made.do = refuse
    while made.table.active.records[1].phase is not Phase.SWITCHING:
        made.look(faults=False)
    if cancelled:
        made.table.control(control(CANCEL))
        made.look(faults=False)
    else:
        made.finish()
        assert made.table.plan.records[1].phase is Phase.FAILED
    assert made.table.plan.is_over and made.partitions[104].epoch == 1


# ---- what the operator wants of nodes -----------------------------------------------------------


@pytest.mark.parametrize("desired_state, why", [
    (DRAINING, "node 4 is draining"), (MAINTENANCE, "node 4 is in maintenance")])
def test_a_node_that_is_drained_meanwhile_gets_nothing_of_what_has_not_begun(desired_state, why):
    made = cluster()
    made.groups[2].voters = made.groups[3].voters = (1, 2, 4)
    made.apply(plan(change(1, new=(2, 3, 4)), transfer(2, new=4), switch(4, partition=104),
                    change(3, old=(1, 2, 4), new=(2, 4, 5))))  # node 4 has that one, and keeps it
    made.desired_states[4] = desired_state
    made.finish()
    records = made.table.plan.records
    assert {seq: record.phase.name for seq, record in records.items()} == {
        1: "SKIPPED", 2: "SKIPPED", 4: "DONE", 3: "DONE"}
    for seq in (1, 2):
        assert why in records[seq].reason and "`multiraft node undrain 4`" in records[seq].reason


def test_what_a_drained_node_leads_already_is_done_and_not_skipped():
    made = cluster()
    made.groups[1].leader = 3
    made.desired_states[3] = DRAINING
    made.apply(plan(transfer(1, new=3)))
    made.look(faults=False)
    assert made.table.plan.records[1].phase is Phase.DONE


def learning(made):
    """Group 1 gives node 4 a replica, which has the half of it."""
    made.apply(plan(change(1, new=(2, 3, 4))))
    while made.groups[1].learners != (4,) or made.groups[1].is_open:
        made.look(faults=False)
    made.groups[1].match[4] = 0


def test_a_copy_to_a_node_that_is_drained_meanwhile_is_undone():
    made = cluster()
    learning(made)
    made.desired_states[4] = DRAINING
    made.finish()
    record = made.table.plan.records[1]
    assert record.phase is Phase.SKIPPED and "node 4 is draining" in record.reason
    assert (made.groups[1].voters, made.groups[1].learners) == ((1, 2, 3), ())


def test_a_copy_to_a_node_whose_maintenance_begins_meanwhile_is_finished():
    made = cluster()
    learning(made)
    made.desired_states[4] = MAINTENANCE
    made.finish()
    assert made.table.plan.records[1].phase is Phase.DONE


def test_a_node_that_is_spared_meanwhile_is_not_asked_to_lead():
    """Neither by a transfer that has begun, nor because a change of replicas was to end there."""
    made = cluster()
    made.groups[1].leader = made.groups[2].leader = 1
    made.apply(plan(change(1, new=(2, 3, 4), leader=2), transfer(2, new=2)))
    made.table.step(step(2, "TRANSFERRING"))
    made.desired_states[2] = MAINTENANCE
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert "move 2 skipped" in [_line(action) for action in found.actions]
    made.finish()
    assert made.table.plan.records[1].phase is Phase.DONE
    assert made.groups[1].leader in (3, 4)


# ---- properties ---------------------------------------------------------------------------------


@given(st.integers(0, 1 << 30))
@settings(max_examples=120, deadline=None)
def test_whatever_is_lost_doubled_late_or_killed_the_plan_comes_to_its_end(seed):
    made = cluster(seed)
    made.apply(plan(*MOVES))
    for _ in range(made.rng.randrange(120)):
        if made.rng.random() < 0.1:
            made.up.symmetric_difference_update({made.rng.randrange(1, 6)})
        made.look(faults=True)
    made.finish()
    made.check_ended()
    assert made.table.plan.state == "done"


@given(st.integers(0, 1 << 30), st.integers(0, 60))
@settings(max_examples=120, deadline=None)
def test_a_plan_that_is_cancelled_anywhere_leaves_old_voters_or_new_ones_and_nothing_between(
        seed, when):
    made = cluster(seed)
    made.apply(plan(*MOVES))
    for _ in range(when):
        made.look(faults=True)
    made.table.control(control(CANCEL))
    for _ in range(20):
        made.look(faults=True)
    made.finish()
    made.check_ended()
    assert made.table.plan.is_over


@given(st.integers(0, 1 << 30), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_repair_goes_first_wherever_the_other_plan_is(seed, when):
    made = cluster(seed)
    made.apply(plan(*MOVES))
    for _ in range(when):
        made.look(faults=True)
    target = made.groups[4]
    repair = change(1, group=4, old=target.voters, new=(1, 2, 5), expected=target.conf_index)
    assert made.apply(plan(repair, plan_id="fix", scope=REPAIR)).code == Code.OK
    made.finish()
    if made.table.plan.plan_id == "fix":
        assert {*target.voters} == {1, 2, 5}
    made.check_ended()


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_whoever_is_drained_and_undrained_meanwhile_the_plan_comes_to_its_end(seed):
    made = cluster(seed)
    made.apply(plan(*MOVES))
    for _ in range(made.rng.randrange(120)):
        if made.rng.random() < 0.1:
            made.desired_states[made.rng.randrange(1, 6)] = made.rng.choice((ALIVE, DRAINING,
                                                                      MAINTENANCE))
        made.look(faults=True)
    made.finish()
    made.check_ended()
    assert made.table.plan.state == "done"


@given(st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_a_paused_plan_begins_nothing_and_goes_on_afterwards(seed):
    made = cluster(seed)
    made.apply(plan(*MOVES))
    for _ in range(made.rng.randrange(30)):
        made.look(faults=True)
    made.table.control(control(PAUSE))
    pending = [seq for seq, record in made.table.plan.records.items()
               if record.phase is Phase.PENDING]
    for _ in range(40):
        made.look(faults=True)
    if made.table.active is not None:
        for seq in pending:
            assert made.table.plan.records[seq].phase is Phase.PENDING
        made.table.control(control(RESUME))
    made.finish()
    made.check_ended()


def test_a_plan_that_nothing_disturbs_asks_for_little():
    """Level-triggered does not mean that everything is asked again at each look."""
    made = cluster()
    made.apply(plan(*MOVES))
    made.finish()
    assert made.asked < 20 * len(MOVES), made.asked


# ---- guards, throttle, safety -------------------------------------------------------------------


def observed(made, moves):
    made.table.plan = ActivePlan("p", "all", 0, LIMITS, moves)
    return made.view(*subjects(made.table.plan))


@pytest.mark.parametrize("move, why", [
    (change(1, expected=7), "made for index 7"),
    (change(1, incarnation=2), "is in incarnation 1"),
    (change(1, old=(1, 2, 5)), "its voters are"),
    (change(1, new=(1, 2, 9)), "there is no node 9"),
    (transfer(1, new=5), "node 5 is no voter"),
    (switch(1, partition=999), "the partition no longer exists"),
    (switch(1, partition=104, expected=2), "at epoch 1"),
    (switch(1, partition=104, old=5), "in group 1")])
def test_every_guard_is_compared_before_anything_begins(move, why):
    made = cluster()
    assert why in preconditions.faults((move,), observed(made, (move,)))[0]
    made.up.discard(2)
    gone = (change(1),)  # node 2 leads it
    view = observed(made, gone)
    assert (
        preconditions.faults(gone, view) == []
        and "has no leader" in preconditions.unseen(gone, view)[0]
    )
    made.up.add(2)
    sound = (change(1), transfer(2, new=3), switch(3, partition=104))
    assert preconditions.faults(sound, observed(made, sound)) == []


def test_a_plan_that_switches_a_compacted_partition_is_refused():
    made = cluster()
    made.partitions[104] = made.partitions[104]._replace(is_compacted=True)
    moves = (switch(3, partition=104),)
    assert "cleanup.policy=compact" in preconditions.faults(moves, observed(made, moves))[0]


@pytest.mark.parametrize("move", [change(1, new=(2, 3, 4)), transfer(1, new=4)])
@pytest.mark.parametrize("desired_state, why", [
    (DRAINING, "node 4 is draining"), (MAINTENANCE, "node 4 is in maintenance")])
def test_a_plan_that_gives_something_to_a_node_that_is_spared_is_stale(desired_state, why, move):
    made = cluster()
    if move.kind == transfer(1).kind:
        made.groups[1].voters = (1, 2, 4)
    assert preconditions.faults((move,), observed(made, (move,))) == []
    made.desired_states[4] = desired_state
    assert why in preconditions.faults((move,), observed(made, (move,)))[0]


def test_a_leader_that_is_already_where_it_shall_be_makes_no_plan_stale():
    made, move = cluster(), transfer(1, new=2, expected=7)
    assert made.groups[1].leader == 2
    assert preconditions.faults((move,), observed(made, (move,))) == []
    made.groups[1].leader = 1
    assert "made for index 7" in preconditions.faults((move,), observed(made, (move,)))[0]


def test_the_floor_is_what_is_appended_to_the_groups_that_are_copied_at_once():
    moves = tuple(change(seq, new=(2, 3, 4)) for seq in (1, 2, 3))
    rates = {1: 100, 2: 300, 3: 200}
    two = PlanLimits(1, in_per_node_max=2, out_per_node_max=2)
    assert (
        preconditions.least_throttle(moves, two, rates, {1: 1, 2: 2, 3: 3}) == 600
    )  # (300 + 200) * 1.2
    assert (
        preconditions.least_throttle(
            moves, two._replace(in_per_node_max=1), rates, {1: 1, 2: 2, 3: 3}
        )
        == 360
    )
    assert preconditions.least_throttle((transfer(1),), two, rates, {}) == 0


def test_streams_share_what_a_node_may_take_in_and_a_pause_stops_them():
    active = ActivePlan("p", "all", 0, LIMITS._replace(throttle=1_000), (change(1), change(2)))
    assert limits_of(None) == UNLIMITED and limits_of(active).into == {}
    for seq in (1, 2):
        active.records[seq] = active.records[seq]._replace(phase=Phase.LEARNING)
        active.under_way[seq] = None
    assert limits_of(active) == (1_000, {(1, 4): 500, (2, 4): 500})
    active.state = "paused"
    assert limits_of(active).into == {(1, 4): 0, (2, 4): 0}
    active.records[2] = active.records[2]._replace(phase=Phase.JOINT)
    assert limits_of(active).into == {(1, 4): 0, (2, 4): 500}, "what is decided goes on"


def view_of(*nodes, without_quorum=()):
    return ClusterView({node.id: node for node in nodes}, {}, {}, {}, {}, without_quorum, {}, {}, 3)


@pytest.mark.parametrize("view, scope, code", [
    (view_of(SeenNode(1, "up", "alive")), "all", ""),
    (view_of(SeenNode(1, "down", "alive")), "all", "NODE_DOWN"),
    (view_of(SeenNode(1, "down", "alive")), REPAIR, ""),
    (view_of(SeenNode(1, "up", "alive", damaged=1)), "all", "UNDER_REPLICATED"),
    (view_of(SeenNode(1, "up", "alive"), without_quorum=(3,)), REPAIR, "NO_QUORUM"),
    (view_of(SeenNode(4, "up", "alive", 950, 1000)), "all", "DISK_FULL"),
    (view_of(SeenNode(1, "up", "alive", 950, 1000)), "all", ""),  # it receives nothing
    (view_of(SeenNode(1, "up", "alive", 10, 1000, True)), "all", "DISK_FULL"),
    (view_of(SeenNode(1, "up", "alive", commit_ms=9_000)), "all", "SLOW_COMMITS")])
def test_a_plan_pauses_for_each_reason_and_for_nothing_else(view, scope, code):
    active = ActivePlan("p", scope, 0, LIMITS, (change(1),))
    assert pause_reason(active, view).split(":")[0] == code


def test_nodes_that_the_plan_empties_because_they_are_dead_do_not_stop_it():
    active = ActivePlan("p", "all", 0, LIMITS, (change(1, reason="REPAIR_DEAD"),))
    assert pause_reason(active, view_of(SeenNode(1, "down", "alive"))) == ""
    assert pause_reason(active, view_of(SeenNode(2, "down", "alive"))).startswith("NODE_DOWN")


def test_a_step_of_another_plan_changes_nothing():
    made = cluster()
    made.apply(plan(change(1)))
    made.table.step(step(1, "LEARNING", plan_id="other"))
    assert made.table.plan.records[1].phase is Phase.PENDING
