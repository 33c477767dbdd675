"""Pending appends: proposals that wait for their commit; each is answered exactly once.

Contract. A proposal is added with (group, index) and the ack level of its client. ``committed`` and
``durable`` acknowledge what they cover. ``lost`` ends all appends of a group as *ambiguous*: the
leader stepped down, and another leader may still commit the entries. ``expire`` ends appends that
waited too long as ambiguous. A definite refusal never comes from this table.

Invariants. Indexes of a group are added in ascending order. ``lost`` runs before any commit of
another term is processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from multiraft.raft.timers import NEVER_MS
from multiraft.wire.errors import Code
from multiraft.wire.rows import KeylessRecords

if TYPE_CHECKING:
    from multiraft.wire.messages import ProduceResult
    from node.clients.session import Session
    from node.metadata.topics import Topic

#: Deadlines of answered requests that are kept before the heap is filtered, so that few open
#: requests cause few filter passes.
DEADLINES_SLACK = 256


class ProduceRequest:
    """A produce request with one result per batch, answered when the last result is known. It holds
    no bytes of its batches."""

    __slots__ = ("reply", "results", "remaining", "deadline_ms", "number", "_times_ms", "_keyless",
                 "session", "topic")

    def __init__(self, number: int, reply: Callable[[ProduceRequest], None], batches: int,
                 deadline_ms: int, session: Session | None = None):
        self.session = session  # of the client; None = of this node itself
        self.topic: Topic | None = None  # the last one that the client may write to
        self.number = number  # ties of equal deadlines
        self.reply = reply  # called once with (request)
        self.results: list = [None] * batches
        self.remaining = batches
        self.deadline_ms = deadline_ms
        self._times_ms: dict[int, int] | None = None  # slot -> time at which it was appended
        self._keyless: dict[int, tuple[int, ...]] | None = None  # slot -> records without a key

    def stamped(self, slot: int, time_ms: int) -> None:
        """Record the timestamp that the leader gave the records of a batch."""
        if self._times_ms is None:
            self._times_ms = {}
        self._times_ms[slot] = time_ms

    def found_keyless(self, slot: int, records: tuple[int, ...]) -> None:
        """Record the positions of records without a key, for which a batch is refused."""
        if self._keyless is None:
            self._keyless = {}
        self._keyless[slot] = records

    def keyless(self) -> tuple[KeylessRecords, ...] | None:
        """Return the records without a key of the batches that are refused for them, by batch; None
        = there is none.  O(batches refused)."""
        if self._keyless is None:
            return None
        return tuple(KeylessRecords(*found) for found in sorted(self._keyless.items()))

    def append_times_ms(self) -> tuple[int, ...] | None:
        """Return the timestamps that the leader gave, by batch, -1 = none, or the batch is not
        acknowledged; None = none at all.  O(batches) if there is one."""
        times = self._times_ms
        if times is None:
            return None
        return tuple(times.get(slot, -1) if result.code == Code.OK else -1
                     for slot, result in enumerate(self.results))

    def complete(self, slot: int, result: ProduceResult) -> None:
        """Set the result of one batch, and reply if it was the last. A second result is ignored:
        the first was ambiguous."""
        if self.results[slot] is None:
            self.results[slot] = result
            self.remaining -= 1
            if not self.remaining:
                self.reply(self)


class PendingAppends:
    """The pending appends of all groups led here, by group in index order."""

    def __init__(self, ambiguous: Callable[[str], ProduceResult],
                 acknowledged: Callable[[int], ProduceResult]):
        self._ambiguous = ambiguous  # (why) -> a result
        self._acknowledged = acknowledged  # (base_offset) -> a result
        self._commit: dict[int, deque] = {}  # group -> (index, request, slot, base_offset)
        self._durable: dict[int, deque] = {}
        #: Heap of (deadline, number, request). Answered requests stay until they reach the top or
        #: are filtered out, so that an append costs one push and no search.
        self._deadlines: list[tuple[int, int, ProduceRequest]] = []
        self._deadlines_max = DEADLINES_SLACK
        self.earliest_ms = NEVER_MS  # no open request's deadline is before it

    def open(self, request: ProduceRequest) -> None:
        """Add a request, whose deadline counts from now on. O(log n) amortised."""
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
        """Deadlines in memory: at most twice the requests that were open at the last filter pass,
        plus the slack."""
        return len(self._deadlines)

    def add(self, group: int, index: int, level: str, request: ProduceRequest, slot: int,
            base_offset: int) -> None:
        """Have ``slot`` of ``request`` acknowledged once ``index`` of ``group`` is committed, or
        with the ack level ``leader`` durable here. ``base_offset`` is for the reply."""
        table = self._durable if level == "leader" else self._commit
        table.setdefault(group, deque()).append((index, request, slot, base_offset))

    def committed(self, group: int, last: int) -> None:
        """Acknowledge the appends of acks=commit up to ``last``, which is committed and durable on
        this node."""
        self._complete(self._commit, group, last)

    def durable(self, group: int, last: int) -> None:
        """Acknowledge appends with acks=leader up to ``last``, which is durable on this node."""
        self._complete(self._durable, group, last)

    def groups_waiting_for_durable(self) -> tuple[int, ...]:
        """Return the groups with pending appends of acks=leader."""
        return tuple(self._durable)

    def oldest(self) -> dict[int, int]:
        """Return group -> lowest index that waits for its commit. O(groups with such appends)."""
        return {group: waiting[0][0] for group, waiting in self._commit.items()}

    def lost(self, group: int) -> None:
        """End all appends of ``group`` as ambiguous: this node no longer leads it, and cannot know
        the fate of its entries."""
        self._lost(group, "the leader stepped down")

    def _lost(self, group: int, why: str) -> None:
        for table in (self._commit, self._durable):
            for _index, request, slot, _base in table.pop(group, ()):
                request.complete(slot, self._ambiguous(why))

    def stop(self) -> None:
        """End all appends as ambiguous: the node is stopping."""
        for group in [*self._commit, *self._durable]:
            self._lost(group, "the node is stopping")

    def expire(self, now_ms: int) -> None:
        """End the open batches of requests whose deadline has passed as ambiguous; due at
        ``earliest_ms``. O(expired log n)."""
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
