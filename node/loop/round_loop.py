"""The round loop: the one place that obeys ``Ready``.

Contract.  Everything that touches consensus or the store's memory runs on the loop thread; whoever
stepped or proposed something calls ``request``.  A round is one turn: tick, ready, stage, send,
disk, apply, answer.  What arrives while a write is in flight is staged and sent to followers at
once, and gathers into the next write (group commit).

Invariants.  Nothing in ``messages_after_write`` leaves before the write it waits for is durable;
with no write of its own in that ``Ready`` it waits for the last one staged, because what it says
may rest on that.  Events are seen before commits, so that a proposal pending at a leader that
stepped down is never taken for committed.

Theory.  The core never calls the driver; this file has no ``if leader``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Protocol

import trio

from multiraft.errors import MultiRaftError
from multiraft.raft.timers import NEVER_MS
from node.clock import monotonic_ms, monotonic_ns
from node.errors import RoundFailed
from node.histogram import Histogram
from node.loop.poller import Poller

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.raft.ready import Ready
    from multiraft.storage.store import Store
    from node.loop.disk_worker import DiskWorker

#: Rounds that would follow each other faster are gathered: about what one round takes.
GATHER_NS = 150_000
#: How often in a row the hot sources are looked at before others get their turn.
DRAINS_MAX = 6
#: After this long they are not looked at again in a row.
DRAIN_NS = 10_000_000
#: How long the loop waits for the next arrival without giving others their turn: several times what
#: a fast disk and a near follower take, and little for those others.
LINGER_S = 0.001


class Peers(Protocol):
    """Where envelopes go."""

    def send(self, envelopes: list) -> None:
        """Send what can be sent; losing a message is always safe."""

    def flush(self) -> None:
        """Give the sockets what this round produced."""


class Applier(Protocol):
    """Who learns what happened."""

    def observe(self, events: list) -> None:
        """Role changes and the like, before the commits of the same round."""

    def apply(self, committed: list) -> None:
        """Committed and durable ranges, in order."""

    def confirmed(self, reads: list) -> None:
        """Reads that are linearizable now, after the commits of the same round."""

    def durable(self) -> None:
        """Writes of this node became durable (acks=leader)."""

    def answer(self, now_ms: int) -> None:
        """Send the replies that this round completed."""

    @property
    def answers_wait(self) -> bool: ...  # there are replies that only a round's end sends


class Clock(Protocol):
    """Something that a round does because of the time."""

    @property
    def earliest_ms(self) -> int: ...  # not before; a round at that time makes it later


class RoundLoop:
    """Driver of one node's MultiRaft."""

    def __init__(self, core: MultiRaft, store: Store, disk: DiskWorker, peers: Peers,
                 applier: Applier, clocks: tuple[Clock, ...], publish: Callable[[], None],
                 arrivals: Poller):
        self._core = core
        self._store = store
        self._disk = disk
        self._peers = peers
        self._applier = applier
        self._clocks = clocks
        self._publish = publish  # digests, to the liveness thread
        self._arrivals = arrivals
        self._held: deque = deque()  # (sequence it waits for, envelopes)
        self._staged_sequence = 0
        self._durable_sequence = 0
        self._wanted = False
        self._running = False
        self._draining = False
        self._over = False
        self._ended_ns = 0
        self._task: trio.lowlevel.Task | None = None
        self._ticker: trio.lowlevel.Task | None = None
        self._armed_ms = NEVER_MS
        self.durations = Histogram()
        self.round_micros_max = 0

    def request(self) -> None:
        """A round is due; from the loop thread.  It runs at once when the last one was a while ago,
        which saves a turn of the scheduler; otherwise the round-loop task runs it after all that
        has arrived meanwhile, which saves rounds.  Raises ``RoundFailed``, ``DiskFailed``."""
        if self._over:
            return
        if self._draining:
            self._wanted = True
            return
        if not self._running and monotonic_ns() - self._ended_ns >= GATHER_NS:
            self.round()
            if self._arrivals.left:
                self._wake()
            return
        self._wanted = True
        self._wake()

    def _drain(self) -> None:
        """Take what has arrived on the hot sources, one round for all of it, then what comes next.
        Where something came more is near, and a turn of the scheduler costs more than the wait;
        but when something was handed to a task, the task goes first."""
        arrivals, wait_s = self._arrivals, 0.0
        arrivals.yield_due = False
        self._draining = True
        until_ns = monotonic_ns() + DRAIN_NS
        try:
            for _ in range(DRAINS_MAX):
                due = arrivals.poll(wait_s)
                if due or self._wanted:
                    self._wanted = False
                    self.round()
                elif due is None:
                    break
                if arrivals.yield_due or monotonic_ns() > until_ns:
                    break
                wait_s = 0.0 if due is None else LINGER_S
        finally:
            self._draining = False
        if self._wanted or arrivals.left:
            self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def serve(self) -> None:
        """The arrivals task: rounds for what comes in on the hot sources."""
        while True:
            await trio.lowlevel.wait_readable(self._arrivals.file_number)
            if self._over or self._running:
                await trio.sleep_forever()
            self._drain()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The round-loop task: rounds that anybody else asked for."""
        task_status.started()
        while True:
            while not (self._wanted or self._arrivals.left):
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            if self._over or self._running:  # running: one failed, which brings the node down
                await trio.sleep_forever()
            self._drain()
            if self._wanted or self._arrivals.left:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> None:
        """The ticker task: asks for a round when the core's next timer is due, or somebody's
        patience ends; sleeps until then, and is woken when a round sets an earlier time."""
        while True:
            deadline_ms = self._armed_ms = min([clock.earliest_ms for clock in self._clocks])
            with trio.move_on_after(max(0, deadline_ms - monotonic_ms()) / 1000):
                self._ticker = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort_ticker)
            if deadline_ms <= monotonic_ms():
                self.request()
                await trio.lowlevel.checkpoint()

    def stop(self) -> None:
        """No round follows: the node is ending."""
        self._over = True

    def round(self) -> None:
        """One turn.  Raises ``RoundFailed``; then ``_running`` stays and there is no other: half of
        a turn may have happened, and nothing may rest on it."""
        assert not self._running, "a round inside a round"
        self._running = True
        began_ns = monotonic_ns()
        try:
            self._turn(began_ns // 1_000_000)
        except (OSError, MultiRaftError) as error:
            # Whoever asked for this round would take these for errors of its own connection.
            raise RoundFailed(f"a round failed: {error!r}") from error
        self._running = False
        self._ended_ns = monotonic_ns()
        micros = (self._ended_ns - began_ns) // 1000
        self.durations.observe(micros)
        if micros > self.round_micros_max:
            self.round_micros_max = micros

    @property
    def rounds(self) -> int:
        """How many there were."""
        return sum(self.durations.counts)

    def _turn(self, now_ms: int) -> None:
        self._core.tick(now_ms)
        ready = self._core.ready()
        if ready:
            self._process_ready(ready)
        self._applier.answer(now_ms)
        if ready.events:
            self._publish()  # what this node leads and believes changes with an event only
        if self._ticker is not None:
            self._rearm()

    def wrote(self, staged: list) -> bool:
        """Called by the disk worker: these staged writes are durable; whether a round is due."""
        for one in staged:
            self._store.finish(one)
        if staged[-1].sequence > self._durable_sequence:  # else: only records of the journal's own
            self._durable_sequence = staged[-1].sequence
            self._core.written(self._durable_sequence)
        self._applier.durable()
        held = self._held
        while held and held[0][0] <= self._durable_sequence:
            self._peers.send(held.popleft()[1])
            self._peers.flush()
        return self._applier.answers_wait or self._core.has_work

    def _process_ready(self, ready: Ready) -> None:
        """The field order of ``Ready`` is the order of effects."""
        if ready.writes is not None:
            # Staged first: followers get the very buffers that the journal gets.
            staged = self._store.stage(ready.writes)
            self._staged_sequence = staged.sequence
            self._disk.submit(staged)
        if ready.messages:
            # To the sockets before the disk: a follower's path is longer than this node's own.
            self._peers.send(ready.messages)
            self._peers.flush()
        if ready.writes is not None:
            self._disk.start_next()
        if ready.messages_after_write:
            self._hold(ready.messages_after_write)
        if ready.events:
            self._applier.observe(ready.events)
        if ready.committed:
            self._applier.apply(ready.committed)
        if ready.reads:
            self._applier.confirmed(ready.reads)

    def _hold(self, envelopes: list) -> None:
        if self._durable_sequence >= self._staged_sequence:
            self._peers.send(envelopes)
            self._peers.flush()
        else:
            self._held.append((self._staged_sequence, envelopes))

    def _rearm(self) -> None:
        """Wake the ticker when the next round is due before it would wake by itself."""
        armed_ms = self._armed_ms
        for clock in self._clocks:
            if clock.earliest_ms < armed_ms:
                task, self._ticker = self._ticker, None
                assert task is not None
                trio.lowlevel.reschedule(task)
                return

    def _abort_ticker(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._ticker = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

