"""The disk worker of a simulated node: what is submitted becomes durable in order, after a while.

Contract.  As the real one: ``submit`` queues a staged write, ``start_next`` hands all that gathered
to the disk unless it is busy, neighbouring parts of a file become one gathered write with one sync.
Between rounds it prepares segments, seals full ones and writes checkpoints.  A blocking call
returns at once and takes effect on the disk when its virtual time is over; see filesystem.py for
what a crash makes of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from chaos.simulator.filesystem import SimulatedFilesystem
from chaos.simulator.parameters import DiskParameters
from multiraft.ready import Envelope, Writes
from multiraft.storage.plans import StagedWrite
from multiraft.storage.store import Store

if TYPE_CHECKING:
    from chaos.simulator.node import SimulatedNode

#: A write that takes longer makes the node vouch for nothing until it is done.
DISK_STALL_MS_MAX = 1000


class Flight(NamedTuple):
    """One round's write, and the messages that wait for it."""

    writes: Writes | None  # None = records of the lane's own
    staged: StagedWrite
    messages_after: Sequence[Envelope]


class DiskWorker:
    """One life of the worker."""

    def __init__(self, node: SimulatedNode, filesystem: SimulatedFilesystem, store: Store,
                 parameters: DiskParameters, rng: random.Random):
        self.factor = 1  # how much slower than usual the disk is
        self._node = node
        self._filesystem = filesystem
        self._store = store
        self._parameters = parameters
        self._rng = rng
        self._gathering: list[Flight] = []
        self._busy_since_ms = -1

    @property
    def takes_writes(self) -> bool:
        """Whether consensus is asked for writes now; else they pile up in it instead of here."""
        return self._parameters.gathers or (self._busy_since_ms < 0 and not self._gathering)

    def is_stalled(self, now_ms: int) -> bool:
        """Whether the disk has owed an answer for too long."""
        return 0 <= self._busy_since_ms <= now_ms - DISK_STALL_MS_MAX

    def submit(self, flight: Flight) -> None:
        self._gathering.append(flight)

    def start_next(self) -> None:
        """Write what has gathered, or else do what is due besides."""
        if self._busy_since_ms >= 0:
            return
        if self._gathering:
            flights, self._gathering = self._gathering, []
            self._begin(lambda: _write([flight.staged for flight in flights]), flights,
                        lambda: self._node.wrote(flights))
        else:
            self._upkeep()

    def _upkeep(self) -> None:
        """A checkpoint, the next segment, an index."""
        store = self._store
        if store.checkpoint_due:
            plan = store.checkpoint_plan(self._node.commits(), None)
            self._begin(plan.execute, (), lambda: store.checkpointed(plan))
        elif (prepare := store.prepare_plan()) is not None:
            self._begin(prepare.execute, (), lambda: None)
        elif (seal := store.seal_plan()) is not None:
            self._begin(seal.execute, (), lambda: store.sealed(seal))

    def _begin(self, work: Callable[[], None], flights: Sequence[Flight],
               done: Callable[[], None]) -> None:
        self._busy_since_ms = self._node.now_ms
        self._filesystem.begin(unseen=bool(flights) and self._rng.random() < 0.5)
        work()
        latency_us = self._latency_us()
        self._node.disk_began(latency_us)
        self._node.after_disk(latency_us, self._settle, flights, done)

    def _latency_us(self) -> int:
        parameters = self._parameters
        latency = parameters.write_min_us + int(self._rng.random() * parameters.write_spread_us)
        if self._node.faulty and self._rng.random() < parameters.stall:
            latency += parameters.stall_us
        return latency * self.factor

    def _settle(self, flights: Sequence[Flight], done: Callable[[], None]) -> None:
        """The disk is done, whether the process is paused or not."""
        self._filesystem.settle()
        self._node.settled(flights)
        self._node.later(0, self._done, done)

    def _done(self, done: Callable[[], None]) -> None:
        """The process learns of it."""
        self._busy_since_ms = -1
        done()
        self.start_next()


def _write(staged: Sequence[StagedWrite]) -> None:
    """All rounds, in order; one alone as the store itself would write it."""
    if len(staged) == 1:
        staged[0].execute()
        return
    for one in staged:
        one.create_files()
    file, joined, begin, end = None, [], 0, -1
    for part in [part for one in staged for part in one.parts]:
        if part.file is not file or part.position != end:
            if joined:
                file.write(joined, begin, True)
            file, joined, begin, end = part.file, [], part.position, part.position
        joined.extend(part.buffers)
        end += sum(map(len, part.buffers))
    if joined:
        file.write(joined, begin, True)
