"""The pure half of the round loop: the driver of ``MultiRaft``, and the only module that executes a
``Ready``.

Contract. ``step`` is one round: tick, ready, stage, send, submit the write, apply, reply. ``wrote``
processes writes that became durable. ``earliest_ms`` is the time at which a round is due by itself.
The driver knows no trio, no socket, no thread and no clock: ``node.loop.round_loop`` runs it on a
node, and the simulator runs it in virtual time.

Group commit. One write is in flight at a time. Entries that arrive during a write are staged and
sent to followers at once. They gather in ``node.loop.write_gather`` and share the next write and
its sync.

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

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from multiraft.raft.ready import Ready, Writes
    from multiraft.storage.io_jobs import StagedWrite


class Core(Protocol):
    """The consensus core of a node."""

    @property
    def has_work(self) -> bool: ...

    def tick(self, now_ms: int) -> None: ...

    def ready(self) -> Ready: ...

    def written(self, sequence: int) -> None: ...


class Store(Protocol):
    """The store's part in a round."""

    def stage(self, writes: Writes) -> StagedWrite: ...

    def finish(self, staged: StagedWrite) -> None: ...


class Disk(Protocol):
    """The gathering of staged writes."""

    def submit(self, staged: StagedWrite) -> None:
        """Queue a staged write, without starting it."""

    def start_next(self) -> None:
        """Start what has gathered, unless a write is in flight."""


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


class ReadyDriver:
    """The driver of one node's ``MultiRaft``."""

    def __init__(self, core: Core, store: Store, disk: Disk, peers: Peers, applier: Applier,
                 clocks: tuple[Clock, ...], publish: Callable[[], None]):
        """``publish`` hands the leadership digests to the liveness thread."""
        self._core = core
        self._store = store
        self._disk = disk
        self._peers = peers
        self._applier = applier
        self._clocks = clocks
        self._publish = publish
        self._durable_sequence = 0

    @property
    def earliest_ms(self) -> int:
        """Time at which a round is due without a request: the earliest deadline. O(clocks)."""
        return min([clock.earliest_ms for clock in self._clocks])

    def is_due_before(self, time_ms: int) -> bool:
        """Return True if a deadline is earlier than ``time_ms``. O(clocks)."""
        for clock in self._clocks:
            if clock.earliest_ms < time_ms:
                return True
        return False

    def step(self, now_ms: int) -> None:
        """Run one round at ``now_ms``. An exception leaves the round half done: no other round may
        follow it."""
        self._core.tick(now_ms)
        ready = self._core.ready()
        if ready:
            self._process_ready(ready)
        self._applier.answer(now_ms)
        if ready.events:
            self._publish()  # the leadership digests change only with an event

    def wrote(self, staged: list) -> bool:
        """Process staged writes that became durable, in order: acknowledge appends with
        acks=leader. Return True if a round is due, which sends the messages that waited for these
        writes."""
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
