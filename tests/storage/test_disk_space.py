"""Room: records are taken while everything that exists has its blocks, and not before."""

from __future__ import annotations

import errno
import os

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.journal.journal import Segment, SegmentHeader
from multiraft.types import HardState
from tests.storage.world import VOTERS, Rounds, noop_entry, open_store, write

RESERVED = 400
LOW, ENOUGH = RESERVED // 4, RESERVED + RESERVED // 2


class Disk:
    """So many bytes are free; the reserve and a file that may lack blocks take theirs of them."""

    def __init__(self, free: int, missing: int = 0):
        self.free = free
        self.missing = missing
        self.held_bytes = 0
        self.error = 0  # of the next attempt to fill the file
        self.tries = 0

    def allocate(self) -> bool:
        if self.free < RESERVED:
            return False
        self.free, self.held_bytes = self.free - RESERVED, RESERVED
        return True

    def release(self) -> None:
        self.free, self.held_bytes = self.free + self.held_bytes, 0

    def unallocated_bytes(self) -> int:
        return self.missing

    def preallocate(self) -> None:
        self.tries += 1
        if self.error:
            number, self.error = self.error, 0
            raise OSError(number, os.strerror(number))
        self.free, self.missing = self.free - self.missing, 0


def room(disk: Disk) -> DiskSpaceGuard:
    made = DiskSpaceGuard(disk, RESERVED, lambda: disk.free, disk)
    made.check()
    return made


def test_records_are_refused_when_little_is_left_and_taken_when_there_is_enough():
    disk = Disk(2 * RESERVED)
    checked = room(disk)
    assert not checked.full and disk.held_bytes == RESERVED
    disk.free = LOW - 1
    checked.check()
    assert checked.full and disk.held_bytes == RESERVED
    assert checked.release_reserve() and not disk.held_bytes, "what goes on lives on the reserve"
    assert not checked.release_reserve()
    disk.free = ENOUGH - 1
    checked.check()
    assert checked.full
    disk.free = ENOUGH
    checked.check()
    assert not checked.full and disk.held_bytes == RESERVED


def test_a_file_without_its_blocks_is_given_them_before_records_are_taken():
    """Seed 790000000894: a segment that was created on a full disk was met by a write without room
    when the disk was full again, which ends the node."""
    disk = Disk(2 * RESERVED)
    checked = room(disk)
    disk.free, disk.missing = 0, 300
    assert checked.release_reserve()
    assert checked.resume_bytes == ENOUGH + 300, "that is what people are told"
    disk.free = ENOUGH + 299
    checked.check()
    assert checked.full and disk.tries == 0, (
        "what is taken in part is gone for those who live on it"
    )
    disk.free = ENOUGH + 300
    checked.check()
    assert not checked.full and not disk.missing and disk.held_bytes == RESERVED


@pytest.mark.parametrize(("free", "full"), [(LOW + 1, True), (RESERVED, True), (ENOUGH, False)])
def test_a_start_gives_blocks_to_what_another_process_has_left_without(free, full):
    disk = Disk(free, missing=150)
    assert room(disk).full == full
    assert bool(disk.missing) == (free < 150)


def test_a_file_that_finds_less_than_there_seemed_to_be_is_tried_again():
    disk = Disk(2 * RESERVED, missing=150)
    disk.error = errno.ENOSPC
    checked = room(disk)
    assert checked.full and disk.missing and not disk.held_bytes
    checked.check()
    assert not checked.full and not disk.missing


def test_another_error_of_the_disk_is_one():
    disk = Disk(2 * RESERVED, missing=150)
    disk.error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        room(disk)


def test_nobody_looks_without_a_reserve():
    disk = Disk(0, missing=150)
    checked = DiskSpaceGuard(disk, 0, lambda: disk.free, disk)
    checked.check()
    assert not checked.full and not disk.tries


@pytest.mark.parametrize("restarts", [False, True])
def test_a_segment_made_on_a_full_disk_has_its_blocks_when_the_disk_is_full_again(restarts):
    filesystem = SimulatedFilesystem()
    store = open_store(filesystem, "/node")
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    while store.create_segment_job() is None:
        rounds.run(write(1, hard_state=HardState(rounds.sequence, 1)))
    faults = filesystem.faults
    faults.capacity_bytes = faults.used_bytes + 1000  # no room for another segment
    while (staged := rounds.stage(write(1, hard_state=HardState(99, 1)))).native_ready:
        staged.execute()
        store.finish(staged)
    with pytest.raises(OSError, match="no space"):
        staged.create_files()
    staged.create_files(False)
    staged.execute()
    store.finish(staged)
    if restarts:
        store.close()
        store = open_store(filesystem, "/node")
    missing = store.unallocated_bytes()
    assert missing > 1000
    with pytest.raises(OSError, match="no space"):
        store.preallocate()
    faults.capacity_bytes = faults.used_bytes + missing
    store.preallocate()
    assert faults.free_bytes == store.unallocated_bytes() == 0
    rounds = Rounds(store)
    for index in range(1, 6):
        rounds.run(write(1, noop_entry(1, index, 1)))


def test_the_operating_system_says_what_a_file_has(tmp_path):
    filesystem = RealFilesystem()
    header = SegmentHeader(1, 0, 0, bytes(16), 1, 7)
    whole = Segment(str(tmp_path / "whole.segment"), 0, 1 << 20, 7)
    whole.create(filesystem, header)
    assert whole.unallocated_bytes() == 0
    bare = Segment(str(tmp_path / "bare.segment"), 0, 1 << 20, 7)
    bare.create(filesystem, header, preallocate=False)
    assert 0 < bare.unallocated_bytes() < 1 << 20, "its header has a block"
    bare.preallocate()
    assert bare.unallocated_bytes() == 0
    found = Segment(bare.path, 0, 1 << 20, 7)  # by the next process
    found.file = filesystem.open(found.path)
    assert found.unallocated_bytes() == 0 and found.is_allocated
    for segment in (whole, bare, found):
        segment.file.close()
