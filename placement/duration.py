"""Time that moves take within the limits of their plan.

Contract.  ``Work`` counts moves, ``ms`` is the time that they take.  A plan's estimate and the
expected end of one that is carried out are both made here, so they agree.

Theory.  Each node receives and sends a limited number of replicas at a time.  Its time is that of
its bytes at the plan's rate, or of its replicas at ``MOVE_MS`` each if that is longer; nodes work
in parallel, so the slowest one counts.  A replaced replica is kept for a while, which is waited for
once: the waits of different groups overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Milliseconds that an election, a switch, or a change of members takes beside its copies.
MOVE_MS = 500
#: Leader transfers and switches under way at once, unless a plan says otherwise.
TRANSFERS_AT_ONCE = 8
#: Milliseconds for which a replaced replica is kept, unless a plan says otherwise.
GRACE_MS = 5_000


class Pace(NamedTuple):
    """Limits of a plan, at least 1 each but for ``grace_ms``. ``rate``: bytes per second, node and
    direction."""

    rate: int
    in_per_node_max: int
    out_per_node_max: int
    at_once_max: int
    transfers_at_once_max: int = TRANSFERS_AT_ONCE
    grace_ms: int = GRACE_MS


class Work:
    """Moves that are to be made."""

    def __init__(self) -> None:
        self._transfers = 0
        self._copies = 0
        self._grace_parts = 0.0  # largest part of the grace period that is still waited for
        self._into: dict[int, tuple[int, int]] = {}  # node -> (replicas, bytes)
        self._out: dict[int, tuple[int, int]] = {}

    def add_transfer(self) -> None:
        """Count a leader transfer or a switch."""
        self._transfers += 1

    def add_copy(self, joining: Sequence[int], source: int, size: int) -> None:
        """Count a change of replicas: ``size`` bytes for each of the nodes ``joining``, sent by
        ``source`` (0 = not known yet)."""
        self._copies += 1
        for node in joining:
            _add(self._into, node, size)
            if source:
                _add(self._out, source, size)

    def add_grace(self, part: float = 1.0) -> None:
        """Count a replaced replica that is kept for this part of the grace period."""
        self._grace_parts = max(self._grace_parts, part)

    def ms(self, pace: Pace) -> int:
        """Return the time of all moves, in milliseconds.  O(nodes)."""
        transfers = self._transfers * MOVE_MS / pace.transfers_at_once_max
        copies = max([self._copies * MOVE_MS / pace.at_once_max,
                      *(_ms(row, pace.rate, pace.in_per_node_max) for row in self._into.values()),
                      *(_ms(row, pace.rate, pace.out_per_node_max) for row in self._out.values())])
        shortest = MOVE_MS if self._transfers or self._copies else 0
        return round(max(shortest, transfers + copies) + self._grace_parts * pace.grace_ms)


def _add(rows: dict[int, tuple[int, int]], node: int, size: int) -> None:
    replicas, total = rows.get(node, (0, 0))
    rows[node] = (replicas + 1, total + size)


def _ms(row: tuple[int, int], rate: int, at_once_max: int) -> float:
    replicas, size = row
    return max(size * 1000 / rate, replicas * MOVE_MS / at_once_max)
