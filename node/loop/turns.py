"""Cooperative scheduling of long requests: each pass of the event loop works on a bounded number of
rows.

Contract. Work is counted in *rows* of a request, a reply or a table. A task calls ``take`` before
each of its steps, and works on at most the number of rows that it named (at most ``ROWS_PER_STEP``)
until it calls again. ``start`` schedules an iterator instead, one step per ``next``. In one pass
(turn) of the loop all steps together have ``rows_per_turn`` rows; the rest waits for the next turn.
Waiting steps are served round robin by owner (a session, a peer), and steps of one owner in the
order in which their work was begun. An exception of an iterator stops the node, like an exception
of a handler.

Theory. A request is delayed by its own size and by other requests of the same owner. Requests of
other owners delay it by at most one step of each. Rows are counted instead of microseconds, so that
the same requests are divided in the same way on every machine, and a test can count the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from heapq import heappop, heappush

import trio

from node.loop.steps import ROWS_PER_STEP

#: Owner of the current task's work, and the number of that work in order of beginning; None = the
#: node itself.
_WORK: ContextVar[tuple[object, int]] = ContextVar("work", default=(None, 0))


class _Step:
    """A step that waits for its share of a turn."""

    __slots__ = ("number", "rows", "run")

    def __init__(self, number: int, rows: int, run: Callable[[], bool]):
        self.number = number  # work that was begun earlier comes first
        self.rows = rows
        self.run = run  # runs the step; True if more steps follow

    def __lt__(self, other: _Step) -> bool:
        return self.number < other.number


class Turns:
    """Scheduler of long work on one node's event loop: rows left in this turn, and waiting steps by
    owner."""

    def __init__(self, rows_per_turn: int):
        self._rows_per_turn = rows_per_turn
        self._left = rows_per_turn  # rows that remain in this turn
        self._waiting: dict[object, list[_Step]] = {}  # owner -> heap; the next owner is first
        self._begun = 0
        self._wanted = trio.Event()
        self.turns = 0  # turns that served waiting steps

    def work_for(self, owner: object) -> None:
        """Attribute the work of the calling task to ``owner``, from this call on."""
        self._begun += 1
        _WORK.set((owner, self._begun))

    async def take(self, rows: int = 1) -> None:
        """Wait until ``rows`` more rows may be worked on, at most ``ROWS_PER_STEP``. While the
        present turn has rows left, this returns without yielding to the event loop, so it is no
        checkpoint."""
        rows = min(rows, ROWS_PER_STEP)
        if not self._waiting and self._left > 0:
            self._left -= rows
            self._wanted.set()
            return
        begins = trio.Event()

        def run() -> bool:
            begins.set()
            return False

        owner, number = _WORK.get()
        step = _Step(number, rows, run)
        self._queue(owner, step)
        try:
            await begins.wait()
        except trio.Cancelled:
            step.rows = 0  # the cancelled step uses no rows of its turn
            raise

    def start(self, owner: object, steps: Iterator) -> None:
        """Schedule ``steps`` for ``owner``: each ``next`` is a step of at most ``ROWS_PER_STEP``
        rows, and none runs inside this call."""

        def run() -> bool:
            return next(steps, steps) is not steps

        self._begun += 1
        self._queue(owner, _Step(self._begun, ROWS_PER_STEP, run))

    @property
    def waiting(self) -> int:
        """Number of owners with waiting steps."""
        return len(self._waiting)

    async def run(self) -> None:
        """Begin a turn in each pass of the event loop, while steps wait or rows were taken, until
        cancelled."""
        while True:
            await self._wanted.wait()
            self.turn()
            if self._waiting or self._left < self._rows_per_turn:
                await trio.lowlevel.checkpoint()
            else:
                self._wanted = trio.Event()

    def turn(self) -> None:
        """Begin a turn of the loop: renew its rows, and run waiting steps, one per owner in
        rotation, until the rows are used up."""
        self._left = self._rows_per_turn
        waiting = self._waiting
        if waiting:
            self.turns += 1
        while waiting and self._left > 0:
            owner = next(iter(waiting))
            steps = waiting.pop(owner)
            step = heappop(steps)
            self._left -= step.rows
            waiting[owner] = steps  # to the end of the round robin; ``run`` may add steps
            if step.run():
                heappush(steps, step)
            elif not steps:
                del waiting[owner]

    def _queue(self, owner: object, step: _Step) -> None:
        heappush(self._waiting.setdefault(owner, []), step)
        self._wanted.set()
