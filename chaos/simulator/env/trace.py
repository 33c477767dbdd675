"""Trace of a run: one fixed-width line per transition, and a digest of all lines.

Contract.  A line is ``seconds node group kind text``; columns never move, so two traces can be
compared with ``diff`` and cut with ``cut``.  ``digest()`` covers every line and every number given
to ``mix``: two runs of one seed have equal digests or the simulator is broken.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

from chaos.simulator.env.event_queue import EventQueue

#: Lines kept for the report of a failure.
TAIL_LINES = 60


class Trace:
    """Collector of trace lines; it passes each line to ``sink``, if one was given."""

    def __init__(self, queue: EventQueue, sink: Callable[[str], None] | None = None,
                 tail_lines: int = TAIL_LINES):
        self._queue = queue
        self._sink = sink
        self._hasher = hashlib.blake2b(digest_size=16)
        self.tail: deque[str] = deque(maxlen=tail_lines)

    def line(self, node: int, group: int, kind: str, text: str = "") -> None:
        """Add the line of one transition at the present time, also to the digest; node 0 = the
        simulation, group -1 = the whole node."""
        where = f"n{node}" if node else "-"
        which = f"g{group:03d}" if group >= 0 else "-"
        line = "%12.6f %-4s %-5s %-21s %s" % (self._queue.now_us / 1e6, where, which, kind, text)
        self._hasher.update(line.encode())
        self.tail.append(line)
        if self._sink is not None:
            self._sink(line)

    def mix(self, *numbers: int) -> None:
        """Add numbers to the digest without a line in the trace."""
        self._hasher.update(b",".join(b"%d" % number for number in numbers))

    def digest(self) -> str:
        return self._hasher.hexdigest()
