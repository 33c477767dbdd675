"""Reference cycles are collected while they are young and few, when the loop is about to wait;
automatic collection is off."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio

from node.loop import gc_schedule
from node.loop.gc_schedule import YOUNG_MS, Garbage
from tests.node.harness import until


class Circle:
    def __init__(self):
        self.itself = self


@pytest.fixture
def settled(monkeypatch):
    """Settle the collector as a node does; the test process gets its own setting back."""
    looks: list[int] = []

    def told(phase, info):
        if phase == "start":
            looks.append(info["generation"])

    gc_schedule.freeze()
    gc.callbacks.append(told)
    yield looks
    gc.callbacks.remove(told)
    gc.unfreeze()
    gc.enable()


def test_a_circle_is_gone_soon_and_python_itself_does_not_collect(settled):
    assert not gc.isenabled()

    async def main():
        settled.clear()
        circle = weakref.ref(Circle())
        kept = [[] for _ in range(100_000)]  # automatic collection would have freed it
        assert settled == [] and circle() is not None
        await until(lambda: circle() is None)
        assert len(kept) == 100_000

    trio.run(main, instruments=[Garbage()])
    assert set(settled) == {0}


def test_all_objects_are_looked_through_seldom(settled, monkeypatch):
    monkeypatch.setattr(gc_schedule, "ALL_S", 0)
    monkeypatch.setattr(gc_schedule, "SELDOM", 10**9)

    async def main():
        for _ in range(3):
            await trio.sleep(2 * YOUNG_MS / 1000)

    trio.run(main, instruments=[Garbage()])
    # The first collection is a full one; the next full one only after many times its duration.
    assert settled[0] == 2 and 2 not in settled[1:]
