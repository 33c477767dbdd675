"""The client of the metadata leader, on any node.

Contract. ``ask`` calls the handler of this node if it leads the metadata group. Otherwise it sends
the request to the leader, over the peer port, and raises the error that the leader returns;
``LeaderUnknown`` while no leader is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import LeaderUnknown
from node.cluster.peer_requests import Handlers, PeerAsker

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft


class MetadataRequests:
    """Requests to the metadata leader. ``handlers``: this node's own, for the time that it
    leads."""

    def __init__(self, core: MultiRaft, handlers: Handlers, peers: PeerAsker):
        self._core = core
        self._handlers = handlers
        self._peers = peers

    async def ask(self, request: Any) -> Any:
        """Send the request to the metadata leader, or handle it here if that is this node, and
        return the reply.

        Raises ``RequestError`` for a refusal, ``AmbiguousOutcome`` without an answer, and
        ``LeaderUnknown`` if this node knows no leader."""
        if self._core.status.is_leader(METADATA_GROUP):
            return await self._handlers[type(request)](request)
        leader, _term = self._core.status.leader_hint(METADATA_GROUP)
        if leader in (0, self._core.node):
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        return await self._peers.ask(leader, request)

    async def ask_within(self, request: Any, timeout_s: float) -> Any:
        """Return the reply as ``ask`` does, None if it does not arrive within ``timeout_s``. Raises
        the errors of ``ask``."""
        with trio.move_on_after(timeout_s):
            return await self.ask(request)
        return None
