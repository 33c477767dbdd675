"""Clock of a simulated node, beside the virtual time of the run.

Invariants.  ``now_ms`` never goes back within one boot of its node; the wall clock may be set to
any time.
"""

from __future__ import annotations

from chaos.simulator.env.event_queue import EventQueue

#: Wall clock at the beginning of a run, in milliseconds since 1970: any realistic time will do.
WALL_CLOCK_AT_START_MS = 1_700_000_000_000


class SkewedClock:
    """Clock of a node; it may run fast or slow, and jump ahead.  The wall clock of the node runs
    with it, and may be shifted."""

    __slots__ = ("rate", "shift_ms", "_queue", "_here_us", "_there_us")

    def __init__(self, queue: EventQueue):
        self.rate = 1.0
        #: Time by which the wall clock was set wrong; negative = it is behind.
        self.shift_ms = 0
        self._queue = queue
        self._here_us = self._there_us = queue.now_us

    @property
    def now_ms(self) -> int:
        """Milliseconds of this clock."""
        if self.rate == 1.0:
            return (self._here_us + self._queue.now_us - self._there_us) // 1000
        return int(self._here_us + (self._queue.now_us - self._there_us) * self.rate) // 1000

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the wall clock of the node shows them."""
        return WALL_CLOCK_AT_START_MS + self.now_ms + self.shift_ms

    def until_us(self, deadline_ms: int) -> int:
        """Return the virtual time, in microseconds, until this clock shows ``deadline_ms``; 0 when
        it does already."""
        now_us = self._here_us + (self._queue.now_us - self._there_us) * self.rate
        return max(0, int((deadline_ms * 1000 - now_us) / self.rate) + (self.rate != 1.0))

    def drift(self, rate: float, jump_us: int = 0) -> None:
        """Jump ahead by ``jump_us`` of this clock, and run at ``rate`` times the virtual time from
        now on."""
        passed_us = (self._queue.now_us - self._there_us) * self.rate
        self._here_us += int(passed_us) + jump_us
        self._there_us = self._queue.now_us
        self.rate = rate
