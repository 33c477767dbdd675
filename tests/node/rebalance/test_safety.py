"""Pauses of a plan because of slow appends, and their end."""

from __future__ import annotations

import pytest

from multiraft.wire.plans import PAUSE, RESUME
from node.histogram import Histogram
from node.metadata.plan_table import PlanTable
from node.rebalance.cluster_view import ClusterView, SeenNode
from node.rebalance.latency import COUNT_MIN, WINDOW_MS, RecentLatency
from node.rebalance.safety import CALM_MS, LATE_MS, SLOW_PATIENCE_MS, Monitor
from tests.node.rebalance.cases import CLUSTER, LIMITS, change, control, plan

POLL_MS = 250


class WatchedConnection:
    """A plan, one controller that watches over it, and time."""

    def __init__(self):
        self.table = PlanTable()
        self.table.apply(plan(change(1), limits=LIMITS._replace(commit_ms_max=2_000)), CLUSTER)
        self.watch = Monitor()
        self.now_ms = 0
        self.told: list[tuple[int, str]] = []

    def look(self, commit_ms: int, state: str = "up", until_ms: int = 0) -> None:
        """Look again and again until then, and do what is due."""
        until_ms = until_ms or self.now_ms + POLL_MS
        while self.now_ms < until_ms:
            self.now_ms += POLL_MS
            node = SeenNode(1, state, "alive", commit_ms=commit_ms)
            due = self.watch.judge(
                self.table.plan, ClusterView({1: node}, {}, {}, {}, {}, (), {}, {}, 3), self.now_ms
            )
            if due is not None:
                self.told.append((self.now_ms, due[0]))
                self.table.control(control(due[0], reason=due[1], by_safety=True))


def test_it_pauses_and_goes_on_when_appends_have_been_fast_for_a_while():
    watched = WatchedConnection()
    watched.look(2_100)
    watched.look(100, until_ms=POLL_MS + CALM_MS)
    assert watched.table.plan.state == "paused"
    watched.look(100)
    assert [action for _, action in watched.told] == [PAUSE, RESUME]


def test_a_plan_that_is_not_what_makes_appends_slow_goes_on_until_they_have_been_fast():
    """The plan may be the cure: a pause that only the end of its own reason ends could last without
    limit."""
    watched = WatchedConnection()
    watched.look(9_000, until_ms=SLOW_PATIENCE_MS + CALM_MS + 4 * POLL_MS)
    assert [action for _, action in watched.told] == [PAUSE, RESUME]
    assert watched.told[1][0] - watched.told[0][0] >= SLOW_PATIENCE_MS
    watched.look(9_000, until_ms=10 * SLOW_PATIENCE_MS)
    assert len(watched.told) == 2, "it does not pause again for the same"
    watched.look(50)
    watched.look(9_000)
    assert watched.told[2][1] == PAUSE, "but when they were fast in between"


def test_patience_with_slow_appends_is_none_with_a_node_that_is_down():
    watched = WatchedConnection()
    watched.look(9_000, until_ms=SLOW_PATIENCE_MS // 2)
    watched.look(9_000, "down", until_ms=10 * SLOW_PATIENCE_MS)
    assert watched.table.plan.state == "paused"
    assert watched.table.plan.reason.startswith("NODE_DOWN")


def test_a_node_that_is_late_is_not_down_yet():
    """Seen with two processors for eight processes: each pause stopped the copying for 3 s."""
    watched = WatchedConnection()
    watched.look(10, "down", until_ms=LATE_MS)
    watched.look(10)
    watched.look(10, "down", until_ms=2 * LATE_MS)
    assert watched.told == []
    watched.look(10, "down", until_ms=4 * LATE_MS)
    assert [action for _, action in watched.told] == [PAUSE]
    watched.look(10, until_ms=4 * LATE_MS + CALM_MS + POLL_MS)
    assert watched.table.plan.state == "running"


def observed(histogram: Histogram, micros: int, count: int) -> None:
    for _ in range(count):
        histogram.observe(micros)


@pytest.mark.parametrize("micros, at_least_ms", [(1_500_000, 1_048), (2_090_000, 1_048),
                                                 (2_200_000, 2_097), (700, 0)])
def test_what_is_told_is_never_more_than_it_was(micros, at_least_ms):
    """A bound of 2 s is passed by appends of more than 2 s, not by those of more than 1."""
    histogram = Histogram()
    latency = RecentLatency(histogram)
    assert latency.recent_ms(0) == -1
    observed(histogram, 100, 99)
    observed(histogram, micros, 1)
    assert latency.recent_ms(WINDOW_MS) == at_least_ms


def test_one_in_a_hundred_is_not_one_in_a_thousand():
    histogram = Histogram()
    latency = RecentLatency(histogram)
    latency.recent_ms(0)
    observed(histogram, 100, 999)
    observed(histogram, 9_000_000, 1)
    assert latency.recent_ms(WINDOW_MS) == 0


def test_what_was_before_the_plan_began_does_not_count():
    histogram = Histogram()
    latency = RecentLatency(histogram)
    latency.recent_ms(0)
    observed(histogram, 9_000_000, 1_000)
    assert latency.recent_ms(10 * WINDOW_MS) == -1, "nobody looked while that was"
    observed(histogram, 100, COUNT_MIN)
    assert latency.recent_ms(11 * WINDOW_MS) == 0
    observed(histogram, 100, COUNT_MIN - 1)
    assert latency.recent_ms(12 * WINDOW_MS) == -1, "too few"
