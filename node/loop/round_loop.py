"""The trio shell of the round loop: when a round of ``node.loop.ready_driver`` runs.

Contract. All code that touches consensus or the store's memory runs on the loop thread, and calls
``request`` after it has stepped a message or proposed an entry. A round runs at once, or a moment
later for everything that arrives meanwhile, and at each deadline of the driver.

Invariants. No round runs inside another one, after a failed one, or after ``stop``.
"""

from __future__ import annotations

from typing import Any, Protocol

import trio

from multiraft.errors import MultiRaftError
from multiraft.raft.timers import NEVER_MS
from node.clock import monotonic_ms, monotonic_ns
from node.errors import RoundFailed
from node.histogram import Histogram
from node.loop.poller import Poller

#: Rounds that would follow each other faster are merged into one: about the duration of a round.
GATHER_NS = 150_000
#: Passes over the hot sources before other tasks run.
DRAINS_MAX = 6
#: Time after which a drain makes no further pass.
DRAIN_NS = 10_000_000
#: Time that a drain waits for the next arrival without letting other tasks run, in seconds. It is
#: several times the latency of a fast disk or a near follower, and short for the other tasks.
LINGER_S = 0.001


class Driver(Protocol):
    """The driver of the consensus core (``node.loop.ready_driver``)."""

    @property
    def earliest_ms(self) -> int: ...

    def is_due_before(self, time_ms: int) -> bool: ...

    def step(self, now_ms: int) -> None: ...

    def wrote(self, staged: list) -> bool: ...


class RoundLoop:
    """The tasks that run the rounds of one node."""

    def __init__(self, driver: Driver, poller: Poller):
        self._driver = driver
        self._step = driver.step
        #: Process staged writes that became durable, called by the disk worker on the loop.
        self.wrote = driver.wrote
        self._poller = poller
        self._round_requested = False
        self._running = False
        self._draining = False
        self._stopped = False
        self._ended_ns = 0
        self._task: trio.lowlevel.Task | None = None
        self._ticker: trio.lowlevel.Task | None = None
        self._armed_ms = NEVER_MS
        self.durations = Histogram()
        self.round_micros_max = 0

    def request(self) -> None:
        """Request a round, from the loop thread; without effect once the loop is stopped. The round
        runs inside this call if the last one ended at least ``GATHER_NS`` ago. Otherwise the
        round-loop task, or the drain that runs now, runs it later for everything that arrived
        meanwhile. Raises ``RoundFailed`` if a round inside this call ends in the middle,
        ``DiskFailed`` if a write has failed."""
        if self._stopped:
            return
        if self._draining:
            self._round_requested = True
            return
        if not self._running and monotonic_ns() - self._ended_ns >= GATHER_NS:
            self.round()
            if self._poller.left:
                self._wake()
            return
        self._round_requested = True
        self._wake()

    def _drain(self) -> None:
        """Poll and run a round for what arrived, again and again. Stop when nothing more arrives
        within ``LINGER_S``, a handler has passed work to a task, or ``DRAIN_NS`` or ``DRAINS_MAX``
        is reached. Waiting is cheaper than a switch of tasks, because the next arrival is usually
        near."""
        poller, wait_s = self._poller, 0.0
        poller.yield_due = False
        self._draining = True
        until_ns = monotonic_ns() + DRAIN_NS
        try:
            for _ in range(DRAINS_MAX):
                due = poller.poll(wait_s)
                if due or self._round_requested:
                    self._round_requested = False
                    self.round()
                elif due is None:
                    break
                if poller.yield_due or monotonic_ns() > until_ns:
                    break
                wait_s = 0.0 if due is None else LINGER_S
        finally:
            self._draining = False
        if self._round_requested or poller.left:
            self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def serve(self) -> None:
        """Run the arrivals task, until cancelled: wait for the hot sources, and drain them with
        rounds. It sleeps forever once the loop is stopped."""
        while True:
            await trio.lowlevel.wait_readable(self._poller.file_number)
            if self._stopped or self._running:
                await trio.sleep_forever()
            self._drain()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the round-loop task: execute the rounds that ``request`` could not run at once. It
        sleeps forever once the loop is stopped or a round has failed."""
        task_status.started()
        while True:
            while not (self._round_requested or self._poller.left):
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            if self._stopped or self._running:  # running: a round failed, which stops the node
                await trio.sleep_forever()
            self._drain()
            if self._round_requested or self._poller.left:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> None:
        """Run the ticker task: request a round when a timer of the core or another deadline is due.
        The task sleeps until the earliest deadline; a round that sets an earlier one wakes it."""
        while True:
            deadline_ms = self._armed_ms = self._driver.earliest_ms
            with trio.move_on_after(max(0, deadline_ms - monotonic_ms()) / 1000):
                self._ticker = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort_ticker)
            if deadline_ms <= monotonic_ms():
                self.request()
                await trio.lowlevel.checkpoint()

    def stop(self) -> None:
        """Run no further round: the node is stopping."""
        self._stopped = True

    def round(self) -> None:
        """Run one round. Raises ``RoundFailed``; ``_running`` stays set then, and no other round
        runs: the round may be half done, and no later effect may depend on it."""
        assert not self._running, "a round inside a round"
        self._running = True
        began_ns = monotonic_ns()
        try:
            self._step(began_ns // 1_000_000)
        except (OSError, MultiRaftError) as error:
            # The code that requested this round belongs to a connection, and would take these
            # exceptions for errors of that connection alone.
            raise RoundFailed(f"a round failed: {error!r}") from error
        if self._ticker is not None and self._driver.is_due_before(self._armed_ms):
            self._wake_ticker()
        self._running = False
        self._ended_ns = monotonic_ns()
        micros = (self._ended_ns - began_ns) // 1000
        self.durations.observe(micros)
        if micros > self.round_micros_max:
            self.round_micros_max = micros

    @property
    def rounds(self) -> int:
        """Number of rounds since the start."""
        return sum(self.durations.counts)

    def _wake_ticker(self) -> None:
        """Wake the ticker, which sleeps for a later deadline than the earliest."""
        task, self._ticker = self._ticker, None
        assert task is not None
        trio.lowlevel.reschedule(task)

    def _abort_ticker(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._ticker = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

