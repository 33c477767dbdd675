"""Sockets of the trio client: one per link.  A call is tried first, and waits only after EAGAIN.

Contract.  Driven by ``_trio.Client``, one receiving and one sending task for each.
"""

from __future__ import annotations

import socket
from typing import Protocol

import trio

from multiraft.client._network import GATHER_MAX, Link, drop_sent
from multiraft.client.tls import TlsSettings
from multiraft.errors import ConfigError
from multiraft.wire.frames import Buffer
from multiraft.wire.tls import TlsSocket


class LinkOwner(Protocol):
    """The methods of ``_trio.Client`` that its sockets call."""

    def _now_ms(self) -> int:
        """Return the time of trio's clock, in milliseconds."""
        ...

    def _work(self) -> None:
        """Advance the client core now, in the calling task, because it has new input."""
        ...

    def _lost(self, link: Link, error: OSError) -> None:
        """Report a broken connection to the client core, which closes the link, and wake the pump
        task."""
        ...


async def secured(sock: socket.socket, tls: TlsSettings, host: str) -> TlsSocket:
    """Return ``sock`` inside TLS, after the handshake with ``host``.  Closes ``sock`` and raises
    ``OSError`` or ``ConfigError`` when the handshake fails."""
    try:
        secure = TlsSocket(sock, tls.context(), tls.server_name or host)
        while not secure.handshake():
            if secure.wants_write:
                await trio.lowlevel.wait_writable(sock)
            else:
                await trio.lowlevel.wait_readable(sock)
    except (OSError, ConfigError, trio.Cancelled):
        sock.close()
        raise
    return secure


class LinkSocket:
    """Socket of one link.  Sends are tried at once and wait only after EAGAIN, so that a small
    request costs one system call and no switch of tasks."""

    def __init__(self, client: LinkOwner, link: Link, sock: socket.socket | TlsSocket):
        self._client = client
        self._link = link
        self._sock = sock
        self._outgoing: list[Buffer] = []
        self._blocked = trio.Event()  # set: the socket took no more

    def discard(self) -> None:
        """Close the descriptor in this process only: the parent process still uses the
        connection."""
        if isinstance(self._sock, TlsSocket):
            self._sock.discard()
        else:
            self._sock.close()

    def flush(self) -> None:
        """Send the buffers of the link, as far as the socket takes them without waiting;
        ``wait_and_send`` sends the rest."""
        outgoing = self._link.take_outgoing()
        if self._outgoing:
            outgoing = self._outgoing + outgoing
        try:
            if not self._blocked.is_set():
                while outgoing:
                    outgoing = drop_sent(outgoing, self._sock.sendmsg(outgoing[:GATHER_MAX]))
        except BlockingIOError:
            self._blocked.set()
        except OSError as error:
            outgoing = []
            self._client._lost(self._link, error)
        self._outgoing = outgoing

    async def wait_and_send(self) -> None:
        """Send the rest each time the socket becomes writable after EAGAIN, until cancelled: the
        link's sending task."""
        while True:
            await self._blocked.wait()
            await trio.lowlevel.wait_writable(self._sock)
            self._blocked = trio.Event()
            self.flush()

    async def receive(self) -> None:
        """Receive until the link is closed or broken, and advance the core after each input: the
        link's receiving task.

        The wait comes first, because it is the checkpoint at which other tasks run, and data has
        seldom arrived before it."""
        while not self._link.closed:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                count = self._sock.recv_into(self._link.buffer_for_receive())
            except BlockingIOError:
                continue  # a spurious wake-up
            except OSError as error:
                self._client._lost(self._link, error)
                return
            self._link.received(count, self._client._now_ms())
            self._client._work()
