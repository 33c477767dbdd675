"""Snapshots of the metadata group at a node: resumed downloads, changing images, malformed
replies."""

from __future__ import annotations

import errno
import random
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.snapshot_download import PARTIAL_FILE, SnapshotDownload
from multiraft.types import METADATA_GROUP
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.limits import Limits
from node.metadata.state_machine import MetadataState
from node.peers.bulk_channel import NoAnswer
from node.replicas import snapshots as module
from node.replicas.snapshots import Snapshots
from node.subscribers import Subscribers
from tests.node.harness import in_trio, silent_log, until
from tests.node.replicas.snapshot_doubles import Core, tail_at

LEADER = 2
DIRECTORY = "/node"


class Side:
    """One node's ``Snapshots``, with collaborators that record their calls and a real directory."""

    def __init__(self, core: Core, bulk, directory: str = DIRECTORY,
                 filesystem: SimulatedFilesystem | None = None):
        self.filesystem = filesystem or SimulatedFilesystem()
        self.filesystem.make_directory(directory)
        self.path = f"{directory}/{PARTIAL_FILE}"
        self.space = SimpleNamespace(full=False, free=1 << 40)
        self.core = core
        self.done: list[str] = []
        store = SimpleNamespace(partition_states={METADATA_GROUP: tail_at(core.applied)},
                                install=lambda *_: self.done.append("store"),
                                is_tombstone_durable=lambda _: True)
        log = SimpleNamespace(state=MetadataState(), install=lambda _: self.done.append("state"),
                              follow=lambda: self.done.append("nodes"))
        checkpoints = SimpleNamespace(
            alone=trio.Lock(), metadata_applied=20, completed=Subscribers(),
            write_now=lambda _encoded: self.done.append("checkpoint"))
        self.store = store
        self.checkpoints = checkpoints
        self.snapshots = Snapshots(
            core, store, log, checkpoints, bulk,
            Limits(metadata_entries_kept=5, metadata_catch_up_entries_max=50), lambda: None,
            silent_log(), SnapshotDownload(self.filesystem, directory, module.SNAPSHOT_BYTES_MAX),
            self.space, lambda: self.done.append("replicas"))

    @property
    def kept(self) -> bool:
        """True if a part of a download is on disk."""
        return self.filesystem.exists(self.path)


class Bulk:
    """A bulk connection to one leader; ``broken`` is the number of replies before it fails."""

    def __init__(self):
        self.handlers: dict = {}
        self.leader: Side | None = None
        self.broken = -1
        self.asked: list[tuple[int, int]] = []
        self.change = lambda header, payload: (header, payload)

    async def ask(self, peer: int, header: dict):
        assert peer == LEADER
        if self.broken == 0:
            self.broken = -1
            raise NoAnswer("it broke")
        self.broken -= 1
        self.asked.append((header["index"], header["offset"]))
        answer, buffers = await self.leader.snapshots.answer(1, header, memoryview(b""))
        answer, payload = self.change(answer, b"".join(map(bytes, buffers)))
        return SimpleNamespace(header=answer, payload=memoryview(payload))


def pair(monkeypatch, chunk: int = 40) -> tuple[Side, Side, Bulk]:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    bulk = Bulk()
    follower = Side(Core(applied=1), bulk)
    bulk.leader = Side(Core(), SimpleNamespace(handlers={}))
    return follower, bulk.leader, bulk


async def attempt(follower: Side) -> None:
    """Process one offer."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.snapshots.run)
        follower.snapshots.on_snapshot_offer(METADATA_GROUP, LEADER)
        await settled(follower)
        nursery.cancel_scope.cancel()


async def settled(follower: Side) -> None:
    """Wait until ``run`` waits for the next offer; it uses a thread for each chunk."""
    await until(lambda: follower.snapshots.idle)


@in_trio
async def test_an_image_arrives_in_chunks_and_is_durable_before_consensus_hears_of_it(monkeypatch):
    follower, leader, bulk = pair(monkeypatch)
    follower.core.install_snapshot = lambda *_: follower.done.append("core")
    await attempt(follower)
    assert follower.done == ["store", "state", "checkpoint", "core", "replicas", "nodes"]
    assert len(bulk.asked) > 2
    assert [offset for _, offset in bulk.asked] == [40 * at for at in range(len(bulk.asked))]


@in_trio
async def test_a_fetch_that_broke_off_goes_on_where_it_was(monkeypatch):
    follower, leader, bulk = pair(monkeypatch)
    bulk.broken = 2
    await attempt(follower)
    assert not follower.core.installed
    await attempt(follower)
    assert follower.core.installed
    assert bulk.asked[2] == (7, 80), "not from the beginning"


async def broken_off(monkeypatch, chunks: int = 2) -> tuple[Side, Side, Bulk]:
    """Return a follower that received a number of chunks and then stopped."""
    follower, leader, bulk = pair(monkeypatch)
    bulk.broken = chunks
    await attempt(follower)
    assert not follower.core.installed and follower.kept
    return follower, leader, bulk


def restarted(follower: Side, bulk: Bulk, applied: int = 1) -> Side:
    """Return the next start of the same directory."""
    return Side(Core(applied), bulk, filesystem=follower.filesystem)


@in_trio
async def test_a_fetch_goes_on_where_it_was_after_a_restart(monkeypatch):
    follower, leader, bulk = await broken_off(monkeypatch)
    again = restarted(follower, bulk)
    await attempt(again)
    assert again.core.installed
    assert bulk.asked[:3] == [(0, 0), (7, 40), (7, 80)], "not from the beginning"
    assert not again.kept, "it is not needed any more"


@in_trio
async def test_after_a_restart_an_image_that_is_gone_begins_anew(monkeypatch):
    follower, leader, bulk = await broken_off(monkeypatch)
    leader.core.applied = 9
    leader.store.partition_states[METADATA_GROUP] = tail_at(9)
    leader.snapshots._source.served.clear()
    again = restarted(follower, bulk)
    await attempt(again)
    [(_, bounds, *_)] = again.core.installed
    assert bounds.last_index == 9 and not again.kept


@in_trio
async def test_what_arrived_before_a_crash_is_what_was_sent_or_is_not_used(monkeypatch):
    went_on = 0
    for seed in range(40):
        follower, leader, bulk = await broken_off(monkeypatch, chunks=3)
        follower.filesystem.sync_directory(DIRECTORY)  # what a checkpoint meanwhile does
        follower.filesystem.power_loss(random.Random(seed))
        again = restarted(follower, bulk)
        await attempt(again)
        assert again.core.installed, "the CRC of the whole did not match"
        went_on += bulk.asked[3][1] > 0
    assert 0 < went_on < 40, "sometimes there was something, and sometimes nothing"


@in_trio
async def test_what_the_log_brought_meanwhile_is_dropped(monkeypatch):
    follower, leader, bulk = await broken_off(monkeypatch)
    again = restarted(follower, bulk, applied=7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.snapshots.run)
        await settled(again)
        assert again.kept
        again.snapshots.compact()  # as after each checkpoint
        await until(lambda: not again.kept)
        nursery.cancel_scope.cancel()
    assert len(bulk.asked) == 2, "nobody was asked"


@in_trio
async def test_what_has_arrived_for_a_replica_of_which_nothing_is_left_waits_for_it(monkeypatch):
    """The replica was created just before the crash, or damage took everything that was known of
    it."""
    follower, leader, bulk = await broken_off(monkeypatch)
    again = restarted(follower, bulk)
    tail = again.store.partition_states.pop(METADATA_GROUP)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.snapshots.run)
        again.snapshots.compact()  # as at each start
        await settled(again)
        nursery.cancel_scope.cancel()
    again.store.partition_states[METADATA_GROUP] = tail
    await attempt(again)
    assert again.core.installed and bulk.asked[2] == (7, 80)


@pytest.mark.parametrize("full, free", [(True, 1 << 40), (False, 1000)])
@in_trio
async def test_a_disk_without_room_to_spare_keeps_nothing(monkeypatch, full, free):
    follower, leader, bulk = pair(monkeypatch)
    follower.space.full, follower.space.free = full, free
    bulk.broken = 2
    await attempt(follower)
    assert not follower.kept
    await attempt(follower)
    assert follower.core.installed and bulk.asked[2] == (7, 80), "the memory had it"


@pytest.mark.parametrize("number, ends", [(errno.ENOSPC, False), (errno.EIO, True)])
@in_trio
async def test_a_disk_that_fills_up_costs_the_file_and_one_that_fails_the_node(
        monkeypatch, number, ends):
    follower, leader, bulk = pair(monkeypatch)

    def refuse(*_):
        raise OSError(number, "refused")

    create = follower.filesystem.create
    follower.filesystem.create = lambda path: SimpleNamespace(
        write=refuse, close=create(path).close)
    if ends:
        with pytest.RaisesGroup(DiskFailed):
            await attempt(follower)
    else:
        await attempt(follower)
        assert follower.core.installed
    assert not follower.kept


@in_trio
async def test_an_image_that_is_gone_begins_anew(monkeypatch):
    follower, leader, bulk = pair(monkeypatch)
    bulk.broken = 2
    await attempt(follower)
    leader.core.applied = 9
    leader.store.partition_states[METADATA_GROUP] = tail_at(9)
    leader.snapshots._source.served.clear()
    await attempt(follower)
    [(_, bounds, *_)] = follower.core.installed
    assert bounds.last_index == 9


@in_trio
async def test_nothing_is_installed_that_is_not_needed_any_more(monkeypatch):
    follower, leader, bulk = pair(monkeypatch)
    follower.core.willing = False
    await attempt(follower)
    assert follower.done == [] and not follower.core.installed


@in_trio
async def test_a_damaged_replica_has_nothing_to_give(monkeypatch):
    follower, leader, bulk = pair(monkeypatch)
    leader.core.quarantined = "entry 3 cannot be read"
    await attempt(follower)
    assert not follower.core.installed


@in_trio
async def test_a_leader_that_has_committed_nothing_yet_gives_what_it_has_applied(monkeypatch):
    """It may need the vote of that very follower for its first commit."""
    follower, leader, bulk = pair(monkeypatch)
    leader.core.settled = False
    await attempt(follower)
    assert follower.core.installed


@in_trio
async def test_an_image_that_the_log_does_not_go_on_from_is_not_given_again(monkeypatch):
    """A node that has installed it asks again at once, and would receive it without end."""
    follower, leader, bulk = pair(monkeypatch)
    await attempt(follower)
    leader.core.applied, leader.core.first_index = 12, 10
    leader.store.partition_states[METADATA_GROUP] = tail_at(12)
    await attempt(follower)
    assert [bounds.last_index for _, bounds, *_ in follower.core.installed] == [7, 12]


@in_trio
async def test_an_image_is_not_given_in_a_later_incarnation(monkeypatch):
    """A forced recovery may have undone its entries, and the later log may be shorter."""
    follower, leader, bulk = pair(monkeypatch)
    bulk.broken = 2
    await attempt(follower)
    leader.core.incarnation, leader.core.applied = 2, 5
    leader.store.partition_states[METADATA_GROUP] = tail_at(5)
    await attempt(follower)
    assert [bounds.last_index for _, bounds, *_ in follower.core.installed] == [5]


@pytest.mark.parametrize("change", [
    lambda header, payload: (header, payload[:-1] + b"?"),  # the CRC is that of the whole
    lambda header, payload: (header, b""),
    lambda header, payload: ({**header, "total": 1 << 40}, payload),
    lambda header, payload: ({**header, "offset": 3}, payload),
    lambda header, payload: ({**header, "term": "3"}, payload),
    lambda header, payload: ({**header, "crc": 1 << 32}, payload),  # the file has 32 bits for it
    lambda header, payload: ({**header, "total": 3}, payload),
])
@in_trio
async def test_what_is_no_snapshot_is_not_installed(monkeypatch, change):
    follower, leader, bulk = pair(monkeypatch)
    bulk.change = change
    await attempt(follower)
    assert follower.done == [] and not follower.core.installed
    bulk.change = lambda header, payload: (header, payload)
    await attempt(follower)
    assert follower.core.installed, "the next offer finds it well"


@in_trio
async def test_requests_that_are_none_are_refused(monkeypatch):
    _, leader, _ = pair(monkeypatch)
    for header in ({}, {"group": 0, "index": -1, "offset": 0},
                   {"group": 0, "index": 0, "offset": "0"}):
        with pytest.raises(Malformed):
            await leader.snapshots.answer(1, header, memoryview(b""))
    answer, _ = await leader.snapshots.answer(1, {"group": 4, "index": 0, "offset": 0},
                                              memoryview(b""))
    assert answer["known"] is False, "groups that carry partitions keep their log"


def test_compaction_keeps_the_newest_entries():
    side = Side(Core(applied=20), SimpleNamespace(handlers={}))
    side.snapshots.compact()
    assert side.core.compacted_to == [16]


@pytest.mark.parametrize(("needed", "begins"), [(12, 12), (16, 16), (19, 16)])
def test_compaction_leaves_what_a_learner_needs(needed, begins):
    side = Side(Core(applied=20), SimpleNamespace(handlers={}))
    side.core.needed = needed
    side.snapshots.compact()
    assert side.core.compacted_to == [begins]


def test_a_learner_that_comes_no_further_holds_no_more_than_the_limit():
    side = Side(Core(applied=200), SimpleNamespace(handlers={}))
    side.checkpoints.metadata_applied = 200
    side.core.needed = 2
    side.snapshots.compact()
    assert side.core.compacted_to == [200 - 5 + 1 - 50]


@in_trio
async def test_the_log_goes_on_behind_an_image_that_is_fetched_however_fast_commands_come():
    """Otherwise the next image is due as soon as this one is installed, and so on."""
    leader = Side(Core(applied=20), SimpleNamespace(handlers={}))
    await leader.snapshots.answer(1, {"group": METADATA_GROUP, "index": 0, "offset": 0},
                                  memoryview(b""))
    leader.core.applied = leader.checkpoints.metadata_applied = 60
    leader.snapshots.compact()
    assert leader.core.compacted_to == [21]
    leader.snapshots._source.served[METADATA_GROUP].used_s -= module.SNAPSHOT_LIFE_S + 1
    leader.snapshots.compact()
    assert leader.core.compacted_to == [21, 56], "nobody asks for it any more"


def test_a_replica_that_went_and_came_while_a_checkpoint_was_written_is_not_compacted():
    """The checkpoint holds what the previous replica applied; this one has nothing yet."""
    for applied in (0, 5):
        side = Side(Core(applied=applied), SimpleNamespace(handlers={}))
        side.core.needed = applied + 1  # as of a replica that follows: behind its last entry
        side.snapshots.compact()
        assert side.core.compacted_to == []
