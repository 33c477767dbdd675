"""The only reader of time in the server: monotonic milliseconds for consensus, wall time for
people.

Contract.  ``monotonic_ms`` never goes back and is what every timer of the node is measured in.
"""

from __future__ import annotations

import time

#: Nanoseconds of the system's monotonic clock: the clock itself, for whoever reads it every round.
monotonic_ns = time.monotonic_ns


def monotonic_ms() -> int:
    """Milliseconds of the system's monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Microseconds of the system's monotonic clock, for latencies."""
    return time.monotonic_ns() // 1_000


def wall_ms() -> int:
    """Milliseconds since 1970, for people to read: nothing is decided by it, but whether a
    plan that a person made has expired."""
    return time.time_ns() // 1_000_000
