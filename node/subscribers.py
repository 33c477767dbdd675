"""Lists of functions that are called at an event.

Contract. The part that detects an event owns a ``Subscribers`` and notifies it; parts that react to
the event subscribe. So the owner is built without them, and no attribute of a part is set after its
construction.
"""

from __future__ import annotations

from collections.abc import Callable


class Subscribers:
    """The functions that are called at one event, in the order in which they subscribed."""

    __slots__ = ("_handlers",)

    def __init__(self) -> None:
        self._handlers: tuple[Callable[..., None], ...] = ()

    def subscribe(self, handler: Callable[..., None]) -> None:
        """Call ``handler`` at each later ``notify``, after those that subscribed before."""
        self._handlers += (handler,)

    def notify(self, *event: object) -> None:
        """Call every handler with ``event``.  An error of a handler is raised, and the handlers
        after it are not called.  O(handlers)."""
        for handler in self._handlers:
            handler(*event)
