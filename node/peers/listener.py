"""The peer port: steps the messages of append connections, hands liveness connections to their
thread, and serves bulk connections.

Contract. The first frame is a ``Hello`` of this cluster. The node that it names must prove its
identity (``handshake``) and match what is known of it (``registry``); any other connection is
refused with a code and a reason. Until then nothing is stepped or recorded, and at most one
handshake frame is read. Afterwards an append connection is a stream of peer frames: messages are
stepped into the core in order, and a round is requested once per receive, not per message.
``MESSAGES_PER_TURN`` messages of a connection are stepped at once, and the rest in the next turn of
the loop. A malformed frame, an entry with a wrong CRC, or a message that no correct node can send
closes the connection and has no other effect.

Invariants. One append connection per node. A new one closes the previous one, which is half open or
about to end, so that dead connections do not accumulate.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.errors import ImpossibleMessage
from multiraft.raft.messages import Append, Message
from multiraft.types import EntryKind
from multiraft.wire import messages as wire
from multiraft.wire.errors import Code, RemoteProtocolError
from multiraft.wire.foreign_protocols import ForeignProtocol, NotTls
from multiraft.wire.frames import HANDSHAKE_LIMITS, FrameReader, WireLimits, encode_frame
from multiraft.wire.schema import Malformed
from multiraft.wire.tls import TlsSocket
from node.loop.foreign_clients import ForeignClients, host_of
from node.loop.receive import secured
from node.loop.repeated_lines import RepeatedLines
from node.peers import codec
from node.peers.handshake import NotAccepted, Reception, check_certificate, next_header
from node.peers.registry import BootId, PeerRegistry, RefusedHello
from node.peers.security import Security

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.disk_space import Space
    from node.loop.poller import Poller
    from node.peers.bulk_channel import Bulk
    from node.peers.liveness_thread import LivenessThread

#: Messages of one connection that are stepped per turn of the loop, at some 5 us each. A message
#: with entries counts as one more for each ``ENTRIES_PER_MESSAGE`` of them.
MESSAGES_PER_TURN = 512
ENTRIES_PER_MESSAGE = 4


class PeerListener:
    """The handler of the peer port's connections."""

    def __init__(self, core: MultiRaft, request_round: Callable[[], None], liveness: LivenessThread,
                 security: Security, node: int, boot_epoch: int, known: PeerRegistry,
                 frame_bytes_max: int, hello_timeout_ms: int, poller: Poller, log: logging.Logger,
                 bulk: Bulk | None = None, space: Space | None = None,
                 http_port: Callable[[], int] = lambda: 0):
        self.space = space
        self._core = core
        self._request_round = request_round
        self._liveness = liveness
        self._security = security
        self._cluster_id = security.cluster_id
        self._node = node
        self._boot_epoch = boot_epoch
        self._known = known
        self._limits = WireLimits(frame_bytes_max=frame_bytes_max)
        self._hello_timeout_ms = hello_timeout_ms
        self.poller = poller
        self._bulk = bulk
        self._log = log
        self._foreign = ForeignClients("peer", http_port, log)
        self._refusals = RepeatedLines()
        self._receiving: dict[int, tuple[trio.CancelScope, int]] = {}  # with the boot epoch
        self.frames = 0
        self.refused = 0

    async def handle(self, accepted: socket.socket) -> None:
        """Serve one connection from hello to end, and close it; a liveness connection is handed to
        its thread instead. Raises ``OSError`` and protocol errors of bulk connections."""
        sock: socket.socket | TlsSocket = accepted
        reader = FrameReader(HANDSHAKE_LIMITS)
        hello = None
        with trio.move_on_after(self._hello_timeout_ms / 1000):
            if self._security.peer_server is not None:
                sock = await self._secured(accepted, self._security.peer_server)
            hello = await self._greet(sock, reader)
        try:
            if hello is not None:
                await self._serve(sock, reader, hello)
        finally:
            sock.close()

    async def _secured(self, sock: socket.socket, context: ssl.SSLContext) -> TlsSocket:
        try:
            return await secured(sock, context)
        except NotTls as error:
            self.refused += 1
            await self._foreign.reject(sock, error.protocol)
            raise
        except OSError as error:
            self._note_refused(sock, f"no TLS: {error}")
            raise

    async def _serve(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                     hello: wire.Hello) -> None:
        if hello.connection == "liveness":
            moved = (sock.moved() if isinstance(sock, TlsSocket)
                     else socket.socket(fileno=sock.detach()))
            self._liveness.adopt(hello.node, moved, reader)
            return
        if hello.connection == "bulk":
            assert self._bulk is not None
            await self._bulk.serve(sock, reader, hello.node)
            return
        reader.limits = self._limits
        try:
            await self._receive_alone(sock, reader, hello)
        except (RemoteProtocolError, ImpossibleMessage) as error:
            self._log.warning("append_connection_closed", extra={"peer": hello.node,
                                                                "reason": str(error)})

    def end(self, peer: int) -> None:
        """Close the append connection of a peer that is no longer a node of the cluster."""
        if peer in self._receiving:
            self._receiving[peer][0].cancel()

    async def _receive_alone(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                             hello: wire.Hello) -> None:
        """Receive until the connection ends, or until the same node connects again. Closes that
        node's earlier append connection first."""
        peer = hello.node
        with trio.CancelScope() as scope:
            self.end(peer)
            mine = self._receiving[peer] = scope, hello.boot_epoch
            try:
                await self._receive(sock, reader, peer)
            finally:
                if self._receiving.get(peer) is mine:
                    del self._receiving[peer]

    async def _greet(self, sock: socket.socket | TlsSocket,
                     reader: FrameReader) -> wire.Hello | None:
        try:
            header = await next_header(sock, reader)
            if header is None:
                return None
            hello = wire.read_hello(header)
            self._check(hello)
            check_certificate(sock, hello.node, self._cluster_id)
            proof = await self._proven(sock, reader, hello)
        except ForeignProtocol as error:
            self.refused += 1
            await self._foreign.reject(sock, error.protocol)
            return None
        except (Malformed, RemoteProtocolError) as error:
            self._refuse(sock, RefusedHello(Code.INVALID_REQUEST, str(error)))
            return None
        except NotAccepted as error:
            self._refuse(sock, RefusedHello(error.code, str(error)))
            return None
        rejection = (self._known.check(hello, self._is_alive)
                   or await self._known.pin(hello, self._is_alive))
        if rejection is not None:
            self._refuse(sock, rejection, proof)
            return None
        welcome = wire.Welcome(self._cluster_id, self._node, self._boot_epoch, proof=proof)
        sock.send(b"".join(encode_frame(wire.welcome_header(welcome))))
        return hello

    async def _proven(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                      hello: wire.Hello) -> bytes | None:
        """Challenge the dialler, verify its proof and return this node's own; None = this cluster
        requires none. Raises ``NotAccepted`` for a missing or wrong proof."""
        reception = Reception(self._security, self._node, self._boot_epoch, hello)
        challenge = reception.challenge()
        if not challenge:
            return None
        sock.send(challenge)
        header = await next_header(sock, reader)
        if header is None:
            raise NotAccepted("the connection ended before the proof")
        return reception.proven(header)

    def _refuse(self, sock: socket.socket | TlsSocket, rejection: RefusedHello,
                proof: bytes | None = None) -> None:
        """Send a refusal, with this node's proof if the dialler has given its own. A peer obeys a
        final refusal only with such a proof, so that an attacker cannot stop a node."""
        if rejection.code != Code.UNLINKED_BOOT_ID:  # ordinary: once for each start of a peer
            self._note_refused(sock, rejection.text)
        remembered = rejection.remembered
        refused = wire.Refused(
            rejection.code, rejection.text, proof=proof,
            remembered=wire.BootIdRow(*remembered) if remembered is not None else None)
        sock.send(b"".join(encode_frame(wire.refused_header(refused))))

    def _note_refused(self, sock: socket.socket | TlsSocket, reason: str) -> None:
        self.refused += 1
        host = host_of(sock)
        connections = self._refusals.count((host, reason))
        if connections:
            self._log.warning("peer_connection_refused", extra={
                "host": host, "reason": reason, "connections": connections})

    def _check(self, hello: wire.Hello) -> None:
        """Check a hello before any proof. Raises ``NotAccepted`` for an unknown version, a client,
        or a node of another cluster."""
        if hello.version not in wire.VERSIONS_SUPPORTED:
            raise NotAccepted(f"version {hello.version} is not known here", Code.UNSUPPORTED)
        if hello.connection == "client":
            raise NotAccepted("this is the peer port; clients use the client port")
        if hello.cluster != self._cluster_id:
            raise NotAccepted("this node belongs to another cluster", Code.WRONG_CLUSTER)

    def _is_alive(self, peer: int, boot_id: BootId) -> bool:
        """Return True if that boot of a peer is connected and supported right now."""
        receiving = self._receiving.get(peer)
        return (receiving is not None and receiving[1] == boot_id.boot_epoch
                and self._core.status.supported_epoch(peer) == boot_id.boot_epoch)

    async def _receive(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                       peer: int) -> None:
        kind = _TlsIncoming if isinstance(sock, TlsSocket) else _Incoming
        incoming = kind(self, self._core, sock, reader, peer)
        file_number = sock.fileno()
        self.poller.add(file_number, incoming.receive)
        try:
            if incoming.begin() or self.poller.left:
                self._request_round()
            if isinstance(sock, TlsSocket) and incoming.receive():
                self._request_round()  # the kernel reports no readiness for decrypted bytes
            await incoming.over.wait()
        finally:
            self.poller.remove(file_number)
        if incoming.problem is not None:
            raise incoming.problem


def _carries_records(message: Message) -> bool:
    return (type(message) is Append
            and any(entry.kind == EntryKind.DATA for entry in message.entries))


class _Incoming:
    """One append connection, read by the arrivals task; its own task waits for the end."""

    __slots__ = ("_listener", "_core", "_sock", "_reader", "_peer", "_ended", "_decoded", "_left",
                 "_more", "over", "problem")

    def __init__(self, listener: PeerListener, core: MultiRaft, sock: socket.socket | TlsSocket,
                 reader: FrameReader, peer: int):
        self._listener = listener
        self._core = core
        self._sock = sock
        self._reader = reader
        self._peer = peer
        self._ended = False
        self._decoded: deque = deque()  # messages of a frame that are not stepped yet
        self._left = 0  # messages that remain in this turn
        self._more = False  # received messages are not stepped: the turn was over
        self.over = trio.Event()  # wakes the connection's task
        self.problem: Exception | None = None

    def receive(self) -> bool:
        """Receive once and step what is complete, after messages left from the last turn. Return
        True if a round is due. An error is kept in ``problem`` for the connection's own task."""
        if self._ended:
            return False
        self._left = MESSAGES_PER_TURN
        if self._more:
            due = self._take_frames()
            return due if self._more or self._ended else self._received() or due
        return self._received()

    def _received(self) -> bool:
        reader = self._reader
        try:
            count = self._sock.recv_into(reader.memory.buffer_for_receive())
        except BlockingIOError:
            return False  # a spurious wake-up
        except OSError as error:
            self._end(error)
            return False
        if not count:
            self._end(None)
            return False
        reader.memory.received(count)
        return self._take_frames()

    def begin(self) -> bool:
        """Step the messages that arrived together with the hello. Return True if a round is due."""
        self._left = MESSAGES_PER_TURN
        return self._take_frames()

    def _take_frames(self) -> bool:
        """Step complete messages into the core, as far as this turn reaches; drop records while the
        disk is full. Return True if the core has work afterwards: most acknowledgements complete no
        majority, have no effect, and cost no round."""
        core, decoded, peer, stepped = self._core, self._decoded, self._peer, False
        space = self._listener.space
        self._more = False
        try:
            while decoded or self._next_frame():
                if self._left <= 0:
                    self._more = True
                    self._listener.poller.again(self._sock.fileno())
                    break
                message = decoded.popleft()
                self._left -= 1
                stepped = True
                if type(message) is Append:
                    self._left -= len(message.entries) // ENTRIES_PER_MESSAGE
                    if space is not None and space.full and _carries_records(message):
                        # No disk space: dropped like a lost message, which is always safe.
                        space.refused += 1
                        continue
                core.step(peer, message)
        except (RemoteProtocolError, ImpossibleMessage) as error:
            self._end(error)
        return stepped and core.has_work

    def _next_frame(self) -> bool:
        """Decode the next complete frame with messages. Return True if there was one."""
        while not self._decoded and (frame := self._reader.next_frame()) is not None:
            self._listener.frames += 1
            self._decoded.extend(codec.decode(frame))
        return bool(self._decoded)

    def _end(self, problem: Exception | None) -> None:
        self._ended = True
        self.problem = problem
        self.over.set()


class _TlsIncoming(_Incoming):
    """An append connection inside TLS, where one readiness of the socket may need several
    receives."""

    __slots__ = ()

    def receive(self) -> bool:
        """Receive as ``_Incoming.receive`` does, until nothing is decrypted and unread: the kernel
        reports no readiness for those bytes. Return True if a round is due."""
        due = super().receive()
        assert isinstance(self._sock, TlsSocket)
        while self._sock.pending and not self._ended and not self._more:
            due |= self._received()
        return due
