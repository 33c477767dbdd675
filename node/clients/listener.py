"""The accept loop of a port: bounded, and robust against the errors of accept.

Contract. ``serve`` accepts until cancelled, and runs a handler task per connection with its
non-blocking socket. Errors of a handler (``OSError``, protocol errors) end only its own connection.
A connection above ``connections_max``, or above ``per_address_max`` from one address, is closed at
once and counted. Listeners that share ``ConnectionCounts`` have these limits together.

Theory. ``EMFILE`` does not end the loop: the listener pauses and continues (hashicorp/consul
#3552), while every connection that ends frees a descriptor.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from multiraft.wire.errors import ProtocolError
from node.address import Address
from node.errors import BadConfig

#: Pending connections that the kernel queues; it has a maximum of its own.
BACKLOG = 1024
#: Pause after the process or system ran out of descriptors or memory, in seconds.
EXHAUSTED_PAUSE_S = 0.1
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH)

#: Replies are sent without Nagle's delay. A client that vanished without closing is detected after
#: two minutes, because its connection counts against the limit.
OPTIONS = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
           (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
           (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
           (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
           (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4))


def listen(address: Address) -> socket.socket:
    """Return a listening non-blocking socket. Raises ``BadConfig`` that names the address in
    use."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address.host, address.port))
    except OSError as error:
        sock.close()
        raise BadConfig(f"cannot listen on {address}: {error.strerror}") from error
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


@dataclass(slots=True)
class ConnectionCounts:
    """Counts of one port, or of ports with common limits: connections open now, and accepted and
    refused at a limit since the start."""

    connections: int = 0
    accepted: int = 0
    rejected: int = 0
    by_address: dict[str, int] = field(default_factory=dict)  # host -> connections, above 0


class Listener:
    """The accept loop of one port."""

    def __init__(self, sock: socket.socket, handler: Callable[[socket.socket], Awaitable[None]],
                 connections_max: int, per_address_max: int | None = None,
                 counts: ConnectionCounts | None = None):
        self._sock = sock
        self._handler = handler  # async (socket) -> None; owns and closes the socket
        self._connections_max = connections_max
        self._per_address_max = per_address_max or connections_max
        self.counts = counts or ConnectionCounts()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept connections until cancelled, each with a handler task of its own, then close the
        listening socket."""
        with self._sock:
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(self._sock)
                    await self._accept(nursery)

    async def _accept(self, nursery: trio.Nursery) -> None:
        try:
            sock, peer = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _EXHAUSTED:
                await trio.sleep(EXHAUSTED_PAUSE_S)
            elif error.errno not in _GONE:
                raise
            return
        self._accepted(nursery, sock, peer[0])

    def _accepted(self, nursery: trio.Nursery, sock: socket.socket, host: str) -> None:
        here = self.counts.by_address.get(host, 0)
        if self.counts.connections >= self._connections_max or here >= self._per_address_max:
            self.counts.rejected += 1
            sock.close()
            return
        sock.setblocking(False)
        for level, option, value in OPTIONS:
            sock.setsockopt(level, option, value)
        self.counts.accepted += 1
        self.counts.connections += 1
        self.counts.by_address[host] = here + 1
        nursery.start_soon(self._handle_from, host, sock)

    async def _handle_from(self, host: str, sock: socket.socket) -> None:
        try:
            await self._handle(sock)
        finally:
            by_address = self.counts.by_address
            by_address[host] -= 1
            if not by_address[host]:
                del by_address[host]

    async def _handle(self, sock: socket.socket) -> None:
        try:
            await self._handler(sock)
        except (OSError, ProtocolError):
            pass  # the connection has ended; its handler has counted and logged the error
        finally:
            self.counts.connections -= 1
            if sock.fileno() != -1:
                sock.close()
