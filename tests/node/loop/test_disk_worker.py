"""The disk worker on real files: order, group commit, and a disk that fails."""

import contextlib
import errno
import os
import threading
from types import SimpleNamespace

import pytest
import trio

from node.errors import DiskFailed
from node.loop.disk_worker import DiskWorker, open_probe
from node.loop.poller import Poller
from node.loop.segment_files import SEALS_WAITING_MAX
from tests.node.harness import attend, in_trio, until


class Staged:
    """A staged write of one part."""

    def __init__(self, file, data: bytes, position: int, exists: bool = True):
        self.parts = [(file, [data], position)]
        self.native_ready = exists

    def create_files(self):
        self.native_ready = True


def idle_store():
    return SimpleNamespace(prepare_due=False, seals_waiting=0, submitted=lambda staged: None,
                           create_segment_job=lambda: None, seal_job=lambda: None,
                           repair=SimpleNamespace(take_found=list))


class ClusterView:
    """A worker and what it reported, one list per completed group."""

    def __init__(self, tmp_path, store=None):
        self.file = open(tmp_path / "lane", "w+b", buffering=0)
        self.store = store or idle_store()
        self.done: list[list] = []
        self.poller = Poller()
        self.disk = DiskWorker(self.store, self.done.append, self.poller)
        self.gather = self.disk.gather

    def write(self, *staged):
        for one in staged:
            self.gather.submit(one)
        self.gather.start_next()

    def content(self) -> bytes:
        return os.pread(self.file.fileno(), 1 << 20, 0)


@pytest.fixture
def world(tmp_path):
    world = ClusterView(tmp_path)
    with world.file:
        yield world


@in_trio
async def test_what_is_submitted_during_a_write_is_the_next_one(world):
    first, second, third = (Staged(world.file, bytes([65 + n]) * 8, 8 * n) for n in range(3))
    async with trio.open_nursery() as nursery:
        await nursery.start(world.disk.run)
        nursery.start_soon(attend, world.poller)
        world.write(first)
        world.write(second)
        world.write(third)
        assert not world.gather.idle
        await until(lambda: len(world.done) == 2)
        assert world.done == [[first], [second, third]]
        assert world.gather.idle
        nursery.cancel_scope.cancel()
    assert world.content() == b"A" * 8 + b"B" * 8 + b"C" * 8
    assert (world.gather.writes, world.gather.bytes_written) == (2, 24)


@in_trio
async def test_many_writes_are_reported_in_order(world):
    staged = [Staged(world.file, b"%04d" % n, 4 * n) for n in range(300)]
    async with trio.open_nursery() as nursery:
        await nursery.start(world.disk.run)
        nursery.start_soon(attend, world.poller)
        for one in staged:
            world.write(one)
            if len(world.done) % 7 == 0:
                await trio.lowlevel.checkpoint()
        await until(lambda: sum(map(len, world.done)) == 300)
        nursery.cancel_scope.cancel()
    assert [one for group in world.done for one in group] == staged
    assert world.content() == b"".join(b"%04d" % n for n in range(300))


async def failing(world, fd_of) -> DiskFailed:
    with pytest.raises(ExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.disk.run)
            nursery.start_soon(attend, world.poller)
            world.write(Staged(SimpleNamespace(fileno=fd_of), b"x", 0))
            await trio.sleep_forever()
    return raised.value.exceptions[0]


@in_trio
async def test_a_write_that_fails_stops_the_node_and_is_not_reported(world, tmp_path):
    read_only = os.open(tmp_path / "lane", os.O_RDONLY)
    try:
        error = await failing(world, lambda: read_only)
    finally:
        os.close(read_only)
    assert isinstance(error, DiskFailed)
    assert error.exit_code == 4
    assert world.done == []


@in_trio
async def test_an_fsync_that_fails_stops_the_node(world):
    reading, writing = os.pipe()  # takes no positioned writes and no fsync
    try:
        assert isinstance(await failing(world, lambda: writing), DiskFailed)
    finally:
        os.close(reading)
        os.close(writing)
    assert world.done == []


@in_trio
async def test_a_write_waits_for_the_file_it_needs(world):
    late = Staged(world.file, b"late", 0, exists=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.disk.run)
        nursery.start_soon(attend, world.poller)
        nursery.start_soon(world.disk.prepare)
        world.write(late)
        assert world.gather.idle
        await until(lambda: world.done == [[late]])
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_file_that_cannot_be_created_stops_the_node(world):
    late = Staged(world.file, b"late", 0, exists=False)

    def full():
        raise OSError(28, "No space left on device")

    late.create_files = full
    with pytest.raises(ExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.disk.run)
            nursery.start_soon(attend, world.poller)
            nursery.start_soon(world.disk.prepare)
            world.write(late)
            await trio.sleep_forever()
    assert raised.group_contains(DiskFailed, match="No space")


class Seal:
    """The job that indexes a full segment: runs until ``over`` is set, pausing after each piece."""

    too_large = None

    def __init__(self):
        self.begun, self.over, self.pauses = threading.Event(), threading.Event(), 0

    def execute(self, pause):
        self.begun.set()
        while not self.over.is_set():
            pause()
            self.pauses += 1


class SealingStore(SimpleNamespace):
    """A store with segments that wait for their index."""

    def __init__(self, *jobs):
        super().__init__(**vars(idle_store()))
        self.jobs, self.done = list(jobs), []
        self.seal_job = lambda: self.jobs.pop(0) if self.jobs else None
        self.sealed = self.done.append

    @property
    def seals_waiting(self):
        return len(self.jobs)


@contextlib.asynccontextmanager
async def sealing(tmp_path, *jobs):
    """Return a world with a ``SealingStore``, after its first write."""
    world = ClusterView(tmp_path, SealingStore(*jobs))
    with world.file:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.disk.run)
            for task in (world.disk.prepare, world.disk.seal):
                nursery.start_soon(task)
            nursery.start_soon(attend, world.poller)
            world.write(Staged(world.file, b"first", 0))
            await until(lambda: jobs[0].begun.is_set())
            try:
                yield world
            finally:
                for job in jobs:
                    job.over.set()
            await until(lambda: len(world.store.done) == len(jobs))
            nursery.cancel_scope.cancel()


@in_trio
async def test_a_file_that_is_needed_does_not_wait_for_the_index_of_another(tmp_path):
    async with sealing(tmp_path, Seal()) as world:
        world.write(late := Staged(world.file, b"late", 5, exists=False))
        await until(lambda: [late] in world.done)
        assert world.store.done == []


@in_trio
async def test_an_index_gives_way_until_too_many_wait(tmp_path):
    paused = []
    one, *others = [Seal() for _ in range(SEALS_WAITING_MAX + 2)]
    async with sealing(tmp_path, one, *others) as world:
        world.disk._never = SimpleNamespace(wait=paused.append)
        await until(lambda: one.pauses > 10)
        assert not paused, f"{world.store.seals_waiting} wait"
        one.over.set()
        await until(lambda: len(paused) > 10)
        assert world.store.seals_waiting == SEALS_WAITING_MAX


@in_trio
async def test_an_index_that_cannot_be_written_stops_the_node(tmp_path):
    class Failing(Seal):
        def execute(self, pause):
            super().execute(pause)
            raise OSError(5, "Input/output error")

    with pytest.raises(ExceptionGroup) as raised:
        async with sealing(tmp_path, job := Failing()):
            job.over.set()
            await trio.sleep_forever()
    assert raised.group_contains(DiskFailed, match="indexed: .*Input/output")


@in_trio
async def test_a_disk_that_hangs_shows_whether_it_writes_or_creates(world):
    late, hanging = Staged(world.file, b"late", 0, exists=False), trio.Event()

    def hang():
        trio.from_thread.run(hanging.wait)
        late.native_ready = True

    late.create_files = hang
    async with trio.open_nursery() as nursery:
        await nursery.start(world.disk.run)
        nursery.start_soon(attend, world.poller)
        nursery.start_soon(world.disk.prepare)
        assert world.gather.busy_since_ms is None
        world.write(late)
        await until(lambda: world.gather.busy_since_ms is not None)
        hanging.set()
        await until(lambda: world.done)
        assert world.gather.busy_since_ms is None
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_probe_writes_elsewhere_and_answers_nobody(world, tmp_path):
    probe = os.open(tmp_path / "probe", os.O_CREAT | os.O_RDWR)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.disk.run)
            nursery.start_soon(attend, world.poller)
            world.gather.probe(probe)
            world.write(waiting := Staged(world.file, b"after", 0))
            assert world.done == []
            await until(lambda: world.done == [[waiting]])
            nursery.cancel_scope.cancel()
        assert os.fstat(probe).st_size == 512
    finally:
        os.close(probe)


@pytest.mark.parametrize("reserve", [True, False])
def test_a_start_without_room_for_the_probe_says_so(tmp_path, monkeypatch, reserve):
    refusals = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))] * (1 if reserve else 9)

    def posix_fallocate(number: int, begin: int, size: int) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    space = SimpleNamespace(release_reserve=lambda: reserve)
    if reserve:
        os.close(open_probe(tmp_path, space))
    else:
        with pytest.raises(DiskFailed, match="no room for 512 bytes.*free some space"):
            open_probe(tmp_path, space)
