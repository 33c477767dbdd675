"""The server's only reader of time: monotonic time for timers, wall time for people.

Contract. ``monotonic_ms`` never goes back; every timer of the node is measured in it.
"""

from __future__ import annotations

import time

#: Returns nanoseconds of the system's monotonic clock. An alias, because every round calls it.
monotonic_ns = time.monotonic_ns


def monotonic_ms() -> int:
    """Return milliseconds of the system's monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Return microseconds of the system's monotonic clock, for latencies."""
    return time.monotonic_ns() // 1_000


def wall_ms() -> int:
    """Return milliseconds since 1970, for people to read and for LogAppendTime. It decides nothing
    except the expiry of a plan that a person made, and is compared with the clocks of other
    nodes."""
    return time.time_ns() // 1_000_000
