"""Known peers of a simulated node, over all its boots: registered nodes, and who is admitted.

Contract.  Each connection begins with a peer hello, which the other side judges by
``multiraft.liveness.peer_identity``.  What a node knows of its peers is on its disk in the real
node, so it outlives a boot here.

Simplified.  A registration reaches each node after a delay of its own, and is never lost there. The
real node keeps it in ``known_nodes.json``, which has tests of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.env import NodeEnv
from multiraft.liveness import peer_identity

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: (peer, boot id): True if a connection with that boot of the peer is open.
IsAlive = Callable[[int, peer_identity.BootId], bool]


class PeerTable:
    """Registered nodes, and the identity of one node's own directory."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, is_alive: IsAlive):
        self.incarnation = 0  # of its directory, after the first open
        self.is_registered = True  # the other nodes know the incarnation of its directory
        self.is_lost = False  # its directory was wiped or put back
        self.is_copy = False  # its directory was replaced by an older copy
        first = range(1, env.parameters.nodes + 1)  # a later node is registered with ``add``
        self.peers = tuple(peer for peer in first if peer != env.node and env.node in first)
        self._node = env.node
        self._cluster = cluster
        self._is_alive = is_alive
        self._known: dict[int, int] = {}  # node -> incarnation of its directory
        self._removed: set[int] = set()
        self._boot_ids: dict[int, peer_identity.BootId] = {}
        self._numbers = random.Random(f"{env.parameters.seed}/lives {env.node}")

    def draw_process_number(self) -> int:
        """Draw the random number of the next boot's id."""
        return peer_identity.DURABLE | self._numbers.getrandbits(63)

    # ---- registered nodes ------------------------------------------------------------------

    def register(self, incarnations: dict[int, int]) -> None:
        """Add registrations of other nodes, node -> incarnation of its directory, which
        ``check_hello`` admits from now on. They do not become peers (``add``)."""
        self._known |= incarnations
        self._removed -= {*incarnations}

    def add(self, peer: int, incarnation: int) -> None:
        """Add a registered node, and the incarnation of its directory, as a peer."""
        self.register({peer: incarnation})
        if peer not in self.peers:
            self.peers += (peer,)

    def remove(self, peer: int) -> None:
        """Remove a peer permanently: its hellos are refused."""
        self._removed.add(peer)
        self._boot_ids.pop(peer, None)
        self.peers = tuple(each for each in self.peers if each != peer)

    def has(self, nodes: Iterable[int]) -> bool:
        """True if all of these nodes are peers of this one, or this node itself."""
        return {*nodes} <= {self._node, *self.peers}

    # ---- hellos ----------------------------------------------------------------------------

    def remembers(self, peer: int) -> peer_identity.BootId:
        """Return the boot id with which a peer was admitted here last; ``NO_BOOT_ID`` = it never
        was."""
        return self._boot_ids.get(peer, peer_identity.NO_BOOT_ID)

    def check_hello(self, said: peer_identity.PeerHello) -> peer_identity.Rejection | None:
        """Return why this node refuses a hello; None = admitted, and its boot id is remembered.
        Raises ``Violation`` when it would admit an older copy."""
        incarnation = self._known.get(said.node)
        boot_id = self._boot_ids.get(said.node, peer_identity.NO_BOOT_ID)
        known = (peer_identity.KnownPeer(incarnation, 0, boot_id) if incarnation is not None
                 else None)
        rejection = peer_identity.check_peer(said, self._node, known, said.node in self._removed,
                                           lambda boot_id: self._is_alive(said.node, boot_id))
        if rejection is None:
            if self._cluster.everyone[said.node].peers.is_copy:
                raise Violation("NoOlderCopyIsLetIn", f"n{self._node} lets in n{said.node}, whose "
                                f"directory was put back, with boot epoch {said.boot_epoch}")
            self._boot_ids[said.node] = said.boot_id
        return rejection
