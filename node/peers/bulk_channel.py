"""The bulk connections between nodes: for large requests, so that they do not delay appends and
heartbeats.

Contract. ``ask`` sends one request to a peer and returns its reply, over a connection that is
dialled on demand and closed after ``IDLE_S`` without use. ``serve`` answers the requests of one
incoming connection, one after the other, through the handler of their ``op``. The bytes sent per
second are limited, for all peers together. Losing a request is always safe: the caller repeats it.

Theory. An append or a heartbeat must not queue behind megabytes of copied entries, neither in a
program nor in a socket buffer. Therefore bulk requests have connections of their own.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import trio

from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import Frame, FrameReader, WireLimits, encode_frame
from multiraft.wire.schema import Malformed
from multiraft.wire.tls import TlsSocket
from node.loop.receive import receive_some
from node.peers.errors import NoAnswer, NotSent
from node.peers.handshake import Introduction, NotAccepted, introduce

#: Longest time without any byte of the reply before a request fails, in seconds.
ANSWER_TIMEOUT_S = 10.0
#: A connection that was not used for this long is closed, in seconds.
IDLE_S = 30.0
#: Bytes written to a socket at a time, at most what may be sent in a second.
PIECE_BYTES = 256 << 10

#: (peer, header, payload) -> (header, payload buffers); raises ``Malformed``.
Handler = Callable[[int, dict, memoryview], Awaitable[tuple[dict, Sequence]]]


_UNANSWERED = (OSError, RemoteProtocolError, Malformed, NotAccepted, trio.TooSlowError)


class Bulk:
    """Both ends of the bulk connections of one node."""

    def __init__(self, dial: Callable[[int], Awaitable[socket.socket | None]],
                 introduction: Callable[[int], Introduction], frame_bytes_max: int,
                 bytes_per_second: int, turn_timeout_s: float = math.inf):
        """``turn_timeout_s``: longest wait of a request for earlier ones to the same peer."""
        self.handlers: dict[str, Handler] = {}
        self.bytes_sent = 0
        self._dial = dial
        self._introduction = introduction  # (peer) -> handshake of a new connection
        self._limits = WireLimits(frame_bytes_max=frame_bytes_max)
        self._bytes_per_second = bytes_per_second
        self._turn_timeout_s = turn_timeout_s
        self._piece_bytes = min(PIECE_BYTES, bytes_per_second)
        self._pace = trio.Lock()
        self._connections: dict[int, tuple[socket.socket | TlsSocket, FrameReader]] = {}
        self._asking: dict[int, trio.Lock] = {}

    # ---- asking --------------------------------------------------------------------------------

    async def ask(self, peer: int, header: dict, payload: Sequence = ()) -> Frame:
        """Send a request to ``peer`` and return its reply, after earlier requests to that peer. A
        failure closes the connection. Raises ``NoAnswer`` if the peer cannot be reached, refuses,
        or does not reply within ``ANSWER_TIMEOUT_S``, ``NotSent`` if earlier requests take
        longer than a request may wait for them."""
        async with self._turn(peer):
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

    @contextlib.asynccontextmanager
    async def _turn(self, peer: int) -> AsyncIterator[None]:
        """Wait for earlier requests to the peer, and let later ones wait. Raises ``NotSent``."""
        lock = self._asking.setdefault(peer, trio.Lock())
        with trio.move_on_after(self._turn_timeout_s) as patience:
            await lock.acquire()
        if patience.cancelled_caught:
            raise NotSent(f"node {peer}: earlier requests take longer than "
                          f"{self._turn_timeout_s:.0f} s")
        try:
            yield
        finally:
            lock.release()

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
        """Run the task that closes connections without use for ``IDLE_S``, until cancelled, and
        then all others."""
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
        """Answer requests until the peer closes the connection. Raises ``RemoteProtocolError`` for
        a malformed or unknown request, ``OSError`` when the connection breaks."""
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
