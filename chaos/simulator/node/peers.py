"""Known peers of a simulated node: admission of peers, and its own refusal by them.

Contract.  Part of ``node.SimulatedNode``, as in the real node.  Each connection begins with a peer
hello, which the other side judges by ``multiraft.liveness.peer_identity``.  A node that is refused
permanently ends itself and marks its directory as refused; a node that is not known yet, or comes
too early, retries.  Before it takes part, each boot asks all peers that are up which boot id they
remember of it (docs/decisions/0052).  A directory that is not registered takes part only after a
majority of the others has admitted it (docs/decisions/0008).

Simplified.  A registration reaches each node after a delay of its own, and is never lost there. The
real node keeps it in ``known_nodes.json``, which has tests of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.disk_and_clock import DiskAndClock
from multiraft.liveness import peer_identity
from multiraft.storage import refusal_record

#: Retry interval of a connection that was refused temporarily.
HELLO_RETRY_US = 200_000

#: Temporary refusals.
TEMPORARY = frozenset({peer_identity.Refusal.UNKNOWN, peer_identity.Refusal.DUPLICATE_NODE})
#: Directory of the store on a node's disk.
DIRECTORY = "/data"


class PeerTable(DiskAndClock):
    """Part of ``SimulatedNode``: registered nodes, peer hellos, refusals."""

    def _reset_peers(self, seed: int) -> None:
        self.incarnation = 0  # of its directory, after the first open
        self.is_registered = True  # the other nodes know the incarnation of its directory
        self._known: dict[int, int] = {}  # node -> incarnation of its directory
        self._removed: set[int] = set()
        self._boot_ids: dict[int, peer_identity.BootId] = {}
        self._recalled: dict[
            int, peer_identity.BootId
        ] = {}  # peer -> boot id that it remembers of us
        self._numbers = random.Random(f"{seed}/lives {self.node}")
        self.is_copy = False  # its directory was replaced by an older copy

    def lose_directory(self, incarnation: int) -> None:
        """Empty the disk for good.  The next start initialises a new directory with this
        incarnation under the old node id, which the peers must refuse."""
        self.is_lost, self.is_registered, self.incarnation = True, False, incarnation
        faults = self._filesystem.faults
        self._filesystem = SimulatedFilesystem()
        self._filesystem.faults.rng, self._filesystem.faults.counts = faults.rng, faults.counts

    def put_back(self, older: SimulatedFilesystem) -> None:
        """Replace the disk for good by ``older``, a copy of it from some boots ago, which the peers
        must refuse."""
        self.is_lost = self.is_copy = True
        faults = self._filesystem.faults
        self._filesystem = older
        self._filesystem.faults.rng, self._filesystem.faults.counts = faults.rng, faults.counts

    def copied_directory(self) -> SimulatedFilesystem:
        """Return a copy of the disk as a process reads it now."""
        return self._filesystem.copied()

    def draw_process_number(self) -> int:
        """Draw the random number of the next boot's id."""
        return peer_identity.DURABLE | self._numbers.getrandbits(63)

    def remembers(self, peer: int) -> peer_identity.BootId:
        """Return the boot id with which a peer was admitted here last; ``NO_BOOT_ID`` = it never
        was."""
        return self._boot_ids.get(peer, peer_identity.NO_BOOT_ID)

    # ---- registered nodes ------------------------------------------------------------------

    def add_registrations(self, incarnations: dict[int, int]) -> None:
        """Add registrations of other nodes, node -> incarnation of its directory, which
        ``check_hello`` admits from now on. They do not become peers (``add_peer``)."""
        self._known |= incarnations
        self._removed -= {*incarnations}

    def has_peers(self, nodes: Iterable[int]) -> bool:
        """True if all of these nodes are peers of this one, or this node itself."""
        return {*nodes} <= {self.node, *self._peers}

    def add_peer(self, peer: int, incarnation: int) -> None:
        """Add a registered node, and the incarnation of its directory, as a peer; connect both ways
        if this node is up."""
        self.add_registrations({peer: incarnation})
        if peer not in self._peers:
            self._peers += (peer,)
        if self._raft is not None:
            self._liveness.add(peer)
            self.peer_up(peer)
            self._world.everyone[peer].peer_up(self.node)

    def remove_peer(self, peer: int) -> None:
        """Remove a peer permanently: its connection ends, and its hellos are refused."""
        self._removed.add(peer)
        self._boot_ids.pop(peer, None)
        self._peers = tuple(each for each in self._peers if each != peer)
        if self._raft is not None:
            self._disconnect(peer)
            self._liveness.remove(peer)

    # ---- hellos and admission ---------------------------------------------------------------

    def hello_for(self, peer: int) -> peer_identity.PeerHello:
        """Return this boot's hello to a peer; the store must be open."""
        return peer_identity.PeerHello(self.node, self.incarnation, *self._store.boot_ids[-1],
                                       self._recalled.get(peer))

    def _ask_admission(self, peer: int) -> peer_identity.Rejection | None:
        """Return why a peer refuses this boot; None = admitted.

        A peer that remembers an older boot id gets a second hello which names that boot id, if this
        directory has had it.
        """
        other = self._world.everyone[peer]
        rejection = other.check_hello(self.hello_for(peer))
        if (
            rejection is not None
            and rejection.refusal is peer_identity.Refusal.UNLINKED
            and self._recalls(rejection)
        ):
            self._recalled[peer] = rejection.remembered
            rejection = other.check_hello(self.hello_for(peer))
        return rejection

    def _recalls(self, rejection: peer_identity.Rejection) -> bool:
        """True if this directory has had the boot id that a peer remembers."""
        history = peer_identity.BootHistory(self._store.boot_ids)
        return history.origin_of(rejection.remembered) is peer_identity.BootIdOrigin.OWN

    def check_hello(self, said: peer_identity.PeerHello) -> peer_identity.Rejection | None:
        """Return why this node refuses a hello; None = admitted, and its boot id is remembered.
        Raises ``Violation`` when it would admit an older copy."""
        incarnation = self._known.get(said.node)
        boot_id = self._boot_ids.get(said.node, peer_identity.NO_BOOT_ID)
        known = (peer_identity.KnownPeer(incarnation, 0, boot_id) if incarnation is not None
                 else None)
        rejection = peer_identity.check_peer(said, self.node, known, said.node in self._removed,
                                           lambda boot_id: self._is_alive(said.node, boot_id))
        if rejection is None:
            if self._world.everyone[said.node].is_copy:
                raise Violation("NoOlderCopyIsLetIn", f"n{self.node} lets in n{said.node}, whose "
                                f"directory was put back, with boot epoch {said.boot_epoch}")
            self._boot_ids[said.node] = said.boot_id
        return rejection

    def _is_alive(self, peer: int, boot_id: peer_identity.BootId) -> bool:
        return (self._raft is not None and peer in self._connected
                and self._raft.status.supported_epoch(peer) == boot_id.boot_epoch != 0)

    def _is_admitted(self, peer: int) -> bool:
        """True if a peer admits this node now. After a temporary refusal the connection is tried
        again later; after a permanent one this node ends itself."""
        rejection = self._ask_admission(peer)
        if rejection is None:
            return True
        if rejection.refusal in TEMPORARY:
            self.later(HELLO_RETRY_US, self._connect, peer)
        else:
            self._refused(rejection)
        return False

    def _refused(self, rejection: peer_identity.Rejection) -> None:
        self._trace.line(self.node, -1, "refused", rejection.text)
        if not self.is_lost:
            raise Violation("NoOriginalIsRefused", f"n{self.node}: {rejection.text}")
        self._world.faults["copy-refused" if self.is_copy else "wiped-refused"] += 1
        if self.is_copy:
            refusal_record.write(self._filesystem, DIRECTORY,
                                 refusal_record.RefusalRecord(rejection.text))
        self.crash(False)

    def _was_refused(self) -> bool:
        """True if the directory is marked as refused; this process is ended then."""
        if refusal_record.read(self._filesystem, DIRECTORY) is None:
            return False
        self._trace.line(self.node, -1, "refused", "before")
        self._world.faults["copy-refused"] += 1
        self.crash(False)
        return True

    # ---- a directory that is not registered ------------------------------------------------

    def _may_participate(self) -> bool:
        """True if this boot may take part; otherwise this process is ended, and started again later
        where that can help.

        No peer that is up may know this directory as an older copy.  In addition the directory is
        registered, or a majority of the other nodes admits it.
        """
        self._recalled.clear()
        others = [self._world.everyone[peer] for peer in self._peers]
        up = [other for other in others if other.is_up]
        if self.is_copy and not any(other.remembers(self.node).is_durable for other in up):
            # No peer that is up could detect the copy; ``RestoredCopies`` tries again.
            self.crash(False)
            return False
        for other in up:
            rejection = other.check_hello(self.hello_for(other.node))
            if (rejection is not None and rejection.remembered is not None
                    and not self._recalls(rejection)):
                self._refused(rejection)
                return False
        return self.is_registered or self._is_admitted_by(others)

    def _is_admitted_by(self, others: list[Any]) -> bool:
        """True if a majority of the other nodes admits a directory that is not registered; it
        counts as registered then. Otherwise this process is ended, and started again later unless
        the refusal is permanent."""
        rejections = [self._ask_admission(other.node) for other in others if other.is_up]
        for rejection in rejections:
            if rejection is not None and rejection.refusal not in TEMPORARY:
                self._refused(rejection)
                return False
        if 2 * rejections.count(None) > len(others):
            self.is_registered = True
            self._world.state_checker.forgotten(self.node)
            return True
        self.crash(False)
        self._restart_soon()
        return False
