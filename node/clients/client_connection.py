"""The socket of a client's session: TLS, reading, and the task that waits.

Contract. ``ClientConnections.handle`` serves one connection until it ends. The arrivals task reads
the socket while the session may be read, its handlers run synchronously on the loop, and one round
follows after everything that arrived together was handled. The session (``session``) decides;
this module moves bytes and waits.

Theory. The task of a connection is active only for the handshake, a pause and the end, because
waking a task costs more than handling a small request.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

import trio

from multiraft.wire.connection import State
from multiraft.wire.errors import ProtocolError, RemoteProtocolError
from multiraft.wire.foreign_protocols import Foreign, ForeignProtocol, NotTls
from multiraft.wire.receive_buffer import ReceiveBuffer
from multiraft.wire.tls import TlsSocket
from node.access import ANONYMOUS, principal_of
from node.clients.connection_reaper import ConnectionSample
from node.clients.session import RequestDispatch, RequestStream, Session, Sessions
from node.loop.foreign_clients import ForeignClients
from node.loop.outbox import Outbox
from node.loop.poller import Poller
from node.loop.receive import secured
from node.loop.steps import ROWS_PER_STEP
from node.loop.turns import Turns
from node.peers.security import Security


class SocketReader(Protocol):
    """The reader of a connection's frames, which receives into its memory."""

    @property
    def header_bytes(self) -> int: ...  # of the last frame

    @property
    def memory(self) -> ReceiveBuffer: ...

    @property
    def mid_frame(self) -> bool: ...  # part of a frame has arrived


class SocketStream(RequestStream, Protocol):
    """The requests of one client, received from its socket."""

    @property
    def reader(self) -> SocketReader: ...

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into."""

    def received(self, count: int) -> None:
        """Record how many bytes were received there; 0 = end of the stream."""


class PortRequests(RequestDispatch, Protocol):
    """The protocol of a port."""

    def new_stream(self) -> SocketStream:
        """Return the stream of a connection that was accepted."""


class ClientConnection:
    """The socket and the task of one session; created by ``ClientConnections``."""

    __slots__ = ("_owner", "_sock", "_connection", "_outbox", "session", "_turn_rows_max",
                 "_task_needed")

    def __init__(self, owner: ClientConnections, sock: socket.socket | TlsSocket):
        sessions = owner.sessions
        self._owner = owner
        self._sock = sock
        self._connection = owner.requests.new_stream()
        self._outbox = Outbox(sock, sessions.limits.connection_send_buffer_bytes_max)
        principal = (principal_of(sock.peer_common_name, sock.peer_names)
                     if isinstance(sock, TlsSocket) else ANONYMOUS)
        self.session = Session(sessions, owner.requests, self._connection, self._outbox, self,
                               principal)
        self._connection.reader.memory.admit = self.session.admit
        self._turn_rows_max = sessions.limits.connection_turn_rows_max
        self._task_needed = trio.Event()  # the task is needed: an end, a pause, a handshake

    async def run(self) -> None:
        """Serve the connection until it ends, in the calling task, then remove the session from all
        counts. Raises the error that ended it: ``OSError`` or ``ProtocolError``."""
        session = self.session
        self._owner.open[self] = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, nursery.cancel_scope)
                await self._run_until_end()
                if session.problem is None and not session.closed:
                    await self._finish_half_closed()
                nursery.cancel_scope.cancel()
        finally:
            self._owner.open.pop(self, None)
            session.release()
            # Both ends of each reference cycle hold received bytes until a garbage collection.
            self._connection.reader.memory.admit = None
            del self.session
        problem, session.problem = session.problem, None
        try:
            if problem is not None:
                raise problem
        finally:
            # Break the reference cycle through the traceback: the received bytes are freed with the
            # session, and not at the next garbage collection.
            del problem

    # ---- calls of the session --------------------------------------------------------------------

    def wake(self) -> None:
        """Have this connection's task check the session soon."""
        self._task_needed.set()
        self._owner.poller.yield_due = True

    def read_again(self) -> None:
        """Have ``receive`` called in the next poll, whatever the kernel reports."""
        self._owner.poller.again(self._sock.fileno())

    def shut_down(self) -> None:
        """End both sides of the stream; no-op if the client has closed it already."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client has closed it already

    def note_peer(self) -> None:
        """Report that a node has taken the client port for the peer port."""
        self._owner.foreign.note(self._sock, Foreign.PEER)

    # ---- calls of the reaper ---------------------------------------------------------------------

    def sample(self) -> ConnectionSample:
        """Return the counters that the connection reaper compares."""
        session, outbox, reader = self.session, self._outbox, self._connection.reader
        return ConnectionSample(session.events, reader.mid_frame and not session.paused,
                                bool(self._connection.in_flight) or session.paused,
                                reader.memory.arrived if session.reserved else 0, outbox.size,
                                outbox.sent_bytes)

    def account(self) -> None:
        """Update the memory budget by the change of this connection's unsent bytes since the last
        call."""
        self.session.account()

    def end(self, reason: str) -> None:
        """Close this connection; ``reason`` is logged."""
        self.session.fail(RemoteProtocolError(reason))

    # ---- reading ---------------------------------------------------------------------------------

    def receive(self) -> bool:
        """Receive and handle what has arrived. Return True if a round is due. An error is kept for
        the connection's own task."""
        session = self.session
        if session.paused or session.closed:
            return False
        session.rows_left = self._turn_rows_max
        if session.has_deferred:
            handled = session.take_events()
            if session.has_deferred or session.paused or session.closed:
                return handled
            return self._received() or handled
        return self._received()

    def _received(self) -> bool:
        connection = self._connection
        try:
            count = self._sock.recv_into(connection.buffer_for_receive())
        except BlockingIOError:
            return False  # a spurious wake-up
        except OSError as error:
            self.session.fail(error)
            return False
        connection.received(count)
        return self.session.take_events()

    async def _drain(self, scope: trio.CancelScope) -> None:
        try:
            await self._outbox.drain(self._written)
        except OSError:
            scope.cancel()

    def _written(self) -> None:
        """Have the task check a paused session: the client has read replies."""
        if self.session.paused:
            self.wake()

    async def _run_until_end(self) -> None:
        """Have the arrivals task read the socket, except during pauses, until the connection ends
        or the client sent no hello in time."""
        poller, file_number = self._owner.poller, self._sock.fileno()
        timeout_ms = self._owner.sessions.limits.hello_timeout_ms
        with trio.move_on_after(timeout_ms / 1000) as hello:
            if self._connection.state is State.OPEN:  # a protocol without a handshake
                hello.deadline = math.inf
            while not self.session.is_over:
                poller.add(file_number, self.receive)
                try:
                    self._begin_receiving()
                    await self._task_needed.wait()
                finally:
                    poller.remove(file_number)
                if self._connection.state is State.OPEN:
                    hello.deadline = math.inf
                await self._wait_until_readable()

    async def _finish_half_closed(self) -> None:
        """Send the replies to open requests after the client has ended its side, within
        ``half_closed_timeout_ms``."""
        session, connection = self.session, self._connection
        session.half_close()
        try:
            with trio.move_on_after(session.service.limits.half_closed_timeout_ms / 1000):
                while connection.in_flight and not session.closed:
                    self._task_needed = trio.Event()
                    await self._task_needed.wait()
                if not session.closed:
                    session.flush()
                    await self._outbox.empty()
        except OSError as error:
            session.problem = error

    def _begin_receiving(self) -> None:
        """Prepare for reading the socket; TLS handles bytes that are decrypted already."""

    async def _wait_until_readable(self) -> None:
        """Wait until the arrivals task may read the socket again, and handle the requests that were
        received before, as limits and turns permit."""
        session = self.session
        self._task_needed = trio.Event()
        session.paused |= session.has_deferred  # this task handles the rest of the turn as well
        while session.paused and not session.is_over:
            if not session.is_full:
                await self._owner.turns.take(ROWS_PER_STEP)
                if session.resume(ROWS_PER_STEP):
                    session.service.request_round()
                continue
            session.await_memory()
            await self._task_needed.wait()
            self._task_needed = trio.Event()


class TlsClientConnection(ClientConnection):
    """A connection inside TLS, where one readiness of the socket may need several receives."""

    __slots__ = ()

    def receive(self) -> bool:
        """Receive as ``ClientConnection.receive`` does, until nothing is decrypted and unread: the
        kernel reports no readiness for those bytes. Return True if a round is due."""
        due, session = super().receive(), self.session
        assert isinstance(self._sock, TlsSocket)
        while self._sock.pending and not session.paused and not session.is_over:
            if session.rows_left <= 0:
                session.defer_frames()
                break
            due |= self._received()
        return due

    def _begin_receiving(self) -> None:
        if isinstance(self._sock, TlsSocket) and self._sock.pending and self.receive():
            self.session.service.request_round()


class ClientConnections:
    """The open connections of a node's client port."""

    def __init__(self, sessions: Sessions, requests: PortRequests, poller: Poller, turns: Turns,
                 log: logging.Logger, security: Security | None = None,
                 http_port: Callable[[], int] = lambda: 0, port: str = "client"):
        """``port``: ``client`` or ``kafka``, for the log."""
        self.sessions = sessions
        self.requests = requests
        self.poller = poller
        self.turns = turns
        self.open: dict[ClientConnection, None] = {}
        self._security = security
        self._log = log
        self.foreign = ForeignClients(port, http_port, log)
        self.accepted = 0
        self.closed_by_error = 0

    async def handle(self, sock: socket.socket) -> None:
        """Serve one connection of the client port until it ends, after the TLS handshake if TLS is
        configured. Protocol and TLS errors are logged; a client of another protocol receives a
        farewell. Raises ``OSError``."""
        self.accepted += 1
        context = None if self._security is None else self._security.client_server
        try:
            if context is None:
                await self._run(ClientConnection(self, sock), sock)
                return
            tls = None
            with trio.move_on_after(self.sessions.limits.hello_timeout_ms / 1000):
                tls = await secured(sock, context)
            if tls is not None:
                with tls:
                    await self._run(TlsClientConnection(self, tls), tls)
        except NotTls as error:
            self.closed_by_error += 1
            await self.foreign.reject(sock, error.protocol)
        except ProtocolError as error:
            self.closed_by_error += 1
            self._log.info("client_connection_closed", extra={"reason": str(error)})
        except ssl.SSLError as error:
            self.closed_by_error += 1
            self._log.info("client_connection_closed", extra={"reason": f"TLS: {error}"})

    async def _run(self, connection: ClientConnection, sock: socket.socket | TlsSocket) -> None:
        """Run a connection to its end. Raises ``OSError``, and ``ProtocolError`` unless the client
        speaks another protocol."""
        try:
            await connection.run()
        except ForeignProtocol as error:
            self.closed_by_error += 1
            await self.foreign.reject(sock, error.protocol)
