"""Turns: what is much work is done in steps, and each turn of the loop has room for a few of them.

Contract.  Work is counted in *rows*: of a request, an answer or a table.  A task calls ``take``
before each of its steps and works on at most so many rows as it named, ``ROWS_PER_STEP`` at most,
until it calls again; ``start`` takes a step at a time of an iterator.  In one turn of the loop
there is room for ``rows_per_turn`` rows, whoever works on them; who finds none waits.  Those who
wait are served in turn by whom they work for (a session, a peer), and the work for one of them in
the order in which it was begun.  What an iterator raises ends the node, as what a handler raises.

Theory.  A request is answered late when it is large, or when its sender has many of them; others
wait for at most one step of each kind.  Rows are counted and not microseconds, so that the same
requests are cut in the same way everywhere, and a test can count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from heapq import heappop, heappush

import trio

#: Rows worked on at a time: with 1 to 10 us each, a millisecond at most.
ROWS_PER_STEP = 128

#: For whom this task works, and which of what was begun it is; None = for the node itself.
_WORK: ContextVar[tuple[object, int]] = ContextVar("work", default=(None, 0))


class _Step:
    """Something that waits for room in a turn."""

    __slots__ = ("number", "rows", "go")

    def __init__(self, number: int, rows: int, go: Callable[[], bool]):
        self.number = number  # what was begun earlier goes first
        self.rows = rows
        self.go = go  # whether there is more of it

    def __lt__(self, other: _Step) -> bool:
        return self.number < other.number


class Turns:
    """See the module's docstring."""

    def __init__(self, rows_per_turn: int):
        self._rows_per_turn = rows_per_turn
        self._left = rows_per_turn  # rows that this turn still has room for
        self._waiting: dict[object, list[_Step]] = {}  # heaps; whose turn it is comes first
        self._begun = 0
        self._wanted = trio.Event()
        self.turns = 0  # in which somebody worked

    def work_for(self, whom: object) -> None:
        """What the calling task begins now, and does from now on, is for ``whom``."""
        self._begun += 1
        _WORK.set((whom, self._begun))

    async def take(self, rows: int = 1) -> None:
        """Wait until ``rows`` more rows may be worked on.  Asks for no turn of the loop while the
        present one has room, so it is no checkpoint."""
        rows = min(rows, ROWS_PER_STEP)
        if not self._waiting and self._left > 0:
            self._left -= rows
            self._wanted.set()
            return
        begins = trio.Event()

        def go() -> bool:
            begins.set()
            return False

        whom, number = _WORK.get()
        step = _Step(number, rows, go)
        self._queue(whom, step)
        try:
            await begins.wait()
        except trio.Cancelled:
            step.rows = 0  # it takes no room from others
            raise

    def start(self, whom: object, steps: Iterator) -> None:
        """Have each of ``steps`` done in a turn; they are at most ``ROWS_PER_STEP`` rows each."""

        def go() -> bool:
            return next(steps, steps) is not steps

        self._begun += 1
        self._queue(whom, _Step(self._begun, ROWS_PER_STEP, go))

    @property
    def waiting(self) -> int:
        """For how many there is work that waits."""
        return len(self._waiting)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            self.turn()
            if self._waiting or self._left < self._rows_per_turn:
                await trio.lowlevel.checkpoint()
            else:
                self._wanted = trio.Event()

    def turn(self) -> None:
        """A turn of the loop has begun: let those work who wait, as far as there is room."""
        self._left = self._rows_per_turn
        waiting = self._waiting
        if waiting:
            self.turns += 1
        while waiting and self._left > 0:
            whom = next(iter(waiting))
            steps = waiting.pop(whom)
            step = heappop(steps)
            self._left -= step.rows
            waiting[whom] = steps  # the next turn is the others'; ``go`` may add to it
            if step.go():
                heappush(steps, step)
            elif not steps:
                del waiting[whom]

    def _queue(self, whom: object, step: _Step) -> None:
        heappush(self._waiting.setdefault(whom, []), step)
        self._wanted.set()


class Later:
    """Work that begins at once, and goes on in turns when it is more than a step."""

    def __init__(self, turns: Turns, request_round: Callable[[], None]):
        self._turns = turns
        self._request_round = request_round

    def go_on(self, whom: object, steps: Iterator[None]) -> None:
        """Do the first step now; the answers of the others leave with rounds of their own."""
        left = advanced(steps)
        if left is not None:
            self._turns.start(whom, self._in_turns(left))

    def _in_turns(self, steps: Iterator[None]) -> Iterator[None]:
        for _ in steps:
            self._request_round()
            yield
        self._request_round()


def advanced(steps: Iterator[None]) -> Iterator[None] | None:
    """``steps`` without the first one, which is done; None = it was the last."""
    return steps if next(steps, steps) is not steps else None


def parts(count: int, size: int = ROWS_PER_STEP) -> Iterator[range]:
    """0 .. count - 1 in ranges of at most ``size``."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))
