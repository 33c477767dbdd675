"""The round loop: the driver of ``MultiRaft``, and the only module that executes a ``Ready``.

Contract. All code that touches consensus or the store's memory runs on the loop thread, and calls
``request`` after it has stepped a message or proposed an entry. A round is one pass: tick, ready,
stage, send, submit the write, apply, reply.

Group commit. One write is in flight at a time. Entries that arrive during a write are staged and
sent to followers at once. They gather in the disk worker and share the next write and its sync.

Order of effects. The field order of ``Ready`` is the order of effects: writes are staged and
submitted, ``messages`` are sent, then events, commits and confirmed reads reach the applier.
``messages`` (appends to followers, for example) may leave before the local disk has the entries,
because a leader counts itself towards a majority only once its own copy is durable (Raft thesis,
section 10.2.1: the leader writes to its disk in parallel). Votes and acknowledgements promise
something about the local disk: the core releases them after ``written``, in a later ``Ready``.

Invariants. Events are observed before commits of the same round. A leader that stepped down
therefore fails its pending proposals before the entries that replaced them at the same indexes are
applied, and acknowledges none of them by mistake.

Theory. The core never calls the driver, and the driver makes no decision of the protocol: this
module does not ask who leads a group.
"""

from __future__ import annotations

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

#: Rounds that would follow each other faster are merged into one: about the duration of a round.
GATHER_NS = 150_000
#: Passes over the hot sources before other tasks run.
DRAINS_MAX = 6
#: Time after which a drain makes no further pass.
DRAIN_NS = 10_000_000
#: Time that a drain waits for the next arrival without letting other tasks run, in seconds. It is
#: several times the latency of a fast disk or a near follower, and short for the other tasks.
LINGER_S = 0.001


class Peers(Protocol):
    """The transport of envelopes to other nodes."""

    def send(self, envelopes: list) -> None:
        """Collect the envelopes for ``flush``; drop those that cannot be sent: the protocol
        tolerates every loss."""

    def flush(self) -> None:
        """Write the collected envelopes to the sockets; drop those to peers without a
        connection."""


class Applier(Protocol):
    """The consumer of events, commits and confirmed reads."""

    def observe(self, events: list) -> None:
        """Process the events of a round before its commits: fail what a lost leadership ends, and
        record removed and quarantined replicas."""

    def apply(self, committed: list) -> None:
        """Apply ranges that are committed and durable on this node, in order, and acknowledge the
        appends in them."""

    def confirmed(self, reads: list) -> None:
        """Release the reads that are linearizable now, after the commits of the same round."""

    def durable(self) -> None:
        """Acknowledge appends with acks=leader: writes of this node have become durable."""

    def answer(self, now_ms: int) -> None:
        """Do what is due at ``now_ms`` (replicas to create or remove, deadlines, long polls), then
        send the replies that this round completed."""

    @property
    def answers_wait(self) -> bool: ...  # there are replies that only a round's end sends


class Clock(Protocol):
    """A source of deadlines that a round has to serve."""

    @property
    def earliest_ms(self) -> int: ...  # not before; a round at that time makes it later


class RoundLoop:
    """The driver of one node's ``MultiRaft``."""

    def __init__(self, core: MultiRaft, store: Store, disk: DiskWorker, peers: Peers,
                 applier: Applier, clocks: tuple[Clock, ...], publish: Callable[[], None],
                 poller: Poller):
        self._core = core
        self._store = store
        self._disk = disk
        self._peers = peers
        self._applier = applier
        self._clocks = clocks
        self._publish = publish  # leadership digests, to the liveness thread
        self._poller = poller
        self._durable_sequence = 0
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
            deadline_ms = self._armed_ms = min([clock.earliest_ms for clock in self._clocks])
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

    def _step(self, now_ms: int) -> None:
        self._core.tick(now_ms)
        ready = self._core.ready()
        if ready:
            self._process_ready(ready)
        self._applier.answer(now_ms)
        if ready.events:
            self._publish()  # the leadership digests change only with an event
        if self._ticker is not None:
            self._rearm()

    def wrote(self, staged: list) -> bool:
        """Process staged writes that became durable, called by the disk worker on the loop:
        acknowledge appends with acks=leader. Return True if a round is due, which sends the
        messages that waited for these writes."""
        for one in staged:
            self._store.finish(one)
        # Writes that the store started itself (its repairs, for example) repeat the last sequence.
        if staged[-1].sequence > self._durable_sequence:
            self._durable_sequence = staged[-1].sequence
            self._core.written(self._durable_sequence)
        self._applier.durable()
        return self._applier.answers_wait or self._core.has_work

    def _process_ready(self, ready: Ready) -> None:
        """Execute a ``Ready``. The order of its fields is the order of effects."""
        if ready.writes is not None:
            # Stage first: followers are sent the same buffers that the journal writes.
            staged = self._store.stage(ready.writes)
            self._disk.submit(staged)
        if ready.messages:
            # Sockets before the disk: the path through a follower (network, its disk, network) is
            # longer than the local write. This is safe because this leader counts its own copy only
            # once it is durable (``wrote``).
            self._peers.send(ready.messages)
            self._peers.flush()
        if ready.writes is not None:
            self._disk.start_next()
        # Before the commits: a lost leadership fails pending proposals first, so that none of them
        # is acknowledged by the commit of another leader's entry at the same index.
        if ready.events:
            self._applier.observe(ready.events)
        if ready.committed:
            self._applier.apply(ready.committed)
        if ready.reads:
            self._applier.confirmed(ready.reads)

    def _rearm(self) -> None:
        """Wake the ticker if a deadline is earlier than the one that it sleeps for."""
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

