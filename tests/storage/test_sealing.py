"""The index of a full segment is the same whether its scan gives way or not, and it does give
way."""

from __future__ import annotations

from multiraft.storage import segment_index
from tests.storage.damage import DIRECTORY, long_lane
from tests.storage.world import open_store


def test_a_scan_that_gives_way_finds_the_same(monkeypatch):
    disk, _ = long_lane(with_checkpoint=False)
    at_once = {path: disk.read(path) for path in disk.files() if path.endswith(".index")}
    assert at_once, "nothing was sealed"
    for path in at_once:
        disk.filesystem.remove(path)
    monkeypatch.setattr(segment_index, "_PIECE_BYTES", 1)
    pauses: list[int] = []
    store = open_store(disk.filesystem, DIRECTORY)
    while (plan := store.seal_plan()) is not None:
        before = len(pauses)
        plan.execute(lambda: pauses.append(1))
        assert not plan.damage
        assert len(pauses) - before >= 5, "several entries are in each segment, and few at a time"
        store.sealed(plan)
    store.close()
    assert {path: disk.read(path) for path in at_once} == at_once
