"""Disks that tests damage, journals to damage, and the judge of what a store makes of it."""

from __future__ import annotations

import struct

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.raft.ready import GroupWrite
from multiraft.types import HardState
from tests.storage.model import JournalModel, comparable, observed, readable
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


def small_journal() -> tuple[Disk, JournalModel, int]:
    """Two groups, five rounds; and how many items were written before the last round."""
    disk, model = Disk(), JournalModel()
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


def classify(disk: Disk, model: JournalModel, undurable_from: int) -> str:
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


def _check_nothing_false_is_served(store, model: JournalModel, undurable_from: int) -> None:
    """Intact entries of a damaged journal are true; a group that is not quarantined is complete."""
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


def flipped(data: bytes, at: int) -> bytes:
    """With another bit in one byte."""
    damaged = bytearray(data)
    damaged[at] ^= 4
    return bytes(damaged)


def model_position(disk: Disk, entry: int) -> int:
    """Return the position of a journal entry in the first segment."""
    data = disk.read(FIRST)
    seed, = struct.unpack_from("<I", data, 44)
    return core.scan_entries(data, 64, seed).entries[entry].at


def long_journal(with_checkpoint: bool) -> tuple[Disk, JournalModel]:
    """One group over several segments, their index files written."""
    disk, model = Disk(), JournalModel()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 40):
        entry = (open_entry(1, 1, 1, 100) if index == 1
                 else data_entry(1, index, 1, 100, index - 2, [b"%d" % index * 150]))
        change = write(1, entry)
        store.partition_states[1].append(entry)
        model.stage(change)
        rounds.run(change)
        model.finish()
        if with_checkpoint and index in (20, 38):
            store.partition_states[1].apply(index)
            checkpoint(store, {1: index}, index)
    seal(store)
    store.close()
    return disk, model


def segments(disk: Disk) -> list[str]:
    return [path for path in sorted(disk.files()) if path.endswith(".segment")]
