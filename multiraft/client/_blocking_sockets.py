"""Sockets of the blocking client: one per link.  A call is tried at once, and waits in ``poll``.

Contract.  ``blocking.Client`` registers the sockets in its ``poll`` and passes the ready events of
a descriptor to ``ready``.  A failed socket is reported to the core (``Network.broken``) and raises
nothing.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Protocol

from multiraft.client._client import ClientCore
from multiraft.client._network import GATHER_MAX, Link, drop_sent
from multiraft.client.texts import duration
from multiraft.client.tls import TlsSettings
from multiraft.errors import ConfigError
from multiraft.wire.frames import Buffer
from multiraft.wire.tls import TlsSocket


class LinkOwner(Protocol):
    """The part of ``blocking.Client`` that its sockets use."""

    _core: ClientCore
    _tls: TlsSettings | None
    #: Sockets that are not connected yet.
    _connecting: dict[LinkSocket, None]
    #: Time at which the client last advanced its core or received, in ``monotonic_ms``.
    _turned_ms: int

    def _register(self, raw: socket.socket | TlsSocket, events: int, sock: LinkSocket) -> None:
        """Have ``poll`` report ``events`` of ``raw`` to ``sock``, instead of those registered
        before."""
        ...

    def _unregister(self, raw: socket.socket | TlsSocket) -> None:
        """Have ``poll`` report no more events of a socket."""
        ...


def monotonic_ms() -> int:
    """Return the monotonic time of the blocking client, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class LinkSocket:
    """Socket of one link.  It tries the addresses of its host one after the other."""

    def __init__(self, client: LinkOwner, link: Link):
        self.link = link
        self._client = client
        self._outgoing: list[Buffer] = []
        self._sock: socket.socket | TlsSocket | None = None
        self._wanted = select.POLLOUT
        #: Time at which a connection that is not open is given up.
        self.deadline_ms = monotonic_ms() + client._core.limits.connect_timeout_ms
        try:
            self._choices = socket.getaddrinfo(link.host, link.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a name that no resolver can be asked for
            self._choices = []
            self._fail(f"cannot connect: {error}")
        else:
            self._connect("no address")

    def close(self) -> None:
        """Close the socket and unregister it; closing again does nothing, also after a
        ``KeyboardInterrupt`` inside of this call."""
        self._client._connecting.pop(self, None)
        sock, self._sock = self._sock, None
        if sock is not None:
            try:
                self._client._unregister(sock)
            finally:
                sock.close()

    def discard(self) -> None:
        """Close the descriptor in this process only: the parent process still uses the
        connection."""
        sock, self._sock = self._sock, None
        if isinstance(sock, TlsSocket):
            sock.discard()
        elif sock is not None:
            sock.close()

    def tick(self, at_ms: int) -> None:
        """Report a connection that is not open by ``deadline_ms`` as broken."""
        if at_ms >= self.deadline_ms:
            limits = self._client._core.limits
            self._fail(f"no connection in {duration(limits.connect_timeout_ms)}")

    def ready(self, events: int) -> None:
        """Connect, send or receive, after ``poll`` has reported ``events``."""
        if self._sock is None:
            return
        if self in self._client._connecting:
            self._finish_connect()
            return
        if events & select.POLLOUT:
            self.flush()
        if events & ~select.POLLOUT and self._sock is not None:
            self._try_receive()

    def _connect(self, why: str) -> None:
        self.close()
        while self._choices:
            family, kind, protocol, _, address = self._choices.pop(0)
            try:
                self._sock = socket.socket(family, kind, protocol)
                self._sock.setblocking(False)
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._wanted = select.POLLOUT
                self._client._register(self._sock, self._wanted, self)
                self._client._connecting[self] = None
                self._sock.connect(address)
            except BlockingIOError:
                return
            except OSError as error:
                why = str(error)
                self.close()
            else:
                return
        self._fail(f"cannot connect: {why}")

    def _finish_connect(self) -> None:
        assert isinstance(self._sock, socket.socket)
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._connect(os.strerror(error))
            return
        self._opened()

    def _opened(self) -> None:
        del self._client._connecting[self]
        self._want(select.POLLIN)
        self.link.connected()

    def _try_receive(self) -> None:
        assert self._sock is not None
        try:
            count = self._sock.recv_into(self.link.buffer_for_receive())
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"connection lost: {error}")
            return
        self._client._turned_ms = received_ms = monotonic_ms()
        self.link.received(count, received_ms)

    def flush(self) -> None:
        """Send the buffers of the link, as far as the socket takes them without waiting, and listen
        for space for the rest.  Do nothing while it is not connected."""
        if self in self._client._connecting:
            return
        outgoing = self.link.take_outgoing()
        if self._outgoing:
            outgoing = self._outgoing + outgoing
        assert self._sock is not None
        try:
            while outgoing:
                outgoing = drop_sent(outgoing, self._sock.sendmsg(outgoing[:GATHER_MAX]))
        except BlockingIOError:
            self._want(select.POLLIN | select.POLLOUT)
        except OSError as error:
            outgoing = []
            self._fail(f"connection lost: {error}")
        else:
            if self._wanted != select.POLLIN:
                self._want(select.POLLIN)
        self._outgoing = outgoing

    def _want(self, events: int) -> None:
        self._wanted = events
        assert self._sock is not None
        self._client._register(self._sock, events, self)

    def _fail(self, why: str) -> None:
        self._client._core.network.broken(self.link, why, monotonic_ms())
        self.close()


class SecureLinkSocket(LinkSocket):
    """Socket of one link inside TLS; the link is connected after the handshake."""

    def _finish_connect(self) -> None:
        if not isinstance(self._sock, TlsSocket):
            assert self._sock is not None
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._connect(os.strerror(error))
                return
            tls = self._client._tls
            assert tls is not None
            try:
                self._sock = TlsSocket(self._sock, tls.context(),
                                       tls.server_name or self.link.host)
            except ConfigError as problem:
                self._fail(str(problem))
                return
        try:
            done = self._sock.handshake()
        except OSError as problem:
            self._fail(f"cannot connect: {problem}")
            return
        if done:
            self._opened()
        elif self._sock.wants_write:
            self._want(select.POLLIN | select.POLLOUT)
        else:
            self._want(select.POLLIN)

    def _try_receive(self) -> None:
        """Receive until no decrypted byte is left: ``poll`` does not report those."""
        super()._try_receive()
        while isinstance(self._sock, TlsSocket) and self._sock.pending:
            super()._try_receive()
