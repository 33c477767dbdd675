"""Virtual time and the queue of everything that is going to happen.

Contract.  Time is an integer of microseconds that only ``run_until`` moves.  Two events of one
instant run in the order in which they were scheduled, so a run is a function of its seed alone.

Theory.  There is no scheduler to trust and none to blame: one heap, one thread, plain calls
(FoundationDB's sim2, TigerBeetle's VOPR).  A cancelled event stays in the heap and is skipped,
which is cheaper than finding it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Livelock(AssertionError):
    """The queue does not drain: events breed events without time passing."""


class Event:
    """Something scheduled; ``cancel`` makes it not happen."""

    __slots__ = ("callback", "arguments")

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]):
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()


class EventQueue:
    """A heap of (time, order, event)."""

    #: Events that may run at one instant before it counts as a livelock.
    INSTANT_EVENTS_MAX = 200_000

    def __init__(self) -> None:
        self.now_us = 0
        self.events_run = 0
        self._order = 0
        self._heap: list[tuple[int, int, Event]] = []

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def at(self, at_us: int, callback: Callable[..., None], *arguments: Any) -> Event:
        """Schedule a call at an absolute time; a time in the past means now.  O(log n)."""
        event = Event(callback, arguments)
        self._order += 1
        heapq.heappush(self._heap, (max(at_us, self.now_us), self._order, event))
        return event

    def after(self, delay_us: int, callback: Callable[..., None], *arguments: Any) -> Event:
        """Schedule a call ``delay_us`` from now.  O(log n)."""
        return self.at(self.now_us + delay_us, callback, *arguments)

    def run_until(self, until_us: int) -> None:
        """Run what is due up to and including ``until_us``; time is ``until_us`` afterwards."""
        heap = self._heap
        instant_us, instant_events = -1, 0
        while heap and heap[0][0] <= until_us:
            at_us, _, event = heapq.heappop(heap)
            callback = event.callback
            if callback is None:
                continue
            self.now_us = at_us
            self.events_run += 1
            if at_us == instant_us:
                instant_events += 1
                if instant_events > self.INSTANT_EVENTS_MAX:
                    raise Livelock(f"{instant_events} events at {at_us} us, last {callback}")
            else:
                instant_us, instant_events = at_us, 0
            callback(*event.arguments)
        self.now_us = max(self.now_us, until_us)
