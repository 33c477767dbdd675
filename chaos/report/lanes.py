"""Lanes of operations in a chart: each operation is in the first free lane of its kind.

Theory.  Interval partitioning: as many lanes as operations of a kind were under way at once, so a
quiet run is a few thin lines and an operation that hangs stands out in a lane of its own.
"""

from __future__ import annotations

import heapq

import numpy

from chaos.report.series import OperationColumns

#: Lanes of one kind; further operations share the last one.
LANES_MAX = 14
#: Between two kinds.
GAP = 1.5


class Lanes:
    """``row[i]``: where operation i is drawn; ``blocks``: first and last row of each kind."""

    def __init__(self, columns: OperationColumns, kinds: int):
        self.row = numpy.zeros(len(columns.begin_s))
        self.blocks: list[tuple[float, float]] = []
        top = 0.0
        for kind in range(kinds):
            mask = numpy.flatnonzero(columns.name == kind)
            lanes, used = partition(columns.begin_s[mask], columns.end_s[mask])
            self.row[mask] = top + lanes
            self.blocks.append((top, top + max(0, used - 1)))
            top += max(1, used) - 1 + GAP
        self.total = top


def partition(begins: numpy.ndarray, ends: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """Return the lane of each interval, and the number of lanes. Intervals in one lane do not
    overlap, except in the last of ``LANES_MAX`` lanes. O(n log n)."""
    lanes = numpy.zeros(len(begins))
    free: list[int] = []  # heap of lane numbers
    busy: list[tuple[float, int]] = []  # heap of (end, lane)
    used = 0
    for at in numpy.argsort(begins, kind="stable"):
        while busy and busy[0][0] <= begins[at]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        elif used < LANES_MAX:
            lane, used = used, used + 1
        else:
            lane = LANES_MAX - 1
            lanes[at] = lane
            continue
        lanes[at] = lane
        heapq.heappush(busy, (ends[at], lane))
    return lanes, used
