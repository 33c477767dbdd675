"""Tasks of requests that wait: one per request, bounded in number, cancelled with their session.

Contract. ``start(answer, respond)`` runs ``await respond()`` in a task of its own, and calls
``answer`` once: with what it returned, or with the refusal that one of ``REFUSED`` stands for. Each
answer requests a round, which sends it. Above ``ADMIN_REQUESTS_MAX`` requests in progress, of all
sessions of a port, a request is refused at once. A session takes no further request while it has
``connection_tasks_max`` of them, so that one connection does not use up what others need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from multiraft.wire.errors import Code, ErrorDetail
from node.loop.turns import Turns
from node.request_errors import REFUSED, request_error

if TYPE_CHECKING:
    from node.clients.session import Answer, Session

#: Requests of this kind in progress at a time, of all connections of a port: each is a task.
ADMIN_REQUESTS_MAX = 1024


class RequestTasks:
    """The requests in progress of one port. ``leader_detail(group)``: code and detail of a refusal
    that names the leader of the group."""

    def __init__(self, turns: Turns, request_round: Callable[[], None],
                 leader_detail: Callable[[int], tuple[Code, ErrorDetail]]):
        self._turns = turns
        self._request_round = request_round
        self._leader_detail = leader_detail
        self._nursery: trio.Nursery | None = None
        self.in_progress = 0  # requests
        self._scopes: dict[object, dict[trio.CancelScope, None]] = {}  # by session

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the nursery of requests in progress, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def start(self, answer: Answer, respond: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start a task that calls ``answer`` once, later, with the result of ``await
        respond(*args)``, whose rows count for the session of the answer. Refuse at once above the
        limit."""
        if self.in_progress >= ADMIN_REQUESTS_MAX:
            answer.refuse(Code.QUEUE_FULL, ErrorDetail(
                text="too many administrative requests at a time", limit=ADMIN_REQUESTS_MAX,
                value=self.in_progress + 1))
            return
        self.in_progress += 1
        answer.session.tasks += 1
        assert self._nursery is not None
        self._nursery.start_soon(self._answer_to, answer, respond, args)

    def forget(self, session: Session) -> None:
        """Cancel the requests of a session that has ended."""
        for scope in self._scopes.pop(session, ()):
            scope.cancel()

    async def _answer_to(self, answer: Answer, respond: Callable[..., Awaitable[Any]],
                         args: tuple) -> None:
        session, scope = answer.session, trio.CancelScope()
        self._scopes.setdefault(session, {})[scope] = None
        try:
            with scope:
                await self._answer(answer, respond, args)
        finally:
            mine = self._scopes.get(session)
            if mine is not None:
                mine.pop(scope, None)
                if not mine:
                    del self._scopes[session]

    async def _answer(self, answer: Answer, respond: Callable[..., Awaitable[Any]],
                      args: tuple) -> None:
        self._turns.work_for(answer.session)
        try:
            answer(await respond(*args))
        except REFUSED as error:
            answer.refuse(*request_error(error, self._leader_detail))
        finally:
            self.in_progress -= 1
            answer.session.tasks -= 1
            self._request_round()  # the reply is sent with the round
