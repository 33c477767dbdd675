"""The poller of the hot sources: client sessions, peer sockets, completions of the disk worker.

Contract. A source is a file descriptor and a handler. The handler receives without waiting, handles
a bounded amount, and returns True if a round is due; with nothing to receive it does nothing. A
handler that has received more than it handled calls ``again``, and the next ``poll`` calls it even
if the kernel reports nothing new. ``poll`` runs the handlers of all ready sources until ``POLL_NS``
have passed; the sources that remain come first in the next ``poll`` (``left``). A handler keeps the
errors of its connection for the connection's own task: an exception that it raises stops the node.

Theory. Waking a task costs more than handling a small frame, and arming its socket again costs a
system call. Therefore one task waits for one descriptor, an epoll of all sources, and one round
serves everything that arrived together.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from node.clock import monotonic_ns

#: Sources handled by one ``poll``; the others wait for the next one, after a round.
ARRIVALS_MAX = 64
#: Time after which the remaining sources wait for the next ``poll``, so that the appends that have
#: arrived are committed first.
POLL_NS = 2_000_000


class Poller:
    """Poller of one node's hot sources (sessions, peer sockets, disk completions), by file
    descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.file_number = self._epoll.fileno()  # readable when a source has something
        self._handlers: dict[int, Callable[[], bool]] = {}
        self.yield_due = False  # a handler passed work to a task, which should run soon
        #: Sources to call even if the kernel reports nothing; those that waited longest come first.
        self._waiting: dict[int, None] = {}

    def add(self, file_number: int, handler: Callable[[], bool]) -> None:
        """Call ``handler()`` in ``poll`` whenever ``file_number`` is readable, from now on. It
        returns True if a round is due."""
        self._handlers[file_number] = handler
        self._epoll.register(file_number, select.EPOLLIN)

    def remove(self, file_number: int) -> None:
        """Remove the source ``file_number``. Does nothing for an unknown one."""
        self._waiting.pop(file_number, None)
        if self._handlers.pop(file_number, None) is not None:
            self._epoll.unregister(file_number)

    def again(self, file_number: int) -> None:
        """Call the handler of ``file_number`` in the next ``poll``: it holds received bytes that it
        has not handled."""
        self._waiting[file_number] = None

    @property
    def left(self) -> bool:
        """True if the next ``poll`` has a source to call without any new arrival."""
        return bool(self._waiting)

    def poll(self, wait_s: float = 0.0) -> bool | None:
        """Run the handlers of the sources that are ready, after blocking for at most ``wait_s`` if
        there are none. Return True if a round is due, False if none is, None if no source was
        ready. One system call."""
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
        """Close the epoll descriptor."""
        self._epoll.close()
