"""A connection to a node without the client: exact bytes out, events in; in TLS if need be.

Contract.  Blocking, every wait bounded by ``LIMIT_S``.  ``closed_by_node`` is the one way to see
that the node ended a connection; a reset counts, because that is what a close with unread bytes
looks like from here.
"""

from __future__ import annotations

import socket
import ssl
import struct

from multiraft.core import BatchBuilder
from multiraft.wire import (
    NEED_DATA,
    Connection,
    Hello,
    RequestEvent,
    ResponseEvent,
    Role,
)
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    BatchPart,
    Fetch,
    FetchPart,
    ListOffsets,
    Metadata,
    OffsetQuery,
    PartitionMetadata,
    Produce,
    Refused,
)

LIMIT_S = 180.0
PRODUCE_MS = 10_000


HELLO = Hello(client_id="raw")


class Session:
    """One connection, opened by a hello unless told otherwise."""

    def __init__(self, address: str, hello: Hello | None = HELLO,
                 context: ssl.SSLContext | None = None, source: str = ""):
        host, port = address.rsplit(":", 1)
        self.address = address
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT_S,
                                               source_address=(source, 0) if source else None)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.machine = Connection(Role.CLIENT)
        self.opened = None
        self._next_id = 1
        if hello is not None:
            self.send_bytes(*self.machine.send(hello))
            self.opened = self.event()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_bytes(self, *buffers: bytes) -> None:
        """Exactly these bytes."""
        self.socket.sendall(b"".join(buffers))

    def event(self):
        """What the node says next."""
        while (event := self.machine.next_event()) is NEED_DATA:
            room = self.machine.buffer_for_receive()
            self.machine.received(self.socket.recv_into(room))
        return event

    def begin(self, request, *payload: bytes) -> int:
        """Send a request; its id."""
        number, self._next_id = self._next_id, self._next_id + 1
        self.send_bytes(*self.machine.send(RequestEvent(number, request), payload))
        return number

    def ask(self, request, *payload: bytes) -> ResponseEvent:
        """One request and its response."""
        number = self.begin(request, *payload)
        answer = self.event()
        assert isinstance(answer, ResponseEvent), answer
        assert answer.id == number
        return answer

    def reply(self, request, *payload: bytes):
        """The reply to a request that must succeed."""
        answer = self.ask(request, *payload)
        assert answer.reply is not None, answer
        return answer.reply

    def closed_by_node(self) -> bool:
        """Does the node end this connection?  It may say why before."""
        try:
            while self.socket.recv(65536):
                continue
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    # ---- what tests do all the time ----

    def partition(self, topic: str, number: int = 0) -> PartitionMetadata:
        """Where a partition is, as this node knows it.  Raises ``LookupError`` when it does not
        know the topic yet: this connection has not told it how new our knowledge is."""
        reply = self.reply(Metadata((topic,)))
        if reply.missing:
            raise LookupError(f"{topic} is not known to {self.address}")
        return reply.topics[0].partitions[number]

    def produce(self, incarnation: int, batch: bytes, acks: str = "commit"):
        """Append one batch; its result."""
        request = Produce(acks, PRODUCE_MS, (BatchPart(incarnation, len(batch)),))
        return self.reply(request, bytes(batch)).results[0]

    def fetch(self, incarnation: int, offset: int, wait_max_ms: int = 0, replica: str = "leader"):
        """Read from an offset: the result and the bytes."""
        reply = self.reply(Fetch((FetchPart(incarnation, offset, 1 << 20),),
                                 wait_max_ms=wait_max_ms, replica=replica))
        return reply.results[0], bytes(reply.payload)

    def offsets(self, incarnation: int) -> tuple[int, int]:
        """First offset, and the one after the last."""
        reply = self.reply(ListOffsets((OffsetQuery(incarnation, EARLIEST),
                                        OffsetQuery(incarnation, LATEST))))
        assert [row.code for row in reply.results] == [0, 0], reply
        return reply.results[0].offset, reply.results[1].offset


def next_life(address: str, hello: Hello) -> Hello:
    """The hello of a life that follows the one of its node that the node at ``address`` remembers,
    as only the node's own directory can name it."""
    with Session(address, hello) as session:
        if isinstance(session.opened, Refused):
            return hello._replace(after=session.opened.remembered)
    return hello


def frame(header: bytes, payload: bytes = b"") -> bytes:
    """A frame around bytes that need not be a header."""
    return struct.pack(">II", 4 + len(header) + len(payload), len(header)) + header + payload


def batch(*values: bytes) -> bytearray:
    """A batch of these records, not idempotent."""
    builder = BatchBuilder(1 << 20)
    for value in values:
        assert builder.append(1_700_000_000_000, None, value)
    return builder.build()


def large_batch(size: int) -> bytearray:
    """A batch of one record of that size."""
    builder = BatchBuilder(8 << 20)
    assert builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()
