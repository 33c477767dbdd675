"""Input of the next round of a simulated node, from the start of its process on.

Contract.  ``put`` queues a frame and requests a round, which takes place a little later together
with everything that arrives meanwhile.  Before recovery has finished there are no rounds: frames
wait.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from chaos.simulator.node.machine.process import ProcessScheduler


class Channel(IntEnum):
    """Source of a frame."""

    PEER = 0  # messages of consensus
    BULK = 1  # requests and replies between nodes
    CLIENT = 2
    LIVENESS = 3  # findings of this node's liveness thread


#: One frame: channel, sender, contents.
Arrival = tuple[Channel, int, Any]


class RoundQueue:
    """Frames and requests for the next round of one boot."""

    def __init__(self, process: ProcessScheduler, round_us: int):
        #: Delay from the first input to the round, which takes all input that arrives meanwhile.
        self.round_us = round_us
        self._process = process
        self._arrivals: list[Arrival] = []
        self._is_due = False
        self._round: Callable[[], None] | None = None

    def begin(self, run: Callable[[], None]) -> None:
        """Let rounds take place from now on, by ``run``."""
        self._round = run

    def stop(self) -> None:
        """Run no further round: frames wait, and end with the process."""
        self._round = None

    def put(self, channel: Channel, sender: int, frame: Any) -> None:
        """Queue a frame, and request a round."""
        self._arrivals.append((channel, sender, frame))
        self.request()

    def take(self) -> list[Arrival]:
        """Return the frames that have arrived, and remove them."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def request(self) -> None:
        """Schedule a round a little later, unless one is scheduled."""
        if not self._is_due:
            self._is_due = True
            self._process.later(self.round_us, self.run)

    def run(self) -> None:
        """Run a round now; no-op before recovery has finished."""
        self._is_due = False
        if self._round is not None:
            self._round()
