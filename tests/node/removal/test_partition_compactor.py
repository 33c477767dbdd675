"""The driver of compactions by key: examination at a pace, copies, checkpoints, failures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.errors import Compacted
from multiraft.storage.cold.cleaner_pace import CleanerPace
from multiraft.storage.errors import CorruptFile, CorruptRange
from node.removal import partition_compactor
from node.removal.partition_compactor import CHECKPOINT_S, RETRY_S, PartitionCompactor
from node.removal.segment_cleaner import SegmentCleaner
from tests.storage.compaction.test_compactor import Compacting, filled
from tests.storage.test_indexed_records import GROUPS


class Clock:
    def __init__(self):
        self.now_s = 0.0

    async def sleep_until(self, due_s):
        self.now_s = max(self.now_s, due_s)


class Reports:
    def __init__(self):
        self.done, self.failures, self.damages, self.copies = [], [], [], 0

    def copied(self, _sources, _records, _size):
        self.copies += 1

    def compacted(self, *what):
        self.done.append(what)

    def failed(self, why):
        self.failures.append(why)

    def damaged(self, error):
        self.damages.append(error)


async def run_now(call):
    call()


async def take_turn(_rows):
    pass


def cleaner_of(history, clock, reports, space=None):
    return SegmentCleaner(history.store, run_now, take_turn, lambda: clock.now_s,
                          clock.sleep_until, CleanerPace(1 << 30), reports, space)


def named(history: Compacting) -> None:
    """Two checkpoints, which name the copies."""
    history.compact(GROUPS[0], 1 << 30)


def test_compactions_are_carried_out_between_the_other_work():
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    for _ in range(12):
        named(history)
        trio.run(cleaner.clean_due)
    assert [each[:3] for each in reports.done] == [(1, 10, 1), (2, 20, 1)]
    assert all(size > 0 for *_, size in reports.done) and cleaner.compactor.compactions == 2
    assert not reports.failures and not reports.damages
    for each in reports.done:
        history.carried_out[each[:2]] = SimpleNamespace(
            **history.store.partition_states[each[0]].applied(each[1]).compaction._asdict())
    history.check()


def test_checkpoints_are_required_when_none_comes():
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    named(history)
    trio.run(cleaner.clean_due)
    assert history.store.compactor.is_busy and reports.copies
    assert not history.store.checkpoint_due
    clock.now_s += CHECKPOINT_S
    trio.run(cleaner.clean_due)
    assert history.store.checkpoint_due, "nothing else would have it written"


@pytest.mark.parametrize("error,noted", [
    (CorruptRange(1, 5, "damaged", 0, 0), "damages"), (CorruptFile("path", "damaged"), "failures"),
    (Compacted("it has left"), None)])
def test_a_partition_that_cannot_be_read_is_examined_again_later(monkeypatch, error, noted):
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    named(history)
    step = partition_compactor.PartitionCompactor._mark

    async def fail(self, marking):
        raise error

    monkeypatch.setattr(PartitionCompactor, "_mark", fail)
    trio.run(cleaner.clean_due)
    assert not history.store.compactor.is_busy and history.store.compactor.waiting == 2
    if noted:
        assert len(getattr(reports, noted)) == 1
    monkeypatch.setattr(PartitionCompactor, "_mark", step)
    trio.run(cleaner.clean_due)
    assert not history.store.compactor.is_busy, "a pause lies between"
    clock.now_s += RETRY_S
    trio.run(cleaner.clean_due)
    assert history.store.compactor.is_busy


def test_other_copies_are_made_while_a_compaction_waits_for_checkpoints(monkeypatch):
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    chosen = []

    async def copy_next():
        chosen.append(history.store.compactor.is_busy)

    monkeypatch.setattr(cleaner, "_copy_next", copy_next)
    named(history)
    trio.run(cleaner.clean_due)
    assert chosen == [True], "a full disk could free no space else"


def test_a_compaction_whose_sources_are_gone_begins_anew():
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    compactor = history.store.compactor
    named(history)
    mark = cleaner.compactor._mark

    async def mark_and_lose(marking):
        await mark(marking)
        history.store.cleaner._facts = []  # retention has removed them

    cleaner.compactor._mark = mark_and_lose
    trio.run(cleaner.clean_due)
    assert not compactor.is_busy and compactor.waiting == 2
    cleaner.compactor._mark = mark
    clock.now_s += RETRY_S
    named(history)
    trio.run(cleaner.clean_due)
    assert compactor.is_busy and reports.copies


def test_a_paused_cleaner_begins_nothing():
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    named(history)
    cleaner.pace.pause()
    trio.run(cleaner.clean_due)
    assert not history.store.compactor.is_busy


def test_without_space_the_compaction_waits():
    history, clock, reports = filled(), Clock(), Reports()
    cleaner = cleaner_of(history, clock, reports)
    named(history)
    cleaner.has_space = lambda _sources: False
    trio.run(cleaner.clean_due)
    assert not history.store.compactor.is_busy and not reports.copies
    assert history.store.compactor.waiting == 2
