"""Data directories that are replaced by an older copy of themselves.

Contract.  In a run with this fault, ``keep`` copies a node's disk before each of its starts.
``_put_back`` replaces the node's directory by one of these copies, some boots old.  The original is
lost for good as in a wipe.  The copy is started a few times, and sometimes restored again in
between.  ``_start_beside`` starts such a copy while the original runs, up to the point where a real
node would take part: the copy asks every peer that is up which boot id it remembers.  Each start
must be refused, and a refused start changes nothing that a peer remembers.

Safety.  A peer detects a copy if it has met a later boot of the original.  So a copy is taken only
when every other node has met the latest boot: then any peer that is up detects it.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.boot import CLUSTER_ID
from chaos.simulator.node.machine.simulated_disk import DIRECTORY
from chaos.simulator.node.node import SimulatedNode
from multiraft.liveness import peer_identity
from multiraft.storage import identity, refusal_record

if TYPE_CHECKING:
    from chaos.simulator.ports import SimulationPort

#: Copies kept of each node, so the maximum age of a copy in boots.
KEPT_MAX = 4
#: Starts of a copy in a row: enough for its boot epoch to overtake the original's.
STARTS_MAX = 8
#: Range of the delay between two starts of a copy.
START_US = (100_000, 1_000_000)
#: Probability that the copy is restored again before a start, without its own later writes.
RESTORED_AGAIN = 0.3


class DirectoryCopy(NamedTuple):
    """Disk before a start, and the last boot id on it."""

    disk: SimulatedFilesystem
    boot_id: peer_identity.BootId


class RestoredCopies:
    """Older copies of one run."""

    def __init__(self, world: SimulationPort, rng: random.Random):
        self._world = world
        self._rng = rng
        self._kept: dict[int, deque[DirectoryCopy]] = {}

    def keep(self, node: SimulatedNode) -> None:
        """Copy the disk of a node that is about to start, and keep the last ``KEPT_MAX`` copies.
        No-op when its identity file is damaged, or it has never started."""
        if node.damage.identity_is_rotten:
            return  # the start finds the damage itself
        disk = node.disk.copied()
        found = identity.read(disk, DIRECTORY)
        if found is not None and found.boot_ids:
            kept = self._kept.setdefault(node.node, deque(maxlen=KEPT_MAX))
            kept.append(DirectoryCopy(disk, found.boot_ids[-1]))

    def strike(self) -> bool:
        """Put the directory of a random node back for good, if a draw and the atlas allow that
        loss, else start a copy beside it. Return False if there is no copy to use, else True."""
        ready = [node for _, node in sorted(self._world.nodes.items())
                 if self._older(node) and node.is_up]
        if not ready:
            return False
        node = self._rng.choice(ready)
        copy = self._rng.choice(self._older(node))
        if self._rng.random() < 0.5 and self._world.replacements.may_wipe(node):
            self._put_back(node, copy)
        else:
            self._start_beside(node, copy)
        return True

    def _older(self, node: SimulatedNode) -> list[DirectoryCopy]:
        """Return the copies of a node that every other node can tell from the original; empty while
        the others remember different boot ids."""
        remembered = {other.peers.remembers(node.node) for other in self._world.everyone.values()
                      if other is not node and not other.peers.is_lost}
        if len(remembered) != 1:
            return []
        latest = remembered.pop()
        return [copy for copy in self._kept.get(node.node, ())
                if latest.is_durable and copy.boot_id < latest]

    # ---- in the original's place -----------------------------------------------------------

    def _put_back(self, node: SimulatedNode, copy: DirectoryCopy) -> None:
        self._world.replacements.wipe(node, lambda: node.put_back(copy.disk.copied()))
        self._later(self._start, node, copy, self._rng.randrange(1, STARTS_MAX + 1))

    def _start(self, node: SimulatedNode, copy: DirectoryCopy, left: int) -> None:
        if self._rng.random() < RESTORED_AGAIN and not node.alive:
            node.put_back(copy.disk.copied())
        node.start()
        if left > 1:
            self._later(self._start, node, copy, left - 1)

    def _later(self, callback, *arguments: object) -> None:
        self._world.queue.after(self._rng.randrange(*START_US), callback, *arguments)

    # ---- beside the original ---------------------------------------------------------------

    def _start_beside(self, node: SimulatedNode, copy: DirectoryCopy) -> None:
        self._world.trace.line(node.node, -1, "fault", "a copy is started beside it")
        disk = copy.disk.copied()
        for start in range(self._rng.randrange(1, STARTS_MAX + 1)):
            if start and self._rng.random() < RESTORED_AGAIN:
                disk = copy.disk.copied()
            if refusal_record.read(disk, DIRECTORY) is None:
                self._check_refusals(node, disk)

    def _check_refusals(self, node: SimulatedNode, disk: SimulatedFilesystem) -> None:
        """Start a copy on ``disk`` once: each peer that is up must refuse it and remember what it
        remembered before, or ``Violation`` is raised. The copy records its final refusal."""
        number = peer_identity.DURABLE | self._rng.getrandbits(63)
        claimed = identity.claim(disk, DIRECTORY,
                                 identity.Identity(CLUSTER_ID, node.node, process=number), True)
        said = peer_identity.PeerHello(node.node, claimed.incarnation, *claimed.boot_ids[-1])
        history = peer_identity.BootHistory(claimed.boot_ids)
        for other in self._world.nodes.values():
            if other is node or not other.is_up:
                continue
            before = other.peers.remembers(node.node)
            rejection = other.peers.check_hello(said)
            if rejection is None or other.peers.remembers(node.node) != before:
                raise Violation("NoOlderCopyIsLetIn", f"n{other.node} lets in a copy of "
                                f"n{node.node} with boot epoch {claimed.boot_epoch}")
            if rejection.remembered is not None and history.origin_of(
                    rejection.remembered) is not peer_identity.BootIdOrigin.OWN:
                refusal_record.write(disk, DIRECTORY, refusal_record.RefusalRecord(rejection.text))
                self._world.faults["copy-refused"] += 1
