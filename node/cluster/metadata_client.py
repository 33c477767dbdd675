"""Asking the metadata leader, wherever it is.

Contract.  ``ask`` answers from this node when it leads the metadata group, else from the node that
does, over the peer port; it raises what that node says, ``LeaderUnknown`` while nobody leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import LeaderUnknown
from node.cluster.peer_requests import Handlers, PeerRequests

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft


class MetadataRequests:
    """See the module's docstring.  ``handlers`` are this node's own."""

    def __init__(self, core: MultiRaft, handlers: Handlers, peers: PeerRequests):
        self._core = core
        self._handlers = handlers
        self._peers = peers

    async def ask(self, request: Any) -> Any:
        """The leader's reply."""
        if self._core.status.is_leader(METADATA_GROUP):
            return await self._handlers[type(request)](request)
        leader, _term = self._core.status.leader_hint(METADATA_GROUP)
        if leader in (0, self._core.node):
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        return await self._peers.ask(leader, request)
