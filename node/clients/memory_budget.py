"""The memory budget of all client connections of a node, maintained by their sessions.

Contract. Sessions add and subtract what they hold. ``admits`` decides about the memory of a large
frame; ``refusal`` is the reply to a request above a limit. Sessions in ``waiting`` wait for memory
and are notified through ``memory_freed`` when their frame may fit, in order of arrival.

Theory. Limits per connection bound nothing with thousands of connections. Small frames are never
held back: a node that is full of large ones still receives small requests and refuses them early.
"""

from __future__ import annotations

from typing import Protocol

from multiraft.wire.errors import ErrorDetail
from node.limits import Limits


class MemoryWaiter(Protocol):
    """A session whose large frame waits for memory."""

    def memory_freed(self) -> None:
        """Notify the session that its large frame may fit now. It tries to reserve the memory
        again, and waits again if another session has taken it."""


class MemoryBudget:
    """Memory and requests that all client sessions of one node hold, with their limits."""

    __slots__ = ("bytes", "bytes_max", "requests", "requests_max", "unsent", "unsent_max",
                 "waiting", "refused")

    def __init__(self, limits: Limits):
        self.bytes = 0  # unanswered appends, and large frames that are arriving
        self.bytes_max = limits.node_bytes_in_flight_max
        self.requests = 0  # unanswered requests
        self.requests_max = limits.node_requests_in_flight_max
        self.unsent = 0  # bytes of replies that clients have not taken
        self.unsent_max = limits.node_send_buffer_bytes_max
        self.waiting: dict[MemoryWaiter, int] = {}  # session -> bytes wanted, in order of arrival
        self.refused = 0

    def admits(self, size: int) -> bool:
        """Return True if a frame of ``size`` bytes fits now."""
        return self.bytes + size <= self.bytes_max

    def grant_waiting(self) -> None:
        """Remove the waiting sessions whose frames fit into the free bytes, and notify each, in
        order of arrival; the first that does not fit ends this. Nothing is reserved for them."""
        free = self.bytes_max - self.bytes
        while self.waiting:
            session, size = next(iter(self.waiting.items()))
            if size > free:
                break  # no overtaking: small frames could starve a large one without limit
            del self.waiting[session]
            free -= size
            session.memory_freed()

    def refusal(self) -> ErrorDetail:
        """Count a refused request, and return its error detail: name, maximum and value of the
        limit that is exceeded."""
        self.refused += 1
        name, limit, value = next(
            (bound for bound in (
                ("node_requests_in_flight_max", self.requests_max, self.requests),
                ("node_bytes_in_flight_max", self.bytes_max, self.bytes),
                ("node_send_buffer_bytes_max", self.unsent_max, self.unsent))
             if bound[2] > bound[1]))
        return ErrorDetail(text=f"the node is overloaded: {name} is {limit}, {value} are in "
                           "use; try again", limit=limit, value=value)
