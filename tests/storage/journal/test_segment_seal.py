"""Index of a full segment: the same with an object per entry or without, and with pauses or
without; and pauses are made."""

from __future__ import annotations

import contextlib

import pytest

from multiraft.storage import index_file, segment_seal
from multiraft.storage.journal import segment_scan
from multiraft.storage.segment_seal import SealPlan
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
    while (plan := store.seal_plan()) is not None:
        found = plan._indexed(None)
        scanned = plan._scanned(None)
        if found is not None:
            plain += 1
            assert index_file.encode(found) == index_file.encode(scanned)
        plan.execute()
        store.sealed(plan)
    store.close()
    assert plain, "no segment was plain"
    assert {path: disk.read(path) for path in indexes} == indexes


def test_a_segment_with_a_damaged_payload_is_damaged():
    disk, _, store = unsealed()
    plan = store.seal_plan()
    with contextlib.closing(disk.filesystem.open(plan.segment.path)) as file:
        size = plan.segment.end - plan.segment.start
        byte = file.read(1, size - 9)
        file.write([bytes([byte[0] ^ 1])], size - 9, True)
    plan.execute()
    assert plan.damage.startswith("unreadable at")
    store.close()


def test_a_scan_that_gives_way_finds_the_same(monkeypatch):
    disk, at_once, store = unsealed()
    monkeypatch.setattr(segment_scan, "_PIECE_BYTES", 1)
    monkeypatch.setattr(segment_seal, "WINDOW_BYTES", 100)
    monkeypatch.setattr(SealPlan, "_indexed", lambda plan, pause: None)
    pauses: list[int] = []
    while (plan := store.seal_plan()) is not None:
        before = len(pauses)
        plan.execute(lambda: pauses.append(1))
        assert not plan.damage
        reads = disk.filesystem.size(plan.segment.path) // 100
        assert len(pauses) - before >= reads + 5, "several entries are in each segment"
        store.sealed(plan)
    store.close()
    assert {path: disk.read(path) for path in at_once} == at_once


def test_windows_give_way(monkeypatch):
    disk, at_once, store = unsealed()
    monkeypatch.setattr(segment_seal, "WINDOW_BYTES", 100)
    pauses: list[int] = []
    plan = store.seal_plan()
    assert plan._indexed(lambda: pauses.append(1)) is not None
    assert len(pauses) >= 5, "several entries are in the segment, none of which fits a window"
    store.close()


def test_a_segment_that_became_shorter_is_damaged_whether_its_scan_gives_way_or_not():
    for pause in (None, lambda: None):
        disk, _ = long_journal(with_checkpoint=False)
        for path in [path for path in disk.files() if path.endswith(".index")]:
            disk.filesystem.remove(path)
        store = open_store(disk.filesystem, DIRECTORY)
        plan = store.seal_plan()
        with contextlib.closing(disk.filesystem.open(plan.segment.path)) as file:
            file.truncate(file.size() // 2)
        plan.execute(pause)
        assert plan.damage.startswith("unreadable at")
        assert not disk.filesystem.exists(plan.segment.path.replace(".segment", ".index"))
        store.close()
