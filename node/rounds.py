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
from typing import Callable, Protocol

import trio

from multiraft.errors import MultiRaftError
from node.arrivals import Arrivals
from node.clock import monotonic_ms, monotonic_us
from node.errors import RoundFailed
from node.histogram import Histogram

#: Rounds that would follow each other faster are gathered: about what one round takes.
GATHER_US = 150
#: How often in a row the hot sources are looked at before others get their turn.
DRAINS_MAX = 4
#: A ticker without a timer sleeps this long (in ms) and looks again.
NEVER_MS = 1 << 60


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

    answers_wait: bool  # there are replies that only a round's end sends

    def next_deadline_ms(self) -> int | None:
        """When ``answer`` has something to do though nothing happened."""


class Rounds:
    """Driver of one node's MultiRaft."""

    def __init__(self, core, store, disk, peers: Peers, applier: Applier,
                 after_round: Callable[[], None], arrivals: Arrivals):
        self._core = core
        self._store = store
        self._disk = disk
        self._peers = peers
        self._applier = applier
        self._after_round = after_round  # publishes digests to the liveness thread
        self._arrivals = arrivals
        self._held: deque = deque()  # (sequence it waits for, envelopes)
        self._staged_sequence = 0
        self._durable_sequence = 0
        self._wanted = False
        self._running = False
        self._draining = False
        self._over = False
        self._ended_us = 0
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
        if not self._running and monotonic_us() - self._ended_us >= GATHER_US:
            self._rounds()
            return
        self._wanted = True
        self._wake()

    def request_for_core(self) -> None:
        """As ``request``, after messages were stepped: most acknowledgements that complete no
        majority have no consequence, and cost no round."""
        if self._core.has_work:
            self.request()

    def _rounds(self) -> None:
        """A round, and more for what arrives on the hot sources meanwhile."""
        self.round()
        self._draining = True
        try:
            for _ in range(DRAINS_MAX):
                if not self._arrivals.poll():
                    break
                if self._wanted:
                    self._wanted = False
                    self.round()
        finally:
            self._draining = False
        if self._wanted:
            self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def run(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """The round-loop task."""
        task_status.started()
        while True:
            while not self._wanted:
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            self._wanted = False
            if self._over or self._running:  # running: one failed, which brings the node down
                await trio.sleep_forever()
            self._rounds()
            if self._wanted:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> None:
        """The ticker task: asks for a round when the core's next timer is due; sleeps until then,
        however long that is, and is woken when a round sets an earlier timer."""
        while True:
            deadline_ms = self._next_deadline_ms()
            self._armed_ms = deadline_ms
            with trio.move_on_after(max(0, self._armed_ms - monotonic_ms()) / 1000):
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
        began_us = monotonic_us()
        try:
            self._turn(began_us // 1000)
        except (OSError, MultiRaftError) as error:
            # Whoever asked for this round would take these for errors of its own connection.
            raise RoundFailed(f"a round failed: {error!r}") from error
        self._running = False
        self._ended_us = monotonic_us()
        micros = self._ended_us - began_us
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
            self._obey(ready)
        self._applier.answer(now_ms)
        self._peers.flush()
        self._after_round()
        self._rearm()

    def wrote(self, staged: list) -> None:
        """Called by the disk worker: these staged writes are durable."""
        for one in staged:
            self._store.finish(one)
        if staged[-1].sequence > self._durable_sequence:  # else: only records of the lane's own
            self._durable_sequence = staged[-1].sequence
            self._core.written(self._durable_sequence)
        self._applier.durable()
        held, released = self._held, False
        while held and held[0][0] <= self._durable_sequence:
            self._peers.send(held.popleft()[1])
            released = True
        if released or self._applier.answers_wait:
            self.request()
        else:
            self.request_for_core()

    def _obey(self, ready) -> None:
        """The field order of ``Ready`` is the order of effects."""
        if ready.writes is not None:
            # Staged first: followers get the very buffers that the lane gets.
            staged = self._store.stage(ready.writes)
            self._staged_sequence = staged.sequence
            self._disk.submit(staged)
        if ready.messages:
            # To the sockets before the disk: a follower's path is longer than this node's own.
            self._peers.send(ready.messages)
            self._peers.flush()
        self._disk.start_next()
        if ready.messages_after_write:
            self._hold(ready.messages_after_write)
        self._applier.observe(ready.events)
        self._applier.apply(ready.committed)
        if ready.reads:
            self._applier.confirmed(ready.reads)

    def _hold(self, envelopes: list) -> None:
        if self._durable_sequence >= self._staged_sequence:
            self._peers.send(envelopes)
        else:
            self._held.append((self._staged_sequence, envelopes))

    def _next_deadline_ms(self) -> int:
        """When the next round is due by the clock: a timer of the core, or somebody's patience."""
        core_ms, applier_ms = self._core.next_deadline_ms(), self._applier.next_deadline_ms()
        return min(NEVER_MS if core_ms is None else core_ms,
                   NEVER_MS if applier_ms is None else applier_ms)

    def _rearm(self) -> None:
        if self._ticker is not None and self._next_deadline_ms() < self._armed_ms:
            task, self._ticker = self._ticker, None
            trio.lowlevel.reschedule(task)

    def _abort_ticker(self, _raise_cancel) -> trio.lowlevel.Abort:
        self._ticker = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _abort(self, _raise_cancel) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

