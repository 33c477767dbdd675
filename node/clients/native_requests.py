"""The requests of the native protocol: from the events of a session to the handlers.

Contract. ``NativeRequests`` is the ``RequestDispatch`` of the client port, for all its sessions. It
answers the handshake and invalid requests, passes each valid request to the handler of its kind,
and subtracts from the session's ``rows_left`` what the request names. The payload of a Produce is
never copied: the handler gets views of it. A Produce with ``acks="none"`` has no reply.

Invariants. This module has no socket, no task and no clock, as ``session``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from multiraft.wire.connection import (
    BadRequest,
    Connection,
    RequestEvent,
    ResponseEvent,
    Role,
    answer_to,
)
from multiraft.wire.errors import Code, ErrorDetail, LocalProtocolError
from multiraft.wire.frames import WireLimits
from multiraft.wire.messages import (
    VERSIONS_SUPPORTED,
    Fetch,
    Hello,
    ListOffsets,
    Produce,
    ProduceReply,
    Refused,
    ReportCorruption,
    Welcome,
)
from node.clients.produce import Appends
from node.clients.session import Answer, Session, Sessions, discard_reply

#: Cost of a batch in rows: it is verified, proposed, staged and acknowledged.
BATCH_ROWS = 4
#: A named tuple from its fields, without the Python function in front of it.
_new = tuple.__new__


class RequestHandler(Protocol):
    """Handler of one kind of requests of all sessions."""

    def handle(self, request: Any, answer: Any, seen_index: int) -> Iterator[None] | None:
        """Call ``answer`` once, before this returns or later. Return None, or an iterator over the
        remaining steps, which the session runs in turns. ``seen_index``: the newest metadata index
        that the client knows."""


class FetchRequests(RequestHandler, Protocol):
    """Handler of fetches, which wait for records."""

    def forget(self, session: Session) -> None:
        """Drop the fetches of a session that ended."""

    def answer_long_polls(self, session: Session) -> None:
        """Have the next round answer the waiting fetches of a session, with what they have."""


class AdminRequests(Protocol):
    """Handler of all requests that are not about records."""

    def handle(self, event: RequestEvent, answer: Answer) -> None:
        """Call ``answer`` once, later; above the limit of requests refuse at once."""

    def forget(self, session: Session) -> None:
        """Cancel the requests of a session that ended."""


class YieldFlag(Protocol):
    """A flag of the loop: a handler passed work to a task, which should run soon."""

    yield_due: bool


class NativeRequests:
    """The messages of the native protocol, and the handlers of its requests."""

    def __init__(self, sessions: Sessions, *, produce_handler: RequestHandler,
                 fetch_handler: FetchRequests, offsets: RequestHandler,
                 corruption_reports: RequestHandler, admin: AdminRequests, batch_bytes_max: int,
                 cluster_id: bytes, node: int, boot_epoch: int, loop: YieldFlag):
        limits = sessions.limits
        self.wire_limits = WireLimits(frame_bytes_max=limits.frame_bytes_max,
                                      in_flight_max=limits.requests_in_flight_max)
        self._budget = sessions.budget
        self._produce_handler = produce_handler
        self._fetch_handler = fetch_handler
        self._offsets = offsets
        self._corruption_reports = corruption_reports
        self._admin = admin
        self._batch_bytes_max = batch_bytes_max
        self._cluster_id = cluster_id
        self._node = node
        self._boot_epoch = boot_epoch
        self._loop = loop

    def new_stream(self) -> Connection:
        """Return the stream of a connection that was accepted."""
        return Connection(Role.SERVER, self.wire_limits)

    # ---- requests ------------------------------------------------------------------------------

    def handle(self, session: Session, event: RequestEvent) -> None:
        """Pass a request to the handler of its kind."""
        request: Any
        number, request, seen_index = event
        kind = type(request)
        if kind is Produce:
            acks, timeout_ms, parts, payload = request
            session.rows_left -= BATCH_ROWS * len(parts)
            answer = Answer(session, number, len(payload))
            session.run_steps(self._produce_handler.handle(
                _new(Appends, (len(parts), batches_of(request), acks, timeout_ms, session)),
                discard_reply(answer) if acks == "none" else answer, seen_index), changes=True)
        elif kind is Fetch:
            budget = self._budget
            if budget.unsent > budget.unsent_max:
                self.refuse(session, event, Code.QUEUE_FULL, budget.refusal())
                return
            session.rows_left -= len(request.partitions)
            session.run_steps(self._fetch_handler.handle(request, Answer(session, number),
                                                         seen_index))
            self._loop.yield_due = True  # a task reads cold ranges
        elif kind is ListOffsets:
            session.rows_left -= 2 * len(request.partitions)
            session.run_steps(self._offsets.handle(request, Answer(session, number), seen_index))
        elif kind is ReportCorruption:
            self._corruption_reports.handle(request, Answer(session, number), seen_index)
        else:
            self._admin.handle(event, Answer(session, number))
            self._loop.yield_due = True

    def refuse(self, session: Session, event: RequestEvent, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it: a definite error. With acks=none no
        reply is sent."""
        if type(event.request) is Produce and event.request.acks == "none":
            discard_reply(Answer(session, event.id))(None)
        else:
            Answer(session, event.id).refuse(code, detail)

    def replacement(self, session: Session, event: ResponseEvent,
                    error: LocalProtocolError) -> list:
        """Return ``LIMIT_EXCEEDED`` in place of a reply that exceeds a frame, or an ambiguous
        outcome for appends. Raises ``error`` for an error reply, which is always small enough."""
        if event.code != Code.OK:
            raise error  # a defect
        code = Code.AMBIGUOUS if type(event.reply) is ProduceReply else Code.LIMIT_EXCEEDED
        return session.stream.send(ResponseEvent(
            event.id, code=code,
            error=ErrorDetail(f"the answer is too large, ask for less: {error}"),
            metadata_index=event.metadata_index))

    def answer_long_polls(self, session: Session) -> None:
        """Have the next round answer the waiting fetches of a session, with what they have."""
        self._fetch_handler.answer_long_polls(session)

    def forget(self, session: Session) -> None:
        """Drop the long polls of a session that ended, and cancel its administrative requests."""
        self._fetch_handler.forget(session)
        self._admin.forget(session)

    # ---- handshake, and invalid requests -------------------------------------------------------

    def handle_other(self, session: Session, event: Any) -> None:
        """Answer a Hello or an invalid request. Raises ``OSError`` if the client is gone."""
        if isinstance(event, Hello):
            self._on_hello(session, event)
        elif isinstance(event, BadRequest):
            session.push(session.stream.send(answer_to(event)))

    def _on_hello(self, session: Session, hello: Hello) -> None:
        text, code = "", Code.INVALID_REQUEST
        if hello.version not in VERSIONS_SUPPORTED:
            text, code = f"version {hello.version} is not known here", Code.UNSUPPORTED
        elif hello.connection != "client":
            text = "this is the client port; nodes use the peer port"
            session.task.note_peer()
        elif hello.cluster is not None and hello.cluster != self._cluster_id:
            text, code = "this node belongs to another cluster", Code.WRONG_CLUSTER
        if text:
            session.push(session.stream.send(Refused(code, text)))
            session.outbox.flush()
            return
        session.push(session.stream.send(Welcome(
            self._cluster_id, self._node, self._boot_epoch, self.wire_limits.frame_bytes_max,
            self._batch_bytes_max, self.wire_limits.in_flight_max)))


def batches_of(request: Produce) -> Iterable[tuple[int, memoryview]]:
    """Return the incarnation and the bytes of each batch: views of the payload, made one at a time,
    so that a step of a long request makes only its own."""
    parts = request.batches
    if len(parts) == 1:  # as most often: its bytes are the whole payload
        return ((parts[0].incarnation, request.payload),)
    return _sliced(request)


def _sliced(request: Produce) -> Iterator[tuple[int, memoryview]]:
    payload, at = request.payload, 0
    for incarnation, length in request.batches:
        end = at + length
        yield incarnation, payload[at:end]
        at = end
