"""The schedule of Python's cyclic garbage collector: small collections while the loop is idle.

Contract. ``freeze`` freezes all present objects for the life of the process and disables automatic
collection, which would run in the thread that happens to allocate the object above the threshold.
``Garbage`` is a trio instrument that collects when the loop is about to wait: young objects at most
every ``YOUNG_MS``; all objects at most every ``ALL_S``, and so seldom that full collections take at
most a thousandth of the time. It does not wake a loop that sleeps.

Theory. The collector's counter falls when an *old* object is freed. A node that adds entries to its
caches as fast as it drops them therefore hardly ever reaches the threshold. When it does, the
youngest generation is the whole cache, and all threads wait while it is traversed: 60 ms of
processor time without any result, because entries form no reference cycles (docs/decisions/0045).
Frequent collections have few objects to traverse.
"""

from __future__ import annotations

import gc

import trio

from multiraft import core
from node.clock import monotonic_ns

#: Milliseconds between collections of young objects: some thousand objects, at some thousand
#: batches a second.
YOUNG_MS = 50
#: Least time between full collections, in seconds. They free the cycles that survived the young
#: generation, such as those of closed connections.
ALL_S = 300
#: A full collection is not repeated within this many times its own duration.
SELDOM = 1000


def freeze() -> None:
    """Exempt all present objects from garbage collection, and disable automatic collection. A
    recovered index of any size then cannot stall the loop. Memory that the start has freed goes
    back to the operating system. From this call on ``Garbage`` has to
    collect."""
    gc.collect()
    core.trim_memory()
    gc.freeze()
    gc.disable()


class Garbage(trio.abc.Instrument):
    """Instrument for ``trio.run`` that collects garbage between passes of the event loop."""

    def __init__(self) -> None:
        self._young_due_ns = 0
        self._all_due_ns = monotonic_ns() + ALL_S * 1_000_000_000

    def before_io_wait(self, timeout: float) -> None:
        """Collect young objects or all objects if that is due, after all tasks have run; otherwise
        do nothing. O(objects created since the last collection and still referenced)."""
        now_ns = monotonic_ns()
        if now_ns < self._young_due_ns:
            return
        self._young_due_ns = now_ns + YOUNG_MS * 1_000_000
        if now_ns < self._all_due_ns:
            gc.collect(0)
            return
        gc.collect()
        took_ns = monotonic_ns() - now_ns
        self._all_due_ns = now_ns + max(ALL_S * 1_000_000_000, SELDOM * took_ns)
