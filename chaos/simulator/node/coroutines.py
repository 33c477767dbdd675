"""Coroutines of the product, run by the simulator's queue instead of an event loop.

Contract.  ``start(coroutine, later, over)`` runs a coroutine up to its first ``Pending`` that is
not settled; whoever settles that one lets it go on, as an event of its own (``later``), never
inside the call that settled it.  ``over(value, error)`` is told its end; errors that are no
``MultiRaftError`` are defects and pass through.  A fibre whose node dies is never resumed: its
events belong to a life that is over.

Theory.  What the product's tasks await is handed to them by the simulator, so no event loop is
needed to run their code; and one that has none cannot bring a scheduler of its own into a run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from multiraft.errors import MultiRaftError

#: (delay in microseconds, callback, arguments) in the life of a node.
Later = Callable[..., None]
Over = Callable[[Any, MultiRaftError | None], None]


class Pending:
    """Something that a fibre waits for; it is settled once, later ends of it change nothing."""

    __slots__ = ("_settled", "_value", "_error", "_resume")

    def __init__(self) -> None:
        self._settled = False
        self._value: Any = None
        self._error: MultiRaftError | None = None
        self._resume: Callable[[], None] | None = None

    def __await__(self) -> Generator[Pending, None, Any]:
        if not self._settled:
            yield self
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, value: Any = None, error: MultiRaftError | None = None) -> None:
        """It has come to this."""
        if not self._settled:
            self._settled, self._value, self._error = True, value, error
            if self._resume is not None:
                self._resume()

    def fail(self, error: MultiRaftError) -> None:
        """It has come to nothing."""
        self.settle(None, error)

    def then(self, resume: Callable[[], None]) -> None:
        """Who goes on."""
        self._resume = resume


def start(coroutine: Coroutine[Pending, None, Any], later: Later,
          over: Over = lambda _value, _error: None) -> None:
    """See the module's docstring."""

    def step() -> None:
        try:
            pending = coroutine.send(None)
        except StopIteration as stop:
            over(stop.value, None)
        except MultiRaftError as error:
            over(None, error)
        else:
            pending.then(lambda: later(0, step))

    step()


async def together(calls: Sequence[Callable[[], Coroutine[Pending, None, Any]]],
                   later: Later) -> None:
    """All of them, until the last one is over.  Raises the first of their errors then."""
    left: int = len(calls)
    failed: list[MultiRaftError] = []
    done = Pending()

    def over(_value: Any, error: MultiRaftError | None) -> None:
        nonlocal left
        left -= 1
        if error is not None:
            failed.append(error)
        if not left:
            done.settle()

    for call in calls:
        start(call(), later, over)
    if calls:
        await done
    if failed:
        raise failed[0]
