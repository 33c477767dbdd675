"""The scrub finds what is damaged and says whose it is, and finds nothing where nothing is."""

from __future__ import annotations

import random

from multiraft.storage import scrub
from multiraft.storage.errors import CorruptRange
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.scrub import Scrubber
from tests.storage.damage import DIRECTORY, long_lane, segments
from tests.storage.world import VOTERS, Rounds, data_entry, open_entry, open_store, write


def scrub_all(store) -> set[tuple[int, int]]:
    """One pass: the (group, index) that it complains of."""
    scrubber, found = Scrubber(store), set()
    while (plan := scrubber.next_plan()) is not None:
        plan.execute()
        found |= {(error.group, error.index) for error in scrubber.done(plan)}
    assert scrubber.passes == 1
    return found


def readable(store, index: int) -> bool:
    try:
        store.read_plan(1, index, index).execute()
    except CorruptRange:
        return False
    return True


def test_an_intact_lane_is_read_to_its_end():
    disk, _ = long_lane(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    scrubber = Scrubber(store)
    while (plan := scrubber.next_plan()) is not None:
        plan.execute()
        assert scrubber.done(plan) == []
    assert scrubber.bytes >= sum(segment.end - segment.start - 64
                                 for segment in store._lane.segments)


class RottenDisk(RealFilesystem):
    """Its page cache still has what the disk had."""

    def __init__(self, at: int):
        self.at = at

    def read_disk(self, path: str, length: int, position: int) -> bytearray:
        data = bytearray(super().read_disk(path, length, position))
        if path.endswith(f"{0:020d}.segment") and position <= self.at < position + len(data):
            data[self.at - position] ^= 1
        return data


def test_it_is_the_disk_that_is_read(tmp_path):
    filesystem = RottenDisk(at=-1)
    store = open_store(filesystem, str(tmp_path / "data"))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 10):
        rounds.run(write(1, open_entry(1, 1, 1, 100) if index == 1 else
                         data_entry(1, index, 1, 100, index - 2, [b"%d" % index * 150])))
    assert scrub_all(store) == set()
    filesystem.at = store._logs[1].index.position(7) + 100
    assert readable(store, 7) and scrub_all(store) == {(1, 7)}


def test_it_finds_exactly_what_cannot_be_read(monkeypatch):
    monkeypatch.setattr(scrub, "PIECE_BYTES", 700)
    disk, _ = long_lane(with_checkpoint=True)
    files, rng = disk.files(), random.Random(5)
    for _ in range(60):
        damaged = disk.restored(files)
        path = rng.choice(segments(disk)[:-1])  # sealed, with an index file: a start does not look
        data = bytearray(files[path])
        for at in rng.sample(range(64, len(data) - 8), 2):
            data[at] ^= 1 << rng.randrange(8)
        damaged.put(path, bytes(data))
        store = open_store(damaged.filesystem, DIRECTORY)
        last = store.groups[1].bounds.last_index
        unreadable = {(1, index) for index in range(1, last + 1) if not readable(store, index)}
        assert scrub_all(store) >= unreadable
        assert len(scrub_all(store) - unreadable) <= 1  # zeros between entries belong to nobody
        store.close()
