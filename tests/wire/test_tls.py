"""TLS over non-blocking sockets: the same bytes as without TLS, and errors with their reason."""

import random
import select
import socket
import ssl

import pytest

from multiraft.client.tls import TlsFiles, client_context, server_context
from multiraft.errors import ConfigError
from multiraft.wire.tls import SEND_BYTES_MAX, TlsSocket
from tests.certificates import Authority

LIMIT_S = 10
NAME = "node-1.example.org"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def sockets(buffer_bytes: int = 0) -> tuple[socket.socket, socket.socket]:
    """Yield two connected, non-blocking sockets."""
    near, far = socket.socketpair()
    for sock in (near, far):
        sock.setblocking(False)
        if buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    return near, far


def shaken(*ends: TlsSocket) -> None:
    """Complete the handshakes of both ends."""
    waiting = list(ends)
    while waiting:
        waiting = [end for end in waiting if not end.handshake()]
        if waiting:
            writing = [end for end in waiting if end.wants_write]
            ready = select.select(waiting, writing, [], LIMIT_S)
            assert any(ready), "the handshake stands still"


def pair(authority, buffer_bytes: int = 0, server: TlsFiles | None = None,
         client: TlsFiles | None = None, name: str = NAME) -> tuple[TlsSocket, TlsSocket]:
    """Return (client, server) after a handshake with certificates of both."""
    near, far = sockets(buffer_bytes)
    server_files = authority.issue(NAME) if server is None else server
    client_files = authority.issue("node-2.example.org") if client is None else client
    ends = (TlsSocket(near, client_context(client_files), name),
            TlsSocket(far, server_context(server_files)))
    try:
        shaken(*ends)
    except OSError:
        for end in ends:
            end.close()
        raise
    return ends


def carried(sender: TlsSocket, receiver: TlsSocket, buffers: list[bytes], room: int) -> bytes:
    """Send all of ``buffers`` while the other end receives into ``room`` bytes at a time."""
    received, expected = bytearray(), sum(map(len, buffers))
    buffers = [memoryview(buffer) for buffer in buffers]
    while len(received) < expected:
        if buffers:
            try:
                sent = sender.sendmsg(buffers)
            except BlockingIOError:
                pass
            else:
                while sent:
                    taken = min(sent, len(buffers[0]))
                    sent -= taken
                    buffers[0] = buffers[0][taken:]
                    if not buffers[0]:
                        buffers.pop(0)
        into = bytearray(room)
        try:
            count = receiver.recv_into(into)
        except BlockingIOError:
            continue
        assert count, "the stream ended"
        received += into[:count]
    return bytes(received)


@pytest.mark.parametrize("room", [7, 4096, 1 << 20])
def test_what_is_sent_arrives_whatever_the_buffers(authority, room):
    chance = random.Random(room)
    sizes = [1, 3, 70, 5000, 1 << 14, (1 << 14) + 1] + ([3 * SEND_BYTES_MAX] if room > 7 else [])
    buffers = [chance.randbytes(size) for size in sizes]
    near, far = pair(authority, buffer_bytes=8192)
    with near, far:
        assert carried(near, far, buffers, room) == b"".join(buffers)
        assert carried(far, near, buffers, room) == b"".join(buffers)


def test_bytes_that_do_not_fit_are_announced_as_pending(authority):
    near, far = pair(authority)
    with near, far:
        near.send(b"x" * 100)
        assert far.recv_into(bytearray(60)) == 60
        assert far.pending
        assert far.recv_into(bytearray(60)) == 40
        assert not far.pending
        with pytest.raises(BlockingIOError):
            far.recv_into(bytearray(60))


@pytest.mark.parametrize("politely", [True, False])
def test_the_end_of_the_stream_is_zero_bytes(authority, politely):
    near, far = pair(authority)
    with near, far:
        near.send(b"last words")
        if politely:
            near.close()
        else:
            near.shutdown(socket.SHUT_WR)
        into = bytearray(100)
        assert far.recv_into(into) == 10
        assert far.recv_into(into) == 0


def test_a_connection_that_moved_goes_on(authority):
    near, far = pair(authority)
    moved = far.moved()
    with near, moved:
        assert far.fileno() == -1
        near.send(b"hello")
        assert moved.recv_into(bytearray(9)) == 5


def test_both_ends_know_each_other_s_names(authority):
    near, far = pair(authority)
    with near, far:
        assert near.peer_names == (NAME,)
        assert far.peer_names == ("node-2.example.org",)
        assert near.version == "TLSv1.3"


def test_a_server_of_another_name_is_not_believed(authority):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        pair(authority, name="node-3.example.org")


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_certificate_of_another_ca_or_an_expired_one_is_not_believed(authority, tmp_path, side):
    stranger = Authority(tmp_path, "other").issue(NAME)._replace(ca=str(authority.path))
    with pytest.raises(ssl.SSLError):
        pair(authority, **{side: stranger})
    with pytest.raises(ssl.SSLError):
        pair(authority, **{side: authority.issue(NAME, expired=True)})


def test_a_client_without_a_certificate_is_not_heard_where_one_is_asked_for(authority):
    with pytest.raises(ssl.SSLError):
        near, far = pair(authority, client=TlsFiles(str(authority.path)))
        # In TLS 1.3 the client learns that only after its handshake.
        with near, far:
            near.recv_into(bytearray(1))


def test_nothing_below_tls_1_2_is_spoken(authority):
    old = client_context(authority.issue(NAME))
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    near, far = sockets()
    ends = TlsSocket(near, old, NAME), TlsSocket(far, server_context(authority.issue(NAME)))
    with ends[0], ends[1], pytest.raises(ssl.SSLError):
        shaken(*ends)


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 64])
def test_another_protocol_is_an_error_of_the_handshake(authority, opening):
    near, far = sockets()
    with near, TlsSocket(far, server_context(authority.issue(NAME))) as end:
        near.send(opening)
        with pytest.raises(OSError):
            end.handshake()


def test_files_that_cannot_be_used_are_named(authority, tmp_path):
    good = authority.issue(NAME)
    other = authority.issue(NAME)
    (tmp_path / "empty.pem").write_text("")
    for files, named in ((good._replace(key=other.key), other.key),
                         (good._replace(certificate="absent.crt"), "absent.crt"),
                         (good._replace(ca=str(tmp_path / "empty.pem")), "empty.pem"),
                         (good._replace(key=""), "come together")):
        with pytest.raises(ConfigError, match=named):
            server_context(files)
