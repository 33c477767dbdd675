"""Dialling a node: a connected socket, or None when it is away."""

from __future__ import annotations

import socket

import trio

DIAL_TIMEOUT_S = 2.0
#: A connection whose bytes the peer's kernel does not acknowledge for so long is dialled anew: TCP
#: would wait ever longer, and go on waiting after the network has healed.
UNACKNOWLEDGED_MS_MAX = 5_000


async def dial(host: str, port: int) -> socket.socket | None:
    """A connected non-blocking socket; the caller dials again when there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None  # out of descriptors: again later
    try:
        with trio.move_on_after(DIAL_TIMEOUT_S):
            await sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
            plain = socket.socket(fileno=sock.detach())
            plain.setblocking(False)
            return plain
    except (OSError, UnicodeError):
        pass  # it is away; or, of an earlier release's cluster, a host that cannot be looked up
    sock.close()
    return None
