"""The scrub task reads the whole journal, reports damage, and remembers its position across
restarts."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.storage.checkpoint import checkpoint_names, newest_checkpoint
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.repair import scrub as storage_scrub
from multiraft.storage.settings import StorageSettings
from multiraft.wire.errors import Code
from multiraft.wire.messages import NodeStatus
from multiraft.wire.nodes import REQUESTS, ScrubNode
from multiraft.wire.schema import Malformed
from node.config import parse
from node.errors import DiskFailed
from node.loop import scrub as node_scrub
from node.loop.scrub import STATE_FILE, Scrub
from tests.node.harness import (
    LIMIT_S,
    Client,
    in_trio,
    make_node,
    one_node_table,
    running,
    serving,
    until,
)
from tests.storage.damage import flipped
from tests.storage.world import VOTERS, Rounds, data_entry, open_entry, open_store, write

FAST = StorageSettings(scrub_bytes_per_second=1 << 30)
IDLE = SimpleNamespace(idle=True)


class BusyDisk:
    """A disk that is never idle and counts the checks."""

    def __init__(self):
        self.busy = True
        self.asked = 0

    @property
    def idle(self) -> bool:
        self.asked += 1
        return not self.busy


def filled(directory):
    """Return a store with several segments."""
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
    position = store.table.logs[1].index.position(7)
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
async def test_without_free_descriptors_the_same_piece_is_read_later(tmp_path, monkeypatch):
    monkeypatch.setattr(node_scrub, "EXHAUSTED_PAUSE_S", 0.001)
    failures = {storage_scrub.ScrubJob: 2, storage_scrub.ScrubCheckpointsJob: 2}
    for kind in failures:
        def execute(job, kind=kind, read=kind.execute):
            if failures[kind]:
                failures[kind] -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            read(job)

        monkeypatch.setattr(kind, "execute", execute)
    store = filled(tmp_path / "data")
    scrub = Scrub(store, IDLE, None, tmp_path, FAST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await until(lambda: scrub.completed_ms)
        nursery.cancel_scope.cancel()
    assert set(failures.values()) == {0} and scrub.bytes >= store.durable_position // 2


@in_trio
async def test_a_disk_that_cannot_be_read_ends_the_scrub_and_the_node(tmp_path, monkeypatch):
    def execute(_job):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(storage_scrub.ScrubCheckpointsJob, "execute", execute)
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path, FAST)
    with pytest.raises(DiskFailed, match="the journal cannot be read"):
        await scrub.run()


@in_trio
async def test_it_waits_for_a_busy_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(node_scrub, "PATIENCE_S", 60.0)
    disk = BusyDisk()
    scrub = Scrub(filled(tmp_path / "data"), disk, None, tmp_path, FAST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await until(lambda: disk.asked >= 3)
        assert scrub.bytes == 0
        disk.busy = False
        await until(lambda: scrub.completed_ms)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_disk_that_is_never_idle_is_scrubbed_too(tmp_path):
    scrub = Scrub(filled(tmp_path / "data"), BusyDisk(), None, tmp_path, FAST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await until(lambda: scrub.passes)
        nursery.cancel_scope.cancel()


def paced(**settings) -> StorageSettings:
    """Return settings without scheduled scrubs; ``settings`` sets the pace."""
    return StorageSettings(scrub_interval_days=0, **settings)


@in_trio
async def test_a_node_that_never_scrubs_does_when_it_is_asked(tmp_path):
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path, paced())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (scrub.active, scrub.bytes, scrub.pace) == (False, 0, 0)
        read = []
        for number in (1, 2):
            assert scrub.begin(1 << 30) == 1 << 30
            await until(lambda number=number: scrub.passes == number)
            read.append(scrub.bytes)
        nursery.cancel_scope.cancel()
    assert read == [read[0], 2 * read[0]] and read[0] > 59 * 150, "all of it, each time"
    assert (scrub.active, scrub.requested_pace, scrub.pass_bytes) == (False, 0, 0)


@in_trio
async def test_without_a_pace_nothing_is_begun(tmp_path):
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path,
                  paced(scrub_bytes_per_second=0))
    assert (scrub.begin(0), scrub.requested_pace) == (0, 0)
    assert scrub.begin(1 << 20) == 1 << 20


@in_trio
async def test_whoever_asks_again_changes_the_pace_and_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_scrub, "PIECE_BYTES", 512)
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path, paced())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrub.run)
        scrub.begin(1)  # minutes for each piece
        await until(lambda: scrub.pass_bytes)
        assert (scrub.active, scrub.pace) == (True, 1)
        begun = scrub.bytes
        assert scrub.begin(0) == StorageSettings().scrub_bytes_per_second
        assert scrub.pass_bytes == 0, "what was read before does not count"
        await until(lambda: scrub.passes)
        nursery.cancel_scope.cancel()
    assert scrub.passes == 1 and scrub.bytes - begun > 59 * 150


@in_trio
async def test_a_scrub_is_begun_over_the_wire_at_the_node_that_is_named(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await until(lambda: not node.storage.scrub.active)
        begun = (await client.ask(ScrubNode(1, 1 << 24))).reply
        assert begun.bytes_per_second == 1 << 24 and begun.total_bytes > 0

        async def passes() -> int:
            return (await client.ask(NodeStatus())).reply.status["scrub_passes"]

        with trio.fail_after(LIMIT_S):
            while await passes() == begun.passes:
                pass
        for request, code in ((ScrubNode(2), Code.UNKNOWN_NODE), (ScrubNode(0), Code.UNKNOWN_NODE),
                              (ScrubNode(1, 1), Code.LIMIT_EXCEEDED),
                              (ScrubNode(1, 65_535), Code.LIMIT_EXCEEDED)):
            assert (await client.ask(request)).code == code, request
        assert not node.storage.scrub.requested_pace


@in_trio
async def test_a_damaged_checkpoint_is_told_and_written_anew(tmp_path, caplog):
    config = parse(one_node_table(), tmp_path)
    async with running(make_node(config)):
        pass  # its end writes one
    directory = str(config.data_dir)
    async with running(make_node(config)) as node, await Client.open(node) as client:
        damaged = f"{directory}/{checkpoint_names(RealFilesystem(), directory)[-1]}"
        Path(damaged).write_bytes(flipped(Path(damaged).read_bytes(), 20))
        before = (await client.ask(NodeStatus())).reply.status["scrub_damaged"]
        await client.ask(ScrubNode(1, 1 << 24))
        await until(lambda: [record.path for record in caplog.records
                             if record.message == "checkpoint_damaged"] == [damaged],
                    "the node's log names it")
        assert (await client.ask(NodeStatus())).reply.status["scrub_damaged"] == before + 1
        assert node.replicas.repairs.found == 0, "of entries"
        await until(lambda: node.replicas.checkpoints.written, "another one is written")
    assert newest_checkpoint(RealFilesystem(), directory)[1] == []


@pytest.mark.parametrize("fields", [
    {"node": -1}, {"node": "1"}, {"node": 1, "bytes_per_second": -1}, {"node": 1 << 40},
    {"node": 1, "bytes_per_second": 1 << 64}, {"node": 1, "bytes_per_second": 1.5},
    {"node": 1, "rate": 5}, {}])
def test_a_request_that_is_none_is_refused_by_its_fields(fields):
    with pytest.raises(Malformed):
        REQUESTS["scrub_node"].read(fields)


@pytest.mark.parametrize("state", [
    b"", b"{", b"[]", b"7", b"\xff", b"{}", b'{"position": null, "completed_ms": 1}',
    b'{"position": 1e999, "completed_ms": 1}', b'{"position": NaN, "completed_ms": 1}',
    b'{"position": -1, "completed_ms": 1}', b'{"position": 1, "completed_ms": 1%s}' % (b"0" * 30),
    b"[" * 100_000])
def test_a_state_that_cannot_be_read_begins_anew(tmp_path, state):
    (tmp_path / STATE_FILE).write_bytes(state)
    scrub = Scrub(filled(tmp_path / "data"), IDLE, None, tmp_path, FAST)
    assert (scrub.position, scrub.completed_ms) == (0, 0)
