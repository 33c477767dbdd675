"""Index of a full segment: the same with an object per entry or without, and with pauses or
without; and pauses are made."""

from __future__ import annotations

import contextlib

import pytest

from multiraft.storage import segment_seal
from multiraft.storage.journal import segment_scan
from multiraft.storage.segment_seal import SealJob
from tests.storage.damage import DIRECTORY, long_journal
from tests.storage.world import open_store


def unsealed():
    """A disk whose full segments have no index files, what those were, and its store."""
    disk, _ = long_journal(with_checkpoint=False)
    indexes = {path: disk.read(path) for path in disk.files() if path.endswith(".index")}
    assert indexes, "nothing was sealed"
    for path in indexes:
        disk.filesystem.remove(path)
    return disk, indexes, open_store(disk.filesystem, DIRECTORY)


@pytest.mark.parametrize("window", [1, 100, 1 << 20])
def test_a_plain_segment_needs_no_scan_and_has_the_same_index(monkeypatch, window):
    monkeypatch.setattr(segment_seal, "WINDOW_BYTES", window)
    disk, indexes, store = unsealed()
    plain = 0
    while (job := store.seal_job()) is not None:
        found = job._packed(None)
        contents, job.contents = job.contents, None
        scanned = job._scanned(None)
        if found is not None:
            plain += 1
            assert b"".join(found) == b"".join(scanned)
            assert contents._replace(groups={}) == job.contents._replace(groups={})
            assert dict(contents.groups) == dict(job.contents.groups)
        job.execute()
        store.sealed(job)
    store.close()
    assert plain, "no segment was plain"
    assert {path: disk.read(path) for path in indexes} == indexes


def test_a_segment_with_a_damaged_payload_is_damaged():
    disk, _, store = unsealed()
    job = store.seal_job()
    with contextlib.closing(disk.filesystem.open(job.segment.path)) as file:
        size = job.segment.end - job.segment.start
        byte = file.read(1, size - 9)
        file.write([bytes([byte[0] ^ 1])], size - 9, True)
    job.execute()
    assert job.damage.startswith("unreadable at")
    store.close()


def test_a_scan_that_gives_way_finds_the_same(monkeypatch):
    disk, at_once, store = unsealed()
    monkeypatch.setattr(segment_scan, "_PIECE_BYTES", 1)
    monkeypatch.setattr(segment_seal, "WINDOW_BYTES", 100)
    monkeypatch.setattr(SealJob, "_packed", lambda job, pause: None)
    pauses: list[int] = []
    while (job := store.seal_job()) is not None:
        before = len(pauses)
        job.execute(lambda: pauses.append(1))
        assert not job.damage
        reads = disk.filesystem.size(job.segment.path) // 100
        assert len(pauses) - before >= reads + 5, "several entries are in each segment"
        store.sealed(job)
    store.close()
    assert {path: disk.read(path) for path in at_once} == at_once


def test_windows_give_way(monkeypatch):
    disk, at_once, store = unsealed()
    monkeypatch.setattr(segment_seal, "WINDOW_BYTES", 100)
    pauses: list[int] = []
    job = store.seal_job()
    assert job._packed(lambda: pauses.append(1)) is not None
    assert len(pauses) >= 5, "several entries are in the segment, none of which fits a window"
    store.close()


def test_a_segment_that_became_shorter_is_damaged_whether_its_scan_gives_way_or_not():
    for pause in (None, lambda: None):
        disk, _ = long_journal(with_checkpoint=False)
        for path in [path for path in disk.files() if path.endswith(".index")]:
            disk.filesystem.remove(path)
        store = open_store(disk.filesystem, DIRECTORY)
        job = store.seal_job()
        with contextlib.closing(disk.filesystem.open(job.segment.path)) as file:
            file.truncate(file.size() // 2)
        job.execute(pause)
        assert job.damage.startswith("unreadable at")
        assert not disk.filesystem.exists(job.segment.path.replace(".segment", ".index"))
        store.close()
