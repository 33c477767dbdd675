"""Requests that this node passes on to the metadata leader for its clients.

Contract. ``ask`` is that of ``MetadataRequests``, for at most ``passed_on_requests_max`` requests
at a time: more are refused with ``QueueFull`` before anything is sent, and clients repeat them.

Theory. They have bulk connections of their own. Requests of the cluster itself (registrations,
reports of members, switches of partitions) would otherwise wait behind those of any number of
clients, because a bulk connection carries one request at a time.
"""

from __future__ import annotations

from typing import Any

from multiraft.wire.errors import QueueFull
from node.cluster.metadata_client import MetadataRequests

#: Longest wait of a request for earlier ones, in seconds: clients repeat it, perhaps at another
#: node, before their own time is over.
TURN_TIMEOUT_S = 10.0


class PassedOnRequests:
    """Requests of clients to the metadata leader, limited in number."""

    def __init__(self, requests: MetadataRequests, in_progress_max: int):
        self._requests = requests
        self._in_progress_max = in_progress_max
        self.in_progress = 0

    async def ask(self, request: Any) -> Any:
        """Send the request to the metadata leader and return the reply. Raises ``QueueFull`` above
        the limit, and the errors of ``MetadataRequests.ask``."""
        if self.in_progress >= self._in_progress_max:
            raise QueueFull(
                f"passed_on_requests_max is {self._in_progress_max}: so many requests are with the "
                f"metadata leader", limit=self._in_progress_max, value=self.in_progress + 1)
        self.in_progress += 1
        try:
            return await self._requests.ask(request)
        finally:
            self.in_progress -= 1
