"""The task that sheds leadership while this node's disk is full.

Contract. ``shed_transfers`` decides which groups are transferred; this module checks the disk
space and waits for changes of leadership.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from node.clock import monotonic_ms
from node.loop.disk_space import POLL_S, Space
from node.replicas.drain_leadership import UNDER_WAY_MAX
from node.replicas.shed_transfers import RETRY_MS, ShedTransfers

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.leadership_notifier import LeadershipNotifier

__all__ = ["RETRY_MS", "LeadershipShedder"]


class LeadershipShedder:
    """Task that transfers leaderships to other nodes while this node's disk is full."""

    def __init__(self, core: MultiRaft, space: Space, roles: LeadershipNotifier,
                 request_round: Callable[[], None], log: logging.Logger):
        self._space = space
        self._roles = roles
        self._transfers = ShedTransfers(core, UNDER_WAY_MAX, request_round, log)

    async def run(self) -> None:
        """Shed leadership while the disk is full, until cancelled."""
        while True:
            if self._space.full:
                self.check(monotonic_ms())
                await self._roles.wait(POLL_S)
            else:
                self._transfers.forget()
                await trio.sleep(POLL_S)

    def check(self, now_ms: int) -> None:
        """Begin transfers of led groups. The caller has checked that the disk is full.
        O(groups)."""
        self._transfers.begin(now_ms)
