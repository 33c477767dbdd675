"""Coroutines of the product, run by the event queue of the simulator.

Contract.  ``start(coroutine, later, over)`` runs a coroutine up to its first ``Future`` without a
result.  ``Future.set_result`` resumes the coroutine as an event of its own (``later``), never
within the call of ``set_result``.  ``over(value, error)`` receives the result; errors that are no
``MultiRaftError`` are defects and propagate.  A coroutine whose node crashes is never resumed,
because ``later`` drops the events of an older boot.

Theory.  The simulator supplies everything that the product's tasks await, so no event loop is
needed to run them.  Without an event loop, no second scheduler can influence a run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from multiraft.errors import MultiRaftError

#: (delay in microseconds, callback, arguments), within one boot of a node.
Later = Callable[..., None]
Over = Callable[[Any, MultiRaftError | None], None]


class Future:
    """Result that a coroutine awaits.  The first result counts; later ones are ignored."""

    __slots__ = ("_is_done", "_value", "_error", "_resume")

    def __init__(self) -> None:
        self._is_done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._resume: Callable[[], None] | None = None

    def __await__(self) -> Generator[Future, None, Any]:
        if not self._is_done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any = None, error: Exception | None = None) -> None:
        """Set the result, or the error that the waiting coroutine gets, and have that coroutine
        resumed as an event of its own. Ignored when there is a result already."""
        if not self._is_done:
            self._is_done, self._value, self._error = True, value, error
            if self._resume is not None:
                self._resume()

    def set_error(self, error: MultiRaftError) -> None:
        """Set the error that the waiting coroutine gets, as ``set_result``."""
        self.set_result(None, error)

    def on_done(self, resume: Callable[[], None]) -> None:
        """Set the callback that ``set_result`` calls, which has the waiting coroutine resumed.
        There must be no result yet."""
        self._resume = resume


class Lock:
    """Lock that coroutines hold one after the other, in the order of their requests."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[Future] = []

    async def __aenter__(self) -> None:
        if self._is_held:
            turn = Future()
            self._waiting.append(turn)
            await turn  # its holder hands the lock over
        self._is_held = True

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            return  # its boot has ended, so no coroutine of it may be resumed
        if self._waiting:
            self._waiting.pop(0).set_result()
        else:
            self._is_held = False


def start(coroutine: Coroutine[Future, None, Any], later: Later,
          over: Over = lambda _value, _error: None) -> None:
    """Run ``coroutine`` up to its first ``Future`` without a result, and return; each result
    resumes it through ``later``. ``over`` receives its result, or its ``MultiRaftError``."""

    def step() -> None:
        try:
            pending = coroutine.send(None)
        except StopIteration as stop:
            over(stop.value, None)
        except MultiRaftError as error:
            over(None, error)
        else:
            pending.on_done(lambda: later(0, step))

    step()


def raise_error(_value: Any, error: MultiRaftError | None) -> None:
    """Raise the error of a coroutine that has no caller: it is a defect."""
    if error is not None:
        raise error


async def together(calls: Sequence[Callable[[], Coroutine[Future, None, Any]]],
                   later: Later) -> None:
    """Run all calls concurrently and wait for all of them. When the last one has ended, raise the
    first of their errors."""
    left: int = len(calls)
    failed: list[MultiRaftError] = []
    done = Future()

    def over(_value: Any, error: MultiRaftError | None) -> None:
        nonlocal left
        left -= 1
        if error is not None:
            failed.append(error)
        if not left:
            done.set_result()

    for call in calls:
        start(call(), later, over)
    if calls:
        await done
    if failed:
        raise failed[0]
