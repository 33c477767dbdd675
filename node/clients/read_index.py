"""Confirmations of leadership by a majority, for replies that must be linearizable (ReadIndex).

Contract. ``ask`` calls ``then(True)`` once a majority has confirmed, after this call, that this
node leads the group, and everything that was committed before is applied here. It calls
``then(False)`` if the group is no longer led here or time runs out. Exactly one of the two is
called, from a round, which may run before ``ask`` returns.

Theory. Raft thesis, section 6.4. A leader that was paused and deposed may believe in its leadership
until a message corrects it; its lease is a failure detector and proves nothing. All requests of one
round share one confirmation (the core batches them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sortedcontainers import SortedKeyList

from multiraft.errors import ProposalError
from node.clock import monotonic_ms

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft

#: Longest wait, in milliseconds: a majority that has not confirmed by then has probably elected
#: another leader. It is several round trips, and below the time that clients wait for one node.
CONFIRM_MS_MAX = 2_000
#: Requests that wait at a time: each is two small objects.
CONFIRMATIONS_MAX = 65_536

#: Later than any time.
NEVER_MS = 1 << 60

Then = Callable[[bool], None]


class _PendingRead:
    """A request that waits for the confirmation of a group's leader."""

    __slots__ = ("token", "group", "then", "deadline_ms", "index")

    def __init__(self, token: int, group: int, then: Then, deadline_ms: int):
        self.token = token
        self.group = group
        self.then = then
        self.deadline_ms = deadline_ms
        self.index = 0  # to be applied before the reply; 0 = not confirmed yet


class ReadIndexRequests:
    """Requests of one node that wait until a majority confirms a leadership, by token of the
    core."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 request_round: Callable[[], None], now_ms: Callable[[], int] = monotonic_ms):
        self._core = core
        self._partition_states = partition_states
        self._request_round = request_round
        self._now_ms = now_ms  # a monotonic clock
        self.waiting: dict[int, _PendingRead] = {}  # by token; empty = ``committed`` is not needed
        self.earliest_ms = NEVER_MS  # no deadline of a request is before it
        self._by_group: dict[int, dict[int, _PendingRead]] = {}
        self._deadlines: SortedKeyList = SortedKeyList(key=_deadline)
        self._token = 0
        self.confirmed = 0

    def ask(self, group: int, then: Then) -> bool:
        """Ask for a confirmation of the leadership of ``group``, and request a round. Later call
        ``then``: with True once the read index is applied here, with False if the leadership is
        lost, or ``CONFIRM_MS_MAX`` passes, before that.

        Return False, without ever calling ``then``, if this node does not lead the group or too
        many requests wait."""
        if len(self.waiting) >= CONFIRMATIONS_MAX:
            return False
        self._token += 1
        try:
            self._core.read_index(group, self._token)
        except ProposalError:
            return False
        pending = _PendingRead(self._token, group, then, self._now_ms() + CONFIRM_MS_MAX)
        self.waiting[pending.token] = pending
        self._by_group.setdefault(group, {})[pending.token] = pending
        self._deadlines.add(pending)
        self.earliest_ms = min(self.earliest_ms, pending.deadline_ms)
        self._request_round()
        return True

    def ready(self, reads: list) -> None:
        """Process the confirmations of the core (``Ready.reads``). A request whose read index is
        applied here ends now, others wait for ``committed``."""
        for read in reads:
            pending = self.waiting.get(read.token)
            if pending is not None:
                # The read must see all entries up to the commit index at which the round of
                # confirmations began (read index); they may be committed and not applied here yet.
                pending.index = max(1, read.index)
                self._end_if_applied(pending)

    def committed(self, group: int) -> None:
        """Answer the confirmed requests of ``group`` that its applied index now covers. O(its
        requests)."""
        for pending in list(self._by_group.get(group, {}).values()):
            if pending.index:
                self._end_if_applied(pending)

    def lost(self, group: int) -> None:
        """Fail the requests of ``group``, which this node no longer leads."""
        for pending in list(self._by_group.get(group, {}).values()):
            self._end(pending, False)

    def expire(self, now_ms: int) -> None:
        """Fail the requests whose deadline has passed; due at ``earliest_ms``."""
        while self._deadlines and self._deadlines[0].deadline_ms <= now_ms:
            self._end(self._deadlines[0], False)
        self.earliest_ms = self._deadlines[0].deadline_ms if self._deadlines else NEVER_MS

    def stop(self) -> None:
        """Fail all requests: the node is stopping."""
        for pending in list(self.waiting.values()):
            self._end(pending, False)

    def _end_if_applied(self, pending: _PendingRead) -> None:
        tail = self._partition_states.get(pending.group)
        if tail is not None and tail.applied_index >= pending.index:
            self.confirmed += 1
            self._end(pending, True)

    def _end(self, pending: _PendingRead, confirmed: bool) -> None:
        del self.waiting[pending.token]
        self._deadlines.remove(pending)
        of_group = self._by_group[pending.group]
        del of_group[pending.token]
        if not of_group:
            del self._by_group[pending.group]
        pending.then(confirmed)


def _deadline(pending: _PendingRead) -> tuple[int, int]:
    return pending.deadline_ms, pending.token
