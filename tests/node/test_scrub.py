"""The scrub task goes over all of the lane, reports what is damaged, and remembers where it was."""

from types import SimpleNamespace

import trio

from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.settings import StorageSettings
from node.scrub import STATE_FILE, Scrub
from tests.node.harness import in_trio, until
from tests.storage.world import VOTERS, Rounds, data_entry, open_entry, open_store, write

FAST = StorageSettings(scrub_bytes_per_second=1 << 30)
IDLE = SimpleNamespace(idle=True)


class BusyDisk:
    """Counts who asks whether it is idle."""

    def __init__(self):
        self.busy = True
        self.asked = 0

    @property
    def idle(self) -> bool:
        self.asked += 1
        return not self.busy


def filled(directory):
    """A store with some segments."""
    store = open_store(RealFilesystem(), str(directory))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 60):
        rounds.run(write(1, open_entry(1, 1, 1, 100) if index == 1 else
                         data_entry(1, index, 1, 100, index - 2, [b"%d" % index * 150])))
    return store


@in_trio
async def test_a_pass_finds_damage_and_says_when_it_ended(tmp_path):
    store = filled(tmp_path / "data")
    position = store._logs[1].index.position(7)
    path = tmp_path / "data" / "lane-0" / f"{0:020d}.segment"
    data = bytearray(path.read_bytes())
    data[position + 100] ^= 1
    path.write_bytes(bytes(data))
    found = []
    scrub = Scrub(store, IDLE, found.append, tmp_path, FAST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await until(lambda: scrub.completed_ms)
        nursery.cancel_scope.cancel()
    assert [(error.group, error.index) for error in found] == [(1, 7)]
    assert scrub.found == 1 and scrub.bytes >= store.durable_position // 2
    assert Scrub(store, IDLE, found.append, tmp_path, FAST).completed_ms == scrub.completed_ms


@in_trio
async def test_it_waits_for_a_busy_disk(tmp_path):
    disk = BusyDisk()
    scrub = Scrub(filled(tmp_path / "data"), disk, None, tmp_path, FAST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await until(lambda: disk.asked >= 3)
        assert scrub.bytes == 0
        disk.busy = False
        await until(lambda: scrub.completed_ms)
        nursery.cancel_scope.cancel()


def test_a_state_that_cannot_be_read_begins_anew(tmp_path):
    (tmp_path / STATE_FILE).write_text("{")
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path, FAST)
    assert (scrub.position, scrub.completed_ms) == (0, 0)
