"""Node leases over the simulated network: the liveness thread of a simulated node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.multiraft import MultiRaft

if TYPE_CHECKING:
    from chaos.simulator.node import SimulatedNode


class LivenessExchange:
    """Questions and answers."""

    def __init__(self, node: SimulatedNode, raft: MultiRaft, boot_epoch: int, peers, queue, send):
        self.node, self.raft, self.boot_epoch = node, raft, boot_epoch
        self.peers, self.queue, self.send = peers, queue, send
        self.held_until = {}
        self.granted_until = {}
        self.seen = {}
        self.tick()

    def tick(self):
        now = self.queue.now_ms
        for peer in list(self.held_until):
            if self.held_until[peer] <= now:
                del self.held_until[peer]
                self.raft.lease_lost(peer)
        for peer in list(self.granted_until):
            if self.granted_until[peer] <= now:
                del self.granted_until[peer]
                self.raft.lease_withdrawn(peer)
        for peer in self.peers:
            self.send(peer, ("q", self.boot_epoch, now, self.raft.led_digest(peer), self.raft.led_version))
        self.node.request_round()
        self.node.later(150_000, self.tick)

    def receive(self, sender, frame):
        for kind, epoch, sent, *rest in frame:
            now = self.queue.now_ms
            if kind == "q":
                if epoch < self.seen.get(sender, 0):
                    continue
                self.seen[sender] = epoch
                self.granted_until[sender] = now + 600
                self.raft.lease_granted(sender, epoch)
                if self.raft.believed_digest(sender) != rest[0]:
                    self.raft.digest_mismatch(sender)
                self.raft.peer_led_version(sender, rest[1])
                self.send(sender, ("a", self.boot_epoch, sent, epoch))
            else:
                if rest[0] != self.boot_epoch or epoch < self.seen.get(sender, 0) or sent + 600 <= now:
                    continue
                self.seen[sender] = epoch
                self.held_until[sender] = max(sent + 600, self.held_until.get(sender, 0))
                self.raft.lease_held(sender, epoch)
        self.node.request_round()
