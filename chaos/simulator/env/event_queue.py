"""Virtual clock and event queue of a simulation.

Contract.  Time is an integer of microseconds; only ``run_until`` moves it.  Two events of one
instant run in the order in which they were scheduled, so a run is a function of its seed alone.

Theory.  One heap, one thread, plain calls, as in FoundationDB's sim2 and TigerBeetle's VOPR: no
scheduler of an event loop or of the system can change the order.  A cancelled event stays in the
heap and is skipped, which is cheaper than finding it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from chaos.simulator.env.violations import Livelock


class ScheduledCall:
    """A scheduled call that can be cancelled."""

    __slots__ = ("callback", "arguments")

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]):
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def fire(self) -> None:
        """Run the callback, unless the event was cancelled."""
        if self.callback is not None:
            self.callback(*self.arguments)


class EventQueue:
    """Heap of (time, order, callback, arguments)."""

    __slots__ = ("now_us", "events_run", "_order", "_heap")

    #: Events that may run at one instant before it counts as a livelock.
    INSTANT_EVENTS_MAX = 200_000

    def __init__(self) -> None:
        self.now_us = 0
        self.events_run = 0
        self._order = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def at(self, at_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call at an absolute time; a time in the past means now.  O(log n)."""
        self._order += 1
        now_us = self.now_us
        heappush(self._heap, (at_us if at_us > now_us else now_us, self._order, callback,
                              arguments))

    def after(self, delay_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call ``delay_us`` from now; a negative delay means now.  O(log n)."""
        self._order += 1
        heappush(self._heap, (self.now_us + (delay_us if delay_us > 0 else 0), self._order,
                              callback, arguments))

    def timer(self, delay_us: int, callback: Callable[..., None], *arguments: Any) -> ScheduledCall:
        """Schedule a call like ``after``; return a ``ScheduledCall`` that can cancel it."""
        event = ScheduledCall(callback, arguments)
        self.after(delay_us, event.fire)
        return event

    def run_until(self, until_us: int) -> None:
        """Run all events due up to and including ``until_us``; then set the time to ``until_us``.

        Raises ``Livelock`` when more than ``INSTANT_EVENTS_MAX`` events run at one instant.
        """
        heap = self._heap
        instant_us, instant_events = -1, 0
        while heap and heap[0][0] <= until_us:
            at_us, _, callback, arguments = heappop(heap)
            if at_us == instant_us:
                instant_events += 1
                if instant_events > self.INSTANT_EVENTS_MAX:
                    raise Livelock(f"{instant_events} events at {at_us} us, last {callback}")
            else:
                self.now_us = instant_us = at_us
                instant_events = 0
            self.events_run += 1
            callback(*arguments)
        self.now_us = max(self.now_us, until_us)
