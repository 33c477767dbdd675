"""What arrives on the hot sources: client sessions, peer sockets, the disk's completions.

Contract.  A source is a file descriptor and a handler, which takes what is there without waiting
and says whether a round is due for it; one that finds nothing does nothing.  A handler takes a
bounded amount at a time; one that has received more than it handled says so (``again``) and is
called by the next ``poll`` though nothing new may come.  ``poll`` runs the handlers of all sources
that have something now, for ``POLL_NS`` and one handler more; the others are first the next time
(``left``).  What goes wrong with one connection its handler keeps for the connection's own task:
what is raised here is the node's end.

Theory.  To wake a task costs more than to handle a small frame, and to arm its socket again is a
system call.  So one task waits for one descriptor, an epoll of all sources, and one round serves
all that has come together.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from node.clock import monotonic_ns

#: Sources taken by one ``poll``: the others come with the next one, after a round.
ARRIVALS_MAX = 64
#: After this long the rest waits for the next ``poll``: appends that came are committed first.
POLL_NS = 2_000_000


class Poller:
    """The sources, by file descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.file_number = self._epoll.fileno()  # readable when a source has something
        self._handlers: dict[int, Callable[[], bool]] = {}
        self.yield_due = False  # a handler left something to a task, which should not wait long
        #: Sources that are due whatever the kernel says, first those that waited longest.
        self._waiting: dict[int, None] = {}

    def add(self, file_number: int, handler: Callable[[], bool]) -> None:
        """``handler()`` takes what is there on ``file_number``, from now on."""
        self._handlers[file_number] = handler
        self._epoll.register(file_number, select.EPOLLIN)

    def remove(self, file_number: int) -> None:
        """Listen to ``file_number`` no more; nothing when it is not here."""
        self._waiting.pop(file_number, None)
        if self._handlers.pop(file_number, None) is not None:
            self._epoll.unregister(file_number)

    def again(self, file_number: int) -> None:
        """Something that was received from this source is not handled yet."""
        self._waiting[file_number] = None

    @property
    def left(self) -> bool:
        """Tell whether the next ``poll`` finds something without anything new."""
        return bool(self._waiting)

    def poll(self, wait_s: float = 0.0) -> bool | None:
        """Run the handlers of whatever has something, or blocks until then for ``wait_s``; whether
        a round is due, None when there was nothing.  One system call."""
        waiting = self._waiting
        arrived = self._epoll.poll(0.0 if waiting else wait_s, ARRIVALS_MAX)
        if waiting:
            self._waiting = {}
            for file_number, _ in arrived:
                waiting[file_number] = None  # once, also when it is there already
            return self._handle(list(waiting))
        return self._handle([file_number for file_number, _ in arrived]) if arrived else None

    def _handle(self, files: list[int]) -> bool:
        due = False
        handlers = self._handlers
        until_ns = monotonic_ns() + POLL_NS
        for at, file_number in enumerate(files):
            handler = handlers.get(file_number)  # None: removed by one before it
            if handler is not None and handler():
                due = True
            if monotonic_ns() > until_ns:
                rest = [later for later in files[at + 1:] if later in handlers]
                self._waiting = {**dict.fromkeys(rest), **self._waiting}
                break
        return due

    def close(self) -> None:
        """Let go of the descriptor."""
        self._epoll.close()
