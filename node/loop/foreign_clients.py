"""Connections of other protocols: a line of the log, and a farewell that their sender can read."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from multiraft.wire.foreign_protocols import Foreign, farewell, reason_to_reject
from multiraft.wire.tls import TlsSocket


class ForeignClients:
    """Rejection of such connections at one port: ``client`` or ``peer``.  ``http_port()`` returns
    the port of metrics and health, 0 = off."""

    def __init__(self, port: str, http_port: Callable[[], int], log: logging.Logger):
        self._port = port
        self._http_port = http_port
        self._log = log

    def reject(self, sock: socket.socket | TlsSocket, protocol: Foreign) -> None:
        """Log the connection with the reason, and send the farewell of its protocol if the socket
        takes it at once.  The caller closes it."""
        reason = reason_to_reject(protocol, self._port, self._http_port())
        self._log.warning("foreign_client_rejected", extra={
            "port": self._port, "host": _host_of(sock), "protocol": protocol.value,
            "reason": reason})
        reply = farewell(protocol, reason)
        if reply:
            try:
                sock.send(reply)
            except OSError:
                pass  # the client is gone, or reads nothing: it is closed in any case


def _host_of(sock: socket.socket | TlsSocket) -> str:
    """Return the address of the other side without its port; empty if it is gone."""
    try:
        return str(sock.getpeername()[0])
    except (OSError, IndexError):
        return ""
