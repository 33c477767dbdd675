"""Lists of functions that are called when something has happened.

Contract.  A part that has news owns a ``Subscribers`` and notifies it; a part that needs the news
subscribes when both exist.  So the two may be built in either order, and neither has an attribute
that is set after its construction.
"""

from __future__ import annotations

from collections.abc import Callable


class Subscribers:
    """Functions to call, in the order in which they subscribed."""

    __slots__ = ("_handlers",)

    def __init__(self) -> None:
        self._handlers: tuple[Callable[..., None], ...] = ()

    def subscribe(self, handler: Callable[..., None]) -> None:
        """Call ``handler`` at each later ``notify``, after those that subscribed before."""
        self._handlers += (handler,)

    def notify(self, *news: object) -> None:
        """Call every handler with ``news``; what a handler raises ends the call.  O(handlers)."""
        for handler in self._handlers:
            handler(*news)
