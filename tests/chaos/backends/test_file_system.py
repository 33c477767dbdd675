"""File system behaviour on power loss, as far as the storage relies on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.backends import disk as disks
from chaos.backends import host, ledger, probes
from chaos.backends.backend import BackendError
from chaos.backends.disk import LoopDisk
from multiraft.storage.atomic_file import replace_file
from multiraft.storage.filesystem import RealFilesystem
from tests import needs

TAKES_THE_MACHINE = True

DISK_BYTES = 16 << 20
pytestmark = needs.root("a disk that loses its power takes root")


@pytest.fixture
def disk(tmp_path):
    needs.commands(*probes.DISK_COMMANDS)
    book = ledger.ResourceLedger.open()
    made = LoopDisk(tmp_path / "disk.image", tmp_path / "disk")
    book.note(ledger.DISK, str(made.image), str(made.mount))
    try:
        made.create(DISK_BYTES)
        yield made
    finally:
        ledger.release(book)


def lose_power(disk: LoopDisk) -> None:
    """Cut the power at this moment, and restore it."""
    disk.shut_down()
    disk.remount()


def test_what_was_put_in_place_is_there_after_a_power_loss(disk: LoopDisk):
    place = disk.mount / "data"
    RealFilesystem().make_directory(str(place))
    for content in (b"first", b"second"):
        replace_file(RealFilesystem(), str(place), "file", [content])
        lose_power(disk)
        assert contents(place) == {"file": content}


def test_what_was_not_synced_is_gone_after_a_power_loss(disk: LoopDisk):
    """Without this, the test above could not fail."""
    filesystem, path = RealFilesystem(), str(disk.mount / "file")
    file = filesystem.create(path)
    file.write([b"synced"], 0, True)
    file.write([b", not synced"], len(b"synced"), False)
    file.close()
    filesystem.rename(path, path + "-renamed")
    lose_power(disk)
    assert (disk.mount / "file").read_bytes() == b"synced"


def test_room_that_was_given_back_stays_so(disk: LoopDisk):
    """Container run 7325: a node lost its power right after its disk had been full, and had no free
    space for the rest of the run."""
    free_bytes = disk.free_bytes()
    disk.fill()
    # as in all the seconds in which the disk is full
    host.run("sync", "--file-system", str(disk.mount))
    assert disk.free_bytes() < free_bytes // 10
    disk.free()
    lose_power(disk)
    assert disk.free_bytes() >= free_bytes * 9 // 10


def test_a_disk_that_fails_is_given_no_room_and_its_healing_goes_on(disk: LoopDisk):
    disk.fill()
    disk.shut_down()
    with pytest.raises(BackendError, match="keeps its ballast"):
        disk.free()
    disk.remount()
    disk.free()
    assert disk.free_bytes() > DISK_BYTES // 2


@pytest.mark.parametrize("fault", ["shut_down", "freeze", "fill"])
def test_a_disk_that_is_not_mounted_takes_no_fault(fault, tmp_path, monkeypatch):
    """The fault would hit the machine's own file system, on which the mount point is."""
    def met(*_) -> None:
        raise AssertionError("the machine's file system is hurt")

    monkeypatch.setattr(disks, "control", met)
    monkeypatch.setattr(os, "posix_fallocate", met)
    absent = LoopDisk(tmp_path / "disk.image", tmp_path / "disk")
    absent.mount.mkdir()
    with pytest.raises(BackendError, match="is not mounted"):
        getattr(absent, fault)()
    assert not absent.failed and not absent.frozen and not any(absent.mount.iterdir())


def test_a_disk_that_fails_cannot_be_filled_and_the_turn_goes_on(disk: LoopDisk):
    disk.shut_down()
    with pytest.raises(BackendError, match="cannot be filled"):
        disk.fill()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
