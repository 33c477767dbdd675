"""Cyclic garbage is looked for a little at a time, when the loop has nothing else to do.

Contract.  ``settle`` freezes what is there for as long as the process lives, and takes the
collector out of Python's hands, which would run it in whatever thread makes the object that is one
too many.  ``Garbage`` is a trio instrument: where the loop is about to wait for what comes next, it
looks through what was made since it last did, at most every ``YOUNG_MS``; and through everything at
most every ``ALL_S``, and so seldom that this is a thousandth of the time.  A loop that sleeps is
not woken for it.

Theory.  The collector's count falls when an *old* object goes.  A node that keeps as many entries
in memory as it lets go, as its caches do, hardly ever comes to the threshold; when it does, the
youngest generation is the whole cache, and all threads stand still while it is walked: 60 ms of
processor time, for nothing, as entries make no circles (docs/decisions/0045).  What is looked
through often is little.
"""

from __future__ import annotations

import gc

import trio

from node.clock import monotonic_ns

#: Milliseconds between looks at young objects: at some thousand batches a second, some thousand.
YOUNG_MS = 50
#: Seconds between looks at all objects, at least: circles that were not found young, as those of
#: connections that came and went, are gone by then.
ALL_S = 300
#: A look at all objects is not repeated before so many times what it took.
SELDOM = 1000


def settle() -> None:
    """What was made so far lives as long as the process: the collector need not visit it again, and
    a recovered index of any size cannot stall the loop.  From here on somebody
    has to collect: ``Garbage``."""
    gc.collect()
    gc.freeze()
    gc.disable()


class Garbage(trio.abc.Instrument):
    """Given to ``trio.run``."""

    def __init__(self) -> None:
        self._young_due_ns = 0
        self._all_due_ns = monotonic_ns() + ALL_S * 1_000_000_000

    def before_io_wait(self, timeout: float) -> None:
        """All tasks have had their turn.  O(objects made since the last look and still there)."""
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
