"""Lines of the log about what others repeat: one line per cause and minute, with a number.

Contract.  ``count`` counts an occurrence of a cause and returns the number that a line reports
now: at first 1, then at most once per ``INTERVAL_MS`` the number of occurrences since the last
line.  Between the lines it returns 0.  At most ``CAUSES_MAX`` causes are known; the one whose line
is the oldest is forgotten for a new one.

Theory.  The rate limit of an event protects the log from a flood.  It does not help an operator
whose log consists of one wrong client that connects again every second, for months.
"""

from __future__ import annotations

from collections.abc import Hashable

from node.clock import monotonic_ms

#: Time between two lines about one cause, in milliseconds.
INTERVAL_MS = 60_000
#: Causes that are known at a time: some 200 KiB.
CAUSES_MAX = 1_000


class RepeatedLines:
    """Table of causes: the time of the last line about each, and the occurrences since."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, tuple[int, int]] = {}  # the oldest line first

    def count(self, cause: Hashable) -> int:
        """Count an occurrence of ``cause``.  Return the number of occurrences that a line is to
        report now; 0 = write no line."""
        now_ms = monotonic_ms()
        written_ms, count = self._causes.get(cause, (now_ms - INTERVAL_MS, 0))
        count += 1
        if now_ms - written_ms < INTERVAL_MS:
            self._causes[cause] = written_ms, count
            return 0
        self._causes.pop(cause, None)
        if len(self._causes) >= CAUSES_MAX:
            del self._causes[next(iter(self._causes))]
        self._causes[cause] = now_ms, 0
        return count
