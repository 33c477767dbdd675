"""The handshake of two nodes: proof of identity before any other message.

    dialler                                   acceptor
    hello(class, cluster, node, epoch, nonce)  ->
                                   <-  challenge(node, epoch, nonce)     only with a secret
    proof(HMAC "dialler")                      ->
                                   <-  welcome(..., HMAC "acceptor")

Contract. ``Introduction`` is the dialler's side and ``Reception`` the acceptor's, both without I/O.
``introduce`` runs an introduction over a socket for tasks of the loop; the liveness thread drives
its own. With certificates the whole handshake runs inside TLS, and each side's certificate must
name the node that it claims to be. ``NotAccepted`` carries the reason of a failed handshake.

Theory. A proof is an HMAC with the shared secret over all values that an attacker could exchange:
cluster, class of connection, both nodes, both boot epochs, the boot id that the dialler names, both
nonces. It proves presence now, on this connection and in this role; it cannot be replayed,
reflected or used towards another node. The dialler proves itself first, so that an unauthenticated
client gets no HMAC to guess passwords with. Later frames are *not* authenticated one by one: on a
network where attackers can alter packets, use TLS (decision 0012).
"""

from __future__ import annotations

import hmac
import os
import socket
import struct

from multiraft.liveness.peer_identity import BootId
from multiraft.wire import messages as wire
from multiraft.wire.errors import Code, RemoteProtocolError
from multiraft.wire.frames import HANDSHAKE_LIMITS, FrameReader, encode_frame
from multiraft.wire.schema import Malformed
from multiraft.wire.tls import TlsSocket
from node.errors import NodeError
from node.loop.receive import receive_some, secured
from node.peers.security import Security, node_name

_DIALLER = b"multiraft dialler 1"
_ACCEPTOR = b"multiraft acceptor 1"
_SAID = struct.Struct(">16s16sIQQQ32sIQ32s")
_AFTER = struct.Struct(">QQ")


class NotAccepted(NodeError):
    """A failed handshake: the remote node is not the expected one, or refuses this node.

    ``code`` is for the wire. ``proven``: the sender of the refusal has proven to be the peer, as
    far as this cluster requires proofs. ``remembered``: the boot id of this node that the peer
    remembers, if it sent one.
    """

    def __init__(self, text: str, code: int = Code.INVALID_REQUEST, proven: bool = False,
                 remembered: BootId | None = None):
        super().__init__(text)
        self.code = code
        self.proven = proven
        self.remembered = remembered


def _proof(secret: bytes, role: bytes, cluster_id: bytes, hello: wire.Hello,
           challenge: wire.Challenge) -> bytes:
    said = _SAID.pack(cluster_id, hello.connection.encode(), hello.node, hello.boot_epoch,
                      hello.incarnation, hello.process, hello.nonce, challenge.node,
                      challenge.boot_epoch, challenge.nonce)
    if hello.after is not None:
        said += _AFTER.pack(*hello.after)
    return hmac.digest(secret, role + said, "sha256")


def check_certificate(sock: socket.socket | TlsSocket, node: int, cluster_id: bytes) -> None:
    """Raise ``NotAccepted`` if the connection uses certificates and the peer's does not name
    ``node``."""
    if isinstance(sock, TlsSocket):
        name = node_name(node, cluster_id)
        if name not in sock.peer_names:
            raise NotAccepted(f"its certificate does not name {name}, but "
                              f"{', '.join(sock.peer_names)[:200] or 'nothing'}")


class Introduction:
    """The dialler's side of a handshake with ``peer``."""

    def __init__(self, security: Security, hello: wire.Hello, peer: int):
        self.security = security
        self.peer = peer
        self.accepted = False
        self._secret = security.secrets[0] if security.secrets else None
        self._hello = hello
        if self._secret is not None:
            self._hello = hello._replace(nonce=os.urandom(wire.NONCE_BYTES))
        self._expected: bytes | None = None

    @property
    def server_name(self) -> str:
        """Name that the peer's certificate must carry."""
        return node_name(self.peer, self.security.cluster_id)

    def first(self) -> bytes:
        """Return the first frame, the hello."""
        return _frame(wire.hello_header(self._hello))

    def answer(self, header: dict) -> bytes:
        """Process a frame of the peer. Return the bytes to send next, b"" once the peer's welcome
        is accepted. Raises ``NotAccepted`` for a refusal, a wrong node or a missing proof."""
        try:
            said = wire.read_answer(header)
        except Malformed as error:
            raise NotAccepted(f"it does not answer as a node would: {error}") from error
        if isinstance(said, wire.Refused):
            remembered = BootId(*said.remembered) if said.remembered is not None else None
            raise NotAccepted(f"it refuses this node: {said.text}", said.code,
                              self._is_proven(said.proof), remembered)
        if said.node != self.peer:
            raise NotAccepted(f"node {said.node} answers at the address of node {self.peer}")
        if isinstance(said, wire.Challenge):
            return self._prove(said)
        self._check(said)
        self.accepted = True
        return b""

    def _prove(self, challenge: wire.Challenge) -> bytes:
        if self._secret is None:
            raise NotAccepted("it asks for the cluster's secret, and none is configured here "
                              "(security.peer_secret)")
        if self._expected is not None:
            raise NotAccepted("it asks for a second proof")
        said = self._secret, self._hello, challenge
        cluster = self.security.cluster_id
        self._expected = _proof(said[0], _ACCEPTOR, cluster, *said[1:])
        return _frame(wire.proof_header(wire.Proof(_proof(said[0], _DIALLER, cluster, *said[1:]))))

    def _check(self, welcome: wire.Welcome) -> None:
        if welcome.cluster != self.security.cluster_id:
            raise NotAccepted(f"it belongs to the cluster {welcome.cluster.hex()}")
        if self._secret is not None:
            if self._expected is None or welcome.proof is None:
                raise NotAccepted("it does not prove that it knows the cluster's secret")
            if not self._is_proven(welcome.proof):
                raise NotAccepted("its proof of the cluster's secret is wrong")

    def _is_proven(self, proof: bytes | None) -> bool:
        """Return True if ``proof`` shows that the peer knows the cluster's secret, or no secret is
        configured here."""
        if self._secret is None:
            return True
        return (self._expected is not None and proof is not None
                and hmac.compare_digest(self._expected, proof))


class Reception:
    """The acceptor's side of a handshake, after the hello was read and checked."""

    def __init__(self, security: Security, node: int, boot_epoch: int, hello: wire.Hello):
        self._security = security
        self._hello = hello
        self._challenge = wire.Challenge(node, boot_epoch, os.urandom(wire.NONCE_BYTES))

    def challenge(self) -> bytes:
        """Return the challenge frame; b"" = this cluster requires no proof. Raises ``NotAccepted``
        if one is required and the hello offers none."""
        if not self._security.secrets:
            return b""
        if self._hello.nonce is None:
            raise NotAccepted("nodes of this cluster prove that they know its secret "
                              "(security.peer_secret)")
        return _frame(wire.challenge_header(self._challenge))

    def proven(self, header: dict) -> bytes:
        """Check the proof in the dialler's frame, and return this node's own for the welcome.
        Raises ``NotAccepted`` if the proof is wrong."""
        try:
            given = wire.read_proof(header).proof
        except Malformed as error:
            raise NotAccepted(str(error)) from error
        right = None
        for secret in self._security.secrets:  # all of them: the time taken reveals nothing
            if hmac.compare_digest(self._of(secret, _DIALLER), given):
                right = secret
        if right is None:
            raise NotAccepted("the proof of the cluster's secret is wrong")
        return self._of(right, _ACCEPTOR)

    def _of(self, secret: bytes, role: bytes) -> bytes:
        return _proof(secret, role, self._security.cluster_id, self._hello, self._challenge)


async def introduce(sock: socket.socket, introduction: Introduction,
                    ) -> tuple[socket.socket | TlsSocket, FrameReader]:
    """Run the handshake on a fresh connection to a peer. Return the socket to use from then on, and
    its reader. The caller limits the time, and closes ``sock`` if this raises ``OSError``,
    ``NotAccepted`` or ``RemoteProtocolError``."""
    stream: socket.socket | TlsSocket = sock
    if introduction.security.peer_client is not None:
        stream = await secured(sock, introduction.security.peer_client, introduction.server_name)
        check_certificate(stream, introduction.peer, introduction.security.cluster_id)
    reader = FrameReader(HANDSHAKE_LIMITS)
    stream.send(introduction.first())  # a fresh socket takes it whole
    while not introduction.accepted:
        header = await next_header(stream, reader)
        if header is None:
            raise ConnectionError("the connection ended in the handshake")
        if said := introduction.answer(header):
            stream.send(said)
    return stream, reader


async def next_header(sock: socket.socket | TlsSocket, reader: FrameReader) -> dict | None:
    """Return the header of the next handshake frame; None = the stream ended. Raises
    ``RemoteProtocolError`` for a frame with a payload."""
    while (frame := reader.next_frame()) is None:
        if not await receive_some(sock, reader):
            return None
    if len(frame.payload):
        raise RemoteProtocolError(f"payload of {len(frame.payload)} bytes in the handshake")
    return frame.header


def _frame(header: dict) -> bytes:
    return b"".join(encode_frame(header))
