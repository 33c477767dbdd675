"""One connection as a state machine: bytes in, events out; events in, buffers out.

Contract.  A driver owns a socket and obeys:

    connection = Connection(Role.SERVER, limits)
    count = sock.recv_into(connection.buffer_for_receive())     # or receive_data(bytes)
    connection.received(count)                                  # or receive_eof()
    while (event := connection.next_event()) not in (NEED_DATA, PAUSED): handle(event)
    sock.sendmsg(connection.send(event, payload))               # buffers, nothing copied

``NEED_DATA``: receive, then call ``next_event`` again.  ``PAUSED``: do not receive, and call it
again after a ``send`` (the handshake is unanswered, or ``in_flight_max`` requests are).  An invalid
request is an event too (``BadRequest``): answer it, and the connection continues.  Bytes that
violate the protocol raise ``RemoteProtocolError`` from ``next_event``, and from each later call;
any other exception is a bug.

Transitions.
    server: OPENING -Hello received-> JUDGING -Welcome sent-> OPEN, or -Refused sent-> CLOSED
    client: OPENING -Hello sent-> WAITING -Welcome received-> OPEN, or -Refused received-> CLOSED
    any:    -end of stream-> CLOSED;  -protocol error-> BROKEN

Theory.  Requests are handled in order of arrival.  Responses may come in any order, because a long
poll must not delay the requests behind it.  A produce request with ``acks="none"`` has no response
and is not in flight.  Requests in flight when the client's stream ends may still be answered,
because TCP ends each direction on its own.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Sequence

from multiraft import core
from multiraft.wire import messages
from multiraft.wire.errors import Code, ErrorDetail, LocalProtocolError, RemoteProtocolError
from multiraft.wire.frames import (
    DEFAULT_LIMITS,
    HANDSHAKE_LIMITS,
    Buffer,
    Frame,
    FrameReader,
    WireLimits,
    payload_size,
)
from multiraft.wire.messages import Hello, Refused, Welcome
from multiraft.wire.schema import U64_MAX, Malformed


class Role(enum.Enum):
    """Side of the connection."""

    CLIENT = "client"
    SERVER = "server"


class State(enum.Enum):
    """State of a connection; the module's docstring has the transitions."""

    OPENING = "opening"
    JUDGING = "judging"
    WAITING = "waiting"
    OPEN = "open"
    CLOSED = "closed"
    BROKEN = "broken"


class Signal(enum.Enum):
    """Results of ``next_event`` when there is no event."""

    NEED_DATA = "need data"
    PAUSED = "paused"


#: A named tuple from all its fields, without the Python function in front of it.
_new = tuple.__new__

NEED_DATA = Signal.NEED_DATA
PAUSED = Signal.PAUSED


class RequestEvent(NamedTuple):
    """A request, sent or received, of the connection's protocol (``messages.Request`` here).
    ``metadata_index``: the newest that the client has seen."""

    id: int
    request: Any
    metadata_index: int = 0


class BadRequest(NamedTuple):
    """An invalid request that can be answered with an error."""

    id: int
    code: Code
    error: ErrorDetail


class ResponseEvent(NamedTuple):
    """A response, sent or received.  ``reply`` when ``code`` is 0, else ``error``."""

    id: int
    reply: Any = None
    code: int = Code.OK
    error: ErrorDetail | None = None
    metadata_index: int = 0


class ConnectionClosed(NamedTuple):
    """The other side ended the stream between two frames."""


Event = Hello | Welcome | Refused | RequestEvent | BadRequest | ResponseEvent | ConnectionClosed

def answer_to(bad: BadRequest) -> ResponseEvent:
    """Return the response that refuses an invalid request."""
    return ResponseEvent(bad.id, code=bad.code, error=bad.error)


class Connection:
    """One side of a connection, without a socket.  ``state`` and ``in_flight`` may be read at any
    time; ``reader`` is the frame reader, for a port that frames its own messages after the
    handshake."""

    #: Bytes of replies that wait for replies to earlier requests: none, because replies may come in
    #: any order.
    held_bytes = 0
    #: Bytes of those, and of the replies that requests in flight may have.
    answer_bytes = 0

    def __init__(self, role: Role, limits: WireLimits = DEFAULT_LIMITS):
        self.role = role
        self.limits = limits
        self.state = State.OPENING
        #: Limit of the other side, from the Welcome; the own limit until then.
        self.remote_frame_bytes_max = limits.frame_bytes_max
        self.reader = FrameReader(HANDSHAKE_LIMITS)
        self._in_flight: dict[int, str] = {}  # id -> op, unanswered
        self._pending: list[memoryview] = []  # given to receive_data, not yet framed
        self._ended = False

    @property
    def in_flight(self) -> int:
        """Number of requests without a response."""
        return len(self._in_flight)

    # ---- bytes in ----

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into.  Only after ``next_event`` has returned NEED_DATA."""
        assert not self._pending, "receive_data and buffer_for_receive do not mix"
        return self.reader.memory.buffer_for_receive()

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received into ``buffer_for_receive()``; 0 = end of
        stream.  Nothing is parsed until ``next_event``."""
        if count:
            self.reader.memory.received(count)
        else:
            self._ended = True

    def receive_data(self, data: Buffer) -> None:
        """Add received bytes of any number; empty = end of stream.  Copies them, unlike
        ``buffer_for_receive``.  Nothing is parsed until ``next_event``."""
        if len(data):
            self._pending.append(memoryview(data).cast("B"))
        else:
            self._ended = True

    def receive_eof(self) -> None:
        """Record the end of the stream; ``next_event`` reports it after the frames received
        before."""
        self._ended = True

    # ---- events out ----

    def next_event(self) -> Event | Signal:
        """Return the next event; NEED_DATA = receive more bytes first, PAUSED = a server has to
        answer the Hello or a request first. At the end of the stream it is ``ConnectionClosed``.

        Raises ``RemoteProtocolError`` for bytes that violate the protocol, and from then on."""
        state = self.state
        if state is State.BROKEN:
            raise RemoteProtocolError("the connection is finished after a protocol error")
        if self.role is Role.SERVER and (
                state is State.JUDGING or len(self._in_flight) >= self.limits.in_flight_max):
            return PAUSED
        try:
            frame = self._next_frame() if self._pending else self.reader.next_frame()
            if frame is not None:
                if state is not State.OPEN:
                    return self._read_handshake(frame)
                if self.role is Role.SERVER:
                    return self._read_request(frame)
                return self._read_response(frame)
            if not self._ended:
                return NEED_DATA
            if self.reader.mid_frame:
                raise RemoteProtocolError("the stream ended inside a frame")
        except RemoteProtocolError:
            self.state = State.BROKEN
            raise
        self.state = State.CLOSED
        return ConnectionClosed()

    def _next_frame(self) -> Frame | None:
        while (frame := self.reader.next_frame()) is None and self._pending:
            data = self._pending[0]
            room = self.reader.memory.buffer_for_receive()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.reader.memory.received(count)
            if count == len(data):
                self._pending.pop(0)
            else:
                self._pending[0] = data[count:]
        return frame

    def _read_handshake(self, frame: Frame) -> Event:
        if len(frame.payload):
            raise RemoteProtocolError(f"payload of {len(frame.payload)} bytes in the handshake")
        try:
            if self.role is Role.SERVER and self.state is State.OPENING:
                hello = messages.read_hello(frame.header)
                self.state = State.JUDGING
                return hello
            if self.role is Role.CLIENT and self.state is State.WAITING:
                return self._opened(messages.read_welcome(frame.header))
        except Malformed as error:
            raise RemoteProtocolError(f"handshake: {error}") from None
        raise RemoteProtocolError(f"a frame while the connection is {self.state.value}")

    def _opened(self, answer: Welcome | Refused) -> Welcome | Refused:
        if isinstance(answer, Refused):
            self.state = State.CLOSED
            return answer
        self.state = State.OPEN
        self.reader.limits = self.limits
        if answer.frame_bytes_max:
            self.remote_frame_bytes_max = answer.frame_bytes_max
        return answer

    def _read_request(self, frame: Frame) -> RequestEvent | BadRequest:
        fields, payload = frame
        number = fields.pop("id", None)
        if type(number) is not int or not 0 <= number <= U64_MAX:
            raise _no_id()
        if number in self._in_flight:
            raise RemoteProtocolError(f"request id {number} is still in flight")
        op = fields.pop("op", None)
        metadata_index = fields.pop("metadata_index", 0)
        try:
            if type(metadata_index) is not int or not 0 <= metadata_index <= U64_MAX:
                raise _bad_metadata_index()
            shape = messages.REQUESTS.get(op) if type(op) is str else None
            if shape is None:
                self._in_flight[number] = ""
                return BadRequest(number, Code.UNSUPPORTED,
                                  ErrorDetail(f"unknown operation {str(op)[:60]!r}"))
            request = shape.read(fields, payload)
        except Malformed as error:
            self._in_flight[number] = ""
            return BadRequest(number, Code.INVALID_REQUEST, ErrorDetail(str(error)))
        if op != "produce" or request.acks != "none":
            self._in_flight[number] = op
        return _new(RequestEvent, (number, request, metadata_index))

    def _read_response(self, frame: Frame) -> ResponseEvent:
        fields, payload = frame
        number = fields.pop("id", None)
        if type(number) is not int or not 0 <= number <= U64_MAX:
            raise _no_id()
        op = self._in_flight.pop(number, None)
        if op is None:
            raise RemoteProtocolError(f"a response to request {number}, which is not in flight")
        metadata_index = fields.pop("metadata_index", 0)
        code = fields.pop("code", None)
        error = fields.pop("error", None)
        try:
            if type(metadata_index) is not int or not 0 <= metadata_index <= U64_MAX:
                raise _bad_metadata_index()
            if type(code) is not int or code < 0:
                raise Malformed("no code")
            if code:
                detail = ErrorDetail() if error is None else messages.read_detail(error)
                return ResponseEvent(number, None, messages.result_code(code), detail,
                                     metadata_index)
            reply = messages.RESPONSES[op].read(fields, payload)
        except Malformed as problem:
            raise RemoteProtocolError(f"response to {op}: {problem}") from None
        return _new(ResponseEvent, (number, reply, Code.OK, None, metadata_index))

    # ---- events in, bytes out ----

    def send(self, event: Event, payload: Sequence[Buffer] = ()) -> list[Buffer]:
        """Return the buffers that the caller has to send, in order: one for the header, then those
        of ``payload``, which are not copied.

        Raises ``LocalProtocolError`` when the event may not be sent now or is too large; the state
        is unchanged then.  O(fields of the header)."""
        if self.state is State.OPEN:
            if type(event) is RequestEvent and self.role is Role.CLIENT:
                return self._send_request(event, payload)
            if type(event) is ResponseEvent and self.role is Role.SERVER:
                return self._send_response(event, payload)
        elif (type(event) is ResponseEvent and self.role is Role.SERVER
              and self.state is State.CLOSED):
            # A client may end its direction of the stream after its last request.
            return self._send_response(event, payload)
        elif (type(event) is Hello and self.role is Role.CLIENT
              and self.state is State.OPENING):
            return self._send_handshake(messages.hello_header(event), payload, State.WAITING)
        elif self.role is Role.SERVER and self.state is State.JUDGING:
            if type(event) is Welcome:
                return self._send_handshake(messages.welcome_header(event), payload, State.OPEN)
            if type(event) is Refused:
                return self._send_handshake(messages.refused_header(event), payload, State.CLOSED)
        raise LocalProtocolError(f"{type(event).__name__} may not be sent by a {self.role.value} "
                                 f"that is {self.state.value}")

    def _send_handshake(self, header: dict[str, Any], payload: Sequence[Buffer],
                        after: State) -> list[Buffer]:
        buffers = self._frame(header, payload, 0)
        self.state = after
        if after is State.OPEN:
            self.reader.limits = self.limits
        return buffers

    def _send_request(self, event: RequestEvent, payload: Sequence[Buffer]) -> list[Buffer]:
        request: Any
        number, request, metadata_index = event
        op = messages.OPS[type(request)]
        if number in self._in_flight:
            raise LocalProtocolError(f"request id {number} is still in flight")
        shape = messages.REQUESTS[op]
        header: dict[str, Any] = {"id": number, "op": op, **shape.header(request)}
        if metadata_index:
            header["metadata_index"] = metadata_index
        named = 0 if shape.payload_bytes is None else shape.payload_bytes(request)
        buffers = self._frame(header, payload, named)
        if op != "produce" or request.acks != "none":
            self._in_flight[number] = op
        return buffers

    def _send_response(self, event: ResponseEvent, payload: Sequence[Buffer]) -> list[Buffer]:
        number, reply, code, error, metadata_index = event
        op = self._in_flight.get(number)
        if op is None:
            raise LocalProtocolError(f"request {number} is not in flight: answered twice?")
        header: dict[str, Any] = {"id": number, "code": code}
        if metadata_index:
            header["metadata_index"] = metadata_index
        named = 0
        if code == 0:
            shape = messages.RESPONSES.get(op)
            if shape is None or shape.kind is not type(reply):
                raise LocalProtocolError(f"{type(reply).__name__} does not answer {op!r}")
            header |= shape.header(reply)
            if shape.payload_bytes is not None:
                named = shape.payload_bytes(reply)
        elif error is not None:
            header["error"] = error
        buffers = self._frame(header, payload, named)
        del self._in_flight[number]
        return buffers

    def _frame(self, header: dict[str, Any], payload: Sequence[Buffer],
               named: int) -> list[Buffer]:
        payload_bytes = payload_size(payload) if payload else 0
        if named != payload_bytes:
            raise LocalProtocolError(f"the header names {named} payload bytes, "
                                     f"{payload_bytes} are given")
        if payload_bytes > self.remote_frame_bytes_max:
            raise self._too_large(payload_bytes)
        encoded = core.encode_header(header, payload_bytes)
        header_bytes = len(encoded)
        if header_bytes > self.limits.header_bytes_max:
            raise LocalProtocolError(f"header of {header_bytes} bytes, the limit is "
                                     f"{self.limits.header_bytes_max}")
        if header_bytes + payload_bytes > self.remote_frame_bytes_max:
            raise self._too_large(header_bytes + payload_bytes)
        return [encoded, *payload]

    def _too_large(self, frame_bytes: int) -> LocalProtocolError:
        return LocalProtocolError(f"frame of {frame_bytes} bytes, the limit is "
                                  f"{self.remote_frame_bytes_max}")


def _no_id() -> RemoteProtocolError:
    """Return the error of a frame without a valid id, which cannot be answered."""
    return RemoteProtocolError("a frame without a request id")


def _bad_metadata_index() -> Malformed:
    return Malformed("field 'metadata_index': expected an integer from 0 to 2**64 - 1")
