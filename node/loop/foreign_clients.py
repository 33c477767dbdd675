"""Connections of other protocols: a line of the log, and a farewell that their sender can read."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from multiraft.wire.foreign_protocols import Foreign, farewell, reason_to_reject
from multiraft.wire.tls import TlsSocket
from node.loop.receive import linger, read_view
from node.loop.repeated_lines import RepeatedLines

#: Bytes that are discarded at a time after a farewell.
DISCARD_BYTES = 16 << 10


class ForeignClients:
    """Rejection of such connections at one port: ``client`` or ``peer``.  ``http_port()`` returns
    the port of metrics and health, 0 = off."""

    def __init__(self, port: str, http_port: Callable[[], int], log: logging.Logger):
        self._port = port
        self._http_port = http_port
        self._log = log
        self._lines = RepeatedLines()

    def note(self, sock: socket.socket | TlsSocket, protocol: Foreign) -> str:
        """Log the connection with the reason, once a minute for each host and protocol. Return the
        reason."""
        reason = reason_to_reject(protocol, self._port, self._http_port())
        host = host_of(sock)
        connections = self._lines.count((host, protocol))
        if connections:
            self._log.warning("foreign_client_rejected", extra={
                "port": self._port, "host": host, "protocol": protocol.value, "reason": reason,
                "connections": connections})
        return reason

    async def reject(self, sock: socket.socket | TlsSocket, protocol: Foreign) -> None:
        """Note the connection, and send the farewell of its protocol if the socket takes it at
        once. Then wait for the end of the client's data, within the bounds of ``linger``. The
        caller closes the socket."""
        reply = farewell(protocol, self.note(sock, protocol))
        if not reply:
            return
        try:
            sock.send(reply)
            if not isinstance(sock, TlsSocket):  # inside TLS, closing sends a close_notify
                sock.shutdown(socket.SHUT_WR)
            await linger(lambda: _discard(sock))
        except OSError:
            pass  # the client is gone, or reads nothing: it is closed in any case


async def _discard(sock: socket.socket | TlsSocket) -> int:
    """Wait for bytes and discard them. Return their number; 0 = the stream ended."""
    while True:
        await read_view(sock)
        try:
            return sock.recv_into(bytearray(DISCARD_BYTES))
        except BlockingIOError:
            continue  # a spurious wake-up


def host_of(sock: socket.socket | TlsSocket) -> str:
    """Return the address of the other side without its port; empty if it is gone."""
    try:
        return str(sock.getpeername()[0])
    except (OSError, IndexError):
        return ""
