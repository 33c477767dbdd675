"""Steps that an operation yields to its driver, and the type of operations.

Contract.  An operation is a generator that does no I/O.  It yields one step at a time, and the
driver carries the step out in its own way: trio with a checkpoint, the blocking client with
``poll``.  The driver sends back what the step results in, or throws the ``MultiRaftError`` that the
step raised.  ``ClientCore.now_ms`` is the present time at the start and after an ``Exchange`` or a
``Pause``.  The value that the generator returns is the result of the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from multiraft.client._signal import Signal
from multiraft.wire import messages


class Exchange(NamedTuple):
    """Send ``request`` to ``address``.  Results in a ``ResponseEvent`` or ``Lost``."""

    address: str
    request: messages.Request
    timeout_ms: int


class Pause(NamedTuple):
    """Wait for ``ms`` milliseconds."""

    ms: int


class Until(NamedTuple):
    """Wait until ``condition`` holds.  Raises what ``condition`` raises, and ``Closed`` or
    ``Forked`` when the client ends first."""

    condition: Callable[[], bool]


class WaitFor(NamedTuple):
    """Wait until ``signal`` is set."""

    signal: Signal


class Turn(NamedTuple):
    """Send and receive what is possible without waiting, and let other tasks run."""


Step = Exchange | Pause | Until | WaitFor | Turn
_Result = TypeVar("_Result")
Operation = Generator[Step, Any, _Result]

TURN = Turn()
