"""The transfer of every leadership before a node stops.

Contract. ``run`` returns when this node leads no group, or only groups that no other node can take.
Groups whose transfer has not begun serve as usual. The caller limits the time.

Theory. A group under transfer refuses appends until its new leader is elected. A thousand transfers
begun at once would each wait for all others. Therefore few run at a time, and each takes about its
own two round trips.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.errors import ProposalError

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.applier import LeadershipNotifier

#: Transfers at a time: enough to fill the frames and syncs of a round, and few enough to complete
#: in some ten milliseconds.
UNDER_WAY_MAX = 64
#: Pause before a transfer that failed (its target lagged) is tried again, in seconds.
RETRY_S = 0.2


class LeadershipDrain:
    """Transfer of all leaderships of a node that stops."""

    def __init__(self, core: MultiRaft, roles: LeadershipNotifier,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._roles = roles
        self._request_round = request_round
        self._log = log
        self._refused: set[int] = set()  # groups without a target, logged once

    async def run(self) -> None:
        """Transfer leaderships, ``UNDER_WAY_MAX`` at a time, until this node leads only groups that
        no other node can take."""
        while self._begin():
            self._request_round()
            await self._roles.wait(RETRY_S)

    def _begin(self) -> int:
        """Begin as many transfers as are allowed at a time. Return the number in progress."""
        under_way = 0
        for group in self._core.status.led_groups():
            under_way += self._transfer(group)
            if under_way == UNDER_WAY_MAX:
                break
        return under_way

    def _transfer(self, group: int) -> bool:
        """Begin the transfer of one group, or find one in progress, and return True. Return False,
        and log the reason once, if no node can take the group."""
        if self._core.status.of(group).transferee:
            return True  # in progress
        try:
            self._core.transfer(group, 0)
        except ProposalError as error:
            if group not in self._refused:
                self._refused.add(group)
                self._log.info("leadership_transfer_refused", extra={
                    "group": group, "term": self._core.status.leader_hint(group)[1],
                    "reason": str(error)})
            return False
        return True
