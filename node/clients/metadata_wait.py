"""Requests that name what this node has not heard of yet, but their client has.

Contract.  ``wait`` takes such a request, bounded in time and number; whoever gets False goes on at
once, and answers STALE_METADATA where something is still unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from node.loop.turns import parts

if TYPE_CHECKING:
    from node.clients.router import Router
    from node.loop.background import Background
    from node.metadata.log import MetadataLog

#: A node that is behind what its client has seen waits this long, in seconds.
METADATA_WAIT_S = 2.0


class GroupSample(Protocol):
    """A row of a request."""

    @property
    def incarnation(self) -> int: ...


class MetadataWaiter:
    """What waits for metadata."""

    def __init__(self, metadata_log: MetadataLog, directory: Router, background: Background,
                 request_round: Callable[[], None]):
        self._metadata_log = metadata_log
        self._directory = directory
        self._background = background
        self._request_round = request_round

    def is_stale_for(self, seen_index: int) -> bool:
        """Whether this node has not applied metadata that a client has seen."""
        return seen_index > self._directory.metadata_index

    def knows(self, rows: Sequence[GroupSample]) -> Generator[None, None, bool]:
        """Whether the partitions that these rows name are all known anyway.  O(rows), in steps."""
        for part in parts(len(rows)):
            if part.start:
                yield
            if any(self._directory.locate(row.incarnation) is None
                   for row in rows[part.start:part.stop]):
                return False
        return True

    def wait(self, seen_index: int, then: Callable[[], None]) -> bool:
        """Call ``then`` when the metadata at ``seen_index`` is applied here, or time is up; False
        when too many wait.  Only when it ``is_stale_for`` that."""
        return self._background.start(self._wait, seen_index, then)

    async def _wait(self, seen_index: int, then: Callable[[], None]) -> None:
        await self._metadata_log.applied(seen_index, METADATA_WAIT_S)
        then()
        self._request_round()  # what was answered leaves with a round
