"""End of a client: closed by its user, collected, or inherited by a forked process.

Contract.  ``watch`` registers a client when it is made.  In a child that ``os.fork`` makes (so does
``multiprocessing``) every client of the parent ends with ``Forked`` before any other code runs.
Its sockets are closed in the child, without effect on the parent's connections.  When the process
ends, records that open clients still hold are named by a ``RecordsNotSent`` warning.

Theory.  A child has its parent's sockets, producer ids and sequences.  Nodes would take its batches
for repetitions of the parent's, and each process would read answers to the other's requests.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
import sys
import warnings
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from multiraft.errors import MultiRaftError

_Error = TypeVar("_Error", bound=BaseException)


class Closed(MultiRaftError):
    """A closed client, producer or consumer is used, or is closed while a call waits.  As the
    outcome of a delivery it is definite: the batch was not appended."""


class NeedsTrio(MultiRaftError, RuntimeError):
    """The client for trio is used where trio does not run.  ``multiraft.client.blocking`` runs
    everywhere, also in a thread beside asyncio."""

    def __init__(self, text: str = ""):
        super().__init__(text or f"this client runs under trio, and {_what_runs()} here: use "
                         "multiraft.client.blocking, with asyncio in a thread of its own")


def _what_runs() -> str:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return "asyncio runs"
    return "trio does not run"


class RecordsNotSent(RuntimeWarning):
    """Records that a producer took were never sent: a block was left by an exception, or the client
    was never closed.  The text has their number and their topics.  Python shows it by default, as
    a ``ResourceWarning`` would not be."""


if not sys.warnoptions:  # else the user has chosen; "always": equal texts are different losses
    warnings.simplefilter("always", RecordsNotSent)

#: Topics that a warning about unsent records names.
_TOPICS_NAMED_MAX = 5


class Forked(MultiRaftError):
    """A client, or its producer or consumer, is used in a process that inherited it by a fork."""


class AsyncBlock:
    """Class whose instances are used with ``async with``, and say so when ``async`` is missing."""

    if not TYPE_CHECKING:  # type checkers know that these are missing

        def __enter__(self):
            raise NeedsTrio("use `async with` under trio; for plain `with` take the client of "
                            "multiraft.client.blocking")

        def __exit__(self, *_):
            pass


class Watched(Protocol):
    """A client that can be inherited."""

    def _inherited(self, error: Forked) -> None:
        """End with ``error`` in a child process, without effect on the parent's connections."""

    def _warn_unsent(self, why: str) -> None:
        """Warn of records that an open client holds and has never sent."""


def fresh(error: _Error) -> _Error:
    """Return a copy of ``error`` to raise, without the traceback of earlier raises."""
    return copy.copy(error)


def note_failure(error: BaseException | None, failure: MultiRaftError | None,
                 unsent: Mapping[str, int] = MappingProxyType({})) -> None:
    """Raise ``failure``, which no caller has received; None = do nothing.  If ``error`` is raised
    already, add ``failure`` to it as a note, unless ``error`` is no ``Exception``, and warn of the
    records ``unsent`` (topic -> number), whatever it is."""
    if error is None:
        if failure is not None:
            raise failure
        return
    if failure is not None and isinstance(error, Exception):
        error.add_note(f"Also not reported to a caller: {type(failure).__name__}: {failure}")
    if unsent:
        # Where warnings are errors, the error of the block comes out nevertheless, with its note.
        with contextlib.suppress(RecordsNotSent):
            warnings.warn(f"{described(unsent)} never sent: {type(error).__name__} left the block",
                          RecordsNotSent, stacklevel=2)


def described(unsent: Mapping[str, int]) -> str:
    """Return the number of records and their topics as text: "3 records for topic 'a' were"."""
    total = sum(unsent.values())
    records = f"{total} record{'s' * (total != 1)}"
    named = [f"{topic!r}" for topic in unsent][:_TOPICS_NAMED_MAX]
    more = len(unsent) - len(named)
    return (f"{records} for topic{'s' * (len(unsent) > 1)} {', '.join(named)}"
            + (f" and {more} more" if more else "") + (" was" if total == 1 else " were"))


def warn_unsent(unsent: Mapping[str, int], why: str) -> None:
    """Warn of records that were never sent, by topic; do nothing if there are none."""
    if unsent:
        warnings.warn(f"{described(unsent)} never sent: {why}. Call flush() or close() of the "
                      "producer, or use it in a with block", RecordsNotSent, stacklevel=2)


#: Client -> the process that made it.
_clients: weakref.WeakKeyDictionary[Watched, int] = weakref.WeakKeyDictionary()


def watch(client: Watched) -> None:
    """Register a client, so that ``_inherited`` of it is called in each child process made by a
    fork."""
    _clients[client] = os.getpid()


def _inherit() -> None:
    for client, process in list(_clients.items()):
        client._inherited(Forked(
            f"this client was made in process {process} and cannot be used in process "
            f"{os.getpid()}, which was forked from it: make a client of its own in each process, "
            "after the fork"))


def _warn_at_exit() -> None:
    for client in list(_clients):
        try:
            client._warn_unsent("the program ended")
        except RecordsNotSent as error:
            # Where warnings are errors: the records of the other clients are lost as well.
            sys.stderr.write(f"RecordsNotSent: {error}\n")


os.register_at_fork(after_in_child=_inherit)
atexit.register(_warn_at_exit)
