"""Damage of a payload in a cold segment whose index file is damaged as well: ends are not known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from multiraft.storage.cold.cleaning_policy import Sources
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.errors import CorruptRange
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.types import Entry
from tests.storage.cold.test_cleaner import surveyed
from tests.storage.cold.test_cold_and_rows import Cleaned, clean, released, work
from tests.storage.cold.test_cold_answers import cleaned, cold_files
from tests.storage.damage import DIRECTORY
from tests.storage.repair.test_repair import Core
from tests.storage.test_indexed_records import (
    END,
    GROUPS,
    History,
    compacted,
    contents,
    flipped,
    partitions,
    put,
)
from tests.storage.world import VOTERS, looked_up, open_store, seal

GROUP = GROUPS[1]  # its batches have two records


def all_cold() -> Cleaned:
    """All records in a cold segment, the sources gone."""
    history = released()
    history.store.table.journal.start_segment()
    compacted(history)
    history.release()
    work(history)
    assert clean(history)
    work(history)
    for _ in range(3):
        history.remove()
    history.forget_blocks()
    seal(history.store)
    return history


def batches_of_two(history: History, group: int = GROUP) -> Iterator[Entry]:
    """Yield the batches with two records that the index file of a cold segment answers."""
    records = history.store.table.logs[group].records
    for entry in history.logs[group]:
        file = records.in_file(entry.index)
        if (file is not None and is_cold(file.segment.start) and entry.batch is not None
                and entry.batch.count == 2):
            yield entry


def chosen(history: History, which: str) -> Entry:
    """A batch of two records: the first of its partition in the cold segment, one between, or the
    last one there."""
    found = [each for each in batches_of_two(history) if each.partition == partitions(GROUP)[1]]
    return {"first": found[0], "between": found[2], "last": found[-1]}[which]


def damage_payload(history: History, entry: Entry) -> tuple[str, int, int]:
    """Damage the payload of a batch and its cold segment's index file; path of the index file,
    position and size of the batch."""
    (at,) = cold_files(history)
    run = history.store.table.indexed.reader(GROUP, {at.number}).whole(at.number)[GROUP]
    position, size = run.place(entry.index)
    put(history, at.segment.path, flipped(contents(history, at.segment.path),
                                          position - at.segment.start + size - 20))
    put(history, at.path, b"")
    history.forget_blocks()
    return at.path, position, size


def repair(history: History, entry: Entry) -> None:
    """Take a peer's copy."""
    store = history.store
    assert (entry.index, entry.term) in store.repair.wanted_records(GROUP, 99)
    staged = store.repair.stage_copies(GROUP, [entry], lambda: None)
    staged.execute()
    store.finish(staged)


def check_inside(history: History, entry: Entry) -> CorruptRange:
    """Each read in the batch says that it is damaged, and the batches before it are read."""
    start = history.store.partition_states[GROUP].applied(entry.partition).log_start
    for offset in range(max(start, entry.base_offset), entry.base_offset + entry.batch.count):
        for bytes_max in (1, 1 << 20):
            with pytest.raises(CorruptRange) as error:
                history.fetch(GROUP, entry.partition, offset, bytes_max)
            assert (error.value.group, error.value.index) == (GROUP, entry.index)
    read, offset = [], start
    while offset < entry.base_offset:
        read += history.fetch(GROUP, entry.partition, offset, 1 << 20)
        offset = history.next
    assert read == [bytes(each.payload) for each in history.batches(GROUP, entry.partition)
                    if each.base_offset < entry.base_offset]
    return error.value


@pytest.mark.parametrize("made", [cleaned, all_cold])
@pytest.mark.parametrize("which", ["first", "between", "last"])
def test_a_read_inside_an_unreadable_batch_reports_it(made, which):
    """While the index file is damaged, while the record is known to be missing, and not when the
    copy is there."""
    history = made()
    store, entry = history.store, chosen(history, which)
    path, position, size = damage_payload(history, entry)
    error = check_inside(history, entry)
    assert (error.position, error.size) == (position, size)
    assert store.repair.record_damage(GROUP, entry.index, error.why, position, size)
    check_inside(history, entry)
    seal(store)
    check_inside(history, entry)
    assert not store.repair.take_found() and not contents(history, path)
    repair(history, entry)
    for _ in range(2):
        put(history, path, b"")
        history.forget_blocks()
        history.check()
        assert seal(store) and contents(history, path) and not store.seals_waiting
    history.forget_blocks()
    for _ in range(2):
        history.check()
        history.restart()


@pytest.mark.parametrize("which", ["first", "between", "last"])
def test_records_that_the_new_index_file_could_not_name_are_reported(which):
    """Although no read has met them.  No index file is written before a copy is here: a start would
    believe it."""
    history = all_cold()
    store, entry = history.store, chosen(history, which)
    path, position, size = damage_payload(history, entry)
    other = next(each for each in batches_of_two(history) if each.partition != entry.partition)
    assert history.fetch(GROUP, other.partition, other.base_offset, 1)
    assert seal(store) == 1
    assert not contents(history, path) and entry.index in store.table.logs[GROUP].records.missing
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), [].append)
    repairer.groups.clear()
    error, = store.repair.take_found()
    assert (error.group, error.index, error.position, error.size) == (
        GROUP, entry.index, position, size)
    repairer.on_damage(error)
    assert repairer.groups == {GROUP}
    check_inside(history, entry)
    seal(store)
    assert not store.repair.take_found() and not contents(history, path)
    repair(history, entry)
    history.check()
    assert seal(store) and contents(history, path)
    for _ in range(2):
        history.check()
        history.restart()


def test_a_crash_before_the_repair_loses_no_knowledge():
    history = all_cold()
    store, entry = history.store, chosen(history, "between")
    damage_payload(history, entry)
    with pytest.raises(CorruptRange):
        history.fetch(GROUP, entry.partition, entry.base_offset + 1, 1)
    seal(store)
    store.close()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    check_inside(history, entry)


@pytest.mark.parametrize("look_up", ["batches", "first_at"])
def test_a_look_up_by_blocks_counts_unreadable_records_as_missing(look_up):
    """The block that it reads stays in memory, and ends their batches too early."""
    history = all_cold()
    store, entry = history.store, chosen(history, "between")
    damage_payload(history, entry)
    found = looked_up(store, partial(store.batches, GROUP, entry.partition, 0, 3)
                      if look_up == "batches" else
                      partial(store.first_at, GROUP, entry.partition, 1030, 0, END))
    assert found is not None
    assert [(each.group, each.index) for each in store.repair.take_found()] == [
        (GROUP, entry.index)]
    check_inside(history, entry)
    repair(history, entry)
    history.check()


@pytest.mark.parametrize("made", [cleaned, all_cold])
@pytest.mark.parametrize("which", ["first", "between", "last"])
@pytest.mark.parametrize("start_inside", [False, True])
def test_a_start_counts_unreadable_records_as_missing(made, which, start_inside):
    """Also one whose first record the log start has passed."""
    history = made()
    entry = chosen(history, which)
    if start_inside:
        back = history.store.partition_states[GROUP].next_offset(
            entry.partition) - entry.base_offset - 1
        history.raise_log_start(GROUP, 1, back)
        history.apply(GROUP, 0)
        history.trim(GROUP)
        for group in GROUPS:
            history.compact(group, 0)
    damage_payload(history, entry)
    history.store.close()
    history.store = store = open_store(history.filesystem, DIRECTORY, history.config)
    assert [*store.table.logs[GROUP].records.missing] == [entry.index]
    check_inside(history, entry)
    repair(history, entry)
    for _ in range(2):
        history.store.damage.clear()
        history.check()
        history.store.close()
        history.store = open_store(history.filesystem, DIRECTORY, history.config)


def test_a_batch_that_seems_to_end_before_the_log_start_is_not_left_behind():
    """The cleaner copies nothing of a cold segment while it does not know what lives there."""
    history = all_cold()
    store, entry = history.store, chosen(history, "between")
    history.raise_log_start(GROUP, 1, store.partition_states[GROUP].next_offset(
        entry.partition) - entry.base_offset - 1)
    history.apply(GROUP, 0)
    history.trim(GROUP)
    for _ in range(2):
        work(history)
    damage_payload(history, entry)
    sources = Sources(tuple(each for each in store.cleaner._facts if each.is_cold))
    assert sources.segments
    job = store.cleaner.copy_job(sources, surveyed(store, sources))
    assert job is None
    seal(store)
    check_inside(history, entry)
    repair(history, entry)
    history.check()
