"""The liveness thread of a simulated node: ``leases.StoreLiveness`` over the simulated network.

Contract.  Runs beside the round loop: questions leave and answers come while the loop or the disk
is busy, what is found out reaches the loop as an event of its own, and the loop publishes its
digests when they change.  The thread itself sees whether the disk owes an answer for too long: such
a node asks nobody and answers nobody; and whether it is full, which its answers say.  A paused
node's thread is paused with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.liveness.store_liveness import Answer, Question, StoreLiveness
from multiraft.raft.config import RaftConfig
from multiraft.raft.multi_raft import MultiRaft

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode


class LivenessExchange:
    """One life of the thread."""

    def __init__(self, node: SimulatedNode, raft: MultiRaft, config: RaftConfig, boot_epoch: int,
                 peers: tuple[int, ...]):
        self._node = node
        self._raft = raft
        self._peers = peers
        self._liveness = StoreLiveness(node.node, boot_epoch, config.lease_ms,
                                  config.liveness_interval_ms)
        for peer in peers:
            self._liveness.add_peer(peer)
        self._wake_ms = -1
        self._published: tuple[dict[int, int], dict[int, int], int] = ({}, {}, 0)
        self._healthy, self._full = True, False

    def add(self, peer: int) -> None:
        """There is one more."""
        self._peers += (peer,) * (peer not in self._peers)
        self._liveness.add_peer(peer)
        self.reschedule()

    def remove(self, peer: int) -> None:
        """It is none any more."""
        if peer in self._peers:
            self._peers = tuple(each for each in self._peers if each != peer)
            self._liveness.remove_peer(peer)
            self._hand_over()

    def publish(self) -> None:
        """What the loop knows, for the thread to compare and to send."""
        raft = self._raft
        self._published = ({peer: raft.status.leading_digest(peer) for peer in self._peers},
                           {peer: raft.status.followed_digest(peer) for peer in self._peers},
                           raft.status.leading_version)
        self._liveness.publish(*self._published, self._healthy, self._full)

    def _look_at_health(self) -> None:
        health = not self._node.disk_is_stalled, self._node.disk_is_full
        if health != (self._healthy, self._full):
            self._healthy, self._full = health
            self._liveness.publish(*self._published, *health)

    def wake(self, now_ms: int) -> None:
        """Ask whom it is time to ask, end what is over, sleep until the next deadline."""
        self._node.probe_disk()
        self._look_at_health()
        self._liveness.expire(now_ms)
        for peer, question in self._liveness.questions(now_ms):
            self._node.send_liveness(peer, question)
        self._hand_over()
        self._schedule(now_ms)

    def receive(self, now_ms: int, sender: int, item: Question | Answer) -> None:
        if type(item) is Question:
            self._look_at_health()
            answer = self._liveness.answer(now_ms, sender, item)
            if answer is not None:
                self._node.send_liveness(sender, answer)
        else:
            self._liveness.answered(now_ms, sender, item)
        self._hand_over()
        self._schedule(now_ms)

    def _hand_over(self) -> None:
        events = self._liveness.events()
        if events:
            self._node.deliver_leases(events)

    def reschedule(self) -> None:
        """The clock is another one than before."""
        self._wake_ms = -1
        self._schedule(self._node.now_ms)

    def _schedule(self, now_ms: int) -> None:
        due_ms = max(self._liveness.next_deadline_ms(now_ms), now_ms + 1)
        if self._wake_ms <= now_ms or due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self._node.later(self._node.clock.until_us(due_ms), self._woken, due_ms)

    def _woken(self, due_ms: int) -> None:
        if due_ms == self._wake_ms:
            self._wake_ms = -1
            self.wake(self._node.now_ms)

