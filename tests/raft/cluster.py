"""A few nodes in one thread, for tests: a driver that obeys the contract, a network of queues, a
disk that loses what was not synced.  The order of everything is the caller's."""

from __future__ import annotations

import random
from collections import deque

from multiraft.liveness import store_liveness
from multiraft.liveness.store_liveness import StoreLiveness
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_state import NullLogState
from multiraft.raft.memory_storage import MemoryStore
from multiraft.raft.messages import Append
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Committed, Envelope, Event, ReadReady
from multiraft.types import Configuration, EntryKind


class Node:
    """One node: core, liveness, store, and what a driver keeps."""

    def __init__(self, id_: int, seed: int, config: RaftConfig):
        self.id = id_
        self.config = config
        self.rng = random.Random(seed * 1000 + id_)
        self.store = MemoryStore()
        self.boot_epoch = 0
        self.core: MultiRaft | None = None
        self.liveness: StoreLiveness | None = None
        self.committed: dict[int, list] = {}
        self.events: list[Event] = []
        self.reads: list[ReadReady] = []
        self.manual_disk = False
        #: The driver takes a write only when none is in flight; else it queues them.
        self.one_write = id_ % 2 == 0
        self.tails = lambda group: NullLogState()
        self.healthy = True
        self.digests_version = 0

    def start(self, now_ms: int, peers: list[int], support: bool = True) -> None:
        """Boot from what is on the disk."""
        self.boot_epoch += 1
        self.core = MultiRaft(self.id, self.config, self.store, self.rng, now_ms,
                              self.boot_epoch)
        self.digests_version = self.core.status.digests_version
        self.liveness = StoreLiveness(self.id, self.boot_epoch, self.config.lease_ms,
                                 self.config.heartbeat_interval_ms)
        for peer in peers:
            self.liveness.add_peer(peer)
        for group in self.store.groups():
            self.core.add_group(group, self.store.incarnation(group), self.store.restored(group),
                                self.tails(group))

    def crash(self) -> int:
        """Power is lost; the number of writes that are gone."""
        self.core = self.liveness = None
        return self.store.crash()


class Cluster:
    """Nodes, links and one clock."""

    def __init__(self, nodes: int = 3, groups: int = 1, seed: int = 1,
                 config: RaftConfig | None = None, replicas: int = 0):
        self.config = config or RaftConfig()
        self.now_ms = 0
        self.nodes = {id_: Node(id_, seed, self.config) for id_ in range(1, nodes + 1)}
        #: (from, to) -> messages on the way
        self.wires: dict[tuple[int, int], deque] = {}
        self.cut: set[tuple[int, int]] = set()
        replicas = replicas or nodes
        for group in range(1, groups + 1):
            voters = tuple(sorted((group + k) % nodes + 1 for k in range(replicas)))
            for id_ in voters:
                self.nodes[id_].store.create_group(group, 1, Configuration(voters))
        for id_ in self.nodes:
            self.start(id_)

    # ---- life ---------------------------------------------------------------------------------

    def start(self, id_: int) -> None:
        node = self.nodes[id_]
        node.start(self.now_ms, [other for other in self.nodes if other != id_])
        for other in self.nodes.values():
            if other.core is not None and other is not node:
                node.core.connected(other.id)
                other.core.connected(id_)
        self.drain(id_)

    def crash(self, id_: int) -> int:
        for link in self.wires:
            if id_ in link:
                self.wires[link].clear()
        for other in self.nodes.values():
            if other.core is not None and other.id != id_:
                other.core.disconnected(id_)
        return self.nodes[id_].crash()

    # ---- one node's round ---------------------------------------------------------------------

    def drain(self, id_: int) -> None:
        """Obey ``Ready`` until there is none, as a driver does."""
        node = self.nodes[id_]
        for _ in range(10_000):
            if node.core is None:
                return
            busy = node.one_write and bool(node.store.pending())
            ready = node.core.ready(with_writes=not busy)
            # Drivers publish digests after events only.
            assert ready.events or node.core.status.digests_version == node.digests_version
            node.digests_version = node.core.status.digests_version
            if not ready:
                return
            self.obey(node, ready)
            if not node.manual_disk:
                while node.store.pending():
                    self.fsync(id_)
        raise AssertionError(f"node {id_} is never done")

    def obey(self, node: Node, ready) -> None:
        if ready.writes is not None:
            node.store.stage(ready.writes)
        for envelope in ready.messages:
            self.transmit(node, envelope)
        for committed in ready.committed:
            self.apply(node, committed)
        node.events.extend(ready.events)
        node.reads.extend(ready.reads)

    def apply(self, node: Node, committed: Committed) -> None:
        entries = node.store.entries(committed.group, committed.first, committed.last)
        node.committed.setdefault(committed.group, []).extend(entries)
        node.core.applied(committed.group, committed.last)

    def fsync(self, id_: int) -> int:
        """The oldest staged write becomes durable."""
        node = self.nodes[id_]
        sequence = node.store.execute()
        node.core.written(sequence)
        return sequence

    def transmit(self, node: Node, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Append) and message.last_index > message.prev_index:
            entries = node.store.entries(message.group, message.prev_index + 1, message.last_index)
            if entries is None or not node.core.status.leads(message.group, message.term):
                return
            message = message._replace(entries=entries)
        target = self.nodes.get(envelope.to)
        if target is not None and target.core is not None:
            self.wires.setdefault((node.id, envelope.to), deque()).append(message)

    # ---- network and time ---------------------------------------------------------------------

    def deliver_one(self, from_: int, to: int) -> None:
        message = self.wires[from_, to].popleft()
        if (from_, to) in self.cut or self.nodes[to].core is None:
            return
        self.nodes[to].core.step(from_, message)
        self.drain(to)

    def settle(self) -> None:
        """Deliver everything until nothing is on the way."""
        for id_ in self.nodes:
            self.drain(id_)
        for _ in range(100_000):
            link = next((link for link in sorted(self.wires) if self.wires[link]), None)
            if link is None:
                return
            self.deliver_one(*link)
        raise AssertionError("the network never falls silent")

    def exchange_liveness(self) -> None:
        """Every question that is due, and its answer."""
        for node in self.nodes.values():
            if node.core is None:
                continue
            node.liveness.publish(
                {peer: node.core.status.leading_digest(peer) for peer in self.nodes},
                {peer: node.core.status.followed_digest(peer) for peer in self.nodes},
                node.core.status.leading_version, node.healthy)
        for node in self.nodes.values():
            if node.core is None:
                continue
            for to, heartbeat in node.liveness.heartbeats(self.now_ms):
                peer = self.nodes[to]
                if peer.core is None or (node.id, to) in self.cut:
                    continue
                response = peer.liveness.on_heartbeat(self.now_ms, node.id, heartbeat)
                if response is not None and (to, node.id) not in self.cut:
                    node.liveness.on_response(self.now_ms, to, response)
        for node in self.nodes.values():
            if node.core is not None:
                node.liveness.expire(self.now_ms)
                store_liveness.deliver(node.liveness.events(), node.core)

    def run(self, ms: int, step_ms: int = 5) -> None:
        """Let time pass with everything delivered at once."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += step_ms
            for node in self.nodes.values():
                if node.core is not None:
                    node.core.tick(self.now_ms)
            self.exchange_liveness()
            self.settle()
            self.check()

    # ---- questions ----------------------------------------------------------------------------

    def leader(self, group: int = 1) -> int:
        """The node that leads ``group`` in the highest term; 0 = none."""
        leaders = [(node.core.status.of(group).term, node.id) for node in self.nodes.values()
                   if node.core is not None and group in node.core.status.groups()
                   and node.core.status.of(group).leader == node.id]
        return max(leaders)[1] if leaders else 0

    def propose(self, payload: bytes = b"x", group: int = 1, node: int = 0):
        id_ = node or self.leader(group)
        proposed = self.nodes[id_].core.propose(group, EntryKind.METADATA, payload)
        self.drain(id_)
        return proposed

    def payloads(self, id_: int, group: int = 1) -> list[bytes]:
        """Return the payloads that the node has applied since its start, without control
        entries."""
        return [bytes(entry.payload) for entry in self.nodes[id_].committed.get(group, [])
                if entry.kind == EntryKind.METADATA]

    def check(self) -> None:
        for node in self.nodes.values():
            if node.core is not None:
                node.core._check()
