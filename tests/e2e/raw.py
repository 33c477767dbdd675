"""A connection to a node without the client: exact bytes out, events in; in TLS if configured.

Contract.  Blocking, every wait bounded by ``LIMIT_S``.  ``closed_by_node`` detects that the node
ended a connection; a reset counts, because a close with unread bytes appears as one.
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
    """One connection, opened by a hello unless disabled."""

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
        """Send exactly these bytes."""
        self.socket.sendall(b"".join(buffers))

    def event(self):
        """Return the next event from the node."""
        while (event := self.machine.next_event()) is NEED_DATA:
            room = self.machine.buffer_for_receive()
            self.machine.received(self.socket.recv_into(room))
        return event

    def begin(self, request, *payload: bytes) -> int:
        """Send a request and return its id."""
        number, self._next_id = self._next_id, self._next_id + 1
        self.send_bytes(*self.machine.send(RequestEvent(number, request), payload))
        return number

    def ask(self, request, *payload: bytes) -> ResponseEvent:
        """Send one request and return its response."""
        number = self.begin(request, *payload)
        answer = self.event()
        assert isinstance(answer, ResponseEvent), answer
        assert answer.id == number
        return answer

    def reply(self, request, *payload: bytes):
        """Return the reply to a request that must succeed."""
        answer = self.ask(request, *payload)
        assert answer.reply is not None, answer
        return answer.reply

    def closed_by_node(self) -> bool:
        """Return True if the node ends this connection; it may send a reason before."""
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
        """Return the place of a partition, as this node knows it.  Raises ``LookupError`` when the
        node does not know the topic yet: this connection does not send a metadata index for which
        the node would wait."""
        reply = self.reply(Metadata((topic,)))
        if reply.missing:
            raise LookupError(f"{topic} is not known to {self.address}")
        return reply.topics[0].partitions[number]

    def produce(self, incarnation: int, batch: bytes, acks: str = "commit"):
        """Append one batch; return its result."""
        request = Produce(acks, PRODUCE_MS, (BatchPart(incarnation, len(batch)),))
        return self.reply(request, bytes(batch)).results[0]

    def fetch(self, incarnation: int, offset: int, wait_max_ms: int = 0, replica: str = "leader"):
        """Read from an offset; return the result and the bytes."""
        reply = self.reply(Fetch((FetchPart(incarnation, offset, 1 << 20),),
                                 wait_max_ms=wait_max_ms, replica=replica))
        return reply.results[0], bytes(reply.payload)

    def offsets(self, incarnation: int) -> tuple[int, int]:
        """Return the first offset, and the one after the last."""
        reply = self.reply(ListOffsets((OffsetQuery(incarnation, EARLIEST),
                                        OffsetQuery(incarnation, LATEST))))
        assert [row.code for row in reply.results] == [0, 0], reply
        return reply.results[0].offset, reply.results[1].offset


def next_life(address: str, hello: Hello) -> Hello:
    """Return the hello of the boot that follows the last one which the node at ``address`` knows,
    as only the node's own directory can name it."""
    with Session(address, hello) as session:
        if isinstance(session.opened, Refused):
            return hello._replace(after=session.opened.remembered)
    return hello


def frame(header: bytes, payload: bytes = b"") -> bytes:
    """Return a frame around bytes that need not be a header."""
    return struct.pack(">II", 4 + len(header) + len(payload), len(header)) + header + payload


def batch(*values: bytes) -> bytearray:
    """Return a batch of these records, not idempotent."""
    builder = BatchBuilder(1 << 20)
    for value in values:
        assert builder.append(1_700_000_000_000, None, value)
    return builder.build()


def large_batch(size: int) -> bytearray:
    """Return a batch of one record of that size."""
    builder = BatchBuilder(8 << 20)
    assert builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()
