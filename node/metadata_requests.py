"""Asking the metadata leader, wherever it is.

Contract.  ``ask`` answers from this node when it leads the metadata group, else from the node that
does, over the peer port; it raises what that node says, ``LeaderUnknown`` while nobody leads.
"""

from __future__ import annotations

from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import LeaderUnknown
from node.config import address
from node.known_nodes import KnownNodes
from node.peer_requests import Handlers, PeerRequests


class MetadataRequests:
    """See the module's docstring.  ``handlers`` are this node's own."""

    def __init__(self, core, known: KnownNodes, handlers: Handlers, peers: PeerRequests):
        self._core = core
        self._known = known
        self._handlers = handlers
        self._peers = peers

    async def ask(self, request):
        """The leader's reply."""
        if self._core.is_leader(METADATA_GROUP):
            return await self._handlers[type(request)](request)
        leader, _term = self._core.leader_hint(METADATA_GROUP)
        node = self._known.facts.nodes.get(leader)
        if node is None or leader == self._core.node:
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        where = address(node.peer_address, f"the peer address of node {leader}")
        return await self._peers.ask(where, leader, request)
