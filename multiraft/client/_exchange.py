"""What a generator of an operation may yield: the one language between operations and drivers."""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import messages


class Exchange(NamedTuple):
    """Ask ``address``; the driver sends back a ``ResponseEvent`` or ``Lost``."""

    address: str
    request: messages.Request
    timeout_ms: int


class Pause(NamedTuple):
    """Wait that long."""

    ms: int
