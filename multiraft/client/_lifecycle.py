"""End of a client: closed by its user, or inherited by a forked process.

Contract.  ``watch`` registers a client when it is made.  In a child that ``os.fork`` makes (so does
``multiprocessing``) every client of the parent ends with ``Forked`` before any other code runs.
Its sockets are closed in the child, without effect on the parent's connections.

Theory.  A child has its parent's sockets, producer ids and sequences.  Nodes would take its batches
for repetitions of the parent's, and each process would read answers to the other's requests.
"""

from __future__ import annotations

import copy
import os
import weakref
from typing import Protocol, TypeVar

from multiraft.errors import MultiRaftError

_Error = TypeVar("_Error", bound=BaseException)


class Closed(MultiRaftError):
    """A closed client, producer or consumer is used, or is closed while a call waits.  As the
    outcome of a delivery it is definite: the batch was not appended."""


class Forked(MultiRaftError):
    """A client, or its producer or consumer, is used in a process that inherited it by a fork."""


class Watched(Protocol):
    """A client that can be inherited."""

    def inherited(self, error: Forked) -> None:
        """End with ``error`` in a child process, without effect on the parent's connections."""


def fresh(error: _Error) -> _Error:
    """Return a copy of ``error`` to raise, without the traceback of earlier raises."""
    return copy.copy(error)


def note_failure(error: BaseException | None, failure: MultiRaftError | None) -> None:
    """Raise ``failure``, which no caller has received; if ``error`` is raised already, add it there
    as a note. Do nothing if ``failure`` is None, or ``error`` is no ``Exception``."""
    if failure is None:
        return
    if error is None:
        raise failure
    if isinstance(error, Exception):
        error.add_note(f"Also not reported to a caller: {type(failure).__name__}: {failure}")


#: Client -> the process that made it.
_clients: weakref.WeakKeyDictionary[Watched, int] = weakref.WeakKeyDictionary()


def watch(client: Watched) -> None:
    """Register a client, so that ``inherited`` of it is called in each child process made by a
    fork."""
    _clients[client] = os.getpid()


def _inherit() -> None:
    for client, process in list(_clients.items()):
        client.inherited(Forked(
            f"this client was made in process {process} and cannot be used in process "
            f"{os.getpid()}, which was forked from it: make a client of its own in each process, "
            "after the fork"))


os.register_at_fork(after_in_child=_inherit)
