"""Records below log starts leave a node's record stores in bounded steps."""

from __future__ import annotations

from types import SimpleNamespace

import trio
import trio.testing

from node.loop.steps import ROWS_PER_STEP
from node.removal.record_trim import BATCHES_PER_STEP, RecordTrim
from node.removal.removal_steps import RemovalSteps
from node.removal.removal_task import RemovalTask


class States:
    def __init__(self):
        self.shortened: list[int] = []
        self.ordered: list[int] = []

    def take_ordered(self):
        taken, self.ordered = self.ordered, []
        return taken

    def take_shortened(self):
        taken, self.shortened = self.shortened, []
        return taken


class Store:
    """Batches to remove, by group and partition."""

    def __init__(self, batches: dict[tuple[int, int], int]):
        self.batches = dict(batches)
        self.partition_states = {group: States() for group, _ in batches}
        self.removed: list[int] = []  # by each step
        self.compactor = SimpleNamespace(ordered=lambda *key: self.to_compact.append(key))
        self.to_compact: list[tuple[int, int]] = []

    def shorten(self, group: int, *partitions: int) -> None:
        self.partition_states[group].shortened += partitions

    def trim(self, group, partitions, batches_max) -> bool:
        assert len(partitions) <= ROWS_PER_STEP
        left = batches_max
        for partition in partitions:
            gone = min(left, self.batches.get((group, partition), 0))
            self.batches[group, partition] -= gone
            left -= gone
        self.removed.append(batches_max - left)
        return not left


def test_partitions_with_a_compact_entry_are_noted_for_compaction():
    store = Store({(1, 7): 1, (2, 8): 1})
    trim = RecordTrim(store)
    store.partition_states[2].ordered += [8, 9]
    trim.note(1)
    trim.note(2)
    trim.note(2)
    assert store.to_compact == [(2, 8), (2, 9)] and not trim.is_due


def test_a_step_removes_a_bounded_number_of_batches_and_partitions():
    store = Store({(1, 7): 3000, (1, 8): 5, **{(2, partition): 1 for partition in range(300)}})
    trim = RecordTrim(store)
    trim.note(1)
    assert not trim.is_due
    store.shorten(1, 7, 8)
    store.shorten(2, *range(300))
    trim.note(1)
    trim.note(2)
    assert trim.is_due
    for _ in trim.steps():
        pass
    assert store.removed == [BATCHES_PER_STEP, BATCHES_PER_STEP, 957, ROWS_PER_STEP,
                             ROWS_PER_STEP, 44]
    assert not trim.is_due and not any(store.batches.values())


def test_partitions_that_are_noted_during_a_pass_are_in_it():
    store = Store({(1, 7): 1, (1, 8): 1, (2, 9): 1})
    trim = RecordTrim(store)
    store.shorten(1, 7)
    trim.note(1)
    steps = trim.steps()
    next(steps)
    store.shorten(1, 8)
    store.shorten(2, 9)
    trim.note(1)
    trim.note(2)
    assert len([*steps]) == 2 and not any(store.batches.values())


def test_the_task_takes_a_turn_for_each_step():
    store, turns = Store({(1, 7): 3000}), []

    async def take_turn(rows: int) -> None:
        turns.append(rows)

    async def main() -> None:
        trim = RecordTrim(store)
        store.shorten(1, 7)
        trim.note(1)
        with trio.move_on_after(10):
            remover = SimpleNamespace(remove_due=trio.lowlevel.checkpoint)
            await RemovalTask(RemovalSteps(store, trim, remover, take_turn)).run()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert turns == [ROWS_PER_STEP] * 3 and not store.batches[1, 7]
