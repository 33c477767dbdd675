"""Reply callbacks that answer with Kafka's messages.

Contract. A request has one ``KafkaAnswer``, which is called once with the response of its API, or
refused: then its ``refusal`` makes the response, because each of Kafka's messages has its own place
for an error. A produce request with acks=0 has no response; if its append fails, its connection is
closed, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from multiraft.kafka.connection import NO_ANSWER
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail, RemoteProtocolError
from multiraft.wire.frames import Buffer
from multiraft.wire.messages import ProduceReply
from node.clients.session import Answer, Session

#: Response for a code and its detail, in the layout of an API.
Refusal = Callable[[Code, ErrorDetail], Any]


class KafkaAnswer(Answer):
    """The reply callback of a request. ``refusal``: makes the response for an error."""

    __slots__ = ("refusal",)

    def __init__(self, session: Session, number: int, refusal: Refusal, size: int = 0):
        super().__init__(session, number, size)
        self.refusal = refusal

    def __call__(self, reply: Any, payload: Sequence[Buffer] = ()) -> None:
        self.session.answered(self, ResponseEvent(self.id, reply), ())

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Answer with an error."""
        refusals = self.session.service.refusals
        refusals[code] = refusals.get(code, 0) + 1
        self.session.answered(self, ResponseEvent(self.id, self.refusal(code, detail)), ())


class NoAnswer(Answer):
    """The reply callback of appends with acks=0: it sends nothing, and closes the connection if one
    of them failed. ``fault``: of a batch that was refused before, "" = none was."""

    __slots__ = ("fault",)

    def __init__(self, session: Session, size: int, fault: str = ""):
        super().__init__(session, NO_ANSWER, size)
        self.fault = fault

    def __call__(self, reply: ProduceReply, payload: Sequence[Buffer] = ()) -> None:
        self.session.answered(self, None, ())
        failed = next((result for result in reply.results if result.code != Code.OK), None)
        if failed is not None:
            self._close(failed.code, failed.error or ErrorDetail())
        elif self.fault:
            self._close(Code.INVALID_BATCH, ErrorDetail(self.fault))

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Close the connection."""
        refusals = self.session.service.refusals
        refusals[code] = refusals.get(code, 0) + 1
        self.session.answered(self, None, ())
        self._close(code, detail)

    def _close(self, code: int, detail: ErrorDetail) -> None:
        if not self.session.closed:
            self.session.fail(RemoteProtocolError(
                f"append with acks=0 failed: {detail.text or Code(code).name}"))
