"""Simulated network: configured faults, and none after it is healed."""

from __future__ import annotations

import random
from collections import Counter

from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import SimulatedNetwork
from chaos.simulator.env.parameters import NetworkParameters

QUIET = NetworkParameters(delay_min_us=10, delay_spread_us=100, loss=0.0, duplication=0.0,
                          item_loss=0.0, reorder=0.0, reorder_us=1000)


def delivered(parameters, frames=200, prepare=lambda network: None):
    queue, faults, arrived = EventQueue(), Counter(), []
    network = SimulatedNetwork(queue, random.Random(1), parameters, faults)
    prepare(network)
    for number in range(frames):
        network.send(1, 2, "append", (number, -number), lambda sender, frame: arrived.append(frame))
    queue.run_until(10_000_000)
    return arrived, faults


def test_a_healthy_link_keeps_the_order():
    arrived, faults = delivered(QUIET)
    assert arrived == [(number, -number) for number in range(200)]
    assert not faults


def test_frames_are_lost_and_doubled_at_the_given_odds():
    arrived, faults = delivered(NetworkParameters(10, 100, 0.3, 0.2, 0.0, 0.0, 0))
    assert 40 < faults["loss"] < 80
    assert 20 < faults["duplicate"] < 60
    assert len(arrived) == 200 - faults["loss"] + faults["duplicate"]


def test_one_item_is_lost_out_of_a_frame():
    arrived, faults = delivered(NetworkParameters(10, 100, 0.0, 0.0, 0.5, 0.0, 0))
    assert faults["item-loss"] > 50
    assert sum(len(frame) == 1 for frame in arrived) == faults["item-loss"]


def test_frames_overtake():
    arrived, _ = delivered(NetworkParameters(10, 100, 0.0, 0.0, 0.0, 0.5, 5000))
    assert sorted(arrived) != arrived


def test_what_a_node_said_last_may_come_again_much_later():
    queue, faults, arrived = EventQueue(), Counter(), []
    network = SimulatedNetwork(queue, random.Random(1), QUIET, faults)
    for frame in ("first", "last"):
        for to in (2, 3):
            network.send(1, to, "append", (frame, to), lambda _, frame: arrived.append(frame))
    network.send(2, 1, "append", ("another's",), lambda _, frame: arrived.append(frame))
    network.send(1, 2, "liveness", ("no consensus",), lambda _, frame: arrived.append(frame))
    queue.run_until(1_000_000)
    arrived.clear()
    network.repeat(1, random.Random(1), 500_000)
    queue.run_until(2_000_000)
    assert sorted(arrived) == [("last", 2), ("last", 3)]
    assert faults["repeat"] == 2


def test_a_cut_is_one_way_and_counts_its_causes():
    def cut_twice(network):
        network.block([(1, 2)])
        network.block([(1, 2), (2, 1)])
        network.unblock([(1, 2)])
        assert network.is_blocked(1, 2)
        assert network.is_blocked(2, 1)

    assert delivered(QUIET, prepare=cut_twice)[0] == []


def test_a_healed_network_has_no_faults():
    worst = NetworkParameters(10, 100, 0.5, 0.3, 0.1, 0.5, 5000)

    def heal(network):
        network.block([(1, 2)])
        network.heal()

    arrived, faults = delivered(worst, prepare=heal)
    assert len(arrived) == 200
    assert not faults
