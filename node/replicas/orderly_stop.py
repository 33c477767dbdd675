"""The order of a stop: the peers hear of it, other nodes lead, open requests are answered, rounds
end.

Contract. ``run`` ends when this node leads only groups that no other node can take, or after
``timeout_ms``, and every open request has its answer. It reads no clock and knows no trio. The
caller then ends the tasks, writes the last checkpoint (``CheckpointWriter.write_last``), and closes
the files.

Invariants. The groups serve until their leadership has moved. No round runs after the open requests
were answered, so no append is acknowledged afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.replicas.drain_leadership import LeadershipDrain


class Sessions(Protocol):
    """The sessions of clients."""

    stopping: bool  # new requests are refused


class Stoppable(Protocol):
    """A part that ends with the rounds: the applier, which answers open requests, and the loop."""

    def stop(self) -> None: ...


class OrderlyStop:
    """The stop of one node in order."""

    def __init__(self, core: MultiRaft, drain: LeadershipDrain, announce: Callable[[], None],
                 sessions: Sessions, applier: Stoppable, rounds: Stoppable,
                 write_changes: Callable[[], Awaitable[None]], log: logging.Logger,
                 timeout_ms: int):
        """``announce`` tells the peers and the service manager. ``write_changes`` logs the changes
        that were collected. ``timeout_ms``: longest time for the transfers."""
        self._core = core
        self._drain = drain
        self._announce = announce
        self._sessions = sessions
        self._applier = applier
        self._rounds = rounds
        self._write_changes = write_changes
        self._log = log
        self._timeout_ms = timeout_ms

    async def run(self) -> None:
        """Announce the stop and transfer the leaderships of this node, for ``timeout_ms`` at most;
        its groups serve until then. Then refuse new requests, answer open ones, and run no further
        round."""
        self._announce()
        self._log.info("shutdown_started", extra={"groups_leading": self._core.status.led_count})
        await self._drain.run(self._timeout_ms)
        self._sessions.stopping = True
        self._applier.stop()
        self._rounds.stop()
        await self._write_changes()
        self._log.info("node_stopped", extra={"groups_leading": self._core.status.led_count})
