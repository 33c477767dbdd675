"""The round loop gathers arrivals into rounds and wakes at deadlines."""

import contextlib
import os

import pytest
import trio
import trio.testing

from multiraft.raft.ready import Envelope, Event, Ready, Writes
from multiraft.raft.timers import NEVER_MS
from node.clock import monotonic_ms
from node.errors import RoundFailed
from node.loop import round_loop as rounds_module
from node.loop.poller import Poller
from node.loop.ready_driver import ReadyDriver
from node.loop.round_loop import RoundLoop
from tests.node.harness import in_trio, until


class ClusterView:
    """Core, store, disk, peers and applier that record their calls, in order."""

    has_work = True
    answers_wait = False

    def __init__(self):
        self.log = []
        self.readies = []
        self.deadline_ms = None
        self.patience_ms = None
        self.staged = []
        self.driver = ReadyDriver(self, self, self, self, self, (self,),
                                  lambda: self.log.append("published"))
        self.rounds = RoundLoop(self.driver, Poller())

    # core
    def tick(self, now_ms):
        if self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.log.append("timer")
            self.deadline_ms = None

    def ready(self):
        return self.readies.pop(0) if self.readies else Ready()

    @property
    def earliest_ms(self):
        return NEVER_MS if self.deadline_ms is None else self.deadline_ms

    def written(self, sequence):
        self.log.append(f"written {sequence}")

    # store
    def stage(self, writes):
        self.log.append(f"stage {writes.sequence}")
        self.staged.append(writes)
        return writes

    def finish(self, staged):
        self.log.append(f"finish {staged.sequence}")

    # disk
    def submit(self, staged):
        self.log.append(f"submit {staged.sequence}")

    def start_next(self):
        self.log.append("start")

    # peers
    def send(self, envelopes):
        self.log += [f"send {envelope.message}" for envelope in envelopes]

    def flush(self):
        self.log.append("flush")

    # applier
    def observe(self, events):
        self.log += [event.kind for event in events]

    def apply(self, committed):
        self.log += [f"apply {last}" for _group, _first, last in committed]

    def durable(self):
        self.log.append("durable")

    def answer(self, now_ms):
        if self.patience_ms is not None and self.patience_ms <= now_ms:
            self.log.append("patience")
            self.patience_ms = None
        self.log.append("answer")


class Patient(ClusterView):
    """A clock with a deadline of its own, beside the core's."""

    def __init__(self):
        super().__init__()
        world = self

        class Applier:
            answers_wait = False

            observe, apply, durable, answer = (world.observe, world.apply, world.durable,
                                               world.answer)

            @property
            def earliest_ms(self):
                return NEVER_MS if world.patience_ms is None else world.patience_ms

        applier = Applier()
        self.driver = ReadyDriver(self, self, self, self, applier, (self, applier), lambda: None)
        self.rounds = RoundLoop(self.driver, Poller())


def write(sequence: int) -> Writes:
    return Writes(sequence, ())


@in_trio
async def test_requests_that_come_quickly_are_one_round(monkeypatch):
    monkeypatch.setattr(rounds_module, "GATHER_NS", 10**18)
    world = ClusterView()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.rounds.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(50):
            world.rounds.request()
        assert world.rounds.rounds == 0
        await until(lambda: world.rounds.rounds)
        await trio.testing.wait_all_tasks_blocked()
        assert world.rounds.rounds == 1
        nursery.cancel_scope.cancel()


def test_a_request_after_a_quiet_while_runs_at_once(monkeypatch):
    monkeypatch.setattr(rounds_module, "GATHER_NS", 0)
    world = ClusterView()
    world.rounds.request()
    assert world.rounds.rounds == 1


@in_trio
async def test_a_request_from_inside_a_round_is_another_round():
    world = ClusterView()
    world.observe = lambda events: world.rounds.request()
    world.readies = [Ready(events=[Event("role_changed", 1, ())])]
    async with trio.open_nursery() as nursery:
        await nursery.start(world.rounds.run)
        world.rounds.request()
        await until(lambda: world.rounds.rounds == 2)
        nursery.cancel_scope.cancel()


@in_trio
async def test_the_ticker_wakes_for_the_cores_timer_and_for_somebodys_patience():
    world = Patient()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.rounds.run)
        nursery.start_soon(world.rounds.tick)
        await trio.testing.wait_all_tasks_blocked()
        world.deadline_ms = monotonic_ms() + 20
        world.rounds.request()  # a round that sets a timer wakes the ticker
        await until(lambda: "timer" in world.log)
        world.patience_ms = monotonic_ms() + 20
        world.rounds.request()
        await until(lambda: "patience" in world.log)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [OSError("disk"), ConnectionResetError("peer")])
def test_an_error_of_a_round_is_not_taken_for_that_of_a_connection(error):
    world = ClusterView()

    def failing(envelopes):
        raise error

    world.send = failing
    world.readies = [Ready(messages=[Envelope(2, "append")])]
    with pytest.raises(RoundFailed) as raised:
        world.rounds.round()
    assert raised.value.__cause__ is error
    assert not isinstance(raised.value, OSError)


@in_trio
async def test_after_a_failed_round_there_is_no_other():
    world = ClusterView()
    world.stage = lambda writes: 1 // 0
    world.readies = [Ready(writes=write(1)), Ready(messages=[Envelope(2, "append")])]
    with pytest.raises(ZeroDivisionError):
        world.rounds.round()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.rounds.run)
        world.rounds.request()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "send append" not in world.log


class Sources:
    """Two sources; handling the first makes the second one readable."""

    def __init__(self, world, yield_due: bool):
        self.taken: list[str] = []
        self.poller = world.rounds._poller
        self.yield_due = yield_due
        self.first, self.second = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
        self.poller.add(self.first, self.take_first)
        self.poller.add(self.second, self.take_second)
        os.eventfd_write(self.first, 1)

    def take_first(self) -> bool:
        self.taken.append("first")
        os.eventfd_read(self.first)
        os.eventfd_write(self.second, 1)
        self.poller.yield_due = self.yield_due
        return True

    def take_second(self) -> bool:
        self.taken.append("second")
        os.eventfd_read(self.second)
        return False

    def close(self):
        os.close(self.first)
        os.close(self.second)


@pytest.mark.parametrize(("yield_due", "taken"), [(False, ["first", "second"]), (True, ["first"])])
def test_the_loop_lingers_unless_a_task_has_to_go_on(yield_due, taken):
    world = ClusterView()
    with contextlib.closing(Sources(world, yield_due)) as sources:
        world.rounds._drain()
        assert sources.taken == taken
        assert world.rounds.rounds == 1, "the second asked for none"


@in_trio
async def test_sources_are_served_one_after_the_other_as_they_become_readable():
    world = ClusterView()
    with contextlib.closing(Sources(world, yield_due=True)) as sources:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.rounds.serve)
            await until(lambda: sources.taken == ["first", "second"])
            nursery.cancel_scope.cancel()
    assert world.rounds.rounds == 1


def test_after_stop_there_is_no_round(monkeypatch):
    monkeypatch.setattr(rounds_module, "GATHER_NS", 0)
    world = ClusterView()
    world.rounds.stop()
    world.rounds.request()
    assert world.rounds.rounds == 0


@in_trio
async def test_the_rest_of_what_arrived_is_handled_though_no_round_is_due_and_nothing_more_comes():
    world, taken = ClusterView(), []
    poller = world.rounds._poller
    file_number = os.eventfd(1, os.EFD_NONBLOCK)

    def take() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(file_number)
        taken.append(1)
        if len(taken) < 50:
            poller.again(file_number)
        return False

    poller.add(file_number, take)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.rounds.run)
        nursery.start_soon(world.rounds.serve)
        await until(lambda: len(taken) == 50)
        nursery.cancel_scope.cancel()
    os.close(file_number)
