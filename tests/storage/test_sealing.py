"""The index of a full segment is the same whether its scan gives way or not, and it does give
way."""

from __future__ import annotations

import contextlib

from multiraft.storage import plans, segment_index
from tests.storage.damage import DIRECTORY, long_lane
from tests.storage.world import open_store


def test_a_scan_that_gives_way_finds_the_same(monkeypatch):
    disk, _ = long_lane(with_checkpoint=False)
    at_once = {path: disk.read(path) for path in disk.files() if path.endswith(".index")}
    assert at_once, "nothing was sealed"
    for path in at_once:
        disk.filesystem.remove(path)
    monkeypatch.setattr(segment_index, "_PIECE_BYTES", 1)
    monkeypatch.setattr(plans, "SEAL_READ_BYTES", 100)
    pauses: list[int] = []
    store = open_store(disk.filesystem, DIRECTORY)
    while (plan := store.seal_plan()) is not None:
        before = len(pauses)
        plan.execute(lambda: pauses.append(1))
        assert not plan.damage
        reads = disk.filesystem.size(plan.segment.path) // 100
        assert len(pauses) - before >= reads + 5, "several entries are in each segment"
        store.sealed(plan)
    store.close()
    assert {path: disk.read(path) for path in at_once} == at_once


def test_a_segment_that_became_shorter_is_damaged_whether_its_scan_gives_way_or_not():
    for pause in (None, lambda: None):
        disk, _ = long_lane(with_checkpoint=False)
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
