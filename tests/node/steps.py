"""Coroutines of the node's pure halves, run without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any


class Reply:
    """Awaitable of a port that answers later: ``Steps.run`` returns at it, ``Steps.resume`` gives
    its value."""

    def __await__(self) -> Generator[Reply, Any, Any]:
        return (yield self)


class Steps:
    """One coroutine, run from one ``Reply`` to the next."""

    def __init__(self, coroutine: Coroutine):
        self._coroutine = coroutine
        self.is_done = False
        self.value: Any = None
        self.resume(None)

    def resume(self, value: Any) -> None:
        """Give the awaited ``Reply`` its value."""
        try:
            self._coroutine.send(value)
        except StopIteration as stop:
            self.is_done, self.value = True, stop.value


def run(coroutine: Coroutine) -> Any:
    """Return the result of a coroutine whose ports all answer at once."""
    steps = Steps(coroutine)
    assert steps.is_done, "it waits for a port"
    return steps.value


async def at_once(call: Callable, *arguments: Any) -> Any:
    """Return the result of ``call``, in place of a thread."""
    return call(*arguments)


class Lock(AbstractAsyncContextManager):
    """A lock that has no contender: a second holder is an error of the test."""

    def __init__(self):
        self.is_held = False

    async def __aenter__(self) -> None:
        assert not self.is_held
        self.is_held = True

    async def __aexit__(self, *_: object) -> None:
        self.is_held = False
