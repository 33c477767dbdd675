"""The session of one client connection: wire events to handlers, replies to the socket.

Contract. A session reads only below its limits. ``in_flight_max`` unanswered requests or
``connection_bytes_in_flight_max`` bytes of unanswered appends stop the reading, which stops the
sender through TCP; so does a large frame that the memory budget does not admit now. When all
connections together reach a limit, requests are refused before any work is done for them. Requests
are handled in order of arrival; replies leave when they are ready, gathered per round. The work of
a session per turn of the loop is bounded (``connection_turn_rows_max``). The rest of the requests
that arrived together waits for the other sessions, and a request longer than a step is processed in
turns (``turns``), before the next one of its session is read. A client that does not read its
replies is disconnected when its outbox is full. A client that ends its side of the stream still
receives the replies to its requests; its long polls are answered at once.

Theory. The arrivals task reads the socket while the session may be read, handlers run synchronously
on the loop, and one round follows after everything that arrived together was handled. The session's
own task is active only for the handshake, a pause and the end.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    BadRequest,
    Connection,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    Role,
    State,
    answer_to,
)
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from multiraft.wire.foreign_protocols import Foreign, ForeignProtocol, NotTls
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
from multiraft.wire.tls import TlsSocket
from node.clients.connection_reaper import ConnectionSample
from node.clients.memory_budget import MemoryBudget
from node.loop.foreign_clients import ForeignClients
from node.loop.outbox import Outbox
from node.loop.receive import secured
from node.loop.turns import ROWS_PER_STEP, Turns
from node.peers.security import Security

if TYPE_CHECKING:
    from node.clients.router import Router
    from node.config import Limits
    from node.loop.poller import Poller

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


class Answer:
    """The reply callback of one request; called exactly once."""

    __slots__ = ("session", "id", "size")

    def __init__(self, session: "Session", number: int, size: int = 0):
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
    """The state of one client connection; created by ``Sessions``."""

    __slots__ = ("service", "_budget", "_sock", "_connection", "_outbox", "_task_needed",
                 "_bytes_in_flight", "_requests", "_reserved", "_bytes_awaited", "_unsent",
                 "_paused", "_closed", "_ended", "_problem", "_rows_left", "_has_deferred",
                 "_working", "events")

    def __init__(self, service: "Sessions", sock: socket.socket | TlsSocket):
        self.service = service
        self._budget = service.budget
        self._sock = sock
        self._connection = Connection(Role.SERVER, service.wire_limits)
        self._connection.reader.admit = self._admit
        self._outbox = Outbox(sock, service.limits.connection_send_buffer_bytes_max)
        self._requests = 0  # unanswered requests
        self._reserved = 0  # bytes of the large frame that is arriving
        self._bytes_awaited = 0  # bytes of the large frame that waits for memory
        self._unsent = 0  # bytes of the outbox that the memory budget counts
        self._ended = False
        self._rows_left = 0  # rows that remain in this turn of the loop
        self._has_deferred = False  # received bytes are not handled: the turn was over
        self._working = False  # a request is processed in turns
        self.events = 0  # receives that completed at least one frame
        self._task_needed = trio.Event()  # the task is needed: an end, a pause, a handshake
        self._bytes_in_flight = 0
        self._paused = False
        self._closed = False
        self._problem: Exception | None = None  # raised by the session's task

    async def run(self) -> None:
        """Serve the connection until it ends, in the calling task, then remove the session from all
        counts. Raises the error that ended it: ``OSError`` or ``ProtocolError``."""
        self.service.open[self] = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, nursery.cancel_scope)
                await self._run_until_end()
                if self._problem is None and not self._closed:
                    await self._finish_half_closed()
                nursery.cancel_scope.cancel()
        finally:
            self._closed = True
            self._release_counts()
        problem, self._problem = self._problem, None
        try:
            if problem is not None:
                raise problem
        finally:
            # Break the reference cycle through the traceback: the received bytes are freed with the
            # session, and not at the next garbage collection.
            del problem

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
        if self._paused or self._connection.state is State.CLOSED:
            self._call_task()
        if event is None:
            return
        if self._closed or self._connection.state is State.BROKEN:
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
            return self._connection.send(event, payload)
        except LocalProtocolError as error:
            if event.code != Code.OK:
                raise  # an error reply is always small enough: a defect
            code = Code.AMBIGUOUS if type(event.reply) is ProduceReply else Code.LIMIT_EXCEEDED
            return self._connection.send(ResponseEvent(
                event.id, code=code,
                error=ErrorDetail(f"the answer is too large, ask for less: {error}"),
                metadata_index=event.metadata_index))

    def flush(self) -> None:
        """Write the replies of this round to the socket."""
        if not self._closed:
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

    def _admit(self, size: int) -> bool:
        """Reserve the memory of a frame of ``size`` bytes and return True. Otherwise queue this
        session for ``memory_freed`` and return False."""
        if self._budget.admits(size):
            self._budget.bytes += size
            self._reserved, self._bytes_awaited = size, 0
            return True
        self._bytes_awaited = size
        self._budget.waiting[self] = size
        return False

    def memory_freed(self) -> None:
        """Wake the session's task, which retries the large frame that waits; another session may
        have taken the memory."""
        self._call_task()

    def _release_reservation(self) -> None:
        """Release the reservation of a large frame that is complete: its request is counted from
        now on."""
        self._budget.bytes -= self._reserved
        self._reserved = 0

    def _release_counts(self) -> None:
        """Remove this session from all counts, except its appends in flight."""
        self._ended = True
        self._connection.reader.admit = None  # breaks the reference cycle that holds its memory
        self._budget.requests -= self._requests
        self._budget.waiting.pop(self, None)
        self._release_reservation()
        self.account()
        if self._budget.waiting:
            self._budget.grant_waiting()
        self.service.remove(self)

    def end(self, reason: str) -> None:
        """Close this connection; ``reason`` is logged."""
        self._end(RemoteProtocolError(reason))

    def sample(self) -> ConnectionSample:
        """Return the counters that the connection reaper compares."""
        outbox, connection = self._outbox, self._connection
        reader = connection.reader
        return ConnectionSample(self.events, reader.mid_frame and not self._paused,
                    bool(connection.in_flight) or self._paused,
                    reader.arrived if self._reserved else 0, outbox.size, outbox.sent_bytes)

    def _close(self) -> None:
        self._closed = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client has closed it already
        self._call_task()

    async def _drain(self, scope: trio.CancelScope) -> None:
        try:
            await self._outbox.drain()
        except OSError:
            scope.cancel()

    async def _run_until_end(self) -> None:
        """Have the arrivals task read the socket, except during pauses, until the connection ends
        or the client sent no hello in time."""
        poller, file_number = self.service.poller, self._sock.fileno()
        with trio.move_on_after(self.service.limits.hello_timeout_ms / 1000) as hello:
            while not self._over:
                poller.add(file_number, self.receive)
                try:
                    self._begin_receiving()
                    await self._task_needed.wait()
                finally:
                    poller.remove(file_number)
                if self._connection.state is State.OPEN:
                    hello.deadline = math.inf
                await self._wait_until_readable()

    async def _finish_half_closed(self) -> None:
        """Send the replies to open requests after the client has ended its side, within
        ``half_closed_timeout_ms``. Its long polls are answered at once."""
        service, connection = self.service, self._connection
        if connection.in_flight and not self._closed:
            service.fetch_handler.answer_long_polls(self)
            service.request_round()
        try:
            with trio.move_on_after(service.limits.half_closed_timeout_ms / 1000):
                while connection.in_flight and not self._closed:
                    self._task_needed = trio.Event()
                    await self._task_needed.wait()
                if not self._closed:
                    self.flush()
                    await self._outbox.empty()
        except OSError as error:
            self._problem = error

    def _begin_receiving(self) -> None:
        """Prepare for reading the socket; TLS handles bytes that are decrypted already."""

    async def _wait_until_readable(self) -> None:
        """Wait until the arrivals task may read the socket again, and handle the requests that were
        received before, as limits and turns permit."""
        self._task_needed = trio.Event()
        self._paused |= self._has_deferred  # this task also handles the rest of an interrupted turn
        while self._paused and not self._over:
            if not self._is_full:
                await self.service.turns.take(ROWS_PER_STEP)
                self._rows_left = ROWS_PER_STEP
                if not self._over and self._take_events():
                    self.service.request_round()
                continue
            if self._bytes_awaited:  # notified, but another session took the memory
                self._budget.waiting.setdefault(self, self._bytes_awaited)
            await self._task_needed.wait()
            self._task_needed = trio.Event()

    @property
    def _over(self) -> bool:
        return (self._closed or self._problem is not None
                or self._connection.state is State.CLOSED)

    @property
    def _is_full(self) -> bool:
        """True if no further request may be taken now: one is processed in turns, a limit in flight
        is reached, or a large frame lacks memory."""
        return (self._working or self._connection.in_flight >= self._connection.limits.in_flight_max
                or self._bytes_in_flight > self.service.limits.connection_bytes_in_flight_max
                or self._bytes_awaited > 0 and not self._budget.admits(self._bytes_awaited))

    def receive(self) -> bool:
        """Receive and handle what has arrived. Return True if a round is due. An error is kept for
        the session's own task."""
        if self._paused or self._closed:
            return False
        self._rows_left = self.service.limits.connection_turn_rows_max
        if self._has_deferred:
            handled = self._take_events()
            if self._has_deferred or self._paused or self._closed:
                return handled
            return self._received() or handled
        return self._received()

    def _received(self) -> bool:
        connection = self._connection
        try:
            count = self._sock.recv_into(connection.buffer_for_receive())
        except BlockingIOError:
            return False  # a spurious wake-up
        except OSError as error:
            self._end(error)
            return False
        connection.received(count)
        return self._take_events()

    def _take_events(self) -> bool:
        """Handle complete frames, until none is left, this turn has no rows, or a limit pauses the
        session. Return True if there was any frame."""
        connection, handled = self._connection, False
        bytes_max = self.service.limits.connection_bytes_in_flight_max
        opening = connection.state is State.OPENING
        self._has_deferred = False
        try:
            while (self._bytes_in_flight <= bytes_max and not self._closed
                   and not self._working):
                if self._rows_left <= 0:
                    self._defer_frames()
                    break
                event = connection.next_event()
                if event is NEED_DATA:
                    self._paused = False
                    if self._bytes_awaited:
                        self._pause()
                    break
                if event is PAUSED:
                    self._pause()
                    break
                if self._reserved:
                    self._release_reservation()
                handled = True
                self._rows_left -= (
                    REQUEST_ROWS + connection.reader.header_bytes // HEADER_BYTES_PER_ROW
                )
                if type(event) is RequestEvent:
                    self._handle_request(event)
                    continue
                self._handle(event)
                if type(event) is ConnectionClosed or self._closed:
                    self._call_task()
                    break
            else:
                self._pause()
        except (OSError, ProtocolError) as error:
            self._end(error)
        if opening:
            self._call_task()  # the handshake has a timeout of its own
        if handled:
            self.events += 1
        return handled

    def _defer_frames(self) -> None:
        """Postpone the frames that remain at the end of a turn to the next one."""
        self._has_deferred = True
        if not self._paused:  # else this session's own task continues
            self.service.poller.again(self._sock.fileno())

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
        self._call_task()

    def _call_task(self) -> None:
        self._task_needed.set()
        self.service.poller.yield_due = True

    def _pause(self) -> None:
        self._paused = True
        self._call_task()

    def _end(self, problem: Exception) -> None:
        self._problem = problem
        self._closed = True
        self._call_task()

    def _handle(self, event: Any) -> None:
        if isinstance(event, Hello):
            self._on_hello(event)
        elif isinstance(event, BadRequest):
            self._push(self._connection.send(answer_to(event)))

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
            self._rows_left -= BATCH_ROWS * len(request.batches)
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
            self._rows_left -= len(request.partitions)
            self._run_steps(service.fetch_handler.handle(request, Answer(self, event.id),
                                               event.metadata_index))
            service.poller.yield_due = True  # a task reads cold ranges
        elif kind is ListOffsets:
            self._rows_left -= 2 * len(request.partitions)
            self._run_steps(service.offsets.handle(request, Answer(self, event.id),
                                              event.metadata_index))
        elif kind is ReportCorruption:
            service.corruption_reports.handle(request, Answer(self, event.id), event.metadata_index)
        else:
            service.admin.handle(event, Answer(self, event.id))
            service.poller.yield_due = True

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
            service.foreign.note(self._sock, Foreign.PEER)
        elif hello.cluster is not None and hello.cluster != service.cluster_id:
            text, code = "this node belongs to another cluster", Code.WRONG_CLUSTER
        if text:
            self._push(self._connection.send(Refused(code, text)))
            self._outbox.flush()
            return
        self._push(self._connection.send(Welcome(
            service.cluster_id, service.node, service.boot_epoch,
            service.wire_limits.frame_bytes_max, service.batch_bytes_max,
            service.wire_limits.in_flight_max)))

    def _push(self, buffers: list) -> None:
        self._outbox.push(buffers)
        self.service.to_flush[self] = None


class TlsSession(Session):
    """A session inside TLS, where one readiness of the socket may need several receives."""

    __slots__ = ()

    def receive(self) -> bool:
        """Receive as ``Session.receive`` does, until nothing is decrypted and unread: the kernel
        reports no readiness for those bytes. Return True if a round is due."""
        due = super().receive()
        assert isinstance(self._sock, TlsSocket)
        while self._sock.pending and not self._paused and not self._over:
            if self._rows_left <= 0:
                self._defer_frames()
                break
            due |= self._received()
        return due

    def _begin_receiving(self) -> None:
        if isinstance(self._sock, TlsSocket) and self._sock.pending and self.receive():
            self.service.request_round()


#: Refusal of new requests while a stopping node transfers its leaderships.
STOPPING = ErrorDetail("the node is stopping: ask another")


def discard_reply(answer: Answer) -> Callable[..., None]:
    """Return the reply callback for ``acks=none``: it releases the bytes in flight and sends
    nothing."""

    def done(_reply: Any, _payload: Any = ()) -> None:
        answer.session.answered(answer, None, ())

    return done


class Sessions:
    """The state that all sessions of a node share: handlers, limits, memory budget, open
    sessions."""

    def __init__(self, *, produce_handler: RequestHandler, fetch_handler: FetchRequests,
                 offsets: RequestHandler, corruption_reports: RequestHandler, admin: AdminRequests,
                 directory: Router, limits: Limits, batch_bytes_max: int, cluster_id: bytes,
                 node: int, boot_epoch: int, request_round: Callable[[], None], poller: Poller,
                 turns: Turns, log: logging.Logger, security: Security | None = None,
                 http_port: Callable[[], int] = lambda: 0):
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
        self.poller = poller
        self.turns = turns
        self.wire_limits = WireLimits(frame_bytes_max=limits.frame_bytes_max,
                                      in_flight_max=limits.requests_in_flight_max)
        self.budget = MemoryBudget(limits)
        self.open: dict[Session, None] = {}
        self.to_flush: dict[Session, None] = {}
        self._security = security
        self._directory = directory
        self._log = log
        self.foreign = ForeignClients("client", http_port, log)
        self.stopping = False  # new requests are refused, those under way are answered
        self.closed_by_error = 0
        self.refusals: dict[int, int] = {}  # wire code -> whole requests

    @property
    def metadata_index(self) -> int:
        """Index of the newest metadata that this node has applied."""
        return self._directory.metadata_index

    async def handle(self, sock: socket.socket) -> None:
        """Serve one connection of the client port until it ends, after the TLS handshake if TLS is
        configured. Protocol and TLS errors are logged; a client of another protocol receives a
        farewell. Raises ``OSError``."""
        context = None if self._security is None else self._security.client_server
        try:
            if context is None:
                await self._run(Session(self, sock), sock)
                return
            tls = None
            with trio.move_on_after(self.limits.hello_timeout_ms / 1000):
                tls = await secured(sock, context)
            if tls is not None:
                with tls:
                    await self._run(TlsSession(self, tls), tls)
        except NotTls as error:
            self.closed_by_error += 1
            await self.foreign.reject(sock, error.protocol)
        except ProtocolError as error:
            self.closed_by_error += 1
            self._log.info("client_connection_closed", extra={"reason": str(error)})
        except ssl.SSLError as error:
            self.closed_by_error += 1
            self._log.info("client_connection_closed", extra={"reason": f"TLS: {error}"})

    async def _run(self, session: Session, sock: socket.socket | TlsSocket) -> None:
        """Run a session to its end. Raises ``OSError``, and ``ProtocolError`` unless the client
        speaks another protocol."""
        try:
            await session.run()
        except ForeignProtocol as error:
            self.closed_by_error += 1
            await self.foreign.reject(sock, error.protocol)

    def flush(self) -> None:
        """Write the replies of all sessions to their sockets, at the end of a round."""
        if self.to_flush:
            sessions, self.to_flush = self.to_flush, {}
            for session in sessions:
                session.flush()

    def remove(self, session: Session) -> None:
        """Remove a session that ended: its long polls are dropped, its appends continue without a
        reply."""
        self.open.pop(session, None)
        self.to_flush.pop(session, None)
        self.fetch_handler.forget(session)
        self.admin.forget(session)
