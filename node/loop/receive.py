"""Receiving into a frame reader with one wait and one system call, TLS over a socket for tasks, and
the end of a connection whose last bytes must arrive."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from multiraft.wire.frames import FrameReader
from multiraft.wire.tls import TlsSocket

#: After the last bytes are sent, this many bytes are still read, for this long in seconds, so that
#: closing does not reset the connection before they arrive (RFC 9112, 9.6).
LINGER_BYTES_MAX = 64 << 10
LINGER_S = 0.5


async def read_view(sock: socket.socket | TlsSocket) -> None:
    """Wait until ``sock`` has bytes to read, in the kernel or already decrypted."""
    if type(sock) is TlsSocket and sock.pending:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.wait_readable(sock)


async def receive_some(sock: socket.socket | TlsSocket, reader: FrameReader) -> bool:
    """Wait until ``sock`` is readable, and receive once into ``reader``. Return False at the end of
    the stream, True otherwise, even if nothing was received. Raises ``OSError`` when the connection
    is gone.

    The wait comes first because it is the checkpoint that lets other tasks run, and because
    receiving first would mostly find nothing."""
    await read_view(sock)
    try:
        count = sock.recv_into(reader.memory.buffer_for_receive())
    except BlockingIOError:
        return True  # a spurious wake-up; the caller calls again
    if count:
        reader.memory.received(count)
    return count > 0


async def secured(sock: socket.socket, context: ssl.SSLContext,
                  server_name: str | None = None) -> TlsSocket:
    """Return ``sock`` wrapped in TLS, after the handshake. ``server_name`` None = this node is the
    server. The caller limits the time, and closes ``sock`` if this raises ``OSError``."""
    tls = TlsSocket(sock, context, server_name)
    while not tls.handshake():
        if tls.wants_write:
            await trio.lowlevel.wait_writable(sock)
        else:
            await trio.lowlevel.wait_readable(sock)
    return tls


async def linger(receive: Callable[[], Awaitable[int]]) -> None:
    """Discard what the other side still sends, until it ends its side, within the bounds above.
    ``receive`` waits for bytes and returns their number; 0 = the stream ended. The caller has sent
    the last bytes and ended its own side."""
    left = LINGER_BYTES_MAX
    with trio.move_on_after(LINGER_S):
        while left > 0 and (count := await receive()):
            left -= count
