"""The time that one request has for its reads of earlier epochs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from multiraft.wire.errors import Code, ErrorDetail
from node.clients.read_view import Refused

T = TypeVar("T")


class ReadTime:
    """Time for reads of one request, one after the other. Only what the reads take is counted."""

    __slots__ = ("_left_s",)

    def __init__(self, seconds: float):
        self._left_s = seconds

    async def call(self, read: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Return the result of a read. Raises ``Refused`` once the time is over, also for a read
        that would begin then: clients repeat the request."""
        if self._left_s > 0:
            begun_s = trio.current_time()
            try:
                with trio.move_on_after(self._left_s):
                    return await read(*arguments)
            finally:
                self._left_s -= trio.current_time() - begun_s
        raise Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(
            text="no replica of an earlier epoch has answered in time"), retriable=True)
