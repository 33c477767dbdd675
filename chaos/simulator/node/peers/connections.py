"""Connections of one boot with its peers: opened after a hello, closed with the peer's process.

Contract.  Frames leave only over an open connection, except those of the liveness thread, which has
connections of its own.  A connection that was refused temporarily is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.peers.admission import TEMPORARY, Admission
from multiraft.liveness import peer_identity
from multiraft.raft.multi_raft import MultiRaft

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: Retry interval of a connection that was refused temporarily.
HELLO_RETRY_US = 200_000


class Connections:
    """Open connections of one boot."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 rounds: RoundQueue, raft: MultiRaft, admission: Admission):
        self._node = env.node
        self._network = env.network
        self._everyone = cluster.everyone
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._admission = admission
        self._open: dict[int, None] = {}  # peers

    def __contains__(self, peer: int) -> bool:
        return peer in self._open

    def connect(self, peer: int) -> None:
        """Open a connection to a peer; no-op if the peer is down or refuses this node."""
        if self._everyone[peer].is_up and self._is_admitted(peer):
            self._open[peer] = None
            self._raft.connected(peer)
            self._rounds.request()

    def disconnect(self, peer: int) -> None:
        """Close the connection to a peer, if there is one."""
        self._open.pop(peer, None)
        self._raft.disconnected(peer)
        self._rounds.request()

    def _is_admitted(self, peer: int) -> bool:
        """True if a peer admits this node now. After a temporary refusal the connection is tried
        again later; after a permanent one this node ends itself."""
        rejection = self._admission.ask(peer)
        if rejection is None:
            return True
        if rejection.refusal in TEMPORARY:
            self._process.later(HELLO_RETRY_US, self.connect, peer)
        else:
            self._admission.refused(rejection)
        return False

    def is_alive(self, peer: int, boot_id: peer_identity.BootId) -> bool:
        """True if a connection with this boot of the peer is open, and supported."""
        return (peer in self._open
                and self._raft.status.supported_epoch(peer) == boot_id.boot_epoch != 0)

    def send_bulk(self, to: int, item: Any) -> None:
        """Send one request or reply over the bulk connection; dropped without a connection."""
        if to in self._open:
            self._network.send(self._node, to, "bulk", (item,), self._everyone[to].receive_bulk)

    def send_liveness(self, to: int, item: Any) -> None:
        """Send one item, a heartbeat or its response, as a frame of the liveness thread."""
        self._network.send(self._node, to, "liveness", (item,),
                           self._everyone[to].receive_liveness)
