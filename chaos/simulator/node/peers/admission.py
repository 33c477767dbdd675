"""Admission of one boot by its peers, and its own refusal by them.

Contract.  A node that is refused permanently ends itself and marks its directory as refused; a node
that is not known yet, or comes too early, retries.  Before it takes part, each boot asks all peers
that are up which boot id they remember of it (docs/decisions/0052).  A directory that is not
registered takes part only after a majority of the others has admitted it (docs/decisions/0008).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.simulated_disk import DIRECTORY, SimulatedDisk
from chaos.simulator.node.peers.peers import PeerTable
from multiraft.liveness import peer_identity
from multiraft.storage import refusal_record

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort, NodeLife, NodePort

#: Temporary refusals.
TEMPORARY = frozenset({peer_identity.Refusal.UNKNOWN, peer_identity.Refusal.DUPLICATE_NODE})


def was_refused(env: NodeEnv, disk: SimulatedDisk) -> bool:
    """True if the directory is marked as refused, which is traced and counted then."""
    if refusal_record.read(disk.filesystem, DIRECTORY) is None:
        return False
    env.trace_line("refused", "before")
    env.faults["copy-refused"] += 1
    return True


class Admission:
    """Hellos of one boot, and the answers to them."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, life: NodeLife, disk: SimulatedDisk,
                 peers: PeerTable, boot_ids: Sequence[peer_identity.BootId]):
        """``boot_ids`` of the directory; the last one is this boot's."""
        self._env = env
        self._cluster = cluster
        self._life = life
        self._disk = disk
        self._peers = peers
        self._boot_ids = boot_ids
        self._recalled: dict[
            int, peer_identity.BootId
        ] = {}  # peer -> boot id that it remembers of us

    def _hello_for(self, peer: int) -> peer_identity.PeerHello:
        return peer_identity.PeerHello(self._env.node, self._peers.incarnation,
                                       *self._boot_ids[-1], self._recalled.get(peer))

    def ask(self, peer: int) -> peer_identity.Rejection | None:
        """Return why a peer refuses this boot; None = admitted.

        A peer that remembers an older boot id gets a second hello which names that boot id, if this
        directory has had it.
        """
        other = self._cluster.everyone[peer].peers
        rejection = other.check_hello(self._hello_for(peer))
        if (
            rejection is not None
            and rejection.refusal is peer_identity.Refusal.UNLINKED
            and self._recalls(rejection)
        ):
            self._recalled[peer] = rejection.remembered
            rejection = other.check_hello(self._hello_for(peer))
        return rejection

    def _recalls(self, rejection: peer_identity.Rejection) -> bool:
        """True if this directory has had the boot id that a peer remembers."""
        history = peer_identity.BootHistory(self._boot_ids)
        return history.origin_of(rejection.remembered) is peer_identity.BootIdOrigin.OWN

    def refused(self, rejection: peer_identity.Rejection) -> None:
        """End this process after a permanent refusal. Raises ``Violation`` unless the directory is
        lost."""
        env, peers = self._env, self._peers
        env.trace_line("refused", rejection.text)
        if not peers.is_lost:
            raise Violation("NoOriginalIsRefused", f"n{env.node}: {rejection.text}")
        env.faults["copy-refused" if peers.is_copy else "wiped-refused"] += 1
        if peers.is_copy:
            refusal_record.write(self._disk.filesystem, DIRECTORY,
                                 refusal_record.RefusalRecord(rejection.text))
        self._life.crash(False)

    def may_participate(self) -> bool:
        """True if this boot may take part; otherwise this process is ended, and started again later
        where that can help.

        No peer that is up may know this directory as an older copy.  In addition the directory is
        registered, or a majority of the other nodes admits it.
        """
        others = [self._cluster.everyone[peer] for peer in self._peers.peers]
        up = [other for other in others if other.is_up]
        if self._peers.is_copy and not any(
                other.peers.remembers(self._env.node).is_durable for other in up):
            # No peer that is up could detect the copy; ``RestoredCopies`` tries again.
            self._life.crash(False)
            return False
        for other in up:
            rejection = other.peers.check_hello(self._hello_for(other.node))
            if (rejection is not None and rejection.remembered is not None
                    and not self._recalls(rejection)):
                self.refused(rejection)
                return False
        return self._peers.is_registered or self._is_admitted_by(others)

    def _is_admitted_by(self, others: list[NodePort]) -> bool:
        """True if a majority of the other nodes admits a directory that is not registered; it
        counts as registered then. Otherwise this process is ended, and started again later unless
        the refusal is permanent."""
        rejections = [self.ask(other.node) for other in others if other.is_up]
        for rejection in rejections:
            if rejection is not None and rejection.refusal not in TEMPORARY:
                self.refused(rejection)
                return False
        if 2 * rejections.count(None) > len(others):
            self._peers.is_registered = True
            self._env.state_checker.forgotten(self._env.node)
            return True
        self._life.crash(False)
        self._life.restart_soon()
        return False
