"""Liveness thread of a simulated node: ``StoreLiveness`` over the simulated network.

Contract.  The thread runs beside the round loop: heartbeats leave and responses arrive while the
loop or the disk is busy.  Its findings reach the loop as an event of their own, and the loop
publishes its leadership digests when they change.  The thread itself checks the disk.  While a disk
operation takes too long, the node sends no heartbeats and responds to none; responses also say
whether the disk is full.  A paused node's thread is paused as well.
"""

from __future__ import annotations

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import Channel, RoundQueue
from chaos.simulator.node.peers.connections import Connections
from multiraft.liveness.clock_skew import ClockSkew
from multiraft.liveness.store_liveness import Heartbeat, HeartbeatResponse, StoreLiveness
from multiraft.raft.config import RaftConfig
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard


class LivenessExchange:
    """Liveness thread of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 raft: MultiRaft, config: RaftConfig, boot_epoch: int, peers: tuple[int, ...],
                 worker: DiskWorker, space_guard: DiskSpaceGuard, connections: Connections):
        self._node = env.node
        self._clock = env.clock
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._peers = peers
        self._worker = worker
        self._space_guard = space_guard
        self._send = connections.send_liveness
        self._liveness = StoreLiveness(env.node, boot_epoch, config.lease_ms,
                                       config.heartbeat_interval_ms)
        for peer in peers:
            self._liveness.add_peer(peer)
        self._wake_ms = -1
        self._published: tuple[dict[int, int], dict[int, int], int] = ({}, {}, 0)
        self._healthy, self._full = True, False

    def add(self, peer: int) -> None:
        """Exchange heartbeats with a peer from now on; a known one keeps its state."""
        self._peers += (peer,) * (peer not in self._peers)
        self._liveness.add_peer(peer)
        self.reschedule()

    def remove(self, peer: int) -> None:
        """Remove a peer: no heartbeats are exchanged with it any longer. No-op for an unknown
        one."""
        if peer in self._peers:
            self._peers = tuple(each for each in self._peers if each != peer)
            self._liveness.remove_peer(peer)
            self._deliver_events()

    def publish(self) -> None:
        """Pass the leadership digests of the loop to the thread, which compares and sends them."""
        raft = self._raft
        self._published = ({peer: raft.status.leading_digest(peer) for peer in self._peers},
                           {peer: raft.status.followed_digest(peer) for peer in self._peers},
                           raft.status.leading_version)
        self._liveness.publish(*self._published, self._healthy, self._full)

    @property
    def clock_skew(self) -> ClockSkew:
        """Skew of the node's wall clock, as the node knows it."""
        return self._liveness.clock_skew

    def _check_health(self) -> None:
        health = not self._worker.is_stalled(self._clock.now_ms), self._space_guard.full
        if health != (self._healthy, self._full):
            self._healthy, self._full = health
            self._liveness.publish(*self._published, *health)

    def wake(self, now_ms: int) -> None:
        """Probe the disk, send due heartbeats, expire support that was not renewed, and sleep until
        the next deadline."""
        self._worker.probe()
        self._check_health()
        self._liveness.set_clock(now_ms, self._clock.wall_ms)
        self._liveness.expire(now_ms)
        for peer, heartbeat in self._liveness.heartbeats(now_ms):
            self._send(peer, heartbeat)
        self._deliver_events()
        self._schedule(now_ms)

    def receive(self, now_ms: int, sender: int, item: Heartbeat | HeartbeatResponse) -> None:
        self._liveness.set_clock(now_ms, self._clock.wall_ms)
        if type(item) is Heartbeat:
            self._check_health()
            response = self._liveness.on_heartbeat(now_ms, sender, item)
            if response is not None:
                self._send(sender, response)
        else:
            self._liveness.on_response(now_ms, sender, item)
        self._deliver_events()
        self._schedule(now_ms)

    def _deliver_events(self) -> None:
        events = self._liveness.events()
        if events:
            self._rounds.put(Channel.LIVENESS, self._node, events)

    def reschedule(self) -> None:
        """Compute the next wake-up again, after the clock has changed."""
        self._wake_ms = -1
        self._schedule(self._clock.now_ms)

    def _schedule(self, now_ms: int) -> None:
        due_ms = max(self._liveness.next_deadline_ms(now_ms), now_ms + 1)
        if self._wake_ms <= now_ms or due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self._process.later(self._clock.until_us(due_ms), self._on_deadline, due_ms)

    def _on_deadline(self, due_ms: int) -> None:
        if due_ms == self._wake_ms:
            self._wake_ms = -1
            self.wake(self._clock.now_ms)

