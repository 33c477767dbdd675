"""The watchdog of led groups: resigns leadership of a group that commits nothing.

Contract. A group whose oldest pending proposal has been the same for ``group_stall_ms_max``
milliseconds is resigned: this node steps down, the followers elect another leader, and pending
appends are answered as ambiguous. The node's leases prove only that loop and disk work. They cannot
detect a link that carries heartbeats but no appends, or a follower that replies but makes nothing
durable.

Theory. A check inspects only groups with pending proposals, once per interval: O(those). A leader
without quorum support has stepped down already, so a stalled leader has a majority of reachable
nodes that may do better. If they do not, this node is elected again, and the time starts anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from node.clock import monotonic_ms

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Interval between checks, in seconds; a stall is detected at most this much later.
POLL_S = 0.5


class Watchdog:
    """Task that resigns the leadership of groups that commit nothing. ``waiting()`` returns group
    -> index of its oldest pending proposal."""

    def __init__(self, core: MultiRaft, waiting: Callable[[], dict[int, int]],
                 request_round: Callable[[], None], group_stall_ms_max: int, log: logging.Logger):
        self._core = core
        self._waiting = waiting
        self._request_round = request_round
        self._group_stall_ms_max = group_stall_ms_max
        self._log = log
        self._seen: dict[int, tuple[int, int]] = {}  # group -> (index, since when)
        self.resigned = 0

    async def run(self) -> None:
        """Call ``check`` every ``POLL_S``, until cancelled."""
        while True:
            await trio.sleep(POLL_S)
            self.check(monotonic_ms())

    def check(self, now_ms: int) -> None:
        """Resign the groups led here whose oldest pending proposal has been the same for
        ``group_stall_ms_max``. Others only start or continue their time."""
        seen: dict[int, tuple[int, int]] = {}
        stuck = []
        for group, index in self._waiting().items():
            before = self._seen.get(group)
            seen[group] = before if before is not None and before[0] == index else (index, now_ms)
            if now_ms - seen[group][1] >= self._group_stall_ms_max:
                stuck.append(group)
        self._seen = seen
        for group in stuck:
            self._resign(group, seen.pop(group)[0])

    def _resign(self, group: int, index: int) -> None:
        if not self._core.status.is_leader(group):
            return
        self.resigned += 1
        self._log.warning("leadership_resigned", extra={
            "group": group, "term": self._core.status.leader_hint(group)[1],
            "reason": f"index {index} has not been committed and applied for "
                      f"{self._group_stall_ms_max} ms"})
        self._core.resign(group, "stuck")
        self._request_round()
