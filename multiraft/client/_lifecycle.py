"""The end of a client: closed by its user, or inherited by a forked process.

Contract.  ``watch`` a client when it is made.  In a child that ``os.fork`` makes (so does
``multiprocessing``) every client of the parent ends with ``Forked`` before any other code runs:
its sockets are closed there, which the parent's connections do not notice, and nothing of it can be
used.  A child has its parent's sockets, producer ids and sequences: what it sent would be taken
for repetitions of what the parent sends, and each would read the other's answers.
"""

from __future__ import annotations

import copy
import os
import weakref
from typing import Protocol, TypeVar

from multiraft.errors import MultiRaftError

_Error = TypeVar("_Error", bound=BaseException)


class Closed(MultiRaftError):
    """A client, producer or consumer is used that was closed, or is closed while it is waited for.
    As the outcome of a delivery it is definite: the batch was not appended."""


class Forked(MultiRaftError):
    """A client, or something made by it, is used in a process that inherited it."""


class Watched(Protocol):
    """A client that can be inherited."""

    def inherited(self, error: Forked) -> None:
        """This is a child process: end with ``error``, and touch nothing of the parent's."""


def fresh(error: _Error) -> _Error:
    """A copy to be raised, without the traces of where it was raised before."""
    return copy.copy(error)


def note_failure(error: BaseException | None, failure: MultiRaftError | None) -> None:
    """Raise a failure that nobody was told of; beside another error it becomes a note of that."""
    if failure is None:
        return
    if error is None:
        raise failure
    if isinstance(error, Exception):
        error.add_note(f"Besides, nobody was told: {type(failure).__name__}: {failure}")


#: Client -> the process that made it.
_clients: weakref.WeakKeyDictionary[Watched, int] = weakref.WeakKeyDictionary()


def watch(client: Watched) -> None:
    """Tell ``client`` when it finds itself in a child process."""
    _clients[client] = os.getpid()


def _inherit() -> None:
    for client, process in list(_clients.items()):
        client.inherited(Forked(
            f"this client was made in process {process} and cannot be used in process "
            f"{os.getpid()}, which was forked from it: make a client of its own in each process, "
            "after the fork"))


os.register_at_fork(after_in_child=_inherit)
