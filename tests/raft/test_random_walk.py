"""Random schedules of a few nodes and groups: loss, repetition, reordering, one-way cuts, crashes
between any two effects, slow disks, reads during changes of members, messages of earlier boot
epochs.  After every step Raft's invariants hold; after healing every group commits again and
quiesces.

The simulator under ``chaos/simulator`` drives the real storage; this one is small enough to point
at a line of the core.  ``WALK_SEEDS=first:last`` runs others.
"""

from __future__ import annotations

import os
import random
from collections import deque

import pytest

from multiraft.errors import ProposalError
from multiraft.raft.config import RaftConfig
from multiraft.types import EntryKind
from tests.raft.cluster import Cluster

#: Small windows, so that edges are the common case.
CONFIG = RaftConfig(append_bytes_max=200, peer_window_bytes=400,
                    catch_up_append_bytes=100, catch_up_window_bytes=200,
                    uncommitted_bytes_max=2000, uncommitted_entries_max=20,
                    liveness_checks_per_round_max=1)


class Walk:
    """One seed's world and what must stay true in it."""

    def __init__(self, seed: int, nodes: int, groups: int):
        self.rng = random.Random(seed)
        self.cluster = Cluster(nodes=nodes, groups=groups, seed=seed, config=CONFIG,
                               replicas=min(nodes, 3) if seed % 2 else nodes)
        for node in self.cluster.nodes.values():
            node.manual_disk = True
        self.groups = groups
        self.changes = seed % 2 == 0  # of members
        self.leader_of: dict[tuple[int, int], int] = {}
        self.committed: dict[tuple[int, int], tuple[int, bytes]] = {}
        #: Highest term known when an entry was first seen committed: later leaders have it.
        self.seen_in_term: dict[tuple[int, int], int] = {}
        self.votes: dict[tuple[int, int, int], int] = {}
        self.number = 0
        #: (sender, receiver, message): the last one on each link, in any boot epoch.
        self.said: dict[tuple[int, int], object] = {}
        self.confirmed = 0

    # ---- actions ------------------------------------------------------------------------------

    def alive(self) -> list:
        return [node for node in self.cluster.nodes.values() if node.core is not None]

    def step(self) -> None:
        action = self.rng.choices(
            [self.deliver, self.fsync, self.time, self.propose, self.lose, self.repeat, self.crash,
             self.start, self.cut, self.mend, self.liveness, self.transfer, self.reconnect,
             self.read, self.change, self.say_again],
            [60, 30, 8, 10, 3, 3, 0.5, 2, 0.5, 1, 6, 0.5, 0.5, 4, 1.5, 1])[0]
        action()

    def link(self):
        links = [link for link in sorted(self.cluster.wires) if self.cluster.wires[link]]
        return self.rng.choice(links) if links else None

    def deliver(self) -> None:
        link = self.link()
        if link is not None:
            wire = self.cluster.wires[link]
            self.said[link] = wire[-1]
            if self.rng.random() < 0.1:  # out of order
                wire.rotate(self.rng.randrange(len(wire)))
            self.cluster.deliver_one(*link)

    def lose(self) -> None:
        link = self.link()
        if link is not None:
            self.cluster.wires[link].popleft()

    def repeat(self) -> None:
        link = self.link()
        if link is not None:
            self.cluster.wires[link].append(self.cluster.wires[link][0])

    def fsync(self) -> None:
        nodes = [node for node in self.alive() if node.store.pending()]
        if nodes:
            node = self.rng.choice(nodes)
            self.cluster.fsync(node.id)
            self.cluster.drain(node.id)

    def time(self) -> None:
        self.cluster.now_ms += self.rng.choice([1, 5, 20, 60])
        for node in self.alive():
            if self.rng.random() < 0.9:
                node.core.tick(self.cluster.now_ms)
                self.cluster.drain(node.id)
        self.liveness()

    def liveness(self) -> None:
        self.cluster.exchange_liveness()
        for node in self.alive():
            self.cluster.drain(node.id)

    def propose(self) -> None:
        node = self.rng.choice(self.alive() or [None])
        if node is None:
            return
        group = self.rng.randint(1, self.groups)
        self.number += 1
        try:
            node.core.propose(group, EntryKind.METADATA,
                              b"%d" % self.number + b"." * self.rng.randrange(300))
        except ProposalError:
            return
        self.cluster.drain(node.id)

    def crash(self) -> None:
        nodes = self.alive()
        if len(nodes) > 1:
            self.cluster.crash(self.rng.choice(nodes).id)

    def start(self) -> None:
        dead = [node.id for node in self.cluster.nodes.values() if node.core is None]
        if dead:
            id_ = self.rng.choice(dead)
            self.cluster.nodes[id_].committed.clear()
            self.cluster.start(id_)

    def cut(self) -> None:
        if len(self.cluster.cut) < 3:
            self.cluster.cut.add(tuple(self.rng.sample(sorted(self.cluster.nodes), 2)))

    def mend(self) -> None:
        if self.cluster.cut:
            self.cluster.cut.discard(self.rng.choice(sorted(self.cluster.cut)))

    def transfer(self) -> None:
        node = self.rng.choice(self.alive())
        try:
            node.core.transfer(self.rng.randint(1, self.groups),
                               self.rng.choice(sorted(self.cluster.nodes)))
        except ProposalError:
            return
        self.cluster.drain(node.id)

    def reconnect(self) -> None:
        pair = self.rng.sample(self.alive(), 2) if len(self.alive()) > 1 else []
        for one, other in (pair, pair[::-1]) if pair else ():
            self.cluster.wires.get((one.id, other.id), []) and self.cluster.wires[
                one.id, other.id].clear()
            one.core.disconnected(other.id)
            one.core.connected(other.id)
        for node in pair:
            self.cluster.drain(node.id)

    def read(self) -> None:
        """Make a linearizable read: it sees everything that any node has seen committed."""
        node = self.rng.choice(self.alive())
        group = self.rng.randint(1, self.groups)
        floor = max((index for of, index in self.committed if of == group), default=0)
        try:
            node.core.read_index(group, floor)
        except ProposalError:
            return
        self.cluster.drain(node.id)

    def change(self) -> None:
        """A voter becomes a learner or a learner a voter, with a read right behind it."""
        node = self.rng.choice(self.alive())
        group = self.rng.choice(sorted(node.core.status.groups()) or [0])
        if not self.changes or not group or not node.core.status.is_leader(group):
            return
        present = node.core.status.of(group).configuration
        voters, learners = list(present.voters), list(present.learners)
        if learners and self.rng.random() < 0.6:
            voters.append(learners.pop(self.rng.randrange(len(learners))))
        else:
            learners.append(voters.pop(self.rng.randrange(len(voters))))
        try:
            node.core.change_members(group, tuple(voters), tuple(learners))
        except ProposalError:
            return
        self.cluster.drain(node.id)
        self.read()

    def say_again(self) -> None:
        """Deliver an earlier message of a node once more, perhaps one of an earlier boot epoch."""
        if self.said:
            link = self.rng.choice(sorted(self.said))
            self.cluster.wires.setdefault(link, deque()).append(self.said[link])

    # ---- invariants ---------------------------------------------------------------------------

    def check(self) -> None:
        self.cluster.check()
        for node in self.alive():
            self.check_reads(node)
            for group in node.core.status.groups():
                status = node.core.status.of(group)
                self.check_leader(node, group, status)
                self.check_vote(node, group)
                self.check_committed(node, group, status)

    def check_leader(self, node, group, status) -> None:
        if status.leader == node.id:
            assert self.leader_of.setdefault((group, status.term), node.id) == node.id
            held = {entry.index: (entry.term, bytes(entry.payload))
                    for entry in node.store._memory[group].entries}
            for (of, index), what in self.committed.items():
                if of == group and self.seen_in_term[of, index] < status.term:
                    assert held[index] == what, f"leader {node.id} lacks {group}/{index}"

    def check_reads(self, node) -> None:
        for _, floor, index in node.reads:
            assert index >= floor, f"node {node.id} reads at {index}, {floor} was committed before"
        self.confirmed += len(node.reads)
        node.reads.clear()

    def check_vote(self, node, group) -> None:
        term, vote = node.store._disk[group].hard_state
        if vote:
            assert self.votes.setdefault((group, term, node.id), vote) == vote

    def check_committed(self, node, group, status) -> None:
        applied = node.committed.get(group, [])
        for entry in applied[-5:]:
            what = (entry.term, bytes(entry.payload))
            assert self.committed.setdefault((group, entry.index), what) == what
            self.seen_in_term.setdefault((group, entry.index), status.term)
        if status.leader == node.id and status.commit:
            holders = 0
            for other in self.cluster.nodes.values():
                image = other.store._disk.get(group)
                if image is not None and len(image.entries) >= status.commit:
                    entry = image.entries[status.commit - 1]
                    holders += entry.term == node.store._memory[group].entries[
                        status.commit - 1].term
            if status.configuration_index:
                return  # the voters may be others than those who committed it
            voters = len(status.configuration.voters)
            assert holders >= voters // 2 + 1, f"{status.commit} is durable on {holders}"

    # ---- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        cluster = self.cluster
        cluster.cut.clear()
        for node in cluster.nodes.values():
            node.manual_disk = False
            if node.core is None:
                node.committed.clear()
                cluster.start(node.id)
        for node in cluster.nodes.values():
            while node.store.pending():
                cluster.fsync(node.id)
        cluster.settle()
        cluster.run(6000, step_ms=20)
        self.check()
        for group in range(1, self.groups + 1):
            assert cluster.leader(group), f"group {group} has no leader"
            cluster.propose(b"last", group)
        cluster.run(3000, step_ms=20)
        self.check()
        for node in cluster.nodes.values():
            for group in node.core.status.groups():
                status = node.core.status.of(group)
                assert node.committed[group][-1].payload == b"last", (node.id, status)
                assert status.quiesced, (node.id, status)
            for group in range(1, self.groups + 1):
                leader, _term = node.core.status.leader_hint(group)
                assert leader == cluster.leader(group), (node.id, group)


def seeds() -> range:
    first, last = os.environ.get("WALK_SEEDS", "1:30").split(":")
    return range(int(first), int(last) + 1)


@pytest.mark.parametrize("seed", seeds())
def test_every_schedule_keeps_the_invariants_and_heals(seed):
    rng = random.Random(seed)
    walk = Walk(seed, nodes=rng.choice([2, 3, 3, 4, 5]), groups=rng.choice([1, 2, 4]))
    for count in range(1500):
        walk.step()
        if count % 4 == 0:
            walk.check()
    walk.heal()
