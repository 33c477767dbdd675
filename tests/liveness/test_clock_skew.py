"""Skew of a node's wall clock against those of the others, and the decision that it is far."""

from __future__ import annotations

import pytest

from multiraft.liveness.clock_skew import CLOCK_SKEW_CLEARED_MS, CLOCK_SKEW_MAX_MS, ClockSkew
from multiraft.liveness.store_liveness import NO_CLOCK, Heartbeat, StoreLiveness

LEASE, INTERVAL = 600, 150
#: Wall clock at time 0 of these tests.
WALL = 1_700_000_000_000


def compared(*offsets_ms: int) -> ClockSkew:
    """Return the skew of a clock, the other clocks being so far ahead of it."""
    skew = ClockSkew()
    for node, offset_ms in enumerate(offsets_ms, 2):
        skew.hear(node, offset_ms)
    skew.compare()
    return skew


def test_a_clock_without_another_one_is_compared_with_nothing():
    skew = compared()
    assert skew.skew_ms is None and not skew.is_far


@pytest.mark.parametrize(("offsets_ms", "skew_ms"), [
    ((0, 0), 0),
    ((-90_000, -90_000), 90_000),  # ahead of both others
    ((70_000, 80_000), -70_000),
    ((90_000, 0), 0),  # another clock is wrong
    ((90_000, -90_000), 0),
    ((90_000,), -90_000),  # of two clocks any may be wrong
    ((90_000, 90_000, 0), -90_000),  # two against two
    ((90_000, 0, 0), 0),  # one against three
    ((90_000, 90_000, 0, 0), 0),  # two of five
    ((90_000, 90_000, 90_000, 0), -90_000),
])
def test_the_skew_is_the_distance_to_the_median(offsets_ms, skew_ms):
    skew = compared(*offsets_ms)
    assert skew.skew_ms == skew_ms
    assert skew.is_far is (abs(skew_ms) > CLOCK_SKEW_MAX_MS)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_at_the_limit_is_not_far(sign):
    assert not compared(sign * CLOCK_SKEW_MAX_MS).is_far
    assert compared(sign * (CLOCK_SKEW_MAX_MS + 1)).is_far


def test_a_far_clock_is_near_again_well_below_the_limit():
    skew = compared(CLOCK_SKEW_MAX_MS + 1)
    for offset_ms, is_far in ((CLOCK_SKEW_MAX_MS, True), (CLOCK_SKEW_CLEARED_MS + 1, True),
                              (CLOCK_SKEW_CLEARED_MS, False), (CLOCK_SKEW_MAX_MS, False)):
        skew.hear(2, offset_ms)
        skew.compare()
        assert skew.is_far is is_far, offset_ms


def test_the_last_comparison_stands_while_no_other_clock_is_known():
    skew = compared(90_000, 90_000)
    skew.drop(2), skew.drop(3), skew.drop(4)
    skew.compare()
    assert skew.skew_ms == -90_000 and skew.is_far
    skew.hear(2, 5)
    skew.compare()
    assert skew.skew_ms == -5 and not skew.is_far


# ---- in the exchange of heartbeats ---------------------------------------------------------------


class Nodes:
    """Nodes whose wall clocks are ``shifts_ms`` ahead; None = of a release without clocks."""

    def __init__(self, *shifts_ms: int | None):
        self.shifts_ms = dict(enumerate(shifts_ms, 1))
        self.nodes = {node: StoreLiveness(node, 1, LEASE, INTERVAL) for node in self.shifts_ms}
        for node, liveness in self.nodes.items():
            for peer in self.nodes:
                if peer != node:
                    liveness.add_peer(peer)
        self.cut: set[int] = set()

    def interval(self, now_ms: int, delay_ms: int = 0) -> None:
        """Exchange the heartbeats of one interval; each message takes ``delay_ms``."""
        for node, liveness in self.nodes.items():
            for to, heartbeat in liveness.heartbeats(now_ms):
                if {node, to} & self.cut:
                    continue
                self.set_clock(to, now_ms + delay_ms)
                response = self.nodes[to].on_heartbeat(now_ms + delay_ms, node, heartbeat)
                assert response is not None
                self.set_clock(node, now_ms + 2 * delay_ms)
                liveness.on_response(now_ms + 2 * delay_ms, to, response)
        for liveness in self.nodes.values():
            liveness.expire(now_ms + 2 * delay_ms)

    def set_clock(self, node: int, now_ms: int) -> None:
        shift_ms = self.shifts_ms[node]
        if shift_ms is not None:
            self.nodes[node].set_clock(now_ms, WALL + now_ms + shift_ms)

    @property
    def skews_ms(self) -> list[int | None]:
        return [liveness.clock_skew.skew_ms for liveness in self.nodes.values()]

    @property
    def far(self) -> list[int]:
        return [node for node, liveness in self.nodes.items() if liveness.clock_skew.is_far]


def test_a_node_knows_after_one_interval_that_its_clock_is_far():
    nodes = Nodes(0, 75_000, 20)
    nodes.interval(0)
    assert nodes.skews_ms == [-20, 74_980, 0] and nodes.far == [2]


def test_the_delay_of_messages_is_no_skew():
    nodes = Nodes(0, 0, 0)
    nodes.interval(1000, delay_ms=250)
    assert nodes.skews_ms == [0, 0, 0]


def test_a_response_that_waited_for_a_paused_node_tells_no_clock():
    nodes = Nodes(0, 0)
    (_, heartbeat), = nodes.nodes[1].heartbeats(0)
    nodes.set_clock(2, 0)
    response = nodes.nodes[2].on_heartbeat(0, 1, heartbeat)
    nodes.set_clock(1, 120_000)
    nodes.nodes[1].on_response(120_000, 2, response)
    nodes.nodes[1].expire(120_000)
    assert nodes.skews_ms[0] is None


def test_nodes_of_earlier_releases_are_not_compared():
    nodes = Nodes(0, None, 75_000)
    nodes.interval(0)
    assert nodes.skews_ms == [-75_000, None, 75_000]
    nodes.shifts_ms[2] = 0
    nodes.interval(INTERVAL)
    assert nodes.skews_ms == [0, 0, 75_000] and nodes.far == [3]


def test_a_node_that_was_told_no_clock_sends_none():
    response = Nodes(None, 0).nodes[1].on_heartbeat(10, 2, Heartbeat(1, 1, 0, 0))
    assert response.clock_ms == NO_CLOCK


def test_a_node_that_was_set_back_to_an_earlier_release_is_forgotten():
    nodes = Nodes(0, 75_000)
    nodes.interval(0)
    assert nodes.far == [1, 2]
    (_, heartbeat), = nodes.nodes[1].heartbeats(INTERVAL)
    response = nodes.nodes[2].on_heartbeat(INTERVAL, 1, heartbeat)
    nodes.nodes[1].on_response(INTERVAL, 2, response._replace(clock_ms=NO_CLOCK))
    assert not nodes.nodes[1].clock_skew._offsets_ms


def test_clocks_are_forgotten_with_the_support_of_their_nodes():
    nodes = Nodes(0, 0, 75_000)
    nodes.interval(0)
    assert nodes.far == [3]
    nodes.cut = {1}
    nodes.interval(LEASE)
    assert nodes.far == [2, 3], "of two clocks any may be wrong"
    nodes.nodes[2].ended(3)
    assert not nodes.nodes[2].clock_skew._offsets_ms


def test_a_node_that_is_left_alone_in_its_cluster_has_no_skew():
    nodes = Nodes(0, 75_000)
    nodes.interval(0)
    nodes.nodes[1].remove_peer(2)
    nodes.nodes[1].expire(INTERVAL)
    assert nodes.skews_ms[0] is None and not nodes.nodes[1].clock_skew.is_far
