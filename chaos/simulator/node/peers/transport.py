"""Outgoing messages of consensus: one frame per peer and round.

Contract.  Appends get their entries by the product's steps (``node/peers/append_filler.py``).  This
module gives them connections and the time that a read takes; damage that a read finds is reported
to repair.

Invariants.  An append carries entries of no later term than its own, from the index that it names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.coroutines import raise_error, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.peers.connections import Connections
from multiraft.codec.layout import ENTRY_TERM_AT
from multiraft.raft.messages import Append, Message
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Envelope
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.storage.store import Store
from multiraft.types import Entry
from node.peers.append_filler import AppendFiller

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: Time after which entries that are not in memory are read.
COLD_READ_US = 400
#: Share of these reads that a thread does, because the disk may block.
READS_ON_THREAD = 0.1
#: Term and index in the header of an entry.
_TERM_AND_INDEX = struct.Struct("<QQ")


class Transport:
    """Messages of one boot to its peers."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 fail_points: FailPoints, raft: MultiRaft, store: Store,
                 connections: Connections, threads: SimulatedThreads,
                 damaged: Callable[[CorruptRange], None]):
        """``damaged`` takes the damage that a read has found."""
        self._node = env.node
        self._rng = env.rng
        self._counters = env.counters
        self._network = env.network
        self._state_checker = env.state_checker
        self._everyone = cluster.everyone
        self._process = process
        self._fail_points = fail_points
        self._connections = connections
        self._frames: dict[int, list[Message]] = {}  # by peer
        self._threads = threads
        self._filler = AppendFiller(raft, store, self, self._read, damaged, self._queued)
        self._is_reading = False

    def send(self, envelopes: Sequence[Envelope]) -> None:
        """Collect the messages for ``flush``.  An append whose entries are not in memory follows
        after a disk read; one of a lost leadership is dropped."""
        frames = self._frames
        for to, message in envelopes:
            if to not in self._connections:
                continue
            if type(message) is Append and message.last_index != message.prev_index:
                buffers = self._filler.fill(to, message)
                if buffers is None:
                    continue
                message = self._filled(message, buffers)
            frame = frames.get(to)
            if frame is None:
                frames[to] = [message]
            else:
                frame.append(message)

    def flush(self) -> None:
        """Send one frame with the collected messages to each connected peer."""
        frames, self._frames = self._frames, {}
        for to, messages in frames.items():
            self._send(to, messages)

    def _send(self, to: int, messages: list[Message]) -> None:
        self._fail_points.effect()
        for message in messages:
            self._state_checker.sent(self._node, to, message)
        receiver = self._everyone[to]
        self._counters.peer_frames += not receiver.disk.hangs
        self._network.send(self._node, to, "append", tuple(messages), receiver.receive_peer)

    # ---- entries -----------------------------------------------------------------------------

    def is_connected(self, peer: int) -> bool:
        """True if frames can be sent to ``peer``."""
        return peer in self._connections

    def send_cold(self, peer: int, message: Append, buffers: Sequence) -> None:
        """Send an append whose entries were read from the disk, in a frame of its own."""
        self._send(peer, [self._filled(message, buffers)])

    def _queued(self) -> None:
        """Schedule the reads of the entries of queued appends, one append after the other."""
        if not self._is_reading:
            self._is_reading = True
            self._process.later(COLD_READ_US, self._start_reading)

    def _start_reading(self) -> None:
        start(self._read_cold(), self._process.later, raise_error)

    async def _read_cold(self) -> None:
        while self._filler.cold:
            await self._filler.send_next()
        self._is_reading = False

    async def _read(self, job: ReadJob) -> Sequence[Entry]:
        """Read entries: mostly at once from the page cache, as the loop of a node reads small ones,
        and sometimes on a thread."""
        if self._rng.random() < READS_ON_THREAD:
            return await self._threads.run(job.execute)
        return job.execute()

    def _filled(self, message: Append, buffers: Sequence) -> Append:
        """Return the append with its entries, which are header, payload and padding of each. Raises
        ``Violation`` if they are not those that it names."""
        _, first_index = _TERM_AND_INDEX.unpack_from(buffers[0], ENTRY_TERM_AT)
        last_term, last_index = _TERM_AND_INDEX.unpack_from(buffers[-3], ENTRY_TERM_AT)
        if (last_term > message.term
                or (first_index, last_index) != (message.prev_index + 1, message.last_index)):
            raise Violation("MessagesAreTrue", f"n{self._node} sends entries {first_index} to "
                            f"{last_index} of term {last_term} in {message}")
        return with_entries(message, b"".join(buffers))


def with_entries(message: Append, entries: tuple[Entry, ...] | bytes) -> Append:
    """Return the message with these entries, as values or framed.  ``_replace`` takes five times as
    long.
    """
    group, incarnation, term, prev_index, prev_term, last_index, commit, _, stamp = message
    return Append(group, incarnation, term, prev_index, prev_term, last_index, commit, entries,
                  stamp)
