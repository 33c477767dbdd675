"""Checks of the metadata leader before it records a plan, or changes one under way."""

from __future__ import annotations

import pytest
import trio

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.wire import plans as wire
from multiraft.wire.errors import InvalidRequest, LeaderUnknown, LimitExceeded, StalePlan
from node.metadata.plan_commands import ControlPlan
from node.metadata.plan_table import PlanTable
from node.rebalance import requests
from node.rebalance.cluster_view import ClusterView, SeenNode
from node.rebalance.requests import PlanRequests
from placement import throttle
from tests.node.rebalance.cases import CLUSTER, LIMITS, change, plan, transfer

#: Bytes per second that are appended to group 1.
APPENDED = 1_000_000


class Leader:
    """A metadata log that leads, and what is observed of a cluster in which group 1 grows."""

    def __init__(self, *applied):
        self.plans = PlanTable()
        self.cluster_id = bytes.fromhex(CLUSTER)
        self.proposed: list = []
        self.looks = 0
        self.silent = False
        self.appended = APPENDED
        for command in applied:
            self.plans.apply(command, CLUSTER)
        self.requests = PlanRequests(self, None, lambda: self)

    state = property(lambda self: self)

    def check_leading(self):
        pass

    async def propose(self, command):
        self.proposed.append(command)
        raise Proposed

    async def observe(self, groups, _partitions):
        self.looks += 1
        found = {} if self.silent else {group: wire.ProbedGroup(
            group, 1, 0, False, (1, 2, 3), (), (), 9, self.looks * self.appended, 0, ())
            for group in groups}
        nodes = {node: SeenNode(node, "up", "alive") for node in range(1, 6)}
        return ClusterView(nodes, found, dict.fromkeys(groups, 1), {}, {}, (), {}, {}, 3)

    def ask(self, request):
        return trio.run(self.requests.handlers[type(request)], request)


class Proposed(Exception):
    """It was let through."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The measurement takes no time, and the log grew by ``APPENDED`` in it."""
    async def sleep(_seconds):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(requests.trio, "sleep", sleep)


def asked(*moves, throttle=10_000_000, cluster_id=CLUSTER):
    return wire.ApplyPlan("ab" * 32, cluster_id, "all", 1 << 60,
                          LIMITS._replace(throttle=throttle), moves)


@pytest.mark.parametrize("moves, error, why", [
    ((change(1, incarnation=2),), StalePlan, "replicas:g1: it is in incarnation 1"),
    ((change(1, expected=5),), StalePlan, "its members were changed at index 0"),
    ((change(1, new=(2, 3, 9)),), StalePlan, "there is no node 9"),
    ((transfer(1, new=9),), StalePlan, "there is no node 9")])
def test_what_does_not_fit_the_cluster_is_not_written_down(moves, error, why):
    leader = Leader()
    with pytest.raises(error, match=why):
        leader.ask(asked(*moves))
    assert not leader.proposed


def test_another_cluster_s_plan_is_not_looked_at():
    leader = Leader()
    with pytest.raises(StalePlan, match="the plan is for cluster ff"):
        leader.ask(asked(change(1), cluster_id="ff" * 16))
    assert (leader.proposed, leader.looks) == ([], 0)


def test_a_plan_of_which_nothing_can_be_seen_waits():
    leader = Leader()
    leader.silent = True
    with pytest.raises(LeaderUnknown, match="cannot be compared"):
        leader.ask(asked(change(1)))
    assert not leader.proposed


def test_a_throttle_below_what_is_appended_is_refused_with_the_least_that_would_do():
    leader = Leader()
    with pytest.raises(LimitExceeded, match="too low") as refused:
        leader.ask(asked(change(1), throttle=APPENDED))
    assert refused.value.detail.limit == APPENDED * 12 // 10 and not leader.proposed
    with pytest.raises(Proposed):
        leader.ask(asked(change(1), throttle=refused.value.detail.limit))


def test_a_throttle_at_which_a_replica_would_be_given_up_is_refused_whatever_is_appended():
    """The largest batch, to as many replicas as a node may receive or send at once, has to be
    through before a learner that got nothing is given up; and above is a slip."""
    assert throttle.PIECE_BYTES_MAX == BATCH_BYTES_MAX
    least = throttle.smallest(LIMITS.in_per_node_max, LIMITS.out_per_node_max)
    assert least * throttle.STILL_MS_MAX // 1000 // 2 > BATCH_BYTES_MAX
    for rate, why, limit in ((5, "and is given up then", least),
                             (1 << 50, "above THROTTLE_MAX", throttle.THROTTLE_MAX)):
        leader = Leader(plan(change(2), limits=LIMITS))
        for request in (asked(change(2), throttle=rate),
                        wire.ControlPlan(wire.THROTTLE, "", rate)):
            leader.appended = 0
            with pytest.raises(LimitExceeded, match=why) as refused:
                leader.ask(request)
            assert refused.value.detail.limit == limit and not leader.proposed


@pytest.mark.parametrize("name", ["throttle", "in_per_node_max", "out_per_node_max", "at_once_max",
                                  "transfers_at_once_max"])
def test_a_limit_under_which_no_move_could_ever_begin_is_refused(name):
    leader = Leader()
    request = asked(transfer(1))
    with pytest.raises(InvalidRequest, match=f"{name} is 0"):
        leader.ask(request._replace(limits=request.limits._replace(**{name: 0})))
    assert not leader.proposed


def test_leaders_are_moved_whatever_the_throttle():
    with pytest.raises(Proposed):
        Leader().ask(asked(transfer(1), throttle=1))


def test_the_throttle_of_a_plan_under_way_is_judged_alike():
    leader = Leader(plan(change(1), limits=LIMITS))
    for value, error in ((0, InvalidRequest), (APPENDED, LimitExceeded)):
        with pytest.raises(error):
            leader.ask(wire.ControlPlan(wire.THROTTLE, "", value))
    assert not leader.proposed
    with pytest.raises(Proposed):
        leader.ask(wire.ControlPlan(wire.THROTTLE, "", 2 * APPENDED))
    (command,) = leader.proposed
    assert isinstance(command, ControlPlan) and command.value == 2 * APPENDED


def test_a_plan_that_moves_a_subject_twice_is_refused_before_anybody_is_asked():
    leader = Leader()
    with pytest.raises(InvalidRequest, match="twice"):
        leader.ask(plan_of_moves(2))
    assert leader.looks == 0 and not leader.proposed


def plan_of_moves(count: int) -> wire.ApplyPlan:
    """The same move again and again."""
    return wire.ApplyPlan("twice", CLUSTER, "all", 1 << 60, wire.PlanLimits(1 << 30), tuple(
        wire.PlannedMove(seq, wire.LEADER_TRANSFER, 1, 1, 0, (1,), (2,), 0, 0, "", ())
        for seq in range(1, count + 1)))
