"""Indexes that a replica knows to have no record are those that members have answered for."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage import stored_log, unneeded_indexes
from multiraft.storage.cold.cold_segment import cold_index_path
from multiraft.storage.errors import CorruptIndexedSegment, CorruptJournalRange, CorruptRange
from multiraft.storage.unneeded_indexes import UNNEEDED_RANGES_MAX, UnneededIndexes
from tests.storage import test_installed_records as installed
from tests.storage.cold.test_cleaner import COLD, cleaned
from tests.storage.cold.test_cleaner import place as cold_place
from tests.storage.damage import DIRECTORY, Disk, flipped
from tests.storage.repair.test_acknowledged_damage import scrubbed
from tests.storage.test_indexed_records import (
    GROUPS,
    History,
    contents,
    filled,
    partitions,
    put,
)
from tests.storage.test_raft_start import GROUP as COLD_GROUP
from tests.storage.test_raft_start import checkpoints
from tests.storage.test_raft_start import put as written
from tests.storage.test_segment_removal import reopened
from tests.storage.world import HardState, Rounds, checkpoint, open_store, records, write

GROUP = GROUPS[0]


# ---- the set -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_set_of_indexes(seed):
    rng, known, found = random.Random(seed), UnneededIndexes(), set()
    for _ in range(60):
        what, at = rng.randrange(4), rng.randrange(1, 200)
        if what < 2:
            added = [rng.randrange(1, 200) for _ in range(rng.randrange(4))]
            known.add(added)
            found |= {*added}
        elif what == 2 and not rng.randrange(4):
            known.drop_below(at // 4)
            found = {each for each in found if each >= at // 4}
        elif not rng.randrange(4):
            known.drop_from(150 + at // 4)
            found = {each for each in found if each < 150 + at // 4}
        known._check()
        assert {index for index in range(1, 220) if index in known} == found
        assert UnneededIndexes(known.ranges).ranges == known.ranges


def test_beyond_the_limit_the_lowest_are_forgotten(monkeypatch):
    monkeypatch.setattr(unneeded_indexes, "UNNEEDED_RANGES_MAX", 3)
    known = UnneededIndexes()
    known.add([1, 3, 5, 7, 9])
    known.add([8])
    assert known.ranges == ((5, 5), (7, 9)) and 1 not in known
    assert UNNEEDED_RANGES_MAX * 20 < 8192, "of a checkpoint, for each group"


# ---- damage that is cleared, and records that are in index files alone ---------------------------


def restarted(history):
    """Start after two checkpoints."""
    store = history.store
    for _ in range(2):
        Rounds(store).run(write(3, hard_state=HardState(1, 1)))
        checkpoint(store, {group: store.partition_states[group].applied_index for group in GROUPS})
    store.close()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    return history.store


def clear(store) -> None:
    """Clear all replicas, as their leaders do."""
    for group in [*store.table.logs]:
        written(store, store.repair.stage_clear(group, lambda: None))


def damaged(history, slot: int):
    """Damage an index file, and in its segment the header of a record of the group."""
    store = history.store
    at = [*store.table.indexed._by_start.values()][1]
    log = store.table.logs[GROUP]
    found = [(index, place) for index, place in sorted(records(store, GROUP).items())
             if log.records.in_file(index) is at]
    index, place = found[slot]
    put(history, at.path, b"")
    put(history, at.segment.path, flipped(contents(history, at.segment.path),
                                          place.position - at.segment.start + 20))
    history.forget_blocks()
    return at, found, index


def repair_missing(history: History) -> None:
    """Give each group copies of its missing records, and tell it which holes are none."""
    store = history.store
    for group in GROUPS:
        missing = sorted(store.table.logs[group].records.missing)
        entries = [history.logs[group][index - 1] for index in missing]
        copies = [entry for entry in entries if entry.batch is not None]
        store.repair.forget_holes(group, [entry.index for entry in entries if entry.batch is None])
        if copies:
            written(store, store.repair.stage_copies(group, copies, lambda: None))


def test_records_whose_index_file_and_segment_are_damaged_are_asked_for():
    """Also those that are intact, which nothing but a scan would find."""
    history = filled()
    at, found, index = damaged(history, 2)
    with pytest.raises(CorruptIndexedSegment) as caught:
        history.read_all(GROUP, history.logs[GROUP][index - 1].partition, 0)
    store = history.store
    assert set(store.repair.lose_file(caught.value.begin, GROUPS)) == {*GROUPS}
    assert not store.repair.lose_file(caught.value.begin, GROUPS), "nothing is left of it"
    for group in GROUPS:
        store.table.logs[group]._check()
    assert {index for index, _ in found} <= {*store.table.logs[GROUP].records.missing}
    with pytest.raises(CorruptRange, match="known to be damaged"):
        history.read_all(GROUP, history.logs[GROUP][index - 1].partition, 0)
    history.remove()
    assert not at.segment.is_removed, "a start still finds the intact records there"
    repair_missing(history)
    for _ in range(3):
        for group in GROUPS:
            for partition in partitions(group):
                assert history.read_all(group, partition, 0) == [
                    bytes(each.payload) for each in history.batches(group, partition)]
        restarted(history)


def test_a_start_finds_the_intact_records_of_such_a_segment():
    history = filled()
    _, found, index = damaged(history, 2)
    with pytest.raises(CorruptIndexedSegment) as caught:
        history.read_all(GROUP, history.logs[GROUP][index - 1].partition, 0)
    history.store.repair.lose_file(caught.value.begin, GROUPS)
    store = restarted(history)
    missing = store.table.logs[GROUP].records.missing
    assert index in missing and not {other for other, _ in found if other != index} & {*missing}
    assert not store.table.logs[GROUPS[1]].records.missing, "also not the first one of the segment"


def test_an_index_file_of_very_many_indexes_stays_in_use(monkeypatch):
    """Each hole costs a question to other members."""
    monkeypatch.setattr(stored_log, "HOLES_MAX", 3)
    history = filled()
    at, _, index = damaged(history, 2)
    assert not history.store.repair.lose_file(at.segment.start, GROUPS)
    for group in GROUPS:
        assert not history.store.table.logs[group].records.missing
        assert history.store.table.logs[group].records.ranges_of(at)


@pytest.mark.parametrize("how", ["scrub", "read"])
def test_records_that_no_index_in_memory_names_are_missed_after_a_start(how):
    """The replicas cleared the damage, but could not tell which records stood there."""
    history = filled()
    _, _, index = damaged(history, 0)
    if how == "scrub":
        errors = scrubbed(history.store)
    else:
        with pytest.raises(CorruptRange) as caught:
            history.read_all(GROUP, history.logs[GROUP][index - 1].partition, 0)
        errors = [caught.value]
    assert [type(each) for each in errors] == [
        CorruptIndexedSegment, *([CorruptJournalRange] if how == "scrub" else [])]
    history.store.repair.suspect_all(errors[-1].begin, errors[-1].end, errors[-1].why)
    clear(history.store)
    store = restarted(history)
    assert index in store.table.logs[GROUP].records.missing
    lost = history.logs[GROUP][index - 1]
    assert not store.repair.compacted(GROUP, [(index, lost.term)])
    with pytest.raises(CorruptRange):
        history.read_all(GROUP, lost.partition, 0)


def test_damage_inside_a_range_that_was_cleared_before_is_missed_as_well():
    """A read calls the whole segment damaged, although most of it is sound."""
    history = filled()
    at, found, index = damaged(history, 2)
    with pytest.raises(CorruptJournalRange) as caught:
        history.read_all(GROUP, history.logs[GROUP][index - 1].partition, 0)
    history.store.repair.suspect_all(caught.value.begin, caught.value.end, caught.value.why)
    clear(history.store)
    store = restarted(history)
    for group in GROUPS:
        missing = [*store.table.logs[group].records.missing]
        if missing:
            written(store, store.repair.stage_copies(
                group, [history.logs[group][each - 1] for each in missing], lambda: None))
    restarted(history)
    for group in GROUPS:
        for partition in partitions(group):
            assert history.read_all(group, partition, 0) == [
                bytes(each.payload) for each in history.batches(group, partition)]
    history.store.close()
    first, place = found[0]
    put(history, at.segment.path, flipped(contents(history, at.segment.path),
                                          place.position - at.segment.start + 20))
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    assert first in history.store.table.logs[GROUP].records.missing


# ---- starts that join records from several places -----------------------------------------------


def test_holes_of_cold_segments_stay_answered():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    found = cold_place(store, 6)
    segment = store.table.journal.file_of(found.position)
    filesystem.overwrite(segment.path, found.position - segment.start, bytes(40))
    filesystem.remove(cold_index_path(COLD, 0))
    store = reopened(store, filesystem)
    assert {index for index, _ in store.repair.wanted_records(COLD_GROUP, 9)} == {4, 5, 6}
    store.repair.forget_holes(COLD_GROUP, [4, 5])
    for _ in range(2):
        checkpoints(store)
        store.close()
        store = open_store(filesystem, DIRECTORY)
        assert {index for index, _ in store.repair.wanted_records(COLD_GROUP, 9)} == {6}


def test_holes_of_copies_behind_a_snapshot_stay_answered():
    disk, leader = Disk(), installed.source()
    store = installed.follower(disk.filesystem, 0)
    installed.install(store, leader, 0)
    installed.copy_all(store, leader)
    checkpoints(store)
    installed.rot(disk, store, 7, 64 + 64)
    store = installed.started(disk, store)
    assert [*store.table.logs[COLD_GROUP].records.missing] == [7]
    store.repair.forget_holes(COLD_GROUP, [7])
    for _ in range(2):
        checkpoints(store)
        store = installed.started(disk, store)
        assert not store.table.logs[COLD_GROUP].records.missing
