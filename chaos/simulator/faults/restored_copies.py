"""Data directories that are put back to an older copy of themselves.

Contract.  While a run plays with it, ``keep`` copies a node's disk before each of its starts.
``put_back`` lays one of these copies, some lives old, in the place of what the node had, which is
lost for good as in a wipe, and starts it a few times, sometimes laid there anew in between.
``beside`` starts such a copy while the original runs, as the real node does it up to the point
where it would take part: it asks every peer that is up what it remembers.  Each start has to be
refused, and a refused start changes nothing that a peer knows.

Safety.  A copy is told from the original by those that have met a later life of it.  So one is
taken only when every other node has met the latest: whoever is up when the copy starts knows it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import NamedTuple, Protocol

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.trace import Trace
from chaos.simulator.env.violations import Violation
from chaos.simulator.faults.node_replacement import Wipes
from chaos.simulator.node.node import CLUSTER_ID, SimulatedNode
from chaos.simulator.node.peers import DIRECTORY
from multiraft.liveness import peer_identity
from multiraft.storage import identity, refusal

#: Copies kept of each node: how many lives old one may be.
KEPT_MAX = 4
#: Starts of a copy in a row: enough for its boot epoch to overtake the original's.
STARTS_MAX = 8
#: From one start of a copy to the next.
START_US = (100_000, 1_000_000)
#: Odds that the same copy is laid there again before a start, without what was written since.
LAID_AGAIN = 0.3


class Copy(NamedTuple):
    """A disk as it was before a start, and the last life that it knows."""

    disk: SimulatedFilesystem
    life: peer_identity.Life


class World(Protocol):
    """What copies may touch."""

    queue: EventQueue
    trace: Trace
    faults: Counter[str]
    wipes: Wipes
    nodes: dict[int, SimulatedNode]
    everyone: dict[int, SimulatedNode]


class Copies:
    """All of one run."""

    def __init__(self, world: World, rng: random.Random):
        self._world = world
        self._rng = rng
        self._kept: dict[int, deque[Copy]] = {}

    def keep(self, node: SimulatedNode) -> None:
        """Copy the disk of a node that is about to start, unless it cannot say whose it is."""
        if node.identity_is_rotten:
            return  # the start finds that out itself
        disk = node.copied_directory()
        found = identity.read(disk, DIRECTORY)
        if found is not None and found.lives:
            kept = self._kept.setdefault(node.node, deque(maxlen=KEPT_MAX))
            kept.append(Copy(disk, found.lives[-1]))

    def strike(self) -> bool:
        """Put a node's directory back, or start a copy beside it; whether there was one to take."""
        ready = [node for _, node in sorted(self._world.nodes.items())
                 if self._older(node) and node.is_up]
        if not ready:
            return False
        node = self._rng.choice(ready)
        copy = self._rng.choice(self._older(node))
        if self._rng.random() < 0.5 and self._world.wipes.may_wipe(node):
            self._put_back(node, copy)
        else:
            self._beside(node, copy)
        return True

    def _older(self, node: SimulatedNode) -> list[Copy]:
        """The copies of a node that every other node can tell from it."""
        remembered = {other.remembers(node.node) for number, other in self._world.everyone.items()
                      if other is not node and not other.is_lost}
        if len(remembered) != 1:
            return []
        latest = remembered.pop()
        return [copy for copy in self._kept.get(node.node, ())
                if latest.is_durable and copy.life < latest]

    # ---- in the original's place -----------------------------------------------------------

    def _put_back(self, node: SimulatedNode, copy: Copy) -> None:
        self._world.wipes.wipe(node, lambda: node.put_back(copy.disk.copied()))
        self._later(self._start, node, copy, self._rng.randrange(1, STARTS_MAX + 1))

    def _start(self, node: SimulatedNode, copy: Copy, left: int) -> None:
        if self._rng.random() < LAID_AGAIN and not node.alive:
            node.put_back(copy.disk.copied())
        node.start()
        if left > 1:
            self._later(self._start, node, copy, left - 1)

    def _later(self, callback, *arguments: object) -> None:
        self._world.queue.after(self._rng.randrange(*START_US), callback, *arguments)

    # ---- beside the original ---------------------------------------------------------------

    def _beside(self, node: SimulatedNode, copy: Copy) -> None:
        self._world.trace.line(node.node, -1, "fault", "a copy is started beside it")
        disk = copy.disk.copied()
        for start in range(self._rng.randrange(1, STARTS_MAX + 1)):
            if start and self._rng.random() < LAID_AGAIN:
                disk = copy.disk.copied()
            if refusal.read(disk, DIRECTORY) is None:
                self._ask_all(node, disk)

    def _ask_all(self, node: SimulatedNode, disk: SimulatedFilesystem) -> None:
        """One start of a copy: refused by each peer that is up."""
        number = peer_identity.DURABLE | self._rng.getrandbits(63)
        claimed = identity.claim(disk, DIRECTORY,
                                 identity.Identity(CLUSTER_ID, node.node, life=number), True)
        said = peer_identity.Introduction(node.node, claimed.incarnation, *claimed.lives[-1])
        history = peer_identity.History(claimed.lives)
        for other in self._world.nodes.values():
            if other is node or not other.is_up:
                continue
            before = other.remembers(node.node)
            verdict = other.judge(said)
            if verdict is None or other.remembers(node.node) != before:
                raise Violation("NoOlderCopyIsLetIn", f"n{other.node} lets in a copy of "
                                f"n{node.node} with boot epoch {claimed.boot_epoch}")
            if verdict.remembered is not None and history.recall(
                    verdict.remembered) is not peer_identity.Recall.OWN:
                refusal.write(disk, DIRECTORY, refusal.Mark(verdict.text))
                self._world.faults["copy-refused"] += 1
