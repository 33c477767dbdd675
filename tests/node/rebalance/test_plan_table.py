"""The plan under way as replicated state: every command may come twice, late, or out of order."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.wire.errors import Code
from multiraft.wire.plans import CANCEL, PAUSE, RESUME, THROTTLE
from node.metadata import plan_table
from node.metadata.move_phases import FOLLOWING, TERMINAL, Phase, Step, after
from node.metadata.plan_commands import ApplyPlan, ControlPlan
from node.metadata.plan_table import CANCELLED, CANCELLING, DONE, PAUSED, REPAIR, RUNNING, PlanTable
from tests.node.rebalance.cases import (
    CLUSTER,
    LIMITS,
    change,
    control,
    plan,
    step,
    switch,
    transfer,
)


class Replica:
    """Applies commands as a replica does, and checks every invariant after each."""

    def __init__(self, *commands):
        self.table = PlanTable()
        for command in commands:
            assert self(command).code == Code.OK

    def __call__(self, command):
        if isinstance(command, ApplyPlan):
            result = self.table.apply(command, CLUSTER)
        elif isinstance(command, ControlPlan):
            result = self.table.control(command)
        else:
            result = self.table.step(command)
        self.table._check()
        return result

    def phases(self):
        return {seq: record.phase.name for seq, record in self.table.plan.records.items()}


def restored(table):
    """Return the table of a replica that was restored from a checkpoint."""
    again = PlanTable()
    again.fill(cbor2.loads(cbor2.dumps(table.snapshot())))
    again._check()
    return again


# ---- one plan -----------------------------------------------------------------------------------


def test_a_plan_is_carried_out_move_by_move_and_is_over_with_the_last():
    replica = Replica(plan(transfer(1), change(2), switch(3)))
    assert replica.table.plan.state == RUNNING
    for command in (step(1, "TRANSFERRING"), step(2, "LEARNING"), step(1, "DONE"),
                    step(2, "JOINT"), step(3, "SWITCHING"), step(2, "GRACE"), step(3, "DONE")):
        assert replica(command).value is True
        assert replica.table.active is replica.table.plan
    assert replica(step(2, "DONE")).value is True
    assert replica.table.plan.state == DONE and replica.table.active is None
    assert replica.phases() == {1: "DONE", 2: "DONE", 3: "DONE"}


def test_a_command_that_comes_twice_changes_nothing():
    replica = Replica(plan(change(1)))
    assert replica(plan(change(1))).value == RUNNING
    assert replica(step(1, "LEARNING")).value is True
    before = replica.table.snapshot()
    for command in (step(1, "LEARNING"), plan(change(1)), step(1, "PENDING"),
                    step(1, "LEARNING", plan_id="other"), step(9, "LEARNING")):
        assert replica(command).value is not True
        assert replica.table.snapshot() == before


def test_a_step_from_before_the_present_attempt_changes_nothing():
    replica = Replica(plan(change(1)), step(1, "LEARNING"), step(1, "UNDOING"),
                      step(1, "PENDING", attempt=1))
    for late in ("JOINT", "LEARNING", "FAILED", "DONE"):
        assert replica(step(1, late)).value is False
    assert replica.phases() == {1: "PENDING"} and replica.table.plan.records[1].attempt == 1


@pytest.mark.parametrize("command", [
    step(1, "LEARNING", attempt=1), step(1, "SWITCHING"), step(1, "PENDING", attempt=2)])
def test_a_step_that_cannot_follow_is_refused(command):
    replica = Replica(plan(change(1)), step(1, "LEARNING"))
    before = replica.table.snapshot()
    assert replica(command).code == Code.INVALID_REQUEST
    assert replica.table.snapshot() == before


def test_after_joint_there_is_no_way_back():
    replica = Replica(plan(change(1)), step(1, "LEARNING"), step(1, "JOINT"), control(CANCEL))
    for command in (step(1, "UNDOING"), step(1, "CANCELLED"), step(1, "PENDING", attempt=1)):
        assert replica(command).value is not True
    assert replica.phases() == {1: "JOINT"}
    for phase in ("GRACE", "DONE"):
        assert replica(step(1, phase)).value is True
    assert replica.table.plan.state == CANCELLED and replica.phases() == {1: "DONE"}


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("command, code, why", [
    (plan(change(1), cluster_id="cd" * 16), Code.STALE_PLAN, "for cluster cdcd"),
    (plan(change(1), now_ms=12_000), Code.STALE_PLAN, "expired 2 s ago"),
    (plan(), Code.INVALID_REQUEST, "without moves"),
    (plan(change(1), change(1, group=2)), Code.INVALID_REQUEST, "two moves are number 1"),
    (plan(change(1), transfer(2, group=1)), Code.INVALID_REQUEST, "second one of group 1"),
    (plan(switch(1, 7), switch(2, 7)), Code.INVALID_REQUEST, "second one of switch 7"),
    (plan(change(1, depends_on=(2,)), change(2)), Code.INVALID_REQUEST, "depends on"),
    (plan(change(1, new=(1, 2, 3))), Code.INVALID_REQUEST, "changes nothing"),
    (plan(change(1, new=(2, 2, 4))), Code.INVALID_REQUEST, "no destination"),
    (plan(change(1, leader=1)), Code.INVALID_REQUEST, "is no voter"),
    (plan(transfer(1)._replace(new=(2, 3))), Code.INVALID_REQUEST, "more than one")])
def test_a_plan_that_cannot_be_is_refused_with_the_reason(command, code, why):
    replica = Replica()
    result = replica(command)
    assert (result.code, replica.table.plan) == (code, None)
    assert why in result.error.text


def test_one_plan_at_a_time():
    replica = Replica(plan(change(1)))
    result = replica(plan(change(2), plan_id="p2"))
    assert result.code == Code.PLAN_ACTIVE and "rebalance cancel" in result.error.text
    assert replica.table.plan.plan_id == "p1"


def test_a_repair_goes_first_and_begins_when_the_other_plan_is_undone():
    replica = Replica(plan(change(1), change(2)), step(1, "LEARNING"))
    repair = plan(change(1, old=(1, 2, 3), new=(1, 2, 4)), plan_id="fix", scope=REPAIR)
    assert replica(repair).value == "waiting"
    assert replica(repair).value == "waiting"  # twice is once
    assert replica.phases() == {1: "LEARNING", 2: "CANCELLED"}
    assert replica.table.plan.state == CANCELLING
    replica(step(1, "UNDOING"))
    replica(step(1, "CANCELLED"))
    assert (replica.table.plan.plan_id, replica.table.plan.state) == ("fix", RUNNING)
    assert replica(plan(change(5), plan_id="p3", scope=REPAIR)).code == Code.PLAN_ACTIVE


def test_a_repair_begins_at_once_when_nothing_has_begun():
    replica = Replica(plan(change(1)), plan(change(2), plan_id="fix", scope=REPAIR))
    assert replica.table.plan.plan_id == "fix" and replica.table.next is None


# ---- limits -------------------------------------------------------------------------------------


def test_a_node_receives_so_many_replicas_at_once_and_no_more():
    moves = [change(seq, new=(2, 3, 4)) for seq in (1, 2, 3)]
    replica = Replica(plan(*moves), step(1, "LEARNING", source=1), step(2, "LEARNING", source=2))
    result = replica(step(3, "LEARNING", source=3))
    assert (result.code, result.error.limit, result.error.value) == (Code.LIMIT_EXCEEDED, 2, 3)
    assert "node 4 receives" in result.error.text
    replica(step(1, "JOINT"))  # it has been copied
    assert replica(step(3, "LEARNING", source=3)).value is True


def test_a_node_sends_so_many_replicas_at_once_and_no_more():
    moves = [change(seq, new=(2, 3, 3 + seq)) for seq in (1, 2, 3)]
    replica = Replica(plan(*moves), step(1, "LEARNING"), step(2, "LEARNING"))
    result = replica(step(3, "LEARNING"))
    assert result.code == Code.LIMIT_EXCEEDED and "node 1 sends" in result.error.text


def test_a_change_of_more_replicas_than_may_be_sent_at_once_is_not_blocked_for_ever():
    replica = Replica(plan(change(1, old=(1, 2, 3), new=(4, 5, 6))))
    assert replica(step(1, "LEARNING")).value is True


def test_all_limits_count_together():
    moves = [change(seq, new=(2, 3, 10 + seq)) for seq in range(1, 6)]
    replica = Replica(plan(*moves), *(step(seq, "LEARNING", source=seq) for seq in range(1, 5)))
    result = replica(step(5, "LEARNING", source=5))
    assert result.code == Code.LIMIT_EXCEEDED and "4 replica changes copy" in result.error.text
    others = Replica(plan(transfer(1), switch(2), transfer(3)), step(1, "TRANSFERRING"),
                     step(2, "SWITCHING"))
    assert others(step(3, "TRANSFERRING")).code == Code.LIMIT_EXCEEDED


def test_a_move_waits_for_those_whose_room_it_needs():
    replica = Replica(plan(change(1), change(2, depends_on=(1,))))
    assert replica(step(2, "LEARNING")).code == Code.STALE_PLAN
    replica(step(1, "SKIPPED"))
    assert replica(step(2, "LEARNING")).value is True


# ---- control ------------------------------------------------------------------------------------


def test_nothing_begins_while_a_plan_is_paused():
    replica = Replica(plan(change(1), change(2)), step(1, "LEARNING"), control(PAUSE))
    assert replica.table.plan.state == PAUSED
    assert replica(step(2, "LEARNING")).code == Code.STALE_PLAN
    assert replica(step(1, "JOINT")).value is True  # what was decided before is through
    replica(control(RESUME))
    assert replica(step(2, "LEARNING")).value is True


def test_safety_does_not_resume_what_an_operator_paused():
    replica = Replica(plan(change(1)), control(PAUSE, reason="NODE_DOWN: x", by_safety=True))
    assert replica.table.plan.reason == "NODE_DOWN: x"
    replica(control(PAUSE))
    assert replica.table.plan.reason == "paused by the operator"
    replica(control(PAUSE, reason="DISK_FULL: y", by_safety=True))
    replica(control(RESUME, by_safety=True))
    assert (replica.table.plan.state, replica.table.plan.by_safety) == (PAUSED, False)
    replica(control(RESUME))
    assert replica.table.plan.state == RUNNING


def test_an_operator_accepts_slow_commits_and_nothing_else_that_paused_the_plan():
    replica = Replica(plan(change(1), limits=LIMITS._replace(commit_ms_max=7)),
                      control(PAUSE, reason="NODE_DOWN: x", by_safety=True))
    assert replica(control(RESUME)).value == PAUSED, "it would be paused again at once"
    assert replica.table.plan.limits.commit_ms_max == 7
    replica(control(PAUSE, reason="SLOW_COMMITS: y", by_safety=True))
    assert replica(control(RESUME)).value == RUNNING
    assert replica.table.plan.limits.commit_ms_max == 0, "for the rest of this plan"


def test_safety_resumes_a_plan_that_was_slow_with_its_bound():
    replica = Replica(plan(change(1), limits=LIMITS._replace(commit_ms_max=7)),
                      control(PAUSE, reason="SLOW_COMMITS: y", by_safety=True))
    assert replica(control(RESUME, by_safety=True)).value == RUNNING
    assert replica.table.plan.limits.commit_ms_max == 7


def test_when_something_was_moved_is_remembered_beyond_its_plan():
    replica = Replica(plan(change(1, group=7), switch(2, partition=70), transfer(3, group=8),
                           change(4, group=9)),
                      step(1, "LEARNING"), step(2, "SWITCHING"), step(3, "TRANSFERRING"))
    assert (replica.table.moved, replica.table.switched) == ({}, {}), "nothing is there yet"
    for command in (step(1, "JOINT"), step(1, "GRACE"), step(1, "DONE"), step(2, "DONE"),
                    step(3, "DONE"), step(4, "SKIPPED")):
        replica(command)
    assert replica.table.plan.state == DONE
    assert (replica.table.moved, replica.table.switched) == ({7: 2_000}, {70: 2_000})
    again = restored(replica.table)
    assert (again.moved, again.switched) == ({7: 2_000}, {70: 2_000})
    again.forget_partition(70)
    assert again.switched == {}


def test_a_checkpoint_from_before_moves_were_dated_is_read():
    replica = Replica(plan(change(1)), step(1, "LEARNING"))
    old = replica.table.snapshot()
    del old["moved"], old["switched"]
    table = PlanTable()
    table.fill(old)
    assert table.snapshot() == replica.table.snapshot()


def test_the_oldest_dates_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(plan_table, "MOVED_MAX", 2)
    moves = [switch(seq, partition=10 * seq) for seq in (1, 2, 3)]
    replica = Replica(plan(*moves))
    for seq in (1, 2, 3):
        replica(step(seq, "SWITCHING"))
        replica(step(seq, "DONE"))
    assert list(replica.table.switched) == [20, 30]


def test_the_throttle_changes_in_flight_and_ends_with_the_plan():
    replica = Replica(plan(change(1)), control(THROTTLE, 5))
    assert replica.table.plan.limits.throttle == 5
    assert replica(control(THROTTLE, 0)).code == Code.INVALID_REQUEST
    replica(control(CANCEL))
    assert replica.table.active is None
    assert replica(control(THROTTLE, 7)).code == Code.STALE_PLAN
    assert replica(control(CANCEL)).value == CANCELLED  # twice is once
    assert replica(control(PAUSE, plan_id="p9")).code == Code.STALE_PLAN


def test_the_leader_that_was_asked_for_is_remembered():
    replica = Replica(plan(transfer(1, group=7, new=3)), step(1, "TRANSFERRING"), step(1, "DONE"))
    assert replica.table.preferred == {7: 3}
    Replica.__call__(replica, plan(change(1, group=7, old=(1, 2, 3), new=(1, 2, 4)),
                                   plan_id="p2"))
    for phase in ("LEARNING", "JOINT", "DONE"):
        replica(step(1, phase, plan_id="p2"))
    assert replica.table.preferred == {}, "node 3 has no replica any more"


# ---- properties ---------------------------------------------------------------------------------

MOVES = (change(1), change(2, new=(1, 2, 5)), transfer(3), switch(4),
         change(5, new=(2, 3, 4), depends_on=(1,)))
COMMANDS = st.one_of(
    st.builds(step, st.integers(1, 6), st.sampled_from([phase.name for phase in Phase]),
              st.integers(0, 3), st.sampled_from(["p1", "p1", "p1", "p2"]), st.integers(1, 3)),
    st.builds(control, st.sampled_from([PAUSE, RESUME, CANCEL, THROTTLE]), st.integers(0, 9),
              st.sampled_from(["p1", "p2"]), st.sampled_from(["", "why"]), st.booleans()),
    st.sampled_from([plan(*MOVES), plan(*MOVES[1:4], plan_id="p2"),
                     plan(change(9), plan_id="fix", scope=REPAIR)]))


@given(st.lists(COMMANDS, max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_commands_in_any_order_keep_every_invariant(commands):
    replica = Replica(plan(*MOVES))
    for command in commands:
        before = replica.table.snapshot()
        result = replica(command)
        if result.code != Code.OK or result.value is False:
            assert replica.table.snapshot() == before, "a refusal changes nothing"
        again = restored(replica.table)
        assert again.snapshot() == replica.table.snapshot()
        repeated = replica(command)  # every command may come twice
        if repeated.value is True:
            raise AssertionError(f"{command} was news twice")
        into, out, copying = (replica.table.plan.replicas_under_way())
        assert max(into.values(), default=0) <= LIMITS.in_per_node_max
        assert max(out.values(), default=0) <= LIMITS.out_per_node_max
        assert copying <= LIMITS.at_once_max


@given(st.lists(COMMANDS, max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_replica_that_was_restored_anywhere_goes_the_same_way(commands):
    one, other = Replica(plan(*MOVES)), Replica(plan(*MOVES))
    for command in commands:
        assert one(command) == other(command)
        other.table = restored(other.table)
        assert one.table.snapshot() == other.table.snapshot()


@pytest.mark.parametrize("kind", FOLLOWING)
def test_every_phase_leads_to_an_end(kind):
    for phase in FOLLOWING[kind]:
        reached, found = {phase}, True
        while found:
            found = {following for one in reached for following in FOLLOWING[kind].get(one, ())}
            found -= reached
            reached |= found
        assert reached & set(TERMINAL)
    for phase in TERMINAL:
        for wanted in Phase:
            assert after(kind, phase, 0, wanted, 0) is Step.OLD
