"""Bulk connections between nodes: what is large and can wait, where it delays nobody.

Contract.  ``ask`` sends one request to a peer and returns its answer, over a connection that is
dialled when it is needed and closed when it was not for a while; ``serve`` answers the requests of
one incoming connection, one after the other, by the handler of their ``op``.  What is sent is
bounded in bytes per second, all peers together.  Losing a request is always safe: whoever asked
asks again.

Theory.  An append or a liveness frame must not stand in a queue behind megabytes of copies, in a
socket's buffer no more than in a program's: so these have a connection of their own.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

import trio

from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import Frame, FrameReader, WireLimits, encode_frame
from multiraft.wire.schema import Malformed
from multiraft.wire.tls import TlsSocket
from node.loop.receive import receive_some
from node.peers.handshake import Introduction, NotAccepted, introduce

#: A request of whose answer nothing more has come for so long is given up, in seconds.
ANSWER_TIMEOUT_S = 10.0
#: A connection that nobody used for so long is closed, in seconds.
IDLE_S = 30.0
#: Bytes given to a socket at a time, at most what may be sent in a second.
PIECE_BYTES = 256 << 10

#: (peer, header, payload) -> (header, payload buffers); raises ``Malformed``.
Handler = Callable[[int, dict, memoryview], Awaitable[tuple[dict, Sequence]]]


class NoAnswer(Exception):
    """The peer is not reached, refuses, or did not answer in time."""


_UNANSWERED = (OSError, RemoteProtocolError, Malformed, NotAccepted, trio.TooSlowError)


class Bulk:
    """Both ends of a node's bulk connections."""

    def __init__(self, dial: Callable[[int], Awaitable[socket.socket | None]],
                 introduction: Callable[[int], Introduction], frame_bytes_max: int,
                 bytes_per_second: int):
        self.handlers: dict[str, Handler] = {}
        self.bytes_sent = 0
        self._dial = dial
        self._introduction = introduction  # (peer) -> what a connection begins with
        self._limits = WireLimits(frame_bytes_max=frame_bytes_max)
        self._bytes_per_second = bytes_per_second
        self._piece_bytes = min(PIECE_BYTES, bytes_per_second)
        self._pace = trio.Lock()
        self._connections: dict[int, tuple[socket.socket | TlsSocket, FrameReader]] = {}
        self._asking: dict[int, trio.Lock] = {}

    # ---- asking --------------------------------------------------------------------------------

    async def ask(self, peer: int, header: dict, payload: Sequence = ()) -> Frame:
        """The answer of ``peer``.  Raises ``NoAnswer``."""
        async with self._asking.setdefault(peer, trio.Lock()):
            try:
                with trio.fail_after(ANSWER_TIMEOUT_S) as patience:
                    sock, reader = await self._connection(peer)
                    await self._send(sock, encode_frame(header, payload))
                    return await _next_frame(sock, reader, patience)
            except BaseException as error:
                self._drop(peer)
                if isinstance(error, _UNANSWERED):
                    raise NoAnswer(f"node {peer}: {str(error) or 'too slow'}") from error
                raise

    async def _connection(self, peer: int) -> tuple[socket.socket | TlsSocket, FrameReader]:
        known = self._connections.get(peer)
        if known is not None:
            return known
        sock = await self._dial(peer)
        if sock is None:
            raise ConnectionError("it cannot be reached")
        try:
            opened, reader = await introduce(sock, self._introduction(peer))
        except BaseException:
            sock.close()
            raise
        self._connections[peer] = opened, reader
        reader.limits = self._limits
        return opened, reader

    def _drop(self, peer: int) -> None:
        known = self._connections.pop(peer, None)
        if known is not None:
            known[0].close()

    async def close_idle(self) -> None:
        """Task: closes connections that were not used for a while."""
        try:
            while True:
                unused = dict(self._connections)
                await trio.sleep(IDLE_S)
                for peer, connection in unused.items():
                    lock = self._asking[peer]
                    if self._connections.get(peer) is connection and not lock.locked():
                        self._drop(peer)
        finally:
            for peer in [*self._connections]:
                self._drop(peer)

    # ---- answering -----------------------------------------------------------------------------

    async def serve(self, sock: socket.socket | TlsSocket, reader: FrameReader, peer: int) -> None:
        """Answer until the peer closes.  Raises ``RemoteProtocolError``, ``OSError``."""
        reader.limits = self._limits
        while True:
            while (frame := reader.next_frame()) is None:
                if not await receive_some(sock, reader):
                    return
            op = frame.header.get("op")
            handler = self.handlers.get(op) if type(op) is str else None  # a list has no hash
            if handler is None:
                raise RemoteProtocolError(f"no bulk request: {op!r:.40}")
            try:
                header, payload = await handler(peer, frame.header, frame.payload)
            except Malformed as error:
                raise RemoteProtocolError(str(error)) from error
            await self._send(sock, encode_frame(header, payload))

    # ---- both ----------------------------------------------------------------------------------

    async def _send(self, sock: socket.socket | TlsSocket, buffers: Sequence) -> None:
        data = memoryview(b"".join(buffers))
        for at in range(0, len(data), self._piece_bytes):
            piece = data[at:at + self._piece_bytes]
            async with self._pace:
                await trio.sleep(len(piece) / self._bytes_per_second)
            while piece:
                await trio.lowlevel.wait_writable(sock)
                try:
                    sent = sock.send(piece)
                except BlockingIOError:
                    continue
                piece = piece[sent:]
                self.bytes_sent += sent


async def _next_frame(sock: socket.socket | TlsSocket, reader: FrameReader,
                      patience: trio.CancelScope) -> Frame:
    while (frame := reader.next_frame()) is None:
        if not await receive_some(sock, reader):
            raise ConnectionError("it closed the connection")
        patience.deadline = trio.current_time() + ANSWER_TIMEOUT_S
    return frame
