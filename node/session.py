"""One client connection: wire events to handlers, answers to the socket.

Contract.  A session receives only while it may: ``in_flight_max`` unanswered requests or
``connection_bytes_in_flight_max`` unanswered append bytes stop the reading, which stops the sender
through TCP.  Requests are handled in order of arrival; answers go out as they come, gathered per
round.  A client that does not read its answers is closed when its outbox is full.  One that ends
its side of the stream gets the answers to what it had asked, its long polls at once.

Theory.  The socket is tried first and waited for only on EAGAIN; handlers run synchronously on the
loop, and one round is asked for after everything that has arrived was handled.
"""

from __future__ import annotations

import socket

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
from multiraft.wire.errors import Code, ErrorDetail, LocalProtocolError, ProtocolError
from multiraft.wire.frames import WireLimits
from multiraft.wire.messages import (
    VERSIONS_SUPPORTED,
    Complain,
    Fetch,
    Hello,
    ListOffsets,
    Produce,
    ProduceReply,
    Refused,
    Welcome,
)
from node.outbox import Outbox


class Answer:
    """The way back of one request; called exactly once."""

    __slots__ = ("session", "id", "size")

    def __init__(self, session: "Session", number: int, size: int = 0):
        self.session = session
        self.id = number
        self.size = size  # append bytes that are in flight until the answer

    def __call__(self, reply, payload=()) -> None:
        self.session.answered(self, ResponseEvent(
            self.id, reply, metadata_index=self.session.service.metadata_index), payload)

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Answer with an error instead."""
        refusals = self.session.service.refusals
        refusals[code] = refusals.get(code, 0) + 1
        self.session.answered(self, ResponseEvent(
            self.id, code=code, error=detail,
            metadata_index=self.session.service.metadata_index), ())


class Session:
    """State of one client connection; made by ``Sessions``."""

    __slots__ = ("service", "_sock", "_connection", "_outbox", "_resume", "_bytes_in_flight",
                 "_closed")

    def __init__(self, service: "Sessions", sock: socket.socket):
        self.service = service
        self._sock = sock
        self._connection = Connection(Role.SERVER, service.wire_limits)
        self._outbox = Outbox(sock, service.limits.outbox_bytes_max)
        self._resume = trio.Event()
        self._bytes_in_flight = 0
        self._closed = False

    async def run(self) -> None:
        """From hello to end."""
        problem = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, nursery.cancel_scope)
                try:
                    await self._receive()
                    await self._answer_rest()
                except (OSError, ProtocolError) as error:
                    problem = error  # raised below: a nursery would wrap it into a group
                nursery.cancel_scope.cancel()
        finally:
            self._closed = True
            self.service.gone(self)
        if problem is not None:
            raise problem

    def answered(self, answer: Answer, event: ResponseEvent, payload) -> None:
        """An answer is complete: it leaves with this round's flush."""
        self._bytes_in_flight -= answer.size
        if self._closed or self._connection.state is State.BROKEN:
            return  # the client is gone
        try:
            self._outbox.push(self._encoded(event, payload))
        except OSError:
            self._close()
            return
        self.service.to_flush[self] = None
        self._resume.set()

    def _encoded(self, event: ResponseEvent, payload) -> list:
        """The answer's buffers.  One that does not fit into a frame is refused instead, or called
        ambiguous when what it answers has happened."""
        try:
            return self._connection.send(event, payload)
        except LocalProtocolError as error:
            if event.code != Code.OK:
                raise  # nothing smaller can be said: a defect
            code = Code.AMBIGUOUS if type(event.reply) is ProduceReply else Code.LIMIT_EXCEEDED
            return self._connection.send(ResponseEvent(
                event.id, code=code,
                error=ErrorDetail(f"the answer is too large, ask for less: {error}"),
                metadata_index=event.metadata_index))

    def released(self, size: int) -> None:
        """``size`` bytes of an append without an answer are decided."""
        self._bytes_in_flight -= size
        self._resume.set()

    def flush(self) -> None:
        """Give the socket what this round produced."""
        if not self._closed:
            try:
                self._outbox.flush()
            except OSError:
                self._close()

    def _close(self) -> None:
        self._closed = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the receiving task
        except OSError:
            pass  # it is gone already
        self._resume.set()

    async def _drain(self, scope: trio.CancelScope) -> None:
        try:
            await self._outbox.drain()
        except OSError:
            scope.cancel()

    async def _answer_rest(self) -> None:
        """The client has ended its side: what it asked for is answered before ours ends."""
        service, connection = self.service, self._connection
        if connection.in_flight:
            service.fetching.hurry(self)
            service.request_round()
        with trio.move_on_after(service.limits.half_closed_ms_max / 1000):
            while connection.in_flight and not self._closed:
                self._resume = trio.Event()
                await self._resume.wait()
            if not self._closed:
                self.flush()
                await self._outbox.empty()

    async def _receive(self) -> None:
        connection = self._connection
        with trio.move_on_after(self.service.limits.hello_timeout_ms / 1000):
            while connection.state is State.OPENING:
                if not await self._next():
                    return
        if connection.state is not State.OPEN:
            return
        while await self._next():
            pass

    async def _next(self) -> bool:
        """Handle what has arrived, then receive more; False when the connection is over."""
        handled, signal = self._handle_events()
        if handled:
            self.service.request_round()
        if self._closed or self._connection.state is State.CLOSED:
            return False
        if signal is PAUSED:
            # Asked anew: when the round has answered everything, nobody sets the event any more.
            while self._is_full and not self._closed:
                self._resume = trio.Event()
                await self._resume.wait()
            return not self._closed
        return await self._receive_some()

    @property
    def _is_full(self) -> bool:
        """Whether more requests have to wait for answers to earlier ones."""
        return (self._connection.in_flight >= self._connection.limits.in_flight_max
                or self._bytes_in_flight > self._bytes_in_flight_max)

    @property
    def _bytes_in_flight_max(self) -> int:
        return self.service.limits.connection_bytes_in_flight_max

    def _handle_events(self) -> tuple[bool, object]:
        handled = False
        while self._bytes_in_flight <= self._bytes_in_flight_max:
            event = self._connection.next_event()
            if event is NEED_DATA or event is PAUSED:
                return handled, event
            self._handle(event)
            handled = True
            if isinstance(event, ConnectionClosed) or self._closed:
                return handled, NEED_DATA
        return handled, PAUSED

    async def _receive_some(self) -> bool:
        """Wait until there is something, receive it.  The wait comes first: it is the checkpoint
        that lets others run, and trying first would mostly be in vain."""
        await trio.lowlevel.wait_readable(self._sock)
        try:
            count = self._sock.recv_into(self._connection.buffer_for_receive())
        except BlockingIOError:
            return True  # a spurious wake-up; the caller comes again
        self._connection.received(count)
        return True

    def _handle(self, event) -> None:
        if isinstance(event, RequestEvent):
            self._handle_request(event)
        elif isinstance(event, Hello):
            self._greet(event)
        elif isinstance(event, BadRequest):
            self._push(self._connection.send(answer_to(event)))

    def _handle_request(self, event: RequestEvent) -> None:
        request = event.request
        kind = type(request)
        service = self.service
        if service.stopping:
            if kind is not Produce or request.acks != "none":
                Answer(self, event.id).refuse(Code.SHUTTING_DOWN, STOPPING)
        elif kind is Produce:
            size = len(request.payload)
            self._bytes_in_flight += size
            answer = Answer(self, event.id, size)
            if request.acks == "none":
                service.producing.handle(request, answer_nobody(answer), event.metadata_index)
            else:
                service.producing.handle(request, answer, event.metadata_index)
        elif kind is Fetch:
            service.fetching.handle(request, Answer(self, event.id), event.metadata_index)
        elif kind is ListOffsets:
            service.offsets.handle(request, Answer(self, event.id), event.metadata_index)
        elif kind is Complain:
            service.complaints.handle(request, Answer(self, event.id), event.metadata_index)
        else:
            service.admin.handle(event, Answer(self, event.id))

    def _greet(self, hello: Hello) -> None:
        service = self.service
        text = ""
        if hello.version not in VERSIONS_SUPPORTED:
            text = f"version {hello.version} is not known here"
        elif hello.connection != "client":
            text = "this is the client port; nodes use the peer port"
        elif hello.cluster is not None and hello.cluster != service.cluster_id:
            text = "this node belongs to another cluster"
        if text:
            code = (Code.UNSUPPORTED if hello.version not in VERSIONS_SUPPORTED
                    else Code.INVALID_REQUEST)
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


#: What a node says to new requests while it hands its leaderships over.
STOPPING = ErrorDetail("the node is stopping: ask another")


def answer_nobody(answer: Answer):
    """``acks=none``: the bytes are not in flight any more, and nobody is told anything."""

    def done(_reply, _payload=()) -> None:
        answer.session.released(answer.size)

    return done


class Sessions:
    """What all sessions of a node share."""

    def __init__(self, *, producing, fetching, offsets, complaints, admin, directory, limits,
                 batch_bytes_max: int, cluster_id: bytes, node: int, boot_epoch: int,
                 request_round, log):
        self.producing = producing
        self.fetching = fetching
        self.offsets = offsets
        self.complaints = complaints
        self.admin = admin
        self.limits = limits
        self.batch_bytes_max = batch_bytes_max
        self.cluster_id = cluster_id
        self.node = node
        self.boot_epoch = boot_epoch
        self.request_round = request_round
        self.wire_limits = WireLimits(frame_bytes_max=limits.frame_bytes_max,
                                      in_flight_max=limits.requests_in_flight_max)
        self.to_flush: dict[Session, None] = {}
        self._directory = directory
        self._log = log
        self.stopping = False  # new requests are refused, those under way are answered
        self.closed_by_error = 0
        self.refusals: dict[int, int] = {}  # wire code -> whole requests

    @property
    def metadata_index(self) -> int:
        """The newest metadata this node has applied."""
        return self._directory.metadata_index

    async def handle(self, sock: socket.socket) -> None:
        """Handler of the client port's connections."""
        try:
            await Session(self, sock).run()
        except ProtocolError as error:
            self.closed_by_error += 1
            self._log.info("client connection closed", extra={"reason": str(error)})

    def flush(self) -> None:
        """End of a round: every session with answers gives them to its socket."""
        if self.to_flush:
            sessions, self.to_flush = self.to_flush, {}
            for session in sessions:
                session.flush()

    def gone(self, session: Session) -> None:
        """A session ended: its long polls are forgotten, its appends run on unanswered."""
        self.to_flush.pop(session, None)
        self.fetching.forget(session)
