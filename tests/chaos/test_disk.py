"""What a real file system keeps when its power goes, and what of it the storage relies on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.backends import ledger
from chaos.backends.disk import LoopDisk
from multiraft.storage.envelope import replace_file
from multiraft.storage.filesystem import RealFilesystem

TAKES_THE_MACHINE = True

DISK_BYTES = 16 << 20
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="SKIPPED, NOT PASSED: a disk that loses its power takes root")


@pytest.fixture
def disk(tmp_path):
    book = ledger.Ledger.open()
    made = LoopDisk(tmp_path / "disk.image", tmp_path / "disk")
    book.note(ledger.DISK, str(made.image), str(made.mount))
    try:
        made.create(DISK_BYTES)
        yield made
    finally:
        ledger.release(book)


def lose_power(disk: LoopDisk) -> None:
    """At this moment, and it comes back."""
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
    """Else the test above could not fail."""
    filesystem, path = RealFilesystem(), str(disk.mount / "file")
    file = filesystem.create(path)
    file.write([b"synced"], 0, True)
    file.write([b", not synced"], len(b"synced"), False)
    file.close()
    filesystem.rename(path, path + "-renamed")
    lose_power(disk)
    assert (disk.mount / "file").read_bytes() == b"synced"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
