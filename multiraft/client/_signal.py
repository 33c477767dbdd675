"""Flag that is set once and then calls its listeners, and a fair queue of waiting calls."""

from __future__ import annotations

from collections.abc import Callable


class Signal:
    """Flag that is set once.  O(1) per listener."""

    __slots__ = ("is_set", "_listeners")

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: list[Callable[[], None]] = []

    def set(self) -> None:
        """Set the flag and call every listener."""
        self.is_set = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the flag is set, at once if it is set already."""
        if self.is_set:
            listener()
        else:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Remove a listener that was not called."""
        self._listeners.remove(listener)


class Line:
    """Queue of calls that wait for their turn, first come, first served.  O(1) per operation."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Signal, None] = {}

    @property
    def is_empty(self) -> bool:
        """True if no call waits."""
        return not self._waiting

    def join(self) -> Signal:
        """Return the place of a new call at the end of the line: a signal that is set when the
        call is the first one.  Give it back with ``leave``."""
        place = Signal()
        self._waiting[place] = None
        if len(self._waiting) == 1:
            place.set()
        return place

    def leave(self, place: Signal) -> None:
        """Give a place back, and let the next call take its turn."""
        del self._waiting[place]
        first = next(iter(self._waiting), None)
        if first is not None and not first.is_set:
            first.set()
