"""What arrives on the hot sources: client sessions, peer sockets, the disk's completions.

Contract.  A source is a file descriptor and a handler, which takes what is there without waiting
and says whether a round is due for it; one that finds nothing does nothing.  ``poll`` runs the
handlers of all sources that have something now.  What goes wrong with one connection its handler
keeps for the connection's own task: what is raised here is the node's end.

Theory.  To wake a task costs more than to handle a small frame, and to arm its socket again is a
system call.  So one task waits for one descriptor, an epoll of all sources, and one round serves
all that has come together.
"""

from __future__ import annotations

import select
from collections.abc import Callable

#: Sources taken by one ``poll``: the others come with the next one, after a round.
ARRIVALS_MAX = 64


class Arrivals:
    """The sources, by file descriptor."""

    def __init__(self):
        self._epoll = select.epoll()
        self.file_number = self._epoll.fileno()  # readable when a source has something
        self._handlers: dict[int, Callable[[], bool]] = {}
        self.turn_due = False  # a handler left something to a task, which should not wait long

    def add(self, file_number: int, handler: Callable[[], bool]) -> None:
        """``handler()`` takes what is there on ``file_number``, from now on."""
        self._handlers[file_number] = handler
        self._epoll.register(file_number, select.EPOLLIN)

    def remove(self, file_number: int) -> None:
        """Listen to ``file_number`` no more; nothing when it is not here."""
        if self._handlers.pop(file_number, None) is not None:
            self._epoll.unregister(file_number)

    def poll(self, wait_s: float = 0.0) -> bool | None:
        """Run the handlers of whatever has something, or blocks until then for ``wait_s``; whether
        a round is due, None when there was nothing.  One system call."""
        arrived = self._epoll.poll(wait_s, ARRIVALS_MAX)
        if not arrived:
            return None
        due = False
        handlers = self._handlers
        for file_number, _ in arrived:
            handler = handlers.get(file_number)  # None: removed by one before it
            if handler is not None and handler():
                due = True
        return due

    def close(self) -> None:
        """Let go of the descriptor."""
        self._epoll.close()
