"""Receiving into a frame reader: one wait, one system call."""

from __future__ import annotations

import socket

import trio

from multiraft.wire.frames import FrameReader


async def receive_some(sock: socket.socket, reader: FrameReader) -> bool:
    """Wait until there is something, receive it; False at the end of the stream.  The wait comes
    first: it is the checkpoint that lets others run, and trying first would mostly be in vain.
    Raises ``OSError`` when the connection is gone."""
    await trio.lowlevel.wait_readable(sock)
    try:
        count = sock.recv_into(reader.buffer_for_receive())
    except BlockingIOError:
        return True  # a spurious wake-up; the caller comes again
    if count:
        reader.received(count)
    return count > 0
