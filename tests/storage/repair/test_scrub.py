"""The scrub finds what is damaged and says whose it is, and finds nothing where nothing is."""

from __future__ import annotations

import random

import pytest

from multiraft.storage.errors import CorruptRange
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.repair import scrub
from multiraft.storage.repair.scrub import Scrubber
from multiraft.types import HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk, flipped, long_journal, segments
from tests.storage.repair.test_acknowledged_damage import clear_all, put, scrubbed, two_groups
from tests.storage.world import (
    VOTERS,
    Rounds,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)


def scrub_all(store) -> set[tuple[int, int]]:
    """One pass: the (group, index) that it complains of."""
    scrubber, found = Scrubber(store), set()
    while (job := scrubber.next_job()) is not None:
        job.execute()
        found |= {(error.group, error.index) for error in scrubber.done(job)}
    assert scrubber.passes == 1
    return found


def readable(store, index: int) -> bool:
    try:
        store.read_job(1, index, index).execute()
    except CorruptRange:
        return False
    return True


def test_an_intact_journal_is_read_to_its_end(monkeypatch):
    """No search of the whole store for the owners of a piece is made."""
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    monkeypatch.setattr(store.repair, "owners", None)
    scrubber = Scrubber(store)
    while (job := scrubber.next_job()) is not None:
        job.execute()
        assert scrubber.done(job) == []
    assert scrubber.bytes >= sum(segment.end - segment.start - 64
                                 for segment in store.table.journal.segments)


def test_a_pass_that_begins_anew_goes_on_behind_damage_as_any_other():
    """An operator wants to know now, while a pass is under way.  Of the one before nothing counts:
    by the durable watermark that it had come to no entry in front could have been written there,
    and all of them were called damaged."""
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    scrubber = Scrubber(store)
    while scrubber.position < store.table.journal.segments[-1].start:
        job = scrubber.next_job()
        job.execute()
        assert scrubber.done(job) == []
    path = segments(disk)[0]
    disk.put(path, flipped(disk.read(path), store.table.logs[1].index.position(3) + 20))
    scrubber.restart()
    found = []
    while (job := scrubber.next_job()) is not None:
        job.execute()
        found += scrubber.done(job)
    assert [(error.group, error.index) for error in found] == [(1, 3)]


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
    filesystem.at = store.table.logs[1].index.position(7) + 100
    assert readable(store, 7) and scrub_all(store) == {(1, 7)}


def test_it_finds_exactly_what_cannot_be_read(monkeypatch):
    monkeypatch.setattr(scrub, "PIECE_BYTES", 700)
    disk, _ = long_journal(with_checkpoint=True)
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
        assert len(scrub_all(store) - unreadable) <= 1  # zeros between entries belong to no log
        store.close()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("piece_bytes", [200, 1 << 18])
def test_what_a_misdirected_write_left_within_one_write_hides_nothing(monkeypatch, count,
                                                                      piece_bytes):
    """All entries of a write have one durable watermark: by that the copy could have been written
    where it is, and it has beginnings of entries, or all of them, under itself.  Of several entries
    only the first one does not follow what is read before it."""
    monkeypatch.setattr(scrub, "PIECE_BYTES", piece_bytes)
    disk, rng = Disk(), random.Random(3721)
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    entries = [open_entry(1, 1, 1, 100),
               *(data_entry(1, index, 1, 100, index - 2, [b"%d" % index * rng.randrange(1, 90)])
                 for index in range(2, 60))]
    Rounds(store).run(write(1, *entries))
    seal(store)
    index, segment = store.table.logs[1].index, store.table.journal.segments[1]
    places = {each: slice(at := index.position(each) - segment.start, at + index.size(each))
              for each in range(1, 60) if segment.start < index.position(each) < segment.end}
    whole = disk.read(segment.path)
    for _ in range(80):
        data = bytearray(whole)
        first = rng.choice([*places][:-count])
        copy = whole[places[first].start:places[first + count - 1].stop]
        to = rng.randrange(64, segment.end - segment.start - len(copy) + 1, 8)
        data[to:to + len(copy)] = copy
        disk.put(segment.path, bytes(data))
        assert scrub_all(store) >= {(1, each) for each, place in places.items()
                                    if data[place] != whole[place]}


def test_what_a_misdirected_write_left_hides_no_term_either():
    """No index points to a hard state, and there are entries on both of its sides."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    for group in (1, 2, 3):
        store.create_group(group, 1, VOTERS)
    Rounds(store).run(write(1, open_entry(1, 1, 1, 100), data_entry(1, 2, 1, 100, 0, [b"x" * 80])),
                      write(2, hard_state=HardState(1, 2)),
                      write(3, noop_entry(3, 1, 1), noop_entry(3, 2, 1)))
    begin, end = store.table.logs[1].index.position(2), store.table.logs[3].index.position(1)
    data = bytearray(disk.read(FIRST))
    copy = data[begin:begin + store.table.logs[1].index.size(2)]
    data[begin:begin + 8] = bytes(8)
    data[end - len(copy):end] = copy
    disk.put(FIRST, bytes(data))
    assert scrub_all(store) == {(1, 2), (3, 1), (-1, 0)}


def test_terms_between_two_entries_that_rot_one_after_the_other_are_not_called_damaged():
    """The entries behind the first one belong there, though no index points to any of them."""
    disk, store, _, _ = two_groups()
    index, put_out = store.table.logs[1].index, []
    for entry in (1, 2):
        disk.put(FIRST, flipped(disk.read(FIRST), index.position(entry) + 20))
        put_out += scrubbed(store)
    assert [(error.group, error.index) for error in put_out] == [(1, 1), (1, 1), (1, 2)]


def three_segments() -> tuple[Disk, object]:
    """The first one begins with an entry, the others with terms."""
    disk, store, rounds, _ = two_groups()
    while len(store.table.journal.segments) < 3:
        rounds.run(write(1, hard_state=HardState(4, 1)))
    rounds.run(write(1, hard_state=HardState(4, 1)))
    seal(store)
    return disk, store


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_header_that_rots_is_found_before_a_start_needs_it(which):
    """Replicas that need head recovery now are cleared by intact ones.  At the next start those may
    not be intact, and neither may replicas whose header rotted long before."""
    disk, store = three_segments()
    path = store.table.journal.segments[which].path
    disk.put(path, flipped(disk.read(path), 8))
    found, = scrubbed(store)
    clear_all(store, found)
    for _ in range(2):
        assert scrubbed(store) == []
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)
        assert store.table.journal_damage.unattributed == (
            store.table.journal.range_at(found.begin, found.end),)
        assert not [*store.repair.quarantined_groups()]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_stands_behind_a_header_that_a_start_found_rotten_is_not_called_damaged(which):
    """It may be the last good copy, and a damaged entry would not be given to a peer."""
    disk, store = three_segments()
    path = store.table.journal.segments[which].path
    store.close()
    disk.put(path, flipped(disk.read(path), 8))
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == [1, 2]
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
    assert scrubbed(store) == []
