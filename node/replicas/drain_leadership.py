"""The transfer of every leadership before a node stops.

Contract. ``run`` returns when this node leads no group, or only groups that no other node can take,
or at the end of its time. Groups whose transfer has not begun serve as usual. The drain reads no
clock, and its only pause is ``roles.wait``.

Theory. A group under transfer refuses appends until its new leader is elected. A thousand transfers
begun at once would each wait for all others. Therefore few run at a time, and each takes about its
own two round trips.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from multiraft.errors import ProposalError
from multiraft.raft.timers import NEVER_MS

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Transfers at a time: enough to fill the frames and syncs of a round, and few enough to complete
#: in some ten milliseconds.
UNDER_WAY_MAX = 64
#: Pause before a transfer that failed (its target lagged) is tried again, in seconds.
RETRY_S = 0.2


class Roles(Protocol):
    """A condition for tasks that wait until the known leader of some group changes."""

    async def wait(self, timeout_s: float) -> None: ...


class LeadershipDrain:
    """Transfer of all leaderships of a node that stops."""

    def __init__(self, core: MultiRaft, roles: Roles, request_round: Callable[[], None],
                 log: logging.Logger, now_ms: Callable[[], int]):
        self._core = core
        self._roles = roles
        self._request_round = request_round
        self._log = log
        self._now_ms = now_ms
        self._refused: set[int] = set()  # groups without a target, logged once

    async def run(self, timeout_ms: int = NEVER_MS) -> None:
        """Transfer leaderships, ``UNDER_WAY_MAX`` at a time, until this node leads only groups that
        no other node can take, for ``timeout_ms`` at most."""
        until_ms = self._now_ms() + timeout_ms
        while self._begin():
            self._request_round()
            left_ms = until_ms - self._now_ms()
            if left_ms <= 0:
                return
            await self._roles.wait(min(RETRY_S, left_ms / 1000))

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
