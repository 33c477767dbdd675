"""Virtual time: moved only by events, which run in one order."""

from __future__ import annotations

import pytest

from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.violations import Livelock


def test_events_of_one_instant_run_in_order_of_scheduling():
    queue, seen = EventQueue(), []
    queue.after(10, seen.append, "second")
    queue.after(5, seen.append, "first")
    queue.after(10, seen.append, "third")
    queue.run_until(10)
    assert seen == ["first", "second", "third"]
    assert queue.now_us == 10


def test_cancelled_event_does_not_happen():
    queue, seen = EventQueue(), []
    queue.timer(5, seen.append, 1).cancel()
    queue.timer(5, seen.append, 2)
    queue.run_until(10)
    assert seen == [2]


def test_events_beyond_the_bound_wait():
    queue, seen = EventQueue(), []
    queue.after(11, seen.append, 1)
    queue.run_until(10)
    assert seen == []
    queue.run_until(11)
    assert seen == [1]


def test_events_that_breed_without_time_passing_are_a_livelock():
    queue = EventQueue()

    def breed():
        queue.after(0, breed)

    breed()
    with pytest.raises(Livelock):
        queue.run_until(1)
