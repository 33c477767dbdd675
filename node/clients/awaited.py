"""Calls of the handlers of reads from tasks, which wait for the reply.

Contract. A handler answers through a callback, once, and does long work in steps. ``ReadCalls.ask``
makes such a call for a task: it runs the steps in turns, for the owner of the task, requests the
round that a handler may wait for, and returns what the callback received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import trio

from multiraft.wire.errors import Code, ErrorDetail, exception_for
from multiraft.wire.frames import Buffer
from node.loop.steps import ROWS_PER_STEP
from node.loop.turns import Turns


class ReadHandler(Protocol):
    """The handler of fetches or of list offsets."""

    def handle(self, request: Any, answer: Any, seen_index: int) -> Iterator[None] | None:
        """Process a request and call ``answer`` once. Return an iterator over the steps left."""


class AwaitedReply:
    """The reply callback of a call. ``session``: the owner of the steps that the handler runs."""

    __slots__ = ("session", "reply", "payload", "_refused", "_done")
    #: Who makes the call has asked for the permission of its client, if it has one.
    is_authorized = True

    def __init__(self, session: object):
        self.session = session
        self.reply: Any = None
        self.payload: Sequence[Buffer] = ()
        self._refused: tuple[Code, ErrorDetail] | None = None
        self._done = trio.Event()

    def __call__(self, reply: Any, payload: Sequence[Buffer] = ()) -> None:
        self.reply, self.payload = reply, payload
        self._done.set()

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Have ``result`` raise the error."""
        self._refused = code, detail
        self._done.set()

    async def result(self) -> tuple[Any, Sequence[Buffer]]:
        """Wait for the reply; return it with its payload.  Raises the error of a refusal."""
        await self._done.wait()
        if self._refused is not None:
            raise exception_for(*self._refused)
        return self.reply, self.payload


class ReadCalls:
    """Calls of the handlers of reads of one node."""

    def __init__(self, turns: Turns, request_round: Callable[[], None]):
        self._turns = turns
        self._request_round = request_round

    async def take(self, rows: int) -> None:
        """Wait until a task may work on ``rows`` more rows, as ``Turns.take``."""
        await self._turns.take(rows)

    async def ask(self, handler: ReadHandler, owner: object, request: Any, seen_index: int = 0
                  ) -> tuple[Any, Sequence[Buffer]]:
        """Return the reply of a handler, and its payload. ``owner``: a session or a peer, for which
        the steps are run. Raises the error of a refusal of the whole request."""
        answer = AwaitedReply(owner)
        rest = handler.handle(request, answer, seen_index)
        if rest is not None:
            for _ in rest:
                await self._turns.take(ROWS_PER_STEP)
        self._request_round()
        return await answer.result()
