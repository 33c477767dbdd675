"""Stalls of the machine are notes of a run, and nothing else is."""

from __future__ import annotations

import tempfile

import trio
import trio.testing

from chaos.run import host_stats
from chaos.run.host_stats import LISTED_MAX, HostStats


def test_what_took_longer_than_a_lease_is_told_the_longest_first():
    found = HostStats(lambda: 0)
    found.note(10.0, 0.5, "a sync of the disk")
    assert found.notes() == []
    found.note(20.0, 1.25, "waking up")
    found.note(30.0, 8.0, "a sync of the disk")
    note, = found.notes()
    assert "2 times" in note
    assert note.endswith("a sync of the disk took 8.0 s at 30 s; waking up took 1.2 s at 20 s")


def test_the_note_is_bounded():
    found = HostStats(lambda: 0)
    for second in range(100):
        found.note(second, 1.0 + second, "waking up")
    note, = found.notes()
    assert "100 times" in note
    assert note.count("waking up") == LISTED_MAX


def test_a_disk_that_stands_still_is_seen(monkeypatch):
    answers = iter([0.001, 3.0, 0.001])
    looked = trio.Event()

    def slow(_file) -> float:
        try:
            return next(answers)
        except StopIteration:
            trio.from_thread.run_sync(looked.set)
            return 0.0

    async def run() -> list[str]:
        found = HostStats(lambda: int(trio.current_time() * 1e6))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.watch)
            await looked.wait()
            nursery.cancel_scope.cancel()
        return found.notes()

    monkeypatch.setattr(host_stats, "sync", slow)
    note, = trio.run(run, clock=trio.testing.MockClock(rate=1000.0))
    assert "a sync of the disk took 3.0 s" in note


def test_a_block_is_synced():
    with tempfile.TemporaryFile() as file:
        assert host_stats.sync(file) >= 0
        assert file.read() == host_stats.BLOCK
