"""Clock of a node that follows a file, so that a run can make it jump and drift.

Contract.  A ``ClockShift`` is the total shift of a clock: ``write_shift`` replaces the file
atomically, ``ShiftedClock`` checks it at most every ``LOOK_MS`` while the clock is read, and reads
it again when it has changed.  The monotonic clock never goes back: it can jump ahead and run fast
or slow, and a shift that would take a jump back raises ``BadShift``.  The wall clock may take any
value.

Theory.  Leases and timeouts assume that clocks of different nodes run about equally fast, and
nothing about their values.  A virtual machine that is migrated, a suspended laptop and a broken
oscillator break the one, ``ntpd`` and operators break the other.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: The file is checked at most once in this time.
LOOK_MS = 10
#: A clock that stops or runs backwards is not monotonic.
DRIFT_PPM_MIN = -900_000

_MS = 1_000_000


class BadShift(Exception):
    """Raised for a shift that no monotonic clock can take, or a file that holds none."""


class ClockShift(NamedTuple):
    """Difference between a node's clocks and the true ones."""

    monotonic_ms: int = 0  # sum of all jumps ahead; never less than before
    drift_ppm: int = 0  # microseconds that the monotonic clock gains in a second; may be negative
    wall_ms: int = 0  # what is added to the wall clock


def read_shift(path: Path) -> ClockShift:
    """Return the shift that a file holds.  Raises ``BadShift``, and ``OSError`` of the file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        shift = ClockShift(**table)
    except (ValueError, TypeError) as error:
        raise BadShift(f"{path} holds no shift of a clock: {error}") from error
    if not all(type(value) is int for value in shift):
        raise BadShift(f"{path}: a shift is made of integers, not {shift}")
    if shift.monotonic_ms < 0 or shift.drift_ppm < DRIFT_PPM_MIN:
        raise BadShift(f"{path}: a monotonic clock does not go back: {shift}")
    return shift


def write_shift(path: Path, shift: ClockShift) -> None:
    """Replace the file atomically: a reader finds the old shift or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(shift._asdict()), encoding="utf-8")
    os.replace(fresh, path)


class ShiftedClock:
    """A clock with the two functions of ``time`` that a node's clock uses; safe to call from any
    thread."""

    def __init__(self, path: Path, monotonic_ns: Callable[[], int] = time.monotonic_ns,
                 wall_ns: Callable[[], int] = time.time_ns):
        self._path = path
        self._true_monotonic_ns = monotonic_ns
        self._true_wall_ns = wall_ns
        self._lock = threading.Lock()
        self._shift = ClockShift()
        self._since_ns = self._next_look_ns = monotonic_ns()  # of the true clock
        self._base_ns = self._since_ns  # what was shown then
        self._seen: tuple[int, int] | None = None  # (inode, time of the last change) of the file

    def monotonic_ns(self) -> int:
        """Return nanoseconds of the shifted monotonic clock. Raises ``BadShift`` and ``OSError`` of
        the file, which is checked every ``LOOK_MS``."""
        with self._lock:
            now_ns = self._true_monotonic_ns()
            self._look(now_ns)
            return self._shown_ns(now_ns)

    def time_ns(self) -> int:
        """Return nanoseconds since 1970 of the shifted wall clock. Raises as ``monotonic_ns``."""
        with self._lock:
            self._look(self._true_monotonic_ns())
            return self._true_wall_ns() + self._shift.wall_ms * _MS

    def _shown_ns(self, now_ns: int) -> int:
        passed_ns = now_ns - self._since_ns
        return self._base_ns + passed_ns + passed_ns * self._shift.drift_ppm // 1_000_000

    def _look(self, now_ns: int) -> None:
        """Apply a new shift from now on, if ``LOOK_MS`` have passed since the last look and the
        file has one; drift so far is kept. Raises ``BadShift``, also for a monotonic jump that
        would be undone."""
        if now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + LOOK_MS * _MS
        status = os.stat(self._path)
        seen = status.st_ino, status.st_mtime_ns
        if seen == self._seen:
            return
        shift = read_shift(self._path)
        ahead_ms = shift.monotonic_ms - self._shift.monotonic_ms
        if ahead_ms < 0:
            raise BadShift(f"{self._path}: the monotonic clock has jumped "
                           f"{self._shift.monotonic_ms} ms, and {-ahead_ms} ms are to be undone")
        self._base_ns = self._shown_ns(now_ns) + ahead_ms * _MS
        self._since_ns, self._shift, self._seen = now_ns, shift, seen
