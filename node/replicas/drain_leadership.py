"""Giving every leadership away before the node stops.

Contract.  ``run`` returns when no group is led here any more, or nobody can take those that are.
Groups that are not handed over yet serve as ever.  The caller bounds the time.

Theory.  A group that is being handed over refuses appends until its new leader is elected.  Begun
all at once, a thousand transfers make each group wait for all the others; so few are under way at
a time, and each is as short as its own two rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.errors import ProposalError

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.applier import LeadershipNotifier

#: Transfers under way: enough to fill the frames and syncs of a round, few enough that a round of
#: them is done in some ten milliseconds.
UNDER_WAY_MAX = 64
#: A transfer that did not happen (its target lagged) is asked for again after this, in seconds.
RETRY_S = 0.2


class HandOver:
    """One stop of one node."""

    def __init__(self, core: MultiRaft, roles: LeadershipNotifier,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._roles = roles
        self._request_round = request_round
        self._log = log
        self._refused: set[int] = set()  # groups that nobody could take: said once

    async def run(self) -> None:
        """See the module."""
        while self._begin():
            self._request_round()
            await self._roles.wait(RETRY_S)

    def _begin(self) -> int:
        """Begin as many transfers as may be under way; how many are."""
        under_way = 0
        for group in self._core.status.led_groups():
            under_way += self._transfer(group)
            if under_way == UNDER_WAY_MAX:
                break
        return under_way

    def _transfer(self, group: int) -> bool:
        """Begin to hand over one group; False when there is nobody to take it."""
        if self._core.status.of(group).transferee:
            return True  # under way
        try:
            self._core.transfer(group, 0)
        except ProposalError as error:
            if group not in self._refused:
                self._refused.add(group)
                self._log.info("transfer not possible", extra={
                    "group": group, "term": self._core.status.leader_hint(group)[1],
                    "reason": str(error)})
            return False
        return True
