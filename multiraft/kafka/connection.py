"""The server's side of one connection of Kafka's protocol: bytes in, requests out; answers in,
buffers out.

Contract.  A driver owns a socket and obeys:

    connection = KafkaConnection(keys, limits, expected_bytes)
    count = sock.recv_into(connection.buffer_for_receive())
    connection.received(count)                                  # 0 = end of the stream
    while (event := connection.next_event()) not in (NEED_DATA, PAUSED): handle(event)
    sock.sendmsg(connection.send(ResponseEvent(event.id, message)))

Events and signals are those of ``multiraft.wire.connection``, so that a session serves both
protocols.  ``NEED_DATA``: receive first, ``PAUSED``: answer first.  The request of a
``RequestEvent`` is a ``KafkaRequest``, the reply of a ``ResponseEvent`` the response of its API.
Each request is answered exactly once, in any order, unless its id is ``NO_ANSWER``.  ``send``
returns the buffers of all answers that may leave now: none while an earlier request is not
answered.  Bytes that are no request, and a request of an API or a version that is not in ``keys``,
raise ``RemoteProtocolError`` from ``next_event``, and from each later call: Kafka closes such
connections.  Requests that arrived before are answered all the same.

Transitions.
    OPEN -end of stream-> CLOSED;  OPEN -protocol error-> BROKEN

Theory.  Kafka's clients match answers to requests by their order, so an answer that is ready early
is held: a long poll delays the answers behind it on its connection, and nothing else.  Held answers
are counted in ``held_bytes``, because they take memory like answers that a client does not read.
``answer_bytes`` has beside them what requests without an answer may still return, so that a driver
can stop the reading before the memory is taken.  A produce request with acks=0 has no answer, so it
has no place in the order.  A client of a later Kafka asks for versions of ApiVersions that are not
known here; only that request is answered with error 35 and the versions, in version 0 (KIP-511).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, NamedTuple, Protocol, Sequence

from multiraft.kafka.apis import ApiKey, ApiTable
from multiraft.kafka.errors import KafkaFrameError, UnencodableMessage, UnsupportedVersion
from multiraft.kafka.frames import KafkaFrameReader
from multiraft.kafka.hot_messages import RequestHeader
from multiraft.kafka.requests import (
    decode_request,
    encode_response,
    unsupported_api_versions,
)
from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    Signal,
    State,
)
from multiraft.wire.errors import LocalProtocolError, RemoteProtocolError
from multiraft.wire.frames import Buffer, WireLimits

#: Id of a request without an answer.
NO_ANSWER = -1


class KafkaRequest(NamedTuple):
    """A received request.  ``message`` None: of ApiVersions, in a version that is not known here;
    it is answered with None."""

    header: RequestHeader
    message: Any


class Observer(Protocol):
    """Counts what connections receive and send."""

    def received(self, request: KafkaRequest, size: int) -> None:
        """Count a request of ``size`` bytes."""

    def answered(self, key: int, response: Any, size: int) -> None:
        """Count a response of ``size`` bytes to a request of API ``key``."""

    def refused(self, is_supported: bool) -> None:
        """Count a connection whose bytes are no request, or one that is not supported."""


class _Unobserved:
    """The observer of a connection without one."""

    def received(self, request: KafkaRequest, size: int) -> None: ...

    def answered(self, key: int, response: Any, size: int) -> None: ...

    def refused(self, is_supported: bool) -> None: ...


_UNOBSERVED = _Unobserved()


class _Place:
    """Place of one answer in the order of requests."""

    __slots__ = ("header", "expected", "buffers")

    def __init__(self, header: RequestHeader, expected: int):
        self.header = header
        self.expected = expected  # bytes of the answer, at most
        self.buffers: list[Buffer] | None = None  # of the answer; None = not answered yet


class KafkaConnection:
    """The requests of one client of Kafka, in order of arrival, and the order of its answers."""

    __slots__ = ("limits", "state", "reader", "held_bytes", "held", "_keys", "_places", "_first",
                 "_ended", "_expected_bytes", "_expected", "_observer")

    def __init__(self, keys: ApiTable, limits: WireLimits,
                 expected_bytes: Callable[[KafkaRequest], int] = lambda request: 0,
                 observer: Observer | None = None):
        """``keys``: the APIs that are served, with their versions. ``expected_bytes``: returns the
        bytes that the answer to a request may have, 0 = few."""
        self._observer = observer or _UNOBSERVED
        self.limits = limits
        self.state = State.OPEN
        self.reader = KafkaFrameReader(limits)
        self.held = 0  # answers behind one that is not ready
        self.held_bytes = 0  # of those
        self._keys = keys
        self._places: deque[_Place] = deque()  # of requests that are not answered, or held
        self._first = 0  # id of the first place
        self._ended = False
        self._expected_bytes = expected_bytes
        self._expected = 0  # bytes of the answers that are not ready

    @property
    def answer_bytes(self) -> int:
        """Bytes of held answers, and of those that are not ready, as far as they are expected."""
        return self.held_bytes + self._expected

    @property
    def in_flight(self) -> int:
        """Number of requests whose answer has not been returned by ``send``."""
        return len(self._places)

    # ---- bytes in ----

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into.  Only after ``next_event`` has returned NEED_DATA."""
        return self.reader.memory.buffer_for_receive()

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received into ``buffer_for_receive()``; 0 = end of
        stream.  Nothing is parsed until ``next_event``."""
        if count:
            self.reader.memory.received(count)
        else:
            self._ended = True

    # ---- requests out ----

    def next_event(self) -> RequestEvent | ConnectionClosed | Signal:
        """Return the next request; NEED_DATA = receive more bytes first, PAUSED = ``in_flight_max``
        answers are due. At the end of the stream it is ``ConnectionClosed``.

        Raises ``RemoteProtocolError`` for bytes that are no request, and for requests that are not
        supported, and from then on.  O(bytes that are no records)."""
        if self.state is State.BROKEN:
            raise RemoteProtocolError("the connection is finished after a protocol error")
        if len(self._places) >= self.limits.in_flight_max:
            return PAUSED
        try:
            frame = self.reader.next_frame()
            if frame is not None:
                return self._read(frame)
            if not self._ended:
                return NEED_DATA
            if self.reader.mid_frame:
                raise RemoteProtocolError("the stream ended inside a frame")
        except RemoteProtocolError as error:
            self.state = State.BROKEN
            self._observer.refused(not isinstance(error.__cause__, UnsupportedVersion))
            raise
        self.state = State.CLOSED
        return ConnectionClosed()

    def _read(self, frame: memoryview) -> RequestEvent:
        try:
            header, message = decode_request(frame, self._keys)
        except UnsupportedVersion as error:
            if error.header.request_api_key != ApiKey.API_VERSIONS:
                raise RemoteProtocolError(str(error)) from error
            return self._event(KafkaRequest(error.header, None), frame)
        except KafkaFrameError as error:
            raise RemoteProtocolError(f"request: {error}") from None
        if header.request_api_key == ApiKey.PRODUCE:
            self.reader.header_bytes -= _record_bytes(message)
            if not message.acks:
                request = KafkaRequest(header, message)
                self._observer.received(request, len(frame))
                return RequestEvent(NO_ANSWER, request)
        return self._event(KafkaRequest(header, message), frame)

    def _event(self, request: KafkaRequest, frame: memoryview) -> RequestEvent:
        """Return the event of a request, after adding a place for its answer."""
        self._observer.received(request, len(frame))
        place = _Place(request.header, self._expected_bytes(request))
        self._expected += place.expected
        self._places.append(place)
        return RequestEvent(self._first + len(self._places) - 1, request)

    # ---- answers in, bytes out ----

    def send(self, event: ResponseEvent, payload: Sequence[Buffer] = ()) -> list[Buffer]:
        """Return the buffers that the caller has to send, in order: those of this answer and of the
        ones held behind it, or none if an earlier request is not answered.  Records are among them
        as they were given.

        Raises ``LocalProtocolError`` for a request that is not in flight, or was answered before,
        and for a message that its version cannot carry; nothing has changed then.  O(bytes that are
        no records)."""
        number, message = event.id, event.reply
        at = number - self._first
        if not 0 <= at < len(self._places) or self._places[at].buffers is not None:
            raise LocalProtocolError(f"request {number} is not in flight: answered twice?")
        assert not payload, "records are fields of the response"
        place = self._places[at]
        try:
            place.buffers = (encode_response(place.header, message) if message is not None
                             else unsupported_api_versions(place.header, self._keys))
        except UnencodableMessage as error:
            raise LocalProtocolError(str(error)) from error
        self._expected -= place.expected
        size = sum(map(len, place.buffers))
        self._observer.answered(place.header.request_api_key, message, size)
        if at:
            self.held += 1
            self.held_bytes += size
            return []
        found = place.buffers
        self._places.popleft()
        self._first += 1
        while self._places and (held := self._places[0].buffers) is not None:
            self.held -= 1
            self.held_bytes -= sum(map(len, held))
            found += held
            self._places.popleft()
            self._first += 1
        return found


def _record_bytes(produce: Any) -> int:
    """Return the bytes of all records in a produce request.  O(partitions)."""
    return sum(len(part.records) for topic in produce.topic_data for part in topic.partition_data
               if part.records is not None)
