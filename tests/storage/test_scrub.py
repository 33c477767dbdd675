"""The scrub finds what is damaged and says whose it is, and finds nothing where nothing is."""

from __future__ import annotations

import random

from multiraft.storage import scrub
from multiraft.storage.errors import CorruptRange
from multiraft.storage.scrub import Scrubber
from tests.storage.damage import DIRECTORY, long_lane, segments
from tests.storage.world import open_store


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
