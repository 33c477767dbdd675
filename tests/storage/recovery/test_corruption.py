"""Damaged bytes on disk: found, named, never served, and never mistaken for a torn tail."""

from __future__ import annotations

import struct

import pytest

from multiraft import core
from multiraft.storage.errors import (
    CorruptFile,
    CorruptRange,
    StorageError,
    UnknownFormat,
    WrongIdentity,
)
from multiraft.types import HardState
from tests.storage.damage import (
    DIRECTORY,
    FIRST,
    LANE,
    Disk,
    classify,
    flips,
    long_journal,
    model_position,
    segments,
    small_journal,
)
from tests.storage.model import comparable, observed
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    noop_entry,
    open_store,
    seal,
    write,
)


def test_a_flipped_bit_anywhere_in_a_journal_is_never_silent():
    disk, model, before_last = small_journal()
    files = disk.files()
    outcomes = {"intact": 0, "cut": 0, "quarantined": 0}
    last_round = model_position(disk, before_last)
    for at, damaged in flips(files[FIRST]):
        outcome = classify(disk.restored({**files, FIRST: damaged}), model, before_last)
        outcomes[outcome] += 1
        if outcome == "cut":
            assert at >= last_round, f"byte {at} was durable and was cut"
    assert outcomes["quarantined"] > 700
    assert outcomes["cut"] > 100


@pytest.mark.parametrize("length", [1, 8, 64, 200])
def test_zeros_anywhere_in_a_journal_are_never_silent(length):
    disk, model, before_last = small_journal()
    files = disk.files()
    data, last_round = files[FIRST], model_position(disk, before_last)
    for at in range(0, len(data), 16):
        if at < last_round < at + length:
            continue  # may take every later mark with it: the next test
        zeroed = data[:at] + bytes(min(length, len(data) - at)) + data[at + length:]
        classify(disk.restored({**files, FIRST: zeroed}), model, before_last)


def test_what_is_wiped_out_together_with_every_later_mark_looks_like_a_torn_tail():
    """The limit of the rule, as docs/decisions/0002 names it: no evidence, no verdict."""
    disk, model, before_last = small_journal()
    files = disk.files()
    wiped = files[FIRST][:model_position(disk, before_last - 1)]
    assert classify(disk.restored({**files, FIRST: wiped}), model, 0) == "cut"


def test_a_journal_that_ends_early_after_a_checkpoint_has_lost_durable_bytes():
    disk, model, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store)
    durable = store.durable_position
    store.close()
    files = disk.files()
    for size in range(0, durable, 40):
        damaged = disk.restored({**files, FIRST: files[FIRST][:size]})
        assert classify(damaged, model, len(model.items)) == "quarantined"


def test_after_a_checkpoint_every_flip_in_the_journal_is_found():
    disk, model, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store)
    durable = store.durable_position
    store.close()
    files = disk.files()
    for at, damaged in flips(files[FIRST][:durable]):
        outcome = classify(disk.restored({**files, FIRST: damaged}), model, len(model.items))
        assert outcome != "cut", f"byte {at} was durable and was cut"


# ---- one group, or all of them -------------------------------------------------------------------


def test_a_damaged_batch_quarantines_its_group_only_and_is_never_served():
    disk, model, _ = small_journal()
    at = model_position(disk, 5) + 64 + 61  # the first batch, behind its header
    damaged = bytearray(disk.read(FIRST))
    damaged[at] ^= 4
    disk.put(FIRST, bytes(damaged))
    store = open_store(disk.filesystem, DIRECTORY)
    found, = store.damage
    assert (found.kind, found.group, found.index) == ("payload", 1, 3)
    assert "entry 3" in store.groups[1].quarantined
    assert store.groups[2].quarantined == ""
    assert store.groups[1].bounds.last_index == 5
    with pytest.raises(CorruptRange, match="group 1, index 3"):
        store.read_job(1, 2, 4).execute()
    fetch = store.fetch(1, 100, 0, 1 << 20, 1 << 30)
    with pytest.raises(CorruptRange):
        fetch.job.execute()
    store.close()


def test_a_damaged_header_quarantines_every_group_also_unknown_ones_and_stays():
    disk, model, _ = small_journal()
    damaged = bytearray(disk.read(FIRST))
    damaged[model_position(disk, 3) + 30] ^= 4
    disk.put(FIRST, bytes(damaged))
    for _ in range(3):
        store = open_store(disk.filesystem, DIRECTORY)
        assert all(restored.quarantined for restored in store.groups.values())
        assert store.create_group(9, 1, VOTERS).quarantined
        Rounds(store).run(write(9, hard_state=HardState(store.boot_epoch, 0)))
        store.close()


def test_a_quarantine_found_by_a_reader_is_remembered_by_the_checkpoint():
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    store.quarantine(1, "a cold read failed")
    checkpoint(store)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.groups[1].quarantined == "a cold read failed"
    store.close()


# ---- segments, index files, checkpoints ----------------------------------------------------------


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_missing_segment_is_found(with_checkpoint):
    disk, model = long_journal(with_checkpoint)
    files = disk.files()
    paths = segments(disk)
    assert len(paths) >= 3
    for path in paths[:None if with_checkpoint else -1]:
        rest = {name: data for name, data in files.items() if name != path}
        broken = disk.restored(rest)
        assert classify(broken, model, len(model.items)) == "quarantined", path
        store = open_store(broken.filesystem, DIRECTORY)
        assert "missing" in [found.kind for found in store.damage]
        store.close()


def test_a_truncated_segment_is_found_although_its_index_file_is_intact():
    disk, model = long_journal(with_checkpoint=True)
    files = disk.files()
    for path in segments(disk)[:-1]:
        broken = disk.restored({**files, path: files[path][:2000]})
        assert classify(broken, model, len(model.items)) == "quarantined", path


def test_a_damaged_index_file_is_rebuilt_and_changes_nothing():
    disk, model = long_journal(with_checkpoint=True)
    files = disk.files()
    path = next(path for path in sorted(files) if path.endswith(".index"))
    for at, damaged in flips(files[path]):
        broken = disk.restored({**files, path: damaged})
        assert classify(broken, model, len(model.items)) == "intact", f"byte {at}"
    for data in (b"", files[path][:20], files[path] + b"x"):
        broken = disk.restored({**files, path: data})
        store = open_store(broken.filesystem, DIRECTORY)
        assert store.recovered.scanned_segments == 2, "it, and the last one"
        seal(store)
        store.close()
        assert broken.read(path) == files[path]


def test_the_index_file_of_another_segment_is_not_believed():
    disk, model = long_journal(with_checkpoint=True)
    files = disk.files()
    first, second = [path for path in sorted(files) if path.endswith(".index")][:2]
    swapped = disk.restored({**files, first: files[second], second: files[first]})
    assert classify(swapped, model, len(model.items)) == "intact"


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so():
    disk, model = long_journal(with_checkpoint=True)
    files = disk.files()
    older, newer = [path for path in sorted(files) if "checkpoint-" in path]
    for at, damaged in list(flips(files[newer]))[::7]:
        broken = disk.restored({**files, newer: damaged})
        store = open_store(broken.filesystem, DIRECTORY)
        assert store.extra == 20, f"byte {at}"
        assert [found.kind for found in store.damage] == ["checkpoint"]
        assert store.groups[1].applied == 20
        assert store.partition_states[1].last_index == 39
        assert observed(store) == comparable(model.state(len(model.items)))
        checkpoint(store, {1: 20}, "new")
        store.close()
        store = open_store(broken.filesystem, DIRECTORY)
        assert (store.extra, store.damage) == ("new", [])
        store.close()
        assert older in broken.files()


def test_without_any_checkpoint_everything_is_rebuilt_from_the_journal():
    disk, model = long_journal(with_checkpoint=True)
    files = {path: b"rubbish" if "checkpoint-" in path else data
             for path, data in disk.files().items()}
    store = open_store(disk.restored(files).filesystem, DIRECTORY)
    assert len(store.damage) == 2
    assert observed(store) == comparable(model.state(len(model.items)))
    assert store.groups[1].applied == 0
    assert store.partition_states[1].next_offset(100) == 38
    store.close()


def test_damage_in_an_indexed_segment_is_found_when_it_is_read():
    disk, model = long_journal(with_checkpoint=True)
    damaged = bytearray(disk.read(FIRST))
    damaged[64 + 64 + 40 + 64 + 100] ^= 1
    disk.put(FIRST, bytes(damaged))
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.damage == []
    with pytest.raises(CorruptRange):
        store.read_job(1, 1, 10).execute()
    assert len(store.read_job(1, 30, 39).execute()) == 10
    store.close()


def test_sealing_a_damaged_segment_reports_it_and_writes_no_index():
    disk, _ = long_journal(with_checkpoint=False)
    damaged = bytearray(disk.read(FIRST))
    damaged[-1000] ^= 1
    disk.put(FIRST, bytes(damaged))
    disk.filesystem.remove(FIRST.replace(".segment", ".index"))
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.damage
    seal(store)
    store.close()
    assert FIRST.replace(".segment", ".index") not in disk.files()


# ---- files of others, of other versions, hostile ones --------------------------------------------


def test_the_identity_file_is_never_half_believed():
    disk, model, _ = small_journal()
    path = f"{DIRECTORY}/node.json"
    files = disk.files()
    for at, damaged in flips(files[path]):
        broken = disk.restored({**files, path: damaged})
        try:
            open_store(broken.filesystem, DIRECTORY).close()
        except (CorruptFile, UnknownFormat, WrongIdentity):
            continue
        assert damaged.split() == files[path].split(), f"byte {at} changed more than blanks"


def test_a_journal_without_its_identity_is_refused():
    disk, _, _ = small_journal()
    disk.filesystem.remove(f"{DIRECTORY}/node.json")
    with pytest.raises(CorruptFile, match="is missing, but the directory holds data"):
        open_store(disk.filesystem, DIRECTORY)


def test_a_segment_of_another_cluster_is_refused():
    disk, _, _ = small_journal()
    header = bytearray(disk.read(FIRST)[:60])
    header[24:40] = b"z" * 16
    sealed = bytes(header) + struct.pack("<I", core.crc32c(header))
    disk.put(FIRST, sealed + disk.read(FIRST)[64:])
    with pytest.raises(WrongIdentity, match="belongs to cluster 7a7a"):
        open_store(disk.filesystem, DIRECTORY)


def test_a_segment_of_a_later_format_is_refused():
    disk, _, _ = small_journal()
    header = bytearray(disk.read(FIRST)[:60])
    header[8] = 2
    sealed = bytes(header) + struct.pack("<I", core.crc32c(header))
    disk.put(FIRST, sealed + disk.read(FIRST)[64:])
    with pytest.raises(UnknownFormat, match="format version 2, this program reads 1"):
        open_store(disk.filesystem, DIRECTORY)


@pytest.mark.parametrize("body", [b"", b"\x00" * 40, b"\x9f\x9f\x9f", b"\xff" * 1000,
                                  b"\x81" * 5000])
def test_hostile_files_end_in_a_typed_error_or_are_set_aside(body):
    disk, model, _ = small_journal()
    files = disk.files()
    for path in (f"{DIRECTORY}/checkpoint-{5:020d}", f"{LANE}/{0:020d}.index",
                 f"{LANE}/{1 << 40:020d}.segment", f"{LANE}/nonsense", f"{LANE}/x.segment"):
        broken = disk.restored({**files, path: body})
        classify(broken, model, len(model.items))
    broken = disk.restored({**files, f"{DIRECTORY}/node.json": body})
    with pytest.raises(StorageError):
        open_store(broken.filesystem, DIRECTORY)


@pytest.mark.parametrize("by_a_start", [False, True])
def test_a_truncated_entry_is_not_taken_for_the_one_that_it_replaced(
        by_a_start):
    """A misdirected write: group and index are right, and so are the checksums."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, *[noop_entry(1, index, 1) for index in (1, 2)]))
    stale = store.table.logs[1].index.position(2)
    rounds.run(write(1, noop_entry(1, 2, 2), drop_from=2))
    place = store.table.logs[1].index.position(2)
    while len(store.table.journal.segments) < 2:
        rounds.run(write(1, hard_state=HardState(2, 1)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    seal(store)
    if not by_a_start:
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)  # nothing is in memory
    disk.filesystem.overwrite(FIRST, place, disk.read(FIRST)[stale:stale + 64])
    if by_a_start:
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)
        assert store.groups[1].quarantined
    else:
        with pytest.raises(CorruptRange):
            store.read_job(1, 2, 2).execute()
