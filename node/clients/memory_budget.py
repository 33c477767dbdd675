"""What all client connections of a node may hold together: one account, kept by the sessions.

Contract.  Sessions add and take away; ``admits`` says whether a large frame may have its memory,
``refusal`` what to answer to a request for which there is no room.  A session in ``starved`` is
called (``fed``) when its frame may fit, the one that waits longest first.

Theory.  Limits of one connection bound nothing when there are thousands of them.  Small frames are
not held back: a node that is full of large ones still hears what is small, and answers it early.
"""

from __future__ import annotations

from typing import Protocol

from multiraft.wire.errors import ErrorDetail
from node.limits import Limits


class Starved(Protocol):
    """Somebody who waits for room."""

    def fed(self) -> None:
        """There may be room now; who does not get it waits again."""


class Budget:
    """See the module docstring."""

    __slots__ = ("bytes", "bytes_max", "requests", "requests_max", "unsent", "unsent_max",
                 "starved", "refused")

    def __init__(self, limits: Limits):
        self.bytes = 0  # appends without an answer, and large frames that are arriving
        self.bytes_max = limits.node_bytes_in_flight_max
        self.requests = 0  # without an answer
        self.requests_max = limits.node_requests_in_flight_max
        self.unsent = 0  # answers that clients have not taken
        self.unsent_max = limits.node_outbox_bytes_max
        self.starved: dict[Starved, int] = {}  # in order of arrival -> bytes wanted
        self.refused = 0

    def admits(self, size: int) -> bool:
        """Whether a frame of that size fits now."""
        return self.bytes + size <= self.bytes_max

    def feed(self) -> None:
        """Bytes were given back: call those who fit, in the order in which they came."""
        room = self.bytes_max - self.bytes
        while self.starved:
            session, size = next(iter(self.starved.items()))
            if size > room:
                break  # whoever wants little does not overtake for ever
            del self.starved[session]
            room -= size
            session.fed()

    def refusal(self) -> ErrorDetail:
        """What to say to a request that found no room."""
        self.refused += 1
        name, limit, value = next(
            (bound for bound in (
                ("node_requests_in_flight_max", self.requests_max, self.requests),
                ("node_bytes_in_flight_max", self.bytes_max, self.bytes),
                ("node_outbox_bytes_max", self.unsent_max, self.unsent))
             if bound[2] > bound[1]))
        return ErrorDetail(text=f"the node has its hands full: {name} is {limit}, {value} are "
                           "under way; try again", limit=limit, value=value)
