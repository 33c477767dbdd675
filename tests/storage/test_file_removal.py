"""Files lose their names first, durably, and then their blocks, in slices."""

from __future__ import annotations

import errno
import os
import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFile, SimulatedFilesystem
from multiraft.storage import file_removal
from multiraft.storage.errors import SegmentRemoved
from multiraft.storage.file_removal import FileRemoval
from multiraft.storage.filesystem import RealFilesystem
from tests.storage.test_indexed_records import GROUPS, filled, partitions

SLICE = 4096


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(file_removal, "SLICE_BYTES", SLICE)


@pytest.fixture(params=["simulated", "real"])
def disk(request, tmp_path):
    """A filesystem, and a directory with files of 0 to 5 slices and one that is not removed."""
    filesystem = RealFilesystem() if request.param == "real" else SimulatedFilesystem()
    directory = str(tmp_path / "files") if request.param == "real" else "/files"
    filesystem.make_directory(directory)
    for name, size in (("empty", 0), ("one", SLICE), ("odd", 3 * SLICE + 5), ("five", 5 * SLICE),
                       ("stays", 2 * SLICE)):
        file = filesystem.create(f"{directory}/{name}")
        file.write([b"x" * size], 0, True)
        file.close()
    filesystem.sync_directory(directory)
    return filesystem, directory


def removal(disk) -> FileRemoval:
    filesystem, directory = disk
    return FileRemoval(filesystem, directory, [
        f"{directory}/{name}" for name in ("empty", "one", "missing", "odd", "five")])


def test_names_go_first_and_blocks_in_slices(disk):
    filesystem, directory = disk
    odd, five = (filesystem.open(f"{directory}/{name}") for name in ("odd", "five"))
    job = removal(disk)
    job.unlink()
    assert filesystem.list(directory) == ["stays"]
    assert job.bytes == 9 * SLICE + 5 and job.has_blocks
    assert (odd.size(), five.size()) == (3 * SLICE + 5, 5 * SLICE)
    sizes = []
    while job.has_blocks:
        job.free()
        sizes.append((odd.size(), five.size()))
    lefts = [sum(each) for each in sizes]
    assert all(before - after <= SLICE for before, after in
               zip([sum((3 * SLICE + 5, 5 * SLICE)), *lefts], lefts))
    assert len(sizes) == 9, "the last slice of each goes with its descriptor"
    job.free()
    assert filesystem.size(f"{directory}/stays") == 2 * SLICE
    odd.close()
    five.close()


def test_no_descriptor_stays_open(tmp_path):
    disk = RealFilesystem(), str(tmp_path)
    for name in ("odd", "five"):
        (tmp_path / name).write_bytes(bytes(5 * SLICE))
    before = os.listdir("/proc/self/fd")
    job = removal(disk)
    job.unlink()
    assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    while job.has_blocks:
        job.free()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_without_a_descriptor_a_file_goes_at_once(disk, monkeypatch):
    filesystem, directory = disk

    def exhausted(path):
        raise OSError(errno.EMFILE, "too many open files", path)

    job = removal(disk)
    monkeypatch.setattr(filesystem, "open", exhausted)
    job.unlink()
    assert not job.has_blocks and filesystem.list(directory) == ["stays"]


@pytest.mark.parametrize("operation", ["remove", "sync_directory"])
def test_an_error_leaves_no_file_open_and_the_job_may_be_repeated(disk, monkeypatch, operation):
    filesystem, directory = disk
    known, opened, closed = getattr(filesystem, operation), [], []
    opens = filesystem.open

    def spied(path):
        file = opens(path)
        opened.append(path)
        close = file.close

        class Spy:
            truncate, size = file.truncate, file.size

            def close(self):
                closed.append(path)
                close()

        return Spy()

    def failing(path):
        if path.endswith(("five", "files")):
            raise OSError(errno.EIO, "input/output error", path)
        known(path)

    job = removal(disk)
    monkeypatch.setattr(filesystem, "open", spied)
    monkeypatch.setattr(filesystem, operation, failing)
    with pytest.raises(OSError, match="input/output error"):
        job.unlink()
    assert opened and sorted(opened) == sorted(closed) and not job.has_blocks
    monkeypatch.setattr(filesystem, operation, known)
    job.unlink()
    assert filesystem.list(directory) == ["stays"] and job.bytes == 9 * SLICE + 5


def test_after_power_loss_a_name_that_comes_back_has_its_whole_file():
    """A file that was cut off would be taken for another program's."""
    for limit in range(60):
        filesystem = SimulatedFilesystem()
        filesystem.make_directory("/files")
        for name in ("odd", "five"):
            file = filesystem.create(f"/files/{name}")
            file.write([b"x" * 5 * SLICE], 0, True)
        filesystem.sync_directory("/files")
        filesystem.operations_to_crash = limit
        job = removal((filesystem, "/files"))
        try:
            job.unlink()
            while job.has_blocks:
                job.free()
        except PowerLoss:
            pass
        else:
            assert limit > 5
            return
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        for name in filesystem.list("/files"):
            assert filesystem.size(f"/files/{name}") == 5 * SLICE
    raise AssertionError("the job does not end")


def test_a_read_that_opened_a_removed_segment_is_told_so(monkeypatch):
    """It does not find the index file, and makes it anew from a segment that is cut off."""
    monkeypatch.setattr(file_removal, "SLICE_BYTES", 1024)
    monkeypatch.setattr(SimulatedFile, "read_resident", lambda self, length, position: None)
    history = filled()
    store, group = history.store, GROUPS[0]
    history.forget_blocks()
    reader = store.fetch(group, partitions(group)[0], 0, 400, 1 << 40).job
    at = next(iter(reader._reader.segments.values()))
    for each in GROUPS:
        for partition in range(3):
            history.raise_log_start(each, partition, 0)
        history.apply(each, 0)
        history.trim(each)
    job = None
    while job is None or at.segment not in job.segments:
        if job is not None:
            job.execute()
            store.removed(job)
        elif not store.is_examining:
            history.compact(1, 1 << 30)
        job = store.removal_job()
    store.table.filesystem.remove(at.path)
    known_open = SimulatedFilesystem.open

    def opened(filesystem, path):
        file = known_open(filesystem, path)
        if path == at.segment.path:
            monkeypatch.setattr(SimulatedFilesystem, "open", known_open)
            job.execute()
            assert job.has_blocks
            while job.has_blocks:
                job.free()
        return file

    monkeypatch.setattr(SimulatedFilesystem, "open", opened)
    with pytest.raises(SegmentRemoved):
        reader.execute()
