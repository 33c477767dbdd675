"""Pace of the cleaner: bytes per second, and pauses that an operator asks for.

Contract.  Pure: times come from the caller, in seconds of one clock.  After each step the caller
reports its bytes, and begins the next step at the time that ``due_s`` says.  Steps of together
``burst_bytes`` may follow each other without a question to the pace.

Invariant.  A pause neither earns nor owes anything: work continues at the pace from its end on.
"""

from __future__ import annotations

#: Steps follow each other for so long, at the pace: below 100 MiB/s that is one step.
BURST_S = 0.01
#: Bytes of steps that follow each other at most: appends and the other work of a thread wait for
#: them, some 50 ms.
BURST_BYTES_MAX = 8 << 20


class CleanerPace:
    """Time of the next step of a cleaner."""

    def __init__(self, bytes_per_second: int):
        """``bytes_per_second``: of reads and writes together; 0 = paused until ``resume`` names
        another."""
        self.bytes_per_second = bytes_per_second
        self.is_paused = not bytes_per_second
        self._due_s = 0.0

    @property
    def burst_bytes(self) -> int:
        """Bytes after which the caller asks the pace again; it does one step in any case."""
        return min(BURST_BYTES_MAX, int(self.bytes_per_second * BURST_S))

    def pause(self) -> None:
        """Begin no further step until ``resume``."""
        self.is_paused = True

    def resume(self, bytes_per_second: int = 0) -> bool:
        """End a pause, at another pace if ``bytes_per_second`` is not 0.  Return False, and stay
        paused, if no pace is known."""
        self.bytes_per_second = bytes_per_second or self.bytes_per_second
        self.is_paused = not self.bytes_per_second
        return not self.is_paused

    def done(self, count: int, now_s: float) -> None:
        """Take a step that read and wrote ``count`` bytes and ended now."""
        if self.bytes_per_second:
            self._due_s = max(self._due_s, now_s) + count / self.bytes_per_second

    def due_s(self, now_s: float) -> float:
        """Return when the next step may begin; infinity = not before ``resume``."""
        return float("inf") if self.is_paused else max(self._due_s, now_s)
