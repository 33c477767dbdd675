"""Receiving into a frame reader: one wait, one system call.  And TLS over a socket, for tasks."""

from __future__ import annotations

import socket
import ssl

import trio

from multiraft.wire.frames import FrameReader
from multiraft.wire.tls import TlsSocket


async def readable(sock: socket.socket | TlsSocket) -> None:
    """Wait until there is something: in the kernel, or decrypted already."""
    if type(sock) is TlsSocket and sock.pending:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.wait_readable(sock)


async def receive_some(sock: socket.socket | TlsSocket, reader: FrameReader) -> bool:
    """Wait until there is something, receive it; False at the end of the stream.  The wait comes
    first: it is the checkpoint that lets others run, and trying first would mostly be in vain.
    Raises ``OSError`` when the connection is gone."""
    await readable(sock)
    try:
        count = sock.recv_into(reader.buffer_for_receive())
    except BlockingIOError:
        return True  # a spurious wake-up; the caller comes again
    if count:
        reader.received(count)
    return count > 0


async def secured(sock: socket.socket, context: ssl.SSLContext,
                  server_name: str | None = None) -> TlsSocket:
    """TLS over ``sock``, its handshake done; ``server_name`` None = we are the server.  The caller
    bounds the time, and closes ``sock`` when this raises ``OSError``."""
    tls = TlsSocket(sock, context, server_name)
    while not tls.handshake():
        if tls.wants_write:
            await trio.lowlevel.wait_writable(sock)
        else:
            await trio.lowlevel.wait_readable(sock)
    return tls
