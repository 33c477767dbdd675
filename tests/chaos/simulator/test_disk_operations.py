"""Blocking calls on a simulated disk: one at a time, in virtual time, durable at their end."""

from __future__ import annotations

import errno
import random
from types import SimpleNamespace

import pytest

from chaos.simulator.disk.disk_worker import DiskTask
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.disk.operations import DiskOperations, Operation
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.node.machine.coroutines import start
from chaos.simulator.node.machine.process import ProcessScheduler
from node.errors import DiskFailed

LATENCY_US = 500


class World:
    """A disk with one file, and the process that uses it."""

    def __init__(self) -> None:
        self.queue = EventQueue()
        self.process = ProcessScheduler(self.queue, (), lambda error: None)
        self.process.begin()
        self.disk = SimpleNamespace(filesystem=SimulatedFilesystem(), factor=1, hangs=False)
        filesystem = self.disk.filesystem
        filesystem.make_directory("/d")
        self.file = filesystem.create("/d/f")
        filesystem.sync_directory("/d")
        self.events: list[str] = []
        parameters = SimpleNamespace(write_min_us=LATENCY_US, write_spread_us=0, stall=0.0)
        env = SimpleNamespace(rng=random.Random(1), faulty=False,
                              parameters=SimpleNamespace(disk=parameters))
        self.operations = DiskOperations(env, self.process, self.disk,
                                         SimpleNamespace(disk_began=lambda latency_us: None))

    def write(self, name: str, error: OSError | None = None) -> None:
        """Queue a synced write of one byte, which reports its begin and its ends."""

        def work() -> None:
            self.events.append(f"{name} begins")
            if error is not None:
                raise error
            self.file.write([name.encode()], len(self.durable), True)

        self.operations.submit(Operation(
            work, False, lambda failed: self.events.append(f"{name} completes"),
            lambda failed: self.events.append(
                f"{name} done" if failed is None else f"{name} fails {failed.errno}")))

    @property
    def durable(self) -> bytes:
        return self.disk.filesystem.images("/d", "f")["/d/f"]

    def run_us(self, duration_us: int) -> None:
        self.queue.run_until(self.queue.now_us + duration_us)


def test_calls_take_effect_one_after_the_other():
    world = World()
    world.write("a")
    world.write("b")
    assert world.events == ["a begins"] and not world.operations.is_idle
    world.run_us(LATENCY_US - 1)
    assert world.durable == b""
    world.run_us(2)
    assert world.durable == b"a"
    assert world.events == ["a begins", "a completes", "a done", "b begins"]
    world.run_us(LATENCY_US)
    assert world.durable == b"ab" and world.operations.is_idle


def test_a_paused_process_learns_of_a_durable_write_when_it_continues():
    world = World()
    world.write("a")
    world.process.pause()
    world.run_us(10 * LATENCY_US)
    assert world.durable == b"a" and world.events == ["a begins", "a completes"]
    world.process.resume(lambda: None)
    world.run_us(1)
    assert world.events[-1] == "a done"


def test_while_the_disk_hangs_nothing_is_durable():
    world = World()
    world.disk.hangs = True
    world.write("a")
    world.run_us(10 * LATENCY_US)
    assert world.durable == b"" and world.events == ["a begins"]
    world.disk.hangs = False
    world.operations.release()
    world.run_us(1)
    assert world.durable == b"a" and world.events[-1] == "a done"


def test_an_error_reaches_the_process_at_the_end_of_the_call():
    world = World()
    world.write("a", OSError(errno.EIO, "input/output error"))
    assert world.events == ["a begins"]
    world.run_us(LATENCY_US + 1)
    assert world.events == ["a begins", "a completes", f"a fails {errno.EIO}"]


def test_after_the_end_no_call_begins():
    world = World()
    world.write("a")
    world.write("b")
    world.operations.end()
    world.run_us(10 * LATENCY_US)
    assert world.events == ["a begins", "a completes", "a done"]


def test_awaited_work_ends_with_its_result_or_its_error():
    world, ended = World(), []

    async def use() -> None:
        await world.operations.run(lambda: None)
        ended.append("done")
        try:
            await world.operations.run(_raiser(OSError(errno.ENOSPC, "full")))
        except OSError as error:
            ended.append(error.errno)

    start(use(), world.process.later)
    world.run_us(10 * LATENCY_US)
    assert ended == ["done", errno.ENOSPC]


def test_a_task_runs_again_when_it_is_woken_while_it_runs():
    world, runs = World(), []

    async def run() -> None:
        runs.append("begins")
        await world.operations.run(lambda: None)
        runs.append("ends")

    task = DiskTask(world.process, run, runs.append)
    task.wake()
    world.run_us(1)
    task.wake()
    task.wake()
    world.run_us(10 * LATENCY_US)
    assert runs == ["begins", "ends"] * 2


def test_a_task_that_the_disk_fails_ends_the_node():
    world, failures = World(), []
    error = OSError(errno.EIO, "input/output error")

    async def run() -> None:
        try:
            await world.operations.run(_raiser(error))
        except OSError as failed:
            raise DiskFailed("a segment could not be prepared") from failed

    DiskTask(world.process, run, failures.append).wake()
    world.run_us(10 * LATENCY_US)
    assert failures == [error]


def _raiser(error: OSError):
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("closed", [False, True])
def test_a_descriptor_names_its_file_until_it_is_closed(closed):
    world = World()
    number = world.file.fileno()
    assert number == world.file.fileno() != world.disk.filesystem.open("/d/f").fileno()
    assert world.disk.filesystem.descriptors[number] is world.file
    if closed:
        world.file.close()
    else:
        world.disk.filesystem.process_death(random.Random(1))
    assert number not in world.disk.filesystem.descriptors
    with pytest.raises(OSError):
        world.file.fileno()
