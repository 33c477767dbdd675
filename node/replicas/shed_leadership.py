"""Groups led here go to nodes that take records, while the disk of this one is full.

Contract.  While ``space.full``, every group led here whose voters could commit records without this
node is handed to one of them (``MultiRaft.make_way`` says which may be); the others stay, and their
records are refused with ``STORAGE_FULL``.  The metadata group stays: its commands are small, and
live on the reserve.  Nothing is handed back when there is room again: who leads what is for whoever
balances the cluster.

Theory.  A leader without room refuses every record of its groups, a follower without room drops
them and costs its groups nothing but one copy.  A full node still leads what nobody else could
(docs/decisions/0010).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.errors import ProposalError
from multiraft.types import METADATA_GROUP
from node.clock import monotonic_ms
from node.loop.disk_space import LOOK_S, Space
from node.replicas.drain_leadership import UNDER_WAY_MAX

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.applier import LeadershipNotifier

#: A group that nobody took although somebody could is offered again after this: while it is being
#: handed over it takes no change of its members either.
AGAIN_MS = 10_000


class LeadershipShedder:
    """Task on the loop."""

    def __init__(self, core: MultiRaft, space: Space, roles: LeadershipNotifier,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._space = space
        self._roles = roles
        self._request_round = request_round
        self._log = log
        self._not_before_ms: dict[int, int] = {}  # group -> when it may be offered again

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._space.full:
                self.look(monotonic_ms())
                await self._roles.wait(LOOK_S)
            else:
                self._not_before_ms.clear()
                await trio.sleep(LOOK_S)

    def look(self, now_ms: int) -> None:
        """Begin as many transfers as may be under way.  O(groups)."""
        core, under_way, begun = self._core, 0, []
        for group in core.status.led_groups():
            if under_way == UNDER_WAY_MAX:
                break
            if core.status.of(group).transferee:
                under_way += 1
            elif self._offer(group, now_ms):
                under_way += 1
                begun.append(group)
        if begun:
            self._log.info("making way", extra={"groups": len(begun), "first": begun[0]})
            self._request_round()

    def _offer(self, group: int, now_ms: int) -> bool:
        """Whether the group is on its way to somebody else now."""
        if group == METADATA_GROUP or self._not_before_ms.get(group, now_ms) > now_ms:
            return False
        try:
            begun = self._core.make_way(group)
        except ProposalError:
            return False  # damaged: it is not led any more soon
        if begun:
            self._not_before_ms[group] = now_ms + AGAIN_MS
        return begun
