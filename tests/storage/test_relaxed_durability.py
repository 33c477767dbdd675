"""Relaxed durability: what entries call durable was synced, whatever was acknowledged."""

from __future__ import annotations

import dataclasses
import random

from multiraft.raft.ready import Writes
from multiraft.storage.errors import CorruptRange
from multiraft.types import HardState
from tests.storage.damage import DIRECTORY, Disk
from tests.storage.world import SMALL, VOTERS, data_entry, open_entry, open_store, write


class Worker:
    """Writes rounds as the node's disk worker does when it is relaxed."""

    def __init__(self, store):
        self.store = store
        self.sequence = 0
        store.relaxed = True

    def run(self, *writes):
        self.sequence += 1
        staged = self.store.stage(Writes(self.sequence, tuple(writes)))
        staged.synced = not staged.records_only
        staged.create_files()
        for at, (file, buffers, position) in enumerate(staged.parts):
            file.write(buffers, position, staged.synced or at < len(staged.parts) - 1)
        self.store.finish(staged)
        return staged


def filled(disk: Disk, records: int):
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    worker = Worker(store)
    first = worker.run(write(1, open_entry(1, 1, 1, 100), hard_state=HardState(1, 1)))
    assert first.synced
    for index in range(2, records + 2):
        assert not worker.run(write(1, data_entry(1, index, 1, 100, index - 2, [b"x"]))).synced
    return store


def test_a_power_loss_takes_records_and_nothing_that_was_synced():
    for seed in range(40):
        disk = Disk()
        store = filled(disk, 6)
        assert store.durable_position > store.table.journal.fsynced
        disk.filesystem.power_loss(random.Random(seed))
        again = open_store(disk.filesystem, DIRECTORY)
        restored = again.groups[1]
        assert not restored.quarantined and not again.damage  # a torn tail, not corruption
        assert 1 <= restored.bounds.last_index <= 7
        assert restored.hard_state == HardState(1, 1)
        again.read_job(1, 1, restored.bounds.last_index).execute()


def test_a_process_crash_takes_nothing():
    disk = Disk()
    filled(disk, 6)
    disk.filesystem.process_death(random.Random(1))
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.groups[1].bounds.last_index == 7


def test_a_flush_is_what_later_entries_call_durable():
    disk = Disk()
    store = filled(disk, 3)
    flushed = store.durable_position
    store.table.journal._active.file.sync()
    store.fsynced(flushed)
    worker = Worker(store)
    worker.sequence = 4
    worker.run(write(1, data_entry(1, 5, 1, 100, 3, [b"y"])))
    store.table.journal._active.file.sync()
    path = store.table.journal.segments[0].path
    data = bytearray(disk.read(path))
    data[store.table.logs[1].index.position(3) + 90] ^= 1  # below the mark of entry 5
    store.close()
    disk.put(path, bytes(data))
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.groups[1].quarantined
    try:
        again.read_job(1, 3, 3).execute()
    except CorruptRange:
        return
    raise AssertionError("a damaged entry was served")


def test_a_checkpoint_speaks_of_nothing_that_was_not_synced():
    for seed in range(20):
        disk = Disk()
        store = filled(disk, 5)
        tail = store.partition_states[1]
        for entry in store.read_job(1, 1, 6).execute():
            tail.append(entry)
        tail.apply(6)
        job = store.checkpoint_job({1: 6}, None)
        job.execute()
        disk.filesystem.power_loss(random.Random(seed))
        again = open_store(disk.filesystem, DIRECTORY)
        assert again.groups[1].bounds.last_index == 6
        assert not again.groups[1].quarantined


def rolled():
    """A store whose last write is not synced, while the next one, staged, is in a new segment; and
    the segment before that."""
    disk = Disk()
    store = filled(disk, 2)
    sequence, index = 3, 4

    def stage():
        nonlocal sequence, index
        sequence += 1
        staged = store.stage(Writes(sequence, (
            write(1, data_entry(1, index, 1, 100, index - 2, [bytes(300)])),)))
        staged.synced = False
        index += 1
        return staged

    before, staged = store.table.journal.segments[-1], stage()
    while True:
        for file, buffers, position in staged.parts:
            file.write(buffers, position, False)
        following = stage()
        store.finish(staged)
        if store.table.journal.segments[-1] is not before:
            return disk, store, following, before
        staged = following


def test_a_segment_stays_open_until_its_last_bytes_are_synced():
    _, store, following, before = rolled()
    assert before.file is not None
    before.file.sync()  # as the disk worker does before it begins the next file
    following.create_files()
    for file, buffers, position in following.parts:
        file.write(buffers, position, True)
    following.synced = True
    store.finish(following)
    assert before.file is None


def test_a_checkpoint_syncs_the_file_that_was_written_last():
    disk, store, _, before = rolled()
    job = store.checkpoint_job({}, None)
    assert job.sync_first == before.path
    job.execute()
    disk.filesystem.power_loss(random.Random(1))
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[1].quarantined


def test_a_checkpoint_is_due_for_what_it_can_speak_of():
    """Found by a seed with topics: when written bytes made it due, a checkpoint that could contain
    only synced records was due again at once, without end, and kept the disk from that very
    sync."""
    disk = Disk()
    config = dataclasses.replace(SMALL, checkpoint_bytes=1 << 10, checkpoint_growth_factor=0)
    store = open_store(disk.filesystem, DIRECTORY, config)
    store.create_group(1, 1, VOTERS)
    worker = Worker(store)
    worker.run(write(1, open_entry(1, 1, 1, 100), hard_state=HardState(1, 1)))
    for index in range(2, 40):
        worker.run(write(1, data_entry(1, index, 1, 100, index - 2, [b"x"])))
    for _ in range(3):
        if store.checkpoint_due:
            job = store.checkpoint_job({}, None)
            job.execute()
            store.checkpointed(job)
    assert not store.checkpoint_due
    store.fsynced(store.durable_position)
    assert store.checkpoint_due
