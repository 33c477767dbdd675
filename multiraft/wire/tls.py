"""TLS over a non-blocking socket, with the calls and exceptions of that socket.

Contract.  ``TlsSocket`` takes a connected non-blocking socket and behaves like one: ``recv_into``,
``send`` and ``sendmsg`` return a number of bytes or raise ``BlockingIOError``.  Each failure of TLS
is an ``OSError``.  It opens no connection and never waits.  ``handshake`` is called each time the
socket is ready (for writing too, while ``wants_write``) until it returns True; only then may the
caller receive or send.

Invariants.  As in OpenSSL, a send that raised ``BlockingIOError`` must be repeated with the same
leading bytes: they are encrypted already, and are reported as sent once the kernel has all of their
ciphertext.  ``pending`` is True while decrypted bytes may be left, which ``poll`` does not report.
At most ``SEND_BYTES_MAX`` of plaintext and ``RECEIVE_BYTES_MAX`` of ciphertext are held.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Sequence

from multiraft.wire.foreign_protocols import BYTES_MIN, NotTls, is_tls, recognise_plain

if TYPE_CHECKING:
    from multiraft.wire.frames import Buffer

#: Plaintext that is encrypted at a time: eight records, one send.
SEND_BYTES_MAX = 128 << 10
#: Ciphertext taken from the kernel at a time.
RECEIVE_BYTES_MAX = 64 << 10
#: Ciphertext of TLS itself (alerts, tickets, key updates).  More of it means that the peer requests
#: answers and does not read them.
CONTROL_BYTES_MAX = 64 << 10


class TlsSocket:
    """TLS connection over a connected non-blocking socket."""

    __slots__ = ("_sock", "_tls", "_incoming", "_outgoing", "_unsent", "_owed", "_beginning",
                 "pending")

    def __init__(self, sock: Any, context: ssl.SSLContext,
                 server_name: str | None = None):
        """``server_name``: expected name of the server; None = this side is the server."""
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing,
                                     server_side=server_name is None, server_hostname=server_name)
        self._unsent = memoryview(b"")  # ciphertext that the kernel has not taken
        self._owed = 0  # plaintext that was encrypted and not yet reported as sent
        #: First bytes received by a server, until the handshake is complete.
        self._beginning: bytes | None = b"" if server_name is None else None
        self.pending = False

    # ---- the handshake ----

    def handshake(self) -> bool:
        """Continue the handshake as far as possible without waiting.  Returns True when it is
        complete.  Raises ``OSError`` when the certificate of the other side is refused; an alert
        with the reason is sent to it.  Raises ``NotTls``, and sends nothing, when a client does not
        speak TLS."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError as error:
                if self._beginning and not is_tls(self._beginning):
                    raise NotTls(recognise_plain(self._beginning)) from error
                self._give_alert()
                raise
            else:
                done = True
                self._beginning = None
            if not self._send_ciphertext():
                return False
            if done:
                # Bytes that came with the last message are in memory; ``poll`` does not report
                # them.
                self.pending = True
                return True
            if not self._fill():
                return False

    @property
    def wants_write(self) -> bool:
        """True if ciphertext waits that the socket did not take."""
        return bool(self._unsent)

    @property
    def peer_names(self) -> tuple[str, ...]:
        """DNS names in the certificate of the other side; empty if it presented none."""
        certificate: dict[str, Any] = self._tls.getpeercert() or {}
        return tuple(name for kind, name in certificate.get("subjectAltName", ())
                     if kind == "DNS")

    @property
    def peer_common_name(self) -> str:
        """Common name of the subject of the other side's certificate; empty if it has none."""
        certificate: dict[str, Any] = self._tls.getpeercert() or {}
        return next((value for part in certificate.get("subject", ()) for kind, value in part
                     if kind == "commonName"), "")

    @property
    def version(self) -> str | None:
        """Version of TLS, "TLSv1.3" or "TLSv1.2"; None before the handshake."""
        return self._tls.version()

    # ---- receiving ----

    def recv_into(self, buffer: Buffer) -> int:
        """Receive decrypted bytes into ``buffer`` as a socket does, as many as are available.
        Raises ``BlockingIOError`` when none are.

        Returns 0 at the end of the stream, announced by TLS or not: frames carry their lengths, so
        the frame reader detects a truncated stream."""
        room = memoryview(buffer)
        count, ended = 0, False
        while count < len(room) and not ended:
            try:
                received: Any = self._tls.read(len(room) - count, room[count:])
                count += received
                ended = not received
            except ssl.SSLWantReadError:
                if count or not self._fill():
                    break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                ended = True
        self.pending = count == len(room)
        if self._outgoing.pending and not self._owed:
            self._send_ciphertext()
        if count or ended:
            return count
        raise BlockingIOError

    def _fill(self) -> bool:
        """Read ciphertext from the kernel for decryption, or the end of the stream.  Returns False
        when there is none now."""
        try:
            data = self._sock.recv(RECEIVE_BYTES_MAX)
        except BlockingIOError:
            return False
        if data:
            self._incoming.write(data)
            if self._beginning is not None and len(self._beginning) < BYTES_MIN:
                self._beginning += data[:BYTES_MIN]
        else:
            self._incoming.write_eof()
        return True

    # ---- sending ----

    def send(self, data: Buffer) -> int:
        """Send ``data`` as ``sendmsg`` does.  Returns the number of bytes sent."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence) -> int:
        """Send as a socket does, but all or none of the first ``SEND_BYTES_MAX`` bytes, and return
        their number. Raises ``BlockingIOError`` when the socket takes nothing now; then repeat the
        call with the same bytes (see Invariants)."""
        if not self._owed:
            self._owed = self._tls.write(_head(buffers))
        if not self._send_ciphertext():
            raise BlockingIOError
        owed, self._owed = self._owed, 0
        return owed

    def _send_ciphertext(self) -> bool:
        """Send the remaining ciphertext.  Returns True if the kernel has all of it.  Raises
        ``ConnectionError`` when the other side makes this one owe answers without reading them."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            elif self._outgoing.pending > CONTROL_BYTES_MAX and not self._owed:
                raise ConnectionError("the other side asks for answers and does not read them")
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]

    def _give_alert(self) -> None:
        try:
            self._send_ciphertext()
        except OSError:
            pass  # the connection is broken: the other side cannot receive the alert

    # ---- what the socket does itself ----

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1 = closed."""
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """Accept only False: a ``TlsSocket`` never blocks."""
        assert not flag, "a TlsSocket does not block"
        self._sock.setblocking(False)

    def getpeername(self) -> Any:
        """Return the address of the other side.  Raises ``OSError`` when it is gone."""
        return self._sock.getpeername()

    def shutdown(self, how: int) -> None:
        """Shut the connection down, which wakes tasks that wait for its descriptor."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """Close the descriptor, after a TLS close_notify if it can be sent at once."""
        if self._sock.fileno() != -1:
            if not self._owed:
                try:
                    self._tls.unwrap()
                except (ssl.SSLError, ValueError):
                    pass  # the answer of the other side is not awaited
                self._give_alert()
            self._sock.close()

    def discard(self) -> None:
        """Close the descriptor without a close_notify: another process keeps the connection."""
        self._sock.close()

    def __enter__(self) -> "TlsSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def moved(self) -> "TlsSocket":
        """Return the connection as a new object with the same descriptor number; this object is
        closed from now on."""
        new = object.__new__(TlsSocket)
        for name in TlsSocket.__slots__:
            setattr(new, name, getattr(self, name))
        new._sock = type(self._sock)(fileno=self._sock.detach())
        new._sock.setblocking(False)
        return new


def _head(buffers: Sequence) -> Buffer:
    """Return the first ``SEND_BYTES_MAX`` bytes of ``buffers`` as one buffer."""
    pieces, room = [], SEND_BYTES_MAX
    for buffer in buffers:
        piece = memoryview(buffer).cast("B")[:room]
        pieces.append(piece)
        room -= len(piece)
        if not room:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
