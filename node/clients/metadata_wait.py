"""Metadata waits: requests whose client has seen newer metadata than this node has applied.

Contract. ``wait`` parks such a request, bounded in time and number. If it returns False the caller
continues at once, and replies STALE_METADATA where a partition is still unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from node.loop.steps import parts

if TYPE_CHECKING:
    from node.clients.router import Router

#: Longest wait for metadata that a client has already seen, in seconds.
METADATA_WAIT_S = 2.0


class NamedPartition(Protocol):
    """A row of a request that names a partition."""

    @property
    def incarnation(self) -> int: ...


class AppliedMetadata(Protocol):
    """The metadata that this node has applied."""

    async def applied(self, index: int, timeout_s: float) -> bool:
        """Wait until ``index`` is applied, ``timeout_s`` at most; return True if it is."""


class Background(Protocol):
    """Tasks beside the loop, limited in number."""

    def start(self, work: Callable[..., Any], *args: Any) -> bool:
        """Run ``await work(*args)`` in a task of its own, or return False."""


class MetadataWaiter:
    """Requests of one node that wait until it has applied metadata that their client has seen."""

    def __init__(self, metadata_log: AppliedMetadata, directory: Router, background: Background,
                 request_round: Callable[[], None]):
        self._metadata_log = metadata_log
        self._directory = directory
        self._background = background
        self._request_round = request_round

    def is_stale_for(self, seen_index: int) -> bool:
        """Return True if this node has not applied metadata that a client has seen."""
        return seen_index > self._directory.metadata_index

    def knows(self, rows: Sequence[NamedPartition]) -> Generator[None, None, bool]:
        """Return True if all partitions that the rows name are known despite older metadata.
        O(rows), in steps."""
        for part in parts(len(rows)):
            if part.start:
                yield
            if any(self._directory.locate(row.incarnation) is None
                   for row in rows[part.start:part.stop]):
                return False
        return True

    def wait(self, seen_index: int, then: Callable[[], None]) -> bool:
        """Start a task that calls ``then`` when the metadata index ``seen_index`` is applied here,
        or after ``METADATA_WAIT_S``, and then requests a round. Return False if too many tasks run.
        Only valid while ``is_stale_for(seen_index)``."""
        return self._background.start(self._wait, seen_index, then)

    async def _wait(self, seen_index: int, then: Callable[[], None]) -> None:
        await self._metadata_log.applied(seen_index, METADATA_WAIT_S)
        then()
        self._request_round()  # a round sends the reply
