"""Split of ranges into tasks: large ranges are cut, small ones share a task.

Contract.  Pure and deterministic: the same ranges and sizes give the same tasks.  Every offset of
every range is in exactly one task, and the ranges of a task are in their order.  O(ranges + tasks).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from multiraft.client.ranges import Range

#: A task is one pickled value and a few bytes per range.
RANGES_PER_TASK_MAX = 10_000


def split(ranges: Sequence[Range], bytes_of: Callable[[Range], float], split_bytes: int,
          tasks_min: int = 0) -> list[tuple[Range, ...]]:
    """Return tasks of about ``split_bytes`` each, sizes by ``bytes_of``, and at least ``tasks_min``
    of them if there are as many records. Empty ranges are left out."""
    ranges = [part for part in ranges if part.count > 0]
    if tasks_min > 1:
        total = sum(map(bytes_of, ranges))
        split_bytes = max(1, min(split_bytes, int(total / tasks_min)))
    tasks = _pack([piece for part in ranges for piece in _cut(part, bytes_of(part), split_bytes)],
                  split_bytes)
    return _more(tasks, tasks_min)


def _cut(part: Range, size: float, split_bytes: int) -> list[tuple[Range, float]]:
    """Return a range in equal pieces of at most ``split_bytes``, as far as records can be
    divided."""
    pieces = min(part.count, max(1, -int(-size // split_bytes)))
    edges = [part.start_offset + part.count * at // pieces for at in range(pieces + 1)]
    return [(part._replace(start_offset=first, end_offset=last), size / pieces)
            for first, last in zip(edges, edges[1:])]


def _pack(pieces: Sequence[tuple[Range, float]], split_bytes: int) -> list[tuple[Range, ...]]:
    tasks: list[tuple[Range, ...]] = []
    task: list[Range] = []
    held = 0.0
    for piece, size in pieces:
        if task and (held + size > split_bytes or len(task) == RANGES_PER_TASK_MAX):
            tasks.append(tuple(task))
            task, held = [], 0.0
        task.append(piece)
        held += size
    return [*tasks, tuple(task)] if task else tasks


def _more(tasks: list[tuple[Range, ...]], tasks_min: int) -> list[tuple[Range, ...]]:
    """Halve the tasks with the most records until there are ``tasks_min``, or each has one record.
    Return the tasks in order."""
    heap = [(-_records(task), task) for task in tasks]
    heapq.heapify(heap)
    while len(heap) < tasks_min and heap and heap[0][0] < -1:
        _, task = heapq.heappop(heap)
        for half in _halves(task):
            heapq.heappush(heap, (-_records(half), half))
    return sorted(task for _, task in heap)


def _records(task: tuple[Range, ...]) -> int:
    return sum(part.count for part in task)


def _halves(task: tuple[Range, ...]) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    if len(task) > 1:
        return task[:len(task) // 2], task[len(task) // 2:]
    [part] = task
    middle = part.start_offset + part.count // 2
    return (part._replace(end_offset=middle),), (part._replace(start_offset=middle),)
