"""The session of one client connection: wire events to handlers, replies to an outbox.

Contract. ``take_events`` handles what has arrived, below the limits of the session.
``in_flight_max`` unanswered requests or ``connection_bytes_in_flight_max`` bytes of unanswered
appends pause the reading, which stops the sender through TCP; so does a large frame that the memory
budget does not admit now. When all connections together reach a limit, requests are refused before
any work is done for them. Requests are handled in order of arrival; replies leave when they are
ready, gathered per round. The work of a session per turn of the loop is bounded (``rows_left``).
The rest of the requests that arrived together waits for the other sessions, and a request longer
than a step is processed in turns, before the next one of its session is taken. A client that does
not read its replies is disconnected when its outbox is full. A client that ends its side of the
stream still receives the replies to its requests; its long polls are answered at once.

Invariants. This module has no socket, no task and no clock. ``RequestStream`` supplies the events
(``multiraft.wire.connection.Connection`` in the node), ``ReplyQueue`` takes the replies, and
``ConnectionTask`` reads the socket (``client_connection``); a simulated node has its own three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    BadRequest,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    State,
    answer_to,
)
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    LocalProtocolError,
    ProtocolError,
)
from multiraft.wire.frames import Buffer, WireLimits
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
from node.clients.memory_budget import MemoryBudget
from node.loop.steps import StepScheduler

if TYPE_CHECKING:
    from node.limits import Limits

#: Cost of a request beside the rows that it names, in rows: its frame and its reply.
REQUEST_ROWS = 4
#: Header bytes that cost one row more: 10,000 numbers of a byte each take 1.7 ms to decode.
HEADER_BYTES_PER_ROW = 32
#: Cost of a batch in rows: it is verified, proposed, staged and acknowledged.
BATCH_ROWS = 4


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

    def send(self, event: Any, payload: Sequence[Buffer] = ()) -> list:
        """Return the buffers of a reply. Raises ``LocalProtocolError`` if it exceeds a frame."""


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


class YieldFlag(Protocol):
    """A flag of the loop: a handler passed work to a task, which should run soon."""

    yield_due: bool


class MetadataVersion(Protocol):
    """The metadata that this node has applied."""

    @property
    def metadata_index(self) -> int: ...


class Answer:
    """The reply callback of one request; called exactly once."""

    __slots__ = ("session", "id", "size")

    def __init__(self, session: Session, number: int, size: int = 0):
        self.session = session
        self.id = number
        self.size = size  # append bytes that count as in flight until the reply

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

    __slots__ = ("service", "stream", "_budget", "_outbox", "_task", "_bytes_in_flight",
                 "_requests", "reserved", "_bytes_awaited", "_unsent", "paused", "closed", "_ended",
                 "problem", "rows_left", "has_deferred", "_working", "events")

    def __init__(self, service: Sessions, stream: RequestStream, outbox: ReplyQueue,
                 task: ConnectionTask):
        self.service = service
        self.stream = stream
        self._budget = service.budget
        self._outbox = outbox
        self._task = task
        self._requests = 0  # unanswered requests
        self.reserved = 0  # bytes of the large frame that is arriving
        self._bytes_awaited = 0  # bytes of the large frame that waits for memory
        self._unsent = 0  # bytes of the outbox that the memory budget counts
        self._ended = False
        self.rows_left = 0  # rows that remain in this turn of the loop
        self.has_deferred = False  # received bytes are not handled: the turn was over
        self._working = False  # a request is processed in turns
        self.events = 0  # calls of ``take_events`` that completed at least one frame
        self._bytes_in_flight = 0
        self.paused = False  # the socket is not read
        self.closed = False
        self.problem: Exception | None = None  # for the task, which raises it

    def answered(self, answer: Answer, event: ResponseEvent | None,
                 payload: Sequence[Buffer]) -> None:
        """Account for a decided request, and queue its reply for this round's flush. ``event``
        None, or a client that is gone: no reply is sent."""
        budget = self._budget
        self._bytes_in_flight -= answer.size
        budget.bytes -= answer.size
        if not self._ended:
            self._requests -= 1
            budget.requests -= 1
        if budget.waiting:
            budget.grant_waiting()
        if self.paused or self.stream.state is State.CLOSED:
            self._task.wake()
        if event is None:
            return
        if self.closed or self.stream.state is State.BROKEN:
            return  # the client is gone
        try:
            self._outbox.push(self._encoded(event, payload))
        except OSError:
            self._close()
            return
        self.service.to_flush[self] = None

    def _encoded(self, event: ResponseEvent, payload: Sequence[Buffer]) -> list:
        """Return the buffers of a reply. A reply that exceeds a frame is replaced by
        ``LIMIT_EXCEEDED``, or by an ambiguous outcome for appends."""
        try:
            return self.stream.send(event, payload)
        except LocalProtocolError as error:
            if event.code != Code.OK:
                raise  # an error reply is always small enough: a defect
            code = Code.AMBIGUOUS if type(event.reply) is ProduceReply else Code.LIMIT_EXCEEDED
            return self.stream.send(ResponseEvent(
                event.id, code=code,
                error=ErrorDetail(f"the answer is too large, ask for less: {error}"),
                metadata_index=event.metadata_index))

    def flush(self) -> None:
        """Write the replies of this round to the socket."""
        if not self.closed:
            try:
                self._outbox.flush()
            except OSError:
                self._close()
            if self._outbox.size != self._unsent:
                self.account()

    def account(self) -> None:
        """Update the memory budget by the change of this connection's unsent bytes since the last
        call."""
        size = 0 if self._ended else self._outbox.size
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
        self._task.wake()

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
            self.service.fetch_handler.answer_long_polls(self)
            self.service.request_round()

    def _close(self) -> None:
        self.closed = True
        self._task.shut_down()
        self._task.wake()

    @property
    def is_over(self) -> bool:
        """True if no further request is handled."""
        return (self.closed or self.problem is not None
                or self.stream.state is State.CLOSED)

    @property
    def is_full(self) -> bool:
        """True if no further request may be taken now: one is processed in turns, a limit in flight
        is reached, or a large frame lacks memory."""
        return (self._working or self.stream.in_flight >= self.stream.limits.in_flight_max
                or self._bytes_in_flight > self.service.limits.connection_bytes_in_flight_max
                or self._bytes_awaited > 0 and not self._budget.admits(self._bytes_awaited))

    def take_events(self) -> bool:
        """Handle complete frames, until none is left, this turn has no rows, or a limit pauses the
        session. Return True if there was any frame."""
        stream, handled = self.stream, False
        bytes_max = self.service.limits.connection_bytes_in_flight_max
        opening = stream.state is State.OPENING
        self.has_deferred = False
        try:
            while (self._bytes_in_flight <= bytes_max and not self.closed
                   and not self._working):
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
                    self._handle_request(event)
                    continue
                self._handle(event)
                if type(event) is ConnectionClosed or self.closed:
                    self._task.wake()
                    break
            else:
                self._pause()
        except (OSError, ProtocolError) as error:
            self.fail(error)
        if opening:
            self._task.wake()  # the handshake has a timeout of its own
        if handled:
            self.events += 1
        return handled

    def defer_frames(self) -> None:
        """Postpone the frames that remain at the end of a turn to the next one."""
        self.has_deferred = True
        if not self.paused:  # else the connection's own task continues
            self._task.read_again()

    def _run_steps(self, steps: Iterator[None] | None, changes: bool = False) -> None:
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
        self._task.wake()

    def _pause(self) -> None:
        self.paused = True
        self._task.wake()

    def fail(self, problem: Exception) -> None:
        """Close the session with an error, which the connection's task raises."""
        self.problem = problem
        self.closed = True
        self._task.wake()

    def _handle(self, event: Any) -> None:
        if isinstance(event, Hello):
            self._on_hello(event)
        elif isinstance(event, BadRequest):
            self._push(self.stream.send(answer_to(event)))

    def _handle_request(self, event: RequestEvent) -> None:
        request: Any = event.request
        kind = type(request)
        service, budget = self.service, self._budget
        self._requests += 1
        budget.requests += 1
        if service.stopping:
            self._refuse(event, Code.SHUTTING_DOWN, STOPPING)
        elif budget.requests > budget.requests_max or budget.bytes > budget.bytes_max:
            self._refuse(event, Code.QUEUE_FULL, budget.refusal())
        elif kind is Produce:
            size = len(request.payload)
            self.rows_left -= BATCH_ROWS * len(request.batches)
            self._bytes_in_flight += size
            budget.bytes += size
            answer = Answer(self, event.id, size)
            self._run_steps(service.produce_handler.handle(
                request, discard_reply(answer) if request.acks == "none" else answer,
                event.metadata_index), changes=True)
        elif kind is Fetch:
            if budget.unsent > budget.unsent_max:
                self._refuse(event, Code.QUEUE_FULL, budget.refusal())
                return
            self.rows_left -= len(request.partitions)
            self._run_steps(service.fetch_handler.handle(request, Answer(self, event.id),
                                               event.metadata_index))
            service.loop.yield_due = True  # a task reads cold ranges
        elif kind is ListOffsets:
            self.rows_left -= 2 * len(request.partitions)
            self._run_steps(service.offsets.handle(request, Answer(self, event.id),
                                              event.metadata_index))
        elif kind is ReportCorruption:
            service.corruption_reports.handle(request, Answer(self, event.id), event.metadata_index)
        else:
            service.admin.handle(event, Answer(self, event.id))
            service.loop.yield_due = True

    def _refuse(self, event: RequestEvent, code: Code, detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it: a definite error. With acks=none no
        reply is sent."""
        if type(event.request) is Produce and event.request.acks == "none":
            discard_reply(Answer(self, event.id))(None)
        else:
            Answer(self, event.id).refuse(code, detail)

    def _on_hello(self, hello: Hello) -> None:
        service = self.service
        text, code = "", Code.INVALID_REQUEST
        if hello.version not in VERSIONS_SUPPORTED:
            text, code = f"version {hello.version} is not known here", Code.UNSUPPORTED
        elif hello.connection != "client":
            text = "this is the client port; nodes use the peer port"
            self._task.note_peer()
        elif hello.cluster is not None and hello.cluster != service.cluster_id:
            text, code = "this node belongs to another cluster", Code.WRONG_CLUSTER
        if text:
            self._push(self.stream.send(Refused(code, text)))
            self._outbox.flush()
            return
        self._push(self.stream.send(Welcome(
            service.cluster_id, service.node, service.boot_epoch,
            service.wire_limits.frame_bytes_max, service.batch_bytes_max,
            service.wire_limits.in_flight_max)))

    def _push(self, buffers: list) -> None:
        self._outbox.push(buffers)
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
    """The state that all sessions of a node share: handlers, limits, memory budget, replies that
    wait for the end of the round."""

    def __init__(self, *, produce_handler: RequestHandler, fetch_handler: FetchRequests,
                 offsets: RequestHandler, corruption_reports: RequestHandler, admin: AdminRequests,
                 directory: MetadataVersion, limits: Limits, batch_bytes_max: int,
                 cluster_id: bytes, node: int, boot_epoch: int, request_round: Callable[[], None],
                 loop: YieldFlag, turns: StepScheduler):
        self.produce_handler = produce_handler
        self.fetch_handler = fetch_handler
        self.offsets = offsets
        self.corruption_reports = corruption_reports
        self.admin = admin
        self.limits = limits
        self.batch_bytes_max = batch_bytes_max
        self.cluster_id = cluster_id
        self.node = node
        self.boot_epoch = boot_epoch
        self.request_round = request_round
        self.loop = loop
        self.turns = turns
        self.wire_limits = WireLimits(frame_bytes_max=limits.frame_bytes_max,
                                      in_flight_max=limits.requests_in_flight_max)
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
        """Remove a session that ended: its long polls are dropped, its appends continue without a
        reply."""
        self.to_flush.pop(session, None)
        self.fetch_handler.forget(session)
        self.admin.forget(session)
