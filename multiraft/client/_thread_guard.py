"""Guard of a blocking client: one thread at a time.

Contract.  ``ThreadGuard`` is held around each call that touches the client's state.  The thread
that holds it may take it again (a signal handler, a listener).  Another thread gets
``ConcurrentUse`` at once: waiting would last as long as the holder waits for records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from multiraft.errors import MultiRaftError


class ConcurrentUse(MultiRaftError, RuntimeError):
    """A thread calls a blocking client while another thread is inside of one of its methods.  The
    call had no effect."""

    def __init__(self, text: str = "another thread is using this client: a blocking client serves "
                 "one thread at a time. Make a client for each thread, or take a lock around its "
                 "calls"):
        super().__init__(text)


class ThreadGuard:
    """Lock of one client that refuses instead of waiting.  ``acquire(False)`` and ``release`` are
    those of the lock, for paths where a ``with`` block costs too much."""

    __slots__ = ("acquire", "release")

    acquire: Callable[[bool], bool]
    release: Callable[[], None]

    def __init__(self) -> None:
        self._make()

    def _make(self) -> None:
        lock = threading.RLock()
        self.acquire, self.release = lock.acquire, lock.release

    def renew(self) -> None:
        """Forget a holder that is another thread: in a child process it does not exist.  A holder
        that is this thread, which forked inside of a listener, will release the guard."""
        if self.acquire(False):
            self.release()
        else:
            self._make()

    def __enter__(self) -> None:
        if not self.acquire(False):
            raise ConcurrentUse()

    def __exit__(self, *_: Any) -> None:
        self.release()
