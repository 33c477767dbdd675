"""Torn tails: bytes of a crash behind the last durable entry are cut off, durably, and nothing
else."""

from __future__ import annotations

import pytest

from multiraft import core
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import (
    DIRECTORY,
    FIRST,
    Disk,
    classify,
    model_position,
    segments,
    small_journal,
)
from tests.storage.model import JournalModel
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_store,
    seal,
    write,
)


@pytest.mark.parametrize("garbage", [b"", bytes(300), b"\xff" * 300, bytes(range(256)) * 3])
def test_a_torn_last_round_is_cut_at_its_first_unreadable_entry(garbage):
    disk, model, before_last = small_journal()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    for cut in range(first, second + 64, 8):
        torn = files[FIRST][:cut] + garbage
        damaged = disk.restored({**files, FIRST: torn})
        outcome = classify(damaged, model, before_last)
        store = open_store(damaged.filesystem, DIRECTORY)
        assert outcome == "cut"
        assert store.groups[2].bounds.last_index == (3 if cut < second else 4)
        assert store.groups[1].bounds.last_index == 4
        store.close()


def test_intact_entries_of_the_round_behind_a_torn_one_go_with_it():
    disk, model, before_last = small_journal()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    torn = files[FIRST][:first] + bytes(second - first) + files[FIRST][second:]
    damaged = disk.restored({**files, FIRST: torn})
    assert classify(damaged, model, before_last) == "cut"
    assert not any(damaged.read(FIRST)[first:])


def test_bytes_behind_the_cut_never_join_the_chain_again():
    """n1 loses the first entry of its last round, is cut there, and gets the same entry again: the
    second entry of that round, still intact behind it, must not come back to life."""
    disk, model, _ = small_journal()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    torn = files[FIRST][:first] + bytes(second - first) + files[FIRST][second:]
    damaged = disk.restored({**files, FIRST: torn})
    store = open_store(damaged.filesystem, DIRECTORY)
    Rounds(store).run(write(2, data_entry(2, 4, 2, 200, 1, [b"five"])))
    store.close()
    store = open_store(damaged.filesystem, DIRECTORY)
    assert store.groups[2].bounds.last_index == 4
    assert store.groups[1].bounds.last_index == 4
    store.close()


def test_bytes_of_a_previous_segment_are_not_accepted():
    disk, model, _ = small_journal()
    other = Disk()
    store = open_store(other.filesystem, DIRECTORY)  # the same node, another start
    store.close()
    store = open_store(other.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    Rounds(store).run(write(1, noop_entry(1, 1, 9)))
    store.close()
    mixed = bytearray(disk.read(FIRST))
    mixed[64:128] = other.read(FIRST)[64:128]
    damaged = disk.restored({**disk.files(), FIRST: bytes(mixed)})
    assert classify(damaged, model, len(model.items)) == "quarantined"


@pytest.mark.parametrize("mark", [0, 1 << 40])
def test_a_journal_stored_as_a_record_is_not_taken_for_the_journal(mark):
    """A torn entry whose payload holds entries that were never written here."""
    disk, model, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    end = store.durable_position
    fakes = [noop_entry(1, 7, 3), noop_entry(2, 5, 3)]
    payload = b"".join(map(bytes, core.frame_entries(fakes, 0, mark)[0]))
    Rounds(store).run(write(1, Entry(EntryKind.METADATA, 1, 1, 3, 6, payload=payload)))
    store.close()
    torn = bytearray(disk.read(FIRST))
    torn[end + 20] ^= 1
    assert core.find_entry(torn, end) == end + 64
    disk.put(FIRST, bytes(torn))
    assert classify(disk, model, len(model.items)) == "intact"


def test_a_segment_that_is_written_again_loses_its_old_index_file():
    """n1's second segment was torn and is removed, so the first, already sealed and indexed, takes
    entries again: its old index file would hide them."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    count = 0
    while len(store.table.journal.segments) < 2:
        count += 1
        checkpoint(store, {1: count - 1})
        entry = Entry(EntryKind.METADATA, 1, 1, 1, count, payload=bytes(400))
        rounds.run(write(1, entry))
        store.partition_states[1].append(entry)
        store.partition_states[1].apply(count)
    assert seal(store) == 1
    store.close()
    second = segments(disk)[1]
    disk.put(second, disk.read(second)[:100])
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], count - 1)
    rounds = Rounds(store)
    rounds.run(write(1, noop_entry(1, count, 1)))
    rounds.run(write(1, Entry(EntryKind.METADATA, 1, 1, 1, count + 1, payload=bytes(400))))
    assert len(store.table.journal.segments) == 2
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], count + 1)
    store.close()


@pytest.mark.parametrize("begun, outcome", [(False, "cut"), (True, "quarantined")])
def test_a_round_that_was_staged_during_a_write_proves_that_write_when_told_so(begun, outcome):
    disk, model = Disk(), JournalModel()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    first, second = [write(1, noop_entry(1, index, 1)) for index in (1, 2)]
    model.stage(first, second)
    one = rounds.stage(first)
    if begun:
        store.submitted(one)
    two = rounds.stage(second)
    for staged in (one, two):
        staged.execute()
        store.finish(staged)
    store.close()
    damaged = bytearray(disk.read(FIRST))
    damaged[64 + 20] ^= 1
    disk.put(FIRST, bytes(damaged))
    assert classify(disk, model, 0) == outcome


def test_stray_bytes_behind_the_last_entry_are_cut_off():
    disk, model, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    end = store.durable_position
    store.close()
    disk.put(FIRST, disk.read(FIRST)[:end] + b"\xff" * 100)
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.recovered.cut_at, store.recovered.cut_bytes, store.damage) == (end, 100, [])
    store.close()
    assert len(disk.read(FIRST)) == end


def test_a_prepared_segment_behind_a_torn_tail_is_in_nobodys_way():
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 40):
        rounds.run(write(1, noop_entry(1, index, 1)))
    store.create_segment_job().execute()
    store.close()
    disk.put(FIRST, disk.read(FIRST)[:64 + 38 * 64] + b"\xff" * 100)
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], 38)
    rounds = Rounds(store)
    for index in range(39, 100):
        rounds.run(write(1, noop_entry(1, index, 1)))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], 99)
    store.close()


def test_two_segments_that_a_crash_left_empty_are_gone_for_good():
    """A round that ends in the second of two new segments creates both before it writes.  The start
    removed them, and the first was to be sealed all the same.  Seed 790000006152."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, noop_entry(1, 1, 1)))
    before = {*disk.files()}
    staged = rounds.stage(write(1, *(data_entry(1, index, 1, 100, index - 2, [bytes(1000)])
                                     for index in range(2, 40))))
    staged.create_files()
    assert len({*disk.files()} - before) > 1
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert {*disk.files()} == before
    assert seal(store) == 0
    rounds = Rounds(store)
    for index in range(2, 200):
        rounds.run(write(1, noop_entry(1, index, 1)))
    assert seal(store) > 0
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], 199)
    store.close()


def test_the_header_of_a_torn_entry_still_proves_what_was_durable_before_it():
    disk, model, before_last = small_journal()
    torn = bytearray(disk.read(FIRST)[:model_position(disk, before_last) + 64 + 40])
    torn[model_position(disk, before_last - 1) + 20] ^= 1
    disk.put(FIRST, bytes(torn))
    assert classify(disk, model, before_last) == "quarantined"


def test_a_replica_whose_tombstone_is_cut_off_goes_on():
    """It was out permanently: at the tombstone, the start had taken its applied state for that of
    an earlier replica, and read the log on top of it."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    rounds = Rounds(store)
    logs = {group: [noop_entry(group, index, 1) for index in (1, 2, 3)] for group in (1, 2)}
    for group, entries in logs.items():
        store.create_group(group, 1, VOTERS)
        for entry in entries:
            store.partition_states[group].append(entry)
        store.partition_states[group].apply(len(entries))
        rounds.run(write(group, *entries, hard_state=HardState(1, 1)))
    checkpoint(store, {1: 3, 2: 3})
    torn = store.table.journal.position
    left = tombstone(1, 1, Tombstone(HardState(1, 1), 3, 1))
    rounds.run(write(2, noop_entry(2, 4, 1)), GroupWrite(1, 1, 0, (), None, left))
    store.close()
    disk.filesystem.overwrite(FIRST, torn, bytes(64))  # its page was not written, the next one was
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.recovered.cut_at == torn
    assert store.groups[1].quarantined == ""
    assert (store.groups[1].bounds.last_index, store.groups[1].applied) == (3, 3)
