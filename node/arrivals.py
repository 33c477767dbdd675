"""What has arrived meanwhile on the hot sources: peer sockets and the disk's completions.

Contract.  Each source has a task that waits for it and a handler that takes what is there without
waiting.  ``poll`` runs the handlers of all sources that have something now; the round loop calls it
after a round, before the scheduler is asked.  A handler that finds nothing does nothing.

Theory.  A wake-up of a task costs about as much as handling a small frame.  While one round ran,
the next acknowledgement or the end of a write has often arrived already: taking it at once saves
its wake-up, and one round serves all of them.
"""

from __future__ import annotations

import select
from collections.abc import Callable


class Arrivals:
    """The sources, by file descriptor."""

    def __init__(self):
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def add(self, file_number: int, handler: Callable[[], None]) -> None:
        """``handler()`` takes what is there on ``file_number``, from now on."""
        self._handlers[file_number] = handler
        self._epoll.register(file_number, select.EPOLLIN)

    def remove(self, file_number: int) -> None:
        """Leave ``file_number`` to its task; nothing when it is not here."""
        if self._handlers.pop(file_number, None) is not None:
            self._epoll.unregister(file_number)

    def poll(self) -> bool:
        """Run the handlers of whatever has something; whether there was any.  One system call."""
        ready = self._epoll.poll(0)
        for file_number, _ in ready:
            handler = self._handlers.get(file_number)
            if handler is not None:
                handler()
        return bool(ready)

    def close(self) -> None:
        """Let go of the descriptor."""
        self._epoll.close()
