"""Receiving into a frame reader: the socket is tried first and waited for only on EAGAIN."""

from __future__ import annotations

import socket

import trio

from multiraft.wire.frames import FrameReader


async def receive_some(sock: socket.socket, reader: FrameReader) -> bool:
    """Receive what is there, waiting only when nothing is; False at the end of the stream.
    Raises ``OSError`` when the connection is gone."""
    buffer = reader.buffer_for_receive()
    while True:
        try:
            count = sock.recv_into(buffer)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
            continue
        if count:
            reader.received(count)
        return count > 0
