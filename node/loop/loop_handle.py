"""The handle on the round loop, for parts that are built before the loop.

Contract. The round loop calls most parts of a node, and these parts request rounds from the loop.
They take the handle, which is built first; the loop is attached once, before any part runs.
"""

from __future__ import annotations

from typing import Protocol


class RoundLoop(Protocol):
    """The calls of the round loop that lower parts make."""

    def request(self) -> None:
        """Request a round, from the loop thread. The round may run inside this call. In that case
        raises ``RoundFailed`` if the round ends in the middle, ``DiskFailed`` if a write has
        failed."""

    def wrote(self, staged: list) -> bool:
        """Release the messages and acknowledgements that waited for these staged writes to become
        durable. Return True if a round is due."""


class LoopHandle:
    """A forwarder to the round loop of one node."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: RoundLoop | None = None

    def attach(self, loop: RoundLoop) -> None:
        """Forward all calls to ``loop`` from now on. Called once."""
        assert self._loop is None, "a node has one round loop"
        self._loop = loop

    def request(self) -> None:
        """Request a round from the loop thread; it may run inside this call. In that case raises
        ``RoundFailed`` if the round ends in the middle, ``DiskFailed`` if a write has failed."""
        assert self._loop is not None
        self._loop.request()

    def wrote(self, staged: list) -> bool:
        """Report to the loop that the disk worker made staged writes durable. Return True if a
        round is due."""
        assert self._loop is not None
        return self._loop.wrote(staged)
