"""Requests that name what this node has not heard of yet, but their client has.

Contract.  ``wait`` takes such a request, bounded in time and number; whoever gets False goes on at
once, and answers STALE_METADATA where something is still unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: A node that is behind what its client has seen waits this long, in seconds.
METADATA_WAIT_S = 2.0


class Behind:
    """What waits for metadata."""

    def __init__(self, metadata_log, directory, background, request_round):
        self._metadata_log = metadata_log
        self._directory = directory
        self._background = background
        self._request_round = request_round

    def lacks(self, seen_index: int) -> bool:
        """Whether this node has not applied metadata that a client has seen."""
        return seen_index > self._directory.metadata_index

    def wait(self, partitions: Sequence[int], seen_index: int, then: Callable[[], None]) -> bool:
        """Call ``then`` when the metadata at ``seen_index`` is applied here, or time is up; False
        when all ``partitions`` are known anyway, or too many wait.  Only when it ``lacks`` that."""
        if all(self._directory.place_of(partition) is not None for partition in partitions):
            return False
        return self.wait_anyway(seen_index, then)

    def wait_anyway(self, seen_index: int, then: Callable[[], None]) -> bool:
        """The same, whatever is known."""
        return self._background.start(self._wait, seen_index, then)

    async def _wait(self, seen_index: int, then: Callable[[], None]) -> None:
        await self._metadata_log.applied(seen_index, METADATA_WAIT_S)
        then()
        self._request_round()  # what was answered leaves with a round
