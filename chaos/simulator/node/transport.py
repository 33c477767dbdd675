"""Outgoing messages of consensus: one frame per peer and round.

Contract.  An append gets its entries here, framed as the journal frames them.  Entries that are no
longer in memory are read from the disk first; damage that this read finds is reported to repair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.connections import Connections
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints
from chaos.simulator.node.process import ProcessScheduler
from multiraft import core
from multiraft.raft.messages import Append, Message
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Envelope
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.storage.store import Store
from multiraft.types import Entry

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: Duration of a blocking read of entries that are not in memory.
COLD_READ_US = 400


class Transport:
    """Messages of one boot to its peers."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 fail_points: FailPoints, raft: MultiRaft, store: Store,
                 connections: Connections, damaged: Callable[[CorruptRange], None]):
        """``damaged`` takes the damage that a read has found."""
        self._node = env.node
        self._counters = env.counters
        self._network = env.network
        self._state_checker = env.state_checker
        self._everyone = cluster.everyone
        self._process = process
        self._fail_points = fail_points
        self._raft = raft
        self._store = store
        self._connections = connections
        self._damaged = damaged
        self._frames: dict[int, list[Message]] = {}  # by peer

    def send(self, envelopes: Sequence[Envelope]) -> None:
        """Collect the messages for ``flush``.  An append whose entries are not in memory follows
        after a disk read; one of a lost leadership is dropped."""
        frames = self._frames
        for to, message in envelopes:
            if type(message) is Append and message.last_index != message.prev_index:
                filled = self._fill(to, message)
                if filled is None:
                    continue
                message = filled
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
        if to not in self._connections:
            return
        self._fail_points.effect()
        for message in messages:
            self._state_checker.sent(self._node, to, message)
        receiver = self._everyone[to]
        self._counters.peer_frames += not receiver.disk.hangs
        self._network.send(self._node, to, "append", tuple(messages), receiver.receive_peer)

    def _fill(self, to: int, message: Append) -> Append | None:
        """Return the append with its entries, or None.

        None if this node no longer leads the group in the append's term, or if the entries must be
        read from the disk; the append then follows after the read.
        """
        first, last = message.prev_index + 1, message.last_index
        if not self._raft.status.leads(message.group, message.term):
            return None
        entries = self._store.entries(message.group, first, last)
        if entries is None:
            job = self._store.read_job(message.group, first, last)
            self._process.later(COLD_READ_US, self._send_cold, to, message, job)
            return None
        return self._framed(message, entries)

    def _send_cold(self, to: int, message: Append, job: ReadJob) -> None:
        if not self._raft.status.leads(message.group, message.term):
            return  # as in the real node: the replica may have been removed during the read
        try:
            self._send(to, [self._framed(message, job.execute())])
        except CorruptRange as error:
            self._damaged(error)

    def _framed(self, message: Append, entries: Sequence[Entry]) -> Append:
        if entries[-1].term > message.term or entries[0].index != message.prev_index + 1:
            raise Violation("MessagesAreTrue", f"n{self._node} sends {entries} in {message}")
        buffers, _, _, _ = core.frame_entries(entries, 0, 0)
        return with_entries(message, b"".join(buffers))


def with_entries(message: Append, entries: tuple[Entry, ...] | bytes) -> Append:
    """Return the message with these entries, as values or framed.  ``_replace`` takes five times as
    long.
    """
    group, incarnation, term, prev_index, prev_term, last_index, commit, _, stamp = message
    return Append(group, incarnation, term, prev_index, prev_term, last_index, commit, entries,
                  stamp)
