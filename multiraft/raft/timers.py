"""Deadlines by key: a heap whose obsolete items are skipped when they surface.

Contract.  ``arm`` moves a deadline earlier, never later; a caller that fires too early checks what
is due and arms again.  So a busy group pushes one item per expiry instead of one per message.
``earliest_ms`` is a lower bound in O(1): no deadline is before it, but it may belong to a cancelled
timer; ``next_ms`` and ``pop_due`` make it exact.

Complexity.  arm, due: O(log n) amortised; cancel: O(1).  The heap holds at most ``2 * live +
SLACK`` items.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

#: Obsolete items that are tolerated before the heap is rebuilt: keeps rebuilding rare while few
#: timers are live.
SLACK = 256


#: Value of ``earliest_ms`` without a deadline.
NEVER_MS = 1 << 60


class Timers:
    """Deadlines in milliseconds by key; ties fire in order of keys."""

    __slots__ = ("_heap", "_deadlines", "earliest_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._deadlines: dict[int, int] = {}
        self.earliest_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._deadlines)

    def __bool__(self) -> bool:
        return bool(self._deadlines)

    def arm(self, key: int, deadline_ms: int) -> None:
        """Arm the timer of ``key`` to fire at ``deadline_ms``; keep the present deadline if that is
        earlier."""
        current = self._deadlines.get(key)
        if current is None or deadline_ms < current:
            self._deadlines[key] = deadline_ms
            heappush(self._heap, (deadline_ms, key))
            if deadline_ms < self.earliest_ms:
                self.earliest_ms = deadline_ms
            if len(self._heap) > 2 * len(self._deadlines) + SLACK:
                self._heap = [(deadline, key) for key, deadline in self._deadlines.items()]
                heapify(self._heap)

    def cancel(self, key: int) -> None:
        """Remove the deadline of ``key``, if there is one."""
        self._deadlines.pop(key, None)

    def deadline(self, key: int) -> int | None:
        """Return the deadline of ``key``; None = not armed."""
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """Return the earliest deadline of all keys; None = none is armed."""
        heap = self._heap
        while heap:
            deadline, key = heap[0]
            if self._deadlines.get(key) == deadline:
                self.earliest_ms = deadline
                return deadline
            heappop(heap)
        self.earliest_ms = NEVER_MS
        return None

    def pop_due(self, now_ms: int) -> int | None:
        """Disarm and return a key whose deadline has passed; None = no key is due."""
        deadline = self.next_ms()
        if deadline is None or deadline > now_ms:
            return None
        key = heappop(self._heap)[1]
        del self._deadlines[key]
        return key  # ``earliest_ms`` keeps the old value: the caller repeats until no key is due

    def _check(self) -> None:
        items = {*self._heap}
        assert self.earliest_ms <= min(self._deadlines.values(), default=NEVER_MS)
        assert all((deadline, key) in items for key, deadline in self._deadlines.items())
        assert len(self._heap) <= 2 * len(self._deadlines) + SLACK + 1
