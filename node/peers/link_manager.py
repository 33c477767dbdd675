"""The links and leases of the known nodes, adjusted while the node runs.

Contract. ``follow`` takes the nodes of new metadata, and opens, moves or closes the links that
differ. ``changed`` does the same after ``PeerRegistry`` learned of nodes in another way. O(nodes),
and only when a node was registered or removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from node.address import Address, parse_address
from node.errors import BadConfig
from node.peers.registry import PeerRegistry

if TYPE_CHECKING:
    from node.metadata.state_machine import MetadataState
    from node.peers.append_links import PeerLink, Peers
    from node.peers.liveness_thread import LivenessThread


class LinkManager:
    """The links of one node. ``make_link(peer, address)`` creates an append link.
    ``end_incoming(peer)`` closes the append connection that a removed node has opened here."""

    def __init__(self, known: PeerRegistry, peers: Peers, liveness: LivenessThread,
                 make_link: Callable[[int, Address], PeerLink],
                 end_incoming: Callable[[int], None], log: logging.Logger):
        self._known = known
        self._peers = peers
        self._liveness = liveness
        self._make_link = make_link
        self._end_incoming = end_incoming
        self._log = log
        self._addresses: dict[int, str] = {}

    def follow(self, state: MetadataState) -> None:
        """Take over the nodes of applied metadata, and adjust the links if the nodes are new."""
        if self._known.applied(state):
            self.changed()

    def changed(self) -> None:
        """Close links and leases of nodes that were removed, and open those of nodes that are new
        or moved. A node with a malformed address is logged and left out."""
        wanted = {node.id: node.peer_address for node in self._known.peers()}
        for peer in [peer for peer in self._addresses if peer not in wanted]:
            del self._addresses[peer]
            self._peers.remove(peer)
            self._liveness.remove(peer)
            self._end_incoming(peer)
        for peer, text in wanted.items():
            if self._addresses.get(peer) != text:
                self._connect(peer, text)

    def _connect(self, peer: int, text: str) -> None:
        try:
            where = parse_address(text, f"the peer address of node {peer}")
        except BadConfig as error:
            self._log.warning("peer_address_rejected",
                              extra={"peer": peer, "reason": str(error)})
            return
        if peer in self._addresses:
            self._peers.remove(peer)
        self._addresses[peer] = text
        self._peers.add(self._make_link(peer, where))
        self._liveness.add(peer, where.host, where.port)
