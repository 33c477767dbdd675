"""Damaged bytes on disk: found, named, never served, and never mistaken for a torn tail."""

from __future__ import annotations

import struct

import pytest

from chaos.simulator.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.ready import GroupWrite
from multiraft.storage.errors import (
    CorruptFile,
    CorruptRange,
    StorageError,
    UnknownFormat,
    WrongIdentity,
)
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.model import LaneModel, comparable, observed, readable
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

DIRECTORY = "/node"
LANE = f"{DIRECTORY}/lane-0"
FIRST = f"{LANE}/{0:020d}.segment"


class Disk:
    """A filesystem whose files tests read and overwrite."""

    def __init__(self) -> None:
        self.filesystem = SimulatedFilesystem()

    def read(self, path: str) -> bytes:
        return self.filesystem.open(path).read(1 << 20, 0)

    def put(self, path: str, data: bytes) -> None:
        file = self.filesystem.open(path)
        file.truncate(0)
        file.write([data], 0, True)

    def files(self) -> dict[str, bytes]:
        return {path: self.read(path) for directory in (DIRECTORY, LANE)
                for name in self.filesystem.list(directory)
                if not (path := f"{directory}/{name}").endswith("lane-0")}

    def restored(self, files: dict[str, bytes]) -> Disk:
        """A new disk with these files."""
        disk = Disk()
        disk.filesystem.make_directory(LANE)
        for path, data in files.items():
            disk.filesystem.create(path).write([data], 0, True)
        return disk


def small_lane() -> tuple[Disk, LaneModel, int]:
    """Two groups, five rounds; and how many items were written before the last round."""
    disk, model = Disk(), LaneModel()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    store.create_group(2, 1, VOTERS)
    rounds = Rounds(store)

    def run(*writes: GroupWrite) -> None:
        model.stage(*writes)
        rounds.run(*writes)
        model.finish()

    run(write(1, noop_entry(1, 1, 1), open_entry(1, 2, 1, 100), hard_state=HardState(1, 1)),
        write(2, noop_entry(2, 1, 1), open_entry(2, 2, 1, 200)))
    run(write(1, data_entry(1, 3, 1, 100, 0, [b"one"]), data_entry(1, 4, 1, 100, 1, [b"two"])))
    run(write(2, data_entry(2, 3, 1, 200, 0, [b"three"]), hard_state=HardState(2, 3)))
    run(write(1, data_entry(1, 4, 3, 100, 1, [b"four"]), drop_from=4, hard_state=HardState(3, 2)))
    before_last = len(model.items)
    run(write(2, data_entry(2, 4, 2, 200, 1, [b"five"])), write(1, noop_entry(1, 5, 3)))
    store.close()
    return disk, model, before_last


def judge(disk: Disk, model: LaneModel, undurable_from: int) -> str:
    """Open a damaged disk; what the store made of it, after checking that nothing is silent."""
    store = open_store(disk.filesystem, DIRECTORY)
    try:
        quarantined = {group for group, restored in store.groups.items() if restored.quarantined}
        if not quarantined:
            assert not [found for found in store.damage if found.kind != "checkpoint"]
            found = observed(store)
            counts = [count for count in range(len(model.items), undurable_from - 1, -1)
                      if comparable(model.state(count)) == found]
            assert counts, f"silently became {found}"
            return "intact" if counts[0] == len(model.items) else "cut"
        assert store.damage
        _check_nothing_false_is_served(store, model, undurable_from)
        return "quarantined"
    finally:
        store.close()


def _check_nothing_false_is_served(store, model: LaneModel, undurable_from: int) -> None:
    """Intact entries of a damaged lane are true; a group that is not quarantined is complete."""
    true = [comparable(model.state(count)) for count in range(1, len(model.items) + 1)]
    for group, restored in store.groups.items():
        for index in range(1, restored.bounds.last_index + 1):
            entry = readable(store, group, index)
            assert entry is None or any(entry in state.get(group, ((), 0))[0] for state in true)
        if not restored.quarantined:
            last = restored.bounds.last_index
            found = [readable(store, group, index) for index in range(1, last + 1)]
            assert any(found == state.get(group, ([], 0))[0] for state in true[undurable_from - 1:])


def flips(data: bytes):
    """Every byte with one of its bits flipped, which one differs from byte to byte."""
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        yield at, bytes(damaged)


def test_a_flipped_bit_anywhere_in_a_lane_is_never_silent():
    disk, model, before_last = small_lane()
    files = disk.files()
    outcomes = {"intact": 0, "cut": 0, "quarantined": 0}
    last_round = model_position(disk, before_last)
    for at, damaged in flips(files[FIRST]):
        outcome = judge(disk.restored({**files, FIRST: damaged}), model, before_last)
        outcomes[outcome] += 1
        if outcome == "cut":
            assert at >= last_round, f"byte {at} was durable and was cut"
    assert outcomes["quarantined"] > 700
    assert outcomes["cut"] > 100


def model_position(disk: Disk, entry: int) -> int:
    """Where a lane entry starts in the first segment."""
    data = disk.read(FIRST)
    seed, = struct.unpack_from("<I", data, 44)
    return core.scan_entries(data, 64, seed).entries[entry].at


@pytest.mark.parametrize("length", [1, 8, 64, 200])
def test_zeros_anywhere_in_a_lane_are_never_silent(length):
    disk, model, before_last = small_lane()
    files = disk.files()
    data, last_round = files[FIRST], model_position(disk, before_last)
    for at in range(0, len(data), 16):
        if at < last_round < at + length:
            continue  # may take every later mark with it: the next test
        zeroed = data[:at] + bytes(min(length, len(data) - at)) + data[at + length:]
        judge(disk.restored({**files, FIRST: zeroed}), model, before_last)


def test_what_is_wiped_out_together_with_every_later_mark_looks_like_a_torn_tail():
    """The limit of the rule, as docs/decisions/0002 names it: no evidence, no verdict."""
    disk, model, before_last = small_lane()
    files = disk.files()
    wiped = files[FIRST][:model_position(disk, before_last - 1)]
    assert judge(disk.restored({**files, FIRST: wiped}), model, 0) == "cut"


def test_a_lane_that_ends_early_after_a_checkpoint_has_lost_durable_bytes():
    disk, model, _ = small_lane()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store)
    durable = store.durable_position
    store.close()
    files = disk.files()
    for size in range(0, durable, 40):
        damaged = disk.restored({**files, FIRST: files[FIRST][:size]})
        assert judge(damaged, model, len(model.items)) == "quarantined"


def test_after_a_checkpoint_every_flip_in_the_lane_is_found():
    disk, model, _ = small_lane()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store)
    durable = store.durable_position
    store.close()
    files = disk.files()
    for at, damaged in flips(files[FIRST][:durable]):
        outcome = judge(disk.restored({**files, FIRST: damaged}), model, len(model.items))
        assert outcome != "cut", f"byte {at} was durable and was cut"


# ---- torn tails ----------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"", bytes(300), b"\xff" * 300, bytes(range(256)) * 3])
def test_a_torn_last_round_is_cut_at_its_first_unreadable_entry(garbage):
    disk, model, before_last = small_lane()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    for cut in range(first, second + 64, 8):
        torn = files[FIRST][:cut] + garbage
        damaged = disk.restored({**files, FIRST: torn})
        outcome = judge(damaged, model, before_last)
        store = open_store(damaged.filesystem, DIRECTORY)
        assert outcome == "cut"
        assert store.groups[2].bounds.last_index == (3 if cut < second else 4)
        assert store.groups[1].bounds.last_index == 4
        store.close()


def test_intact_entries_of_the_round_behind_a_torn_one_go_with_it():
    disk, model, before_last = small_lane()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    torn = files[FIRST][:first] + bytes(second - first) + files[FIRST][second:]
    damaged = disk.restored({**files, FIRST: torn})
    assert judge(damaged, model, before_last) == "cut"
    assert not any(damaged.read(FIRST)[first:])


def test_bytes_behind_the_cut_never_join_the_chain_again():
    """n1 loses the first entry of its last round, is cut there, and gets the same entry again: the
    second entry of that round, still intact behind it, must not come back to life."""
    disk, model, _ = small_lane()
    files = disk.files()
    first, second = model_position(disk, 12), model_position(disk, 13)
    torn = files[FIRST][:first] + bytes(second - first) + files[FIRST][second:]
    damaged = disk.restored({**files, FIRST: torn})
    store = open_store(damaged.filesystem, DIRECTORY)
    Rounds(store).run(write(2, data_entry(2, 4, 2, 200, 1, [b"five"])))
    store.close()
    store = open_store(damaged.filesystem, DIRECTORY)
    assert store.groups[2].bounds.last_index == 4
    assert store.groups[1].bounds.last_index == 4
    store.close()


def test_bytes_of_a_previous_segment_are_not_accepted():
    disk, model, _ = small_lane()
    other = Disk()
    store = open_store(other.filesystem, DIRECTORY)  # the same node, another life
    store.close()
    store = open_store(other.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    Rounds(store).run(write(1, noop_entry(1, 1, 9)))
    store.close()
    mixed = bytearray(disk.read(FIRST))
    mixed[64:128] = other.read(FIRST)[64:128]
    damaged = disk.restored({**disk.files(), FIRST: bytes(mixed)})
    assert judge(damaged, model, len(model.items)) == "quarantined"


@pytest.mark.parametrize("mark", [0, 1 << 40])
def test_a_lane_stored_as_a_record_is_not_taken_for_the_lane(mark):
    """A torn entry whose payload holds entries that were never written here."""
    disk, model, _ = small_lane()
    store = open_store(disk.filesystem, DIRECTORY)
    end = store.durable_position
    fakes = [noop_entry(1, 7, 3), noop_entry(2, 5, 3)]
    payload = b"".join(map(bytes, core.frame_entries(fakes, 0, mark)[0]))
    Rounds(store).run(write(1, Entry(EntryKind.METADATA, 1, 1, 3, 6, payload=payload)))
    store.close()
    torn = bytearray(disk.read(FIRST))
    torn[end + 20] ^= 1
    assert core.find_entry(torn, end) == end + 64
    disk.put(FIRST, bytes(torn))
    assert judge(disk, model, len(model.items)) == "intact"


def test_a_segment_that_is_written_again_loses_its_old_index_file():
    """n1's second segment was torn and is removed, so the first, already sealed and indexed, takes
    entries again: its old index file would hide them."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    count = 0
    while len(store._lane.segments) < 2:
        count += 1
        checkpoint(store, {1: count - 1})
        entry = Entry(EntryKind.METADATA, 1, 1, 1, count, payload=bytes(400))
        rounds.run(write(1, entry))
        store.tails[1].append(entry)
        store.tails[1].apply(count)
    assert seal(store) == 1
    store.close()
    second = segments(disk)[1]
    disk.put(second, disk.read(second)[:100])
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], count - 1)
    rounds = Rounds(store)
    rounds.run(write(1, noop_entry(1, count, 1)))
    rounds.run(write(1, Entry(EntryKind.METADATA, 1, 1, 1, count + 1, payload=bytes(400))))
    assert len(store._lane.segments) == 2
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], count + 1)
    store.close()


@pytest.mark.parametrize("begun, outcome", [(False, "cut"), (True, "quarantined")])
def test_a_round_that_was_staged_during_a_write_proves_that_write_when_told_so(begun, outcome):
    disk, model = Disk(), LaneModel()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    first, second = [write(1, noop_entry(1, index, 1)) for index in (1, 2)]
    model.stage(first, second)
    one = rounds.stage(first)
    if begun:
        store.begin(one)
    two = rounds.stage(second)
    for staged in (one, two):
        staged.execute()
        store.finish(staged)
    store.close()
    damaged = bytearray(disk.read(FIRST))
    damaged[64 + 20] ^= 1
    disk.put(FIRST, bytes(damaged))
    assert judge(disk, model, 0) == outcome


def test_stray_bytes_behind_the_last_entry_are_cut_off():
    disk, model, _ = small_lane()
    store = open_store(disk.filesystem, DIRECTORY)
    end = store.durable_position
    store.close()
    disk.put(FIRST, disk.read(FIRST)[:end] + b"\xff" * 100)
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.recovered.cut_at, store.recovered.cut_bytes, store.damage) == (end, 100, [])
    store.close()
    assert len(disk.read(FIRST)) == end


def test_a_prepared_segment_behind_a_torn_tail_is_in_nobodys_way():
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 40):
        rounds.run(write(1, noop_entry(1, index, 1)))
    store.prepare_plan().execute()
    store.close()
    disk.put(FIRST, disk.read(FIRST)[:64 + 38 * 64] + b"\xff" * 100)
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], 38)
    rounds = Rounds(store)
    for index in range(39, 100):
        rounds.run(write(1, noop_entry(1, index, 1)))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert (store.damage, store.groups[1].bounds.last_index) == ([], 99)
    store.close()


def test_the_header_of_a_torn_entry_still_proves_what_was_durable_before_it():
    disk, model, before_last = small_lane()
    torn = bytearray(disk.read(FIRST)[:model_position(disk, before_last) + 64 + 40])
    torn[model_position(disk, before_last - 1) + 20] ^= 1
    disk.put(FIRST, bytes(torn))
    assert judge(disk, model, before_last) == "quarantined"


# ---- one group, or all of them -------------------------------------------------------------------


def test_a_damaged_batch_quarantines_its_group_only_and_is_never_served():
    disk, model, _ = small_lane()
    at = model_position(disk, 5) + 64 + 61  # the first batch, behind its header
    damaged = bytearray(disk.read(FIRST))
    damaged[at] ^= 4
    disk.put(FIRST, bytes(damaged))
    store = open_store(disk.filesystem, DIRECTORY)
    found, = store.damage
    assert (found.kind, found.group, found.index) == ("payload", 1, 3)
    assert "payload" in store.groups[1].quarantined
    assert store.groups[2].quarantined == ""
    assert store.groups[1].bounds.last_index == 5
    with pytest.raises(CorruptRange, match="group 1, index 3"):
        store.read_plan(1, 2, 4).execute()
    fetch = store.fetch(100, 0, 1 << 20, 1 << 30)
    with pytest.raises(CorruptRange):
        fetch.plan.execute()
    store.close()


def test_a_damaged_header_quarantines_every_group_also_unknown_ones_and_stays():
    disk, model, _ = small_lane()
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
    disk, _, _ = small_lane()
    store = open_store(disk.filesystem, DIRECTORY)
    store.quarantine(1, "a cold read failed")
    checkpoint(store)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.groups[1].quarantined == "a cold read failed"
    store.close()


# ---- segments, index files, checkpoints ----------------------------------------------------------


def long_lane(with_checkpoint: bool) -> tuple[Disk, LaneModel]:
    """One group over several segments, their index files written."""
    disk, model = Disk(), LaneModel()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 40):
        entry = (open_entry(1, 1, 1, 100) if index == 1
                 else data_entry(1, index, 1, 100, index - 2, [b"%d" % index * 150]))
        change = write(1, entry)
        store.tails[1].append(entry)
        model.stage(change)
        rounds.run(change)
        model.finish()
        if with_checkpoint and index in (20, 38):
            store.tails[1].apply(index)
            checkpoint(store, {1: index}, index)
    seal(store)
    store.close()
    return disk, model


def segments(disk: Disk) -> list[str]:
    return [path for path in sorted(disk.files()) if path.endswith(".segment")]


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_missing_segment_is_found(with_checkpoint):
    disk, model = long_lane(with_checkpoint)
    files = disk.files()
    paths = segments(disk)
    assert len(paths) >= 3
    for path in paths[:None if with_checkpoint else -1]:
        rest = {name: data for name, data in files.items() if name != path}
        broken = disk.restored(rest)
        assert judge(broken, model, len(model.items)) == "quarantined", path
        store = open_store(broken.filesystem, DIRECTORY)
        assert "missing" in [found.kind for found in store.damage]
        store.close()


def test_a_truncated_segment_is_found_although_its_index_file_is_intact():
    disk, model = long_lane(with_checkpoint=True)
    files = disk.files()
    for path in segments(disk)[:-1]:
        broken = disk.restored({**files, path: files[path][:2000]})
        assert judge(broken, model, len(model.items)) == "quarantined", path


def test_a_damaged_index_file_is_rebuilt_and_changes_nothing():
    disk, model = long_lane(with_checkpoint=True)
    files = disk.files()
    path = next(path for path in sorted(files) if path.endswith(".index"))
    for at, damaged in flips(files[path]):
        broken = disk.restored({**files, path: damaged})
        assert judge(broken, model, len(model.items)) == "intact", f"byte {at}"
    for data in (b"", files[path][:20], files[path] + b"x"):
        broken = disk.restored({**files, path: data})
        store = open_store(broken.filesystem, DIRECTORY)
        assert store.recovered.unindexed
        seal(store)
        store.close()
        assert broken.read(path) == files[path]


def test_the_index_file_of_another_segment_is_not_believed():
    disk, model = long_lane(with_checkpoint=True)
    files = disk.files()
    first, second = [path for path in sorted(files) if path.endswith(".index")][:2]
    swapped = disk.restored({**files, first: files[second], second: files[first]})
    assert judge(swapped, model, len(model.items)) == "intact"


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so():
    disk, model = long_lane(with_checkpoint=True)
    files = disk.files()
    older, newer = [path for path in sorted(files) if "checkpoint-" in path]
    for at, damaged in list(flips(files[newer]))[::7]:
        broken = disk.restored({**files, newer: damaged})
        store = open_store(broken.filesystem, DIRECTORY)
        assert store.extra == 20, f"byte {at}"
        assert [found.kind for found in store.damage] == ["checkpoint"]
        assert store.groups[1].applied == 20
        assert store.tails[1].last_index == 39
        assert observed(store) == comparable(model.state(len(model.items)))
        checkpoint(store, {1: 20}, "new")
        store.close()
        store = open_store(broken.filesystem, DIRECTORY)
        assert (store.extra, store.damage) == ("new", [])
        store.close()
        assert older in broken.files()


def test_without_any_checkpoint_everything_is_rebuilt_from_the_lane():
    disk, model = long_lane(with_checkpoint=True)
    files = {path: b"rubbish" if "checkpoint-" in path else data
             for path, data in disk.files().items()}
    store = open_store(disk.restored(files).filesystem, DIRECTORY)
    assert len(store.damage) == 2
    assert observed(store) == comparable(model.state(len(model.items)))
    assert store.groups[1].applied == 0
    assert store.tails[1].next_offset(100) == 38
    store.close()


def test_damage_in_an_indexed_segment_is_found_when_it_is_read():
    disk, model = long_lane(with_checkpoint=True)
    damaged = bytearray(disk.read(FIRST))
    damaged[64 + 64 + 40 + 64 + 100] ^= 1
    disk.put(FIRST, bytes(damaged))
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.damage == []
    with pytest.raises(CorruptRange):
        store.read_plan(1, 1, 10).execute()
    assert len(store.read_plan(1, 30, 39).execute()) == 10
    store.close()


def test_sealing_a_damaged_segment_reports_it_and_writes_no_index():
    disk, _ = long_lane(with_checkpoint=False)
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
    disk, model, _ = small_lane()
    path = f"{DIRECTORY}/node.json"
    files = disk.files()
    for at, damaged in flips(files[path]):
        broken = disk.restored({**files, path: damaged})
        try:
            open_store(broken.filesystem, DIRECTORY).close()
        except (CorruptFile, UnknownFormat, WrongIdentity):
            continue
        assert damaged.split() == files[path].split(), f"byte {at} changed more than blanks"


def test_a_lane_without_its_identity_is_refused():
    disk, _, _ = small_lane()
    disk.filesystem.remove(f"{DIRECTORY}/node.json")
    with pytest.raises(CorruptFile, match="is missing, but the directory holds data"):
        open_store(disk.filesystem, DIRECTORY)


def test_a_segment_of_another_cluster_is_refused():
    disk, _, _ = small_lane()
    header = bytearray(disk.read(FIRST)[:60])
    header[24:40] = b"z" * 16
    sealed = bytes(header) + struct.pack("<I", core.crc32c(header))
    disk.put(FIRST, sealed + disk.read(FIRST)[64:])
    with pytest.raises(WrongIdentity, match="belongs to cluster 7a7a"):
        open_store(disk.filesystem, DIRECTORY)


def test_a_segment_of_a_later_format_is_refused():
    disk, _, _ = small_lane()
    header = bytearray(disk.read(FIRST)[:60])
    header[8] = 2
    sealed = bytes(header) + struct.pack("<I", core.crc32c(header))
    disk.put(FIRST, sealed + disk.read(FIRST)[64:])
    with pytest.raises(UnknownFormat, match="format version 2, this program reads 1"):
        open_store(disk.filesystem, DIRECTORY)


@pytest.mark.parametrize("body", [b"", b"\x00" * 40, b"\x9f\x9f\x9f", b"\xff" * 1000,
                                  b"\x81" * 5000])
def test_hostile_files_end_in_a_typed_error_or_are_set_aside(body):
    disk, model, _ = small_lane()
    files = disk.files()
    for path in (f"{DIRECTORY}/checkpoint-{5:020d}", f"{LANE}/{0:020d}.index",
                 f"{LANE}/{1 << 40:020d}.segment", f"{LANE}/nonsense", f"{LANE}/x.segment"):
        broken = disk.restored({**files, path: body})
        judge(broken, model, len(model.items))
    broken = disk.restored({**files, f"{DIRECTORY}/node.json": body})
    with pytest.raises(StorageError):
        open_store(broken.filesystem, DIRECTORY)
