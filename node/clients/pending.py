"""Appends that wait for their commit: every one is answered exactly once.

Contract.  A proposal is ``added`` with its (group, index, term) and the level its client asked for.
``committed`` and ``durable`` complete what they cover, ``lost`` ends everything of a group as
*ambiguous* (the leader stepped down: the entries may yet be committed by another), ``expire`` ends
what waited too long as ambiguous.  A definite refusal never comes from here.

Invariants.  Indexes of a group are added in ascending order; ``lost`` runs before any commit of
another term is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from multiraft.raft.timers import NEVER_MS

if TYPE_CHECKING:
    from multiraft.wire.messages import ProduceResult

#: Deadlines of answered requests that are kept before the heap is looked through: keeps that rare
#: when few requests are open.
DEADLINES_SLACK = 256


class ProduceRequest:
    """One produce request: a result per batch, answered when the last one is known.  It holds no
    bytes of its batches."""

    __slots__ = ("reply", "results", "remaining", "deadline_ms", "number")

    def __init__(self, number: int, reply: Callable[[ProduceRequest], None], batches: int,
                 deadline_ms: int):
        self.number = number  # ties of equal deadlines
        self.reply = reply  # called once with (request)
        self.results: list = [None] * batches
        self.remaining = batches
        self.deadline_ms = deadline_ms

    def complete(self, slot: int, result: ProduceResult) -> None:
        """Fill one slot; a second answer for it is ignored (it was ambiguous already)."""
        if self.results[slot] is None:
            self.results[slot] = result
            self.remaining -= 1
            if not self.remaining:
                self.reply(self)


class PendingAppends:
    """Proposals of all groups led here, by group in index order."""

    def __init__(self, ambiguous: Callable[[str], ProduceResult],
                 acknowledged: Callable[[int], ProduceResult]):
        self._ambiguous = ambiguous  # (why) -> a result
        self._acknowledged = acknowledged  # (base_offset) -> a result
        self._commit: dict[int, deque] = {}  # group -> (index, request, slot, base_offset)
        self._durable: dict[int, deque] = {}
        #: (deadline, number, request), a heap; answered ones stay until they surface or are
        #: looked through, so that an append costs one push and no search.
        self._deadlines: list[tuple[int, int, ProduceRequest]] = []
        self._deadlines_max = DEADLINES_SLACK
        self.earliest_ms = NEVER_MS  # no open request's deadline is before it

    def open(self, request: ProduceRequest) -> None:
        """The request waits; its deadline counts.  O(log n) amortised."""
        deadline_ms = request.deadline_ms
        heappush(self._deadlines, (deadline_ms, request.number, request))
        if deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        if len(self._deadlines) > self._deadlines_max:
            self._deadlines = [item for item in self._deadlines if item[2].remaining]
            heapify(self._deadlines)
            self._deadlines_max = 2 * len(self._deadlines) + DEADLINES_SLACK

    @property
    def deadlines_kept(self) -> int:
        """Deadlines in memory: at most twice the open requests at the last look, and the slack."""
        return len(self._deadlines)

    def add(self, group: int, index: int, level: str, request: ProduceRequest, slot: int,
            base_offset: int) -> None:
        """Wait for ``index`` of ``group``: to be committed, or with ``leader`` durable here."""
        table = self._durable if level == "leader" else self._commit
        table.setdefault(group, deque()).append((index, request, slot, base_offset))

    def committed(self, group: int, last: int) -> None:
        """Everything up to ``last`` is committed and durable here."""
        self._complete(self._commit, group, last)

    def durable(self, group: int, last: int) -> None:
        """Everything up to ``last`` is durable here."""
        self._complete(self._durable, group, last)

    def groups_waiting_for_durable(self) -> tuple[int, ...]:
        """Groups for which ``durable`` has something to look at."""
        return tuple(self._durable)

    def oldest(self) -> dict[int, int]:
        """Group -> lowest index that waits for its commit.  O(groups with such appends)."""
        return {group: waiting[0][0] for group, waiting in self._commit.items()}

    def lost(self, group: int) -> None:
        """This node leads ``group`` no more: nobody here can know what becomes of its entries."""
        self._lost(group, "the leader stepped down")

    def _lost(self, group: int, why: str) -> None:
        for table in (self._commit, self._durable):
            for _index, request, slot, _base in table.pop(group, ()):
                request.complete(slot, self._ambiguous(why))

    def stop(self) -> None:
        """The node ends: nobody here will know what becomes of what is pending."""
        for group in [*self._commit, *self._durable]:
            self._lost(group, "the node is stopping")

    def expire(self, now_ms: int) -> None:
        """End what waited too long; due at ``earliest_ms``.  O(expired)."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or not deadlines[0][2].remaining):
            request = heappop(deadlines)[2]
            for slot, result in enumerate(request.results):
                if result is None:
                    request.complete(slot, self._ambiguous("not committed in time"))
        self.earliest_ms = deadlines[0][0] if deadlines else NEVER_MS

    def _complete(self, table: dict, group: int, last: int) -> None:
        waiting = table.get(group)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= last:
            _index, request, slot, base_offset = waiting.popleft()
            request.complete(slot, self._acknowledged(base_offset))
        if not waiting:
            del table[group]
