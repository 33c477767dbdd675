"""Reads of cold ranges on threads: many small ranges share a hand-over, and one damaged range does
not spoil the others."""

import threading

import pytest
import trio

from multiraft.storage.errors import CorruptRange
from node.loop.background import BYTES_PER_READ_MAX, PLANS_PER_READ_MAX, Background


class Limits:
    cold_readers_max = 2
    cold_read_bytes_max = 8 << 20


class Plan:
    """A range of ``bytes`` whose reading is observed."""

    def __init__(self, number: int, size: int, log: list, error: Exception | None = None):
        self.number = number
        self.bytes = size
        self._log = log
        self._error = error

    def execute(self):
        self._log.append((self.number, threading.get_ident()))
        if self._error is not None:
            raise self._error
        return [self.number]


def read_each(plans: list[Plan], monkeypatch) -> tuple[list, list[int]]:
    """Return the results, and the number of plans of each hand-over."""
    portions: list[int] = []
    run_sync = trio.to_thread.run_sync

    async def counted(work, *args, **options):
        portions.append(len(args[0]))
        return await run_sync(work, *args, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", counted)
    results: list = []

    async def main():
        background = Background(Limits())
        async with trio.open_nursery() as nursery:
            await nursery.start(background.run)
            results.extend(await background.read_each(plans))
            nursery.cancel_scope.cancel()

    trio.run(main)
    return results, portions


def test_many_small_ranges_are_read_in_few_hand_overs(monkeypatch):
    log: list = []
    plans = [Plan(number, 100, log) for number in range(5 * PLANS_PER_READ_MAX + 1)]
    results, portions = read_each(plans, monkeypatch)
    assert results == [[plan.number] for plan in plans]
    assert portions == [PLANS_PER_READ_MAX] * 5 + [1]
    assert threading.get_ident() not in {thread for _number, thread in log}, "never on the loop"


def test_large_ranges_are_read_alone(monkeypatch):
    plans = [Plan(0, BYTES_PER_READ_MAX, []), Plan(1, 1, []), Plan(2, BYTES_PER_READ_MAX - 1, []),
             Plan(3, 100 * BYTES_PER_READ_MAX, [])]
    results, portions = read_each(plans, monkeypatch)
    assert results == [[0], [1], [2], [3]]
    assert portions == [1, 2, 1]


def test_a_damaged_range_is_reported_in_its_place_and_the_others_are_read(monkeypatch):
    damaged = CorruptRange(1, 7, "crc")
    plans = [Plan(0, 1, []), Plan(1, 1, [], damaged), Plan(2, 1, [])]
    results, _portions = read_each(plans, monkeypatch)
    assert results == [[0], damaged, [2]]


def test_a_failing_disk_is_raised(monkeypatch):
    plans = [Plan(0, 1, []), Plan(1, 1, [], OSError(5, "input/output error"))]
    with pytest.raises(BaseExceptionGroup) as caught:
        read_each(plans, monkeypatch)
    assert caught.group_contains(OSError, match="input/output error")


def test_no_plans_need_no_thread(monkeypatch):
    assert read_each([], monkeypatch) == ([], [])
