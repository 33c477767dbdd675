"""The session of one client connection: wire events to handlers, replies to an outbox.

Contract. ``take_events`` handles what has arrived, below the limits of the session.
``in_flight_max`` unanswered requests, ``connection_bytes_in_flight_max`` bytes of unanswered
appends or ``connection_answer_bytes_max`` bytes of replies that cannot leave pause the reading,
which stops the sender through TCP; so do ``connection_tasks_max`` requests that wait in tasks, and
a large frame that the memory budget does not admit now. A client is never disconnected for requests
that it sent ahead. When all connections together reach a limit, requests are refused before any
work is done for them. Requests are handled in order of arrival; replies leave when they are ready,
gathered per round. The work of a session per turn of the loop is bounded (``rows_left``). The rest
of the requests that arrived together waits for the other sessions, and a request longer than a step
is processed in turns, before the next one of its session is taken. A client that does not read its
replies is disconnected when its outbox is full. A client that ends its side of the stream still
receives the replies to its requests; its long polls are answered at once.

A session knows no protocol. ``RequestDispatch`` is the part of a port that knows its messages and
calls the handlers (``native_requests``); all ports of a node share ``Sessions``, and with it the
limits and the memory budget.

Invariants. This module has no socket, no task and no clock. ``RequestStream`` supplies the events
(``multiraft.wire.connection.Connection`` at the native port), ``ReplyQueue`` takes the replies, and
``ConnectionTask`` reads the socket (``client_connection``); a simulated node has its own three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    State,
)
from multiraft.wire.errors import Code, ErrorDetail, LocalProtocolError, ProtocolError
from multiraft.wire.frames import Buffer, WireLimits
from node.access import (
    ANONYMOUS,
    Authorize,
    Operation,
    Principal,
    ResourceKind,
    authorize,
)
from node.clients.memory_budget import MemoryBudget
from node.loop.steps import StepScheduler

if TYPE_CHECKING:
    from node.limits import Limits

#: Cost of a request beside the rows that it names, in rows: its frame and its reply.
REQUEST_ROWS = 4
#: Header bytes that cost one row more: 10,000 numbers of a byte each take 1.7 ms to decode.
HEADER_BYTES_PER_ROW = 32


class RequestDispatch(Protocol):
    """The part of a port that knows the messages of its protocol, and calls the handlers."""

    def handle(self, session: Session, event: RequestEvent) -> None:
        """Handle a request, which the session has counted and does not refuse. Its ``Answer`` is
        called once, before this returns or later."""

    def refuse(self, session: Session, event: RequestEvent, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a counted request before any work is done for it, by calling its ``Answer``."""

    def handle_other(self, session: Session, event: Any) -> None:
        """Handle an event that is neither a request nor the end of the stream, and is not
        counted."""

    def replacement(self, session: Session, event: ResponseEvent,
                    error: LocalProtocolError) -> list:
        """Return the buffers of a reply in place of one that exceeds a frame. Raises
        ``LocalProtocolError`` if there is none."""

    def answer_long_polls(self, session: Session) -> None:
        """Have the next round answer the waiting fetches of a session, with what they have."""

    def forget(self, session: Session) -> None:
        """Drop the fetches of a session that ended, and cancel its other requests."""


class FrameReader(Protocol):
    """The reader of a connection's frames."""

    @property
    def header_bytes(self) -> int: ...  # of the last frame


class RequestStream(Protocol):
    """The requests of one client, in order of arrival, and the encoder of replies."""

    @property
    def state(self) -> State: ...

    @property
    def in_flight(self) -> int: ...  # unanswered requests

    @property
    def limits(self) -> WireLimits: ...

    @property
    def reader(self) -> FrameReader: ...

    def next_event(self) -> Any:
        """Return the next event, ``NEED_DATA``, or ``PAUSED`` at the limit of requests in flight.
        Raises ``ProtocolError`` for bytes that are no frame."""

    @property
    def held_bytes(self) -> int: ...  # of replies that wait for replies to earlier requests

    @property
    def answer_bytes(self) -> int: ...  # those, and what requests in flight are expected to add

    def send(self, event: Any, payload: Sequence[Buffer] = ()) -> list:
        """Return the buffers to send for a reply, in order: those of the reply, none while the
        stream holds it back, or with them those that it releases. Raises ``LocalProtocolError`` if
        the reply exceeds a frame."""


class ReplyQueue(Protocol):
    """Queue of bytes for one client."""

    @property
    def size(self) -> int: ...  # bytes that the client has not taken

    def push(self, buffers: list) -> None:
        """Queue ``buffers``. Raises ``OSError`` if they exceed the limit of the queue."""

    def flush(self) -> None:
        """Send what is queued. Raises ``OSError`` if the client is gone."""


class ConnectionTask(Protocol):
    """The owner of the socket of a session."""

    def wake(self) -> None:
        """Have the task check the session soon: it is over, it paused or may resume, or a reply
        was queued after the end of the stream."""

    def read_again(self) -> None:
        """Have ``take_events`` called in the next turn of the loop, even if nothing arrives."""

    def shut_down(self) -> None:
        """End both sides of the stream."""

    def note_peer(self) -> None:
        """Report that a node has taken the client port for the peer port."""


class MetadataVersion(Protocol):
    """The metadata that this node has applied."""

    @property
    def metadata_index(self) -> int: ...


class Answer:
    """The reply callback of one request; called exactly once. ``size``: bytes of appends, which
    count as in flight from now until the reply."""

    __slots__ = ("session", "id", "size")
    #: The maker of the request has asked for the permissions that it needs.
    is_authorized = False

    def __init__(self, session: Session, number: int, size: int = 0):
        self.session = session
        self.id = number
        self.size = size
        if size:
            session.bytes_in_flight += size
            session._budget.bytes += size

    def __call__(self, reply: Any, payload: Sequence[Buffer] = ()) -> None:
        self.session.answered(self, ResponseEvent(
            self.id, reply, metadata_index=self.session.service.metadata_index), payload)

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Reply with an error."""
        refusals = self.session.service.refusals
        refusals[code] = refusals.get(code, 0) + 1
        self.session.answered(self, ResponseEvent(
            self.id, code=code, error=detail,
            metadata_index=self.session.service.metadata_index), ())


class Session:
    """The requests of one client connection, from their arrival to their reply."""

    __slots__ = ("service", "stream", "outbox", "task", "_dispatch", "_budget", "bytes_in_flight",
                 "_requests", "reserved", "_bytes_awaited", "_unsent", "paused", "closed", "_ended",
                 "problem", "rows_left", "has_deferred", "_working", "events", "tasks",
                 "principal")

    def __init__(self, service: Sessions, dispatch: RequestDispatch, stream: RequestStream,
                 outbox: ReplyQueue, task: ConnectionTask, principal: Principal = ANONYMOUS):
        self.service = service
        self.principal = principal
        self._dispatch = dispatch
        self.stream = stream
        self._budget = service.budget
        self.outbox = outbox
        self.task = task
        self._requests = 0  # unanswered requests
        self.reserved = 0  # bytes of the large frame that is arriving
        self._bytes_awaited = 0  # bytes of the large frame that waits for memory
        self._unsent = 0  # bytes of replies that the memory budget counts
        self._ended = False
        self.rows_left = 0  # rows that remain in this turn of the loop
        self.has_deferred = False  # received bytes are not handled: the turn was over
        self._working = False  # a request is processed in turns
        self.events = 0  # calls of ``take_events`` that completed at least one frame
        self.bytes_in_flight = 0  # of unanswered appends
        self.tasks = 0  # unanswered requests that wait in tasks of their own
        self.paused = False  # the socket is not read
        self.closed = False
        self.problem: Exception | None = None  # for the task, which raises it

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return True if the client may carry out the operation on the resource."""
        return self.service.authorize(self.principal, operation, kind, name)

    def answered(self, answer: Answer, event: ResponseEvent | None,
                 payload: Sequence[Buffer]) -> None:
        """Account for a decided request, and queue its reply for this round's flush. ``event``
        None, or a client that is gone: no reply is sent."""
        budget = self._budget
        self.bytes_in_flight -= answer.size
        budget.bytes -= answer.size
        if not self._ended:
            self._requests -= 1
            budget.requests -= 1
        if budget.waiting:
            budget.grant_waiting()
        if self.paused or self.stream.state is State.CLOSED:
            self.task.wake()
        if event is None:
            return
        if self.closed or self.stream.state is State.BROKEN:
            return  # the client is gone
        try:
            buffers = self.stream.send(event, payload)
        except LocalProtocolError as error:
            buffers = self._dispatch.replacement(self, event, error)
        if buffers:
            try:
                self.outbox.push(buffers)
            except OSError:
                self._close()
                return
        self.service.to_flush[self] = None

    def flush(self) -> None:
        """Write the replies of this round to the socket."""
        if not self.closed:
            queued = self.outbox.size
            try:
                self.outbox.flush()
            except OSError:
                self._close()
            if self.paused and self.outbox.size < queued:
                self.task.wake()  # its replies may have been too many
            if self.outbox.size + self.stream.held_bytes != self._unsent:
                self.account()

    def account(self) -> None:
        """Update the memory budget by the change of this connection's unsent bytes since the last
        call."""
        size = 0 if self._ended else self.outbox.size + self.stream.held_bytes
        self._budget.unsent += size - self._unsent
        self._unsent = size

    def admit(self, size: int) -> bool:
        """Reserve the memory of a frame of ``size`` bytes and return True. Otherwise queue this
        session for ``memory_freed`` and return False."""
        if self._budget.admits(size):
            self._budget.bytes += size
            self.reserved, self._bytes_awaited = size, 0
            return True
        self._bytes_awaited = size
        self._budget.waiting[self] = size
        return False

    def memory_freed(self) -> None:
        """Wake the session's task, which retries the large frame that waits; another session may
        have taken the memory."""
        self.task.wake()

    def _release_reservation(self) -> None:
        """Release the reservation of a large frame that is complete: its request is counted from
        now on."""
        self._budget.bytes -= self.reserved
        self.reserved = 0

    def release(self) -> None:
        """Close the session, and remove it from all counts except its appends in flight: the
        connection has ended."""
        self.closed = True
        self._ended = True
        self._budget.requests -= self._requests
        self._budget.waiting.pop(self, None)
        self._release_reservation()
        self.account()
        if self._budget.waiting:
            self._budget.grant_waiting()
        self.service.remove(self)
        self._dispatch.forget(self)

    def resume(self, rows: int) -> bool:
        """Take frames that arrived before a pause, as far as ``rows`` and the limits permit. Return
        True if a round is due."""
        self.rows_left = rows
        return not self.is_over and self.take_events()

    def await_memory(self) -> None:
        """Queue this session for memory again if its large frame still waits for it: another
        session took what ``memory_freed`` announced."""
        if self._bytes_awaited:
            self._budget.waiting.setdefault(self, self._bytes_awaited)

    def half_close(self) -> None:
        """Have the waiting fetches answered with what they have: the client has ended its side,
        and expects the replies to its open requests."""
        if self.stream.in_flight and not self.closed:
            self._dispatch.answer_long_polls(self)
            self.service.request_round()

    def _close(self) -> None:
        self.closed = True
        self.task.shut_down()
        self.task.wake()

    @property
    def is_over(self) -> bool:
        """True if no further request is handled."""
        return (self.closed or self.problem is not None
                or self.stream.state is State.CLOSED)

    @property
    def is_full(self) -> bool:
        """True if no further request may be taken now: one is processed in turns, a limit in flight
        or of replies is reached, or a large frame lacks memory."""
        limits = self.service.limits
        return (self._working or self.stream.in_flight >= self.stream.limits.in_flight_max
                or self.bytes_in_flight > limits.connection_bytes_in_flight_max
                or self.outbox.size + self.stream.answer_bytes > limits.connection_answer_bytes_max
                or self.tasks >= limits.connection_tasks_max
                or self._bytes_awaited > 0 and not self._budget.admits(self._bytes_awaited))

    def take_events(self) -> bool:
        """Handle complete frames, until none is left, this turn has no rows, or a limit pauses the
        session. Return True if there was any frame."""
        service, dispatch, budget = self.service, self._dispatch, self._budget
        stream, handled = self.stream, False
        bytes_max = service.limits.connection_bytes_in_flight_max
        answers_max = service.limits.connection_answer_bytes_max
        tasks_max = service.limits.connection_tasks_max
        outbox = self.outbox
        opening = stream.state is State.OPENING
        self.has_deferred = False
        try:
            while (self.bytes_in_flight <= bytes_max and not self.closed and not self._working
                   and outbox.size + stream.answer_bytes <= answers_max
                   and self.tasks < tasks_max):
                if self.rows_left <= 0:
                    self.defer_frames()
                    break
                event = stream.next_event()
                if event is NEED_DATA:
                    self.paused = False
                    if self._bytes_awaited:
                        self._pause()
                    break
                if event is PAUSED:
                    self._pause()
                    break
                if self.reserved:
                    self._release_reservation()
                handled = True
                self.rows_left -= (
                    REQUEST_ROWS + stream.reader.header_bytes // HEADER_BYTES_PER_ROW
                )
                if type(event) is RequestEvent:
                    self._requests += 1
                    budget.requests += 1
                    if service.stopping:
                        dispatch.refuse(self, event, Code.SHUTTING_DOWN, STOPPING)
                    elif budget.requests > budget.requests_max or budget.bytes > budget.bytes_max:
                        dispatch.refuse(self, event, Code.QUEUE_FULL, budget.refusal())
                    else:
                        dispatch.handle(self, event)
                elif type(event) is ConnectionClosed:
                    self.task.wake()
                    break
                else:
                    dispatch.handle_other(self, event)
            else:
                self._pause()
        except (OSError, ProtocolError) as error:
            self.fail(error)
        if opening:
            self.task.wake()  # the handshake has a timeout of its own
        if handled:
            self.events += 1
        return handled

    def defer_frames(self) -> None:
        """Postpone the frames that remain at the end of a turn to the next one."""
        self.has_deferred = True
        if not self.paused:  # else the connection's own task continues
            self.task.read_again()

    def run_steps(self, steps: Iterator[None] | None, changes: bool = False) -> None:
        """Process the remaining steps of a request in turns, and no other request of this session
        meanwhile. A request that ``changes`` something is completed even if the session has
        ended."""
        if steps is not None:
            self._working = True
            self.service.turns.start(self, self._steps_in_turns(steps, changes))

    def _steps_in_turns(self, steps: Iterator[None], changes: bool) -> Iterator[None]:
        for _ in steps:
            if self._ended and not changes:
                return
            self.service.request_round()
            yield
        self._working = False
        self.service.request_round()
        self.task.wake()

    def _pause(self) -> None:
        self.paused = True
        self.task.wake()

    def fail(self, problem: Exception) -> None:
        """Close the session with an error, which the connection's task raises."""
        self.problem = problem
        self.closed = True
        self.task.wake()

    def push(self, buffers: list) -> None:
        """Queue the buffers of a reply to an event that was not counted. Raises ``OSError`` if they
        exceed the limit of the queue."""
        self.outbox.push(buffers)
        self.service.to_flush[self] = None


#: Refusal of new requests while a stopping node transfers its leaderships.
STOPPING = ErrorDetail("the node is stopping: ask another")


def discard_reply(answer: Answer) -> Callable[..., None]:
    """Return the reply callback for ``acks=none``: it releases the bytes in flight and sends
    nothing."""

    def done(_reply: Any, _payload: Any = ()) -> None:
        answer.session.answered(answer, None, ())

    return done


class Sessions:
    """The state that all sessions of a node share, at whatever port: limits, memory budget, replies
    that wait for the end of the round."""

    def __init__(self, *, directory: MetadataVersion, limits: Limits,
                 request_round: Callable[[], None], turns: StepScheduler,
                 authorize: Authorize = authorize):
        self.limits = limits
        self.authorize = authorize
        self.request_round = request_round
        self.turns = turns
        self.budget = MemoryBudget(limits)
        self.to_flush: dict[Session, None] = {}
        self._directory = directory
        self.stopping = False  # new requests are refused, those under way are answered
        self.refusals: dict[int, int] = {}  # wire code -> whole requests

    @property
    def metadata_index(self) -> int:
        """Index of the newest metadata that this node has applied."""
        return self._directory.metadata_index

    def flush(self) -> None:
        """Send the replies of all sessions, at the end of a round."""
        if self.to_flush:
            sessions, self.to_flush = self.to_flush, {}
            for session in sessions:
                session.flush()

    def remove(self, session: Session) -> None:
        """Remove a session that ended: its appends continue without a reply."""
        self.to_flush.pop(session, None)
