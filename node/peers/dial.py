"""Dialling a node: a connected socket, or None if the node cannot be reached."""

from __future__ import annotations

import socket

import trio

DIAL_TIMEOUT_S = 2.0
#: A connection whose bytes the peer's kernel does not acknowledge within this time, in
#: milliseconds, is dialled again. TCP would retransmit at growing intervals, and wait long after
#: the network has healed.
UNACKNOWLEDGED_MS_MAX = 5_000


async def dial(host: str, port: int) -> socket.socket | None:
    """Return a connected non-blocking socket; None = no connection within ``DIAL_TIMEOUT_S``, an
    address that does not resolve, or no free descriptor."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None  # no free descriptor: the caller retries
    try:
        with trio.move_on_after(DIAL_TIMEOUT_S):
            await sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
            plain = socket.socket(fileno=sock.detach())
            plain.setblocking(False)
            return plain
    except (OSError, UnicodeError):
        pass  # unreachable; or a host without an address, which earlier releases accepted
    sock.close()
    return None
