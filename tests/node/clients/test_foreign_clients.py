"""Clients of other protocols on the ports of a node: one clear line each, and a farewell."""

import socket
from types import SimpleNamespace

import pytest
import trio

from multiraft.client.tls import client_context
from multiraft.wire.frames import HANDSHAKE_LIMITS, FrameReader, encode_frame
from multiraft.wire.messages import Hello, hello_header
from multiraft.wire.tls import TlsSocket
from node.clients.client_connection import ClientConnections
from node.clients.listener import Listener, listen
from node.clients.native_requests import NativeRequests
from node.clients.session import Sessions
from node.config import Limits
from node.loop import repeated_lines
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.certificates import Authority
from tests.node.harness import attend, in_trio, serving, silent_log
from tests.node.peers.test_append_links import CLUSTER, Receiver
from tests.node.peers.test_handshake import certificates
from tests.ports import free_port
from tests.wire.test_foreign_protocols import CLIENT_HELLO, GET, KAFKA

OURS = b"".join(encode_frame(hello_header(Hello())))
#: What is sent -> (the log's protocol, words of the reason, beginning of the farewell).
PLAIN = {
    "Kafka": (KAFKA, "Kafka", "Kafka", b""),
    "HTTP": (GET, "HTTP", "HTTP is off", b"HTTP/1.1 400 Bad Request\r\n"),
    "TLS": (CLIENT_HELLO, "TLS", "without TLS", b"\x15\x03"),
}
IN_TLS = {
    "Kafka": (KAFKA, "Kafka", "Kafka", b""),
    "HTTP": (GET, "HTTP", "on port 9301", b"HTTP/1.1 400 Bad Request\r\n"),
    "own protocol": (OURS, "multiraft without TLS", "requires TLS", b"\x15\x03"),
    "another": (b"hello, world", "unknown", "requires TLS", b""),
}


def rejected(caplog) -> list:
    return [record for record in caplog.records
            if record.getMessage() == "foreign_client_rejected"]


def check(caplog, port: str, protocol: str, words: str) -> None:
    """Check that one line names the protocol, and that no other line concerns the connection."""
    [line] = rejected(caplog)
    assert (line.levelname, line.port, line.host, line.protocol) == (
        "WARNING", port, "127.0.0.1", protocol)
    assert words in line.reason
    assert not [record for record in caplog.records
                if record.getMessage() in ("client_connection_closed", "peer_connection_refused")]


async def answer_to(port: int, data: bytes) -> bytes:
    """Send ``data``, and return all that is answered until the connection ends."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(data)
        received = b""
        while more := await stream.receive_some():
            received += more
        return received


@in_trio
@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("port", ["client", "peer"])
async def test_a_node_says_what_connects_to_its_ports(tmp_path, caplog, port, case):
    data, protocol, words, farewell = PLAIN[case]
    async with serving(tmp_path) as node:
        address = (node.config.node.client_address if port == "client"
                   else node.config.node.peer_address)
        caplog.clear()
        answer = await answer_to(address.port, data)
        assert answer.startswith(farewell) and bool(answer) == bool(farewell)
        check(caplog, port, protocol, words)


@in_trio
@pytest.mark.parametrize("port", ["client", "peer"])
async def test_an_http_client_that_sends_much_reads_the_answer_and_no_reset(tmp_path, port):
    """More than the node reads before it recognises the protocol."""
    async with serving(tmp_path) as node:
        address = (node.config.node.client_address if port == "client"
                   else node.config.node.peer_address)
        post = b"POST / HTTP/1.1\r\nContent-Length: 40000\r\n\r\n" + bytes(40_000)
        stream = await trio.open_tcp_stream("127.0.0.1", address.port)
        async with stream:
            await stream.send_all(post)
            received = b""
            while more := await stream.receive_some():
                received += more
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")


@in_trio
@pytest.mark.parametrize("port", ["client", "peer"])
async def test_a_wrong_client_that_connects_again_is_one_line_a_minute(
        tmp_path, caplog, monkeypatch, port):
    now_ms = [1_000_000]
    monkeypatch.setattr(repeated_lines, "monotonic_ms", lambda: now_ms[0])
    async with serving(tmp_path) as node:
        address = (node.config.node.client_address if port == "client"
                   else node.config.node.peer_address)
        for _ in range(3):
            await answer_to(address.port, KAFKA)
        assert [line.connections for line in rejected(caplog)] == [1]
        await answer_to(address.port, GET)
        assert [line.protocol for line in rejected(caplog)] == ["Kafka", "HTTP"]
        now_ms[0] += repeated_lines.INTERVAL_MS
        await answer_to(address.port, KAFKA)
        assert [line.connections for line in rejected(caplog)] == [1, 1, 3]


@in_trio
async def test_a_stranger_that_dials_the_peer_port_again_is_one_line_a_minute(tmp_path, caplog):
    hello = b"".join(encode_frame(hello_header(Hello("append", node=9, boot_epoch=1,
                                                     cluster=bytes(16)))))
    async with serving(tmp_path) as node:
        for _ in range(3):
            assert b"another cluster" in await answer_to(node.config.node.peer_address.port, hello)
    [line] = [record for record in caplog.records
              if record.getMessage() == "peer_connection_refused"]
    assert (line.host, line.connections) == ("127.0.0.1", 1)
    assert "another cluster" in line.reason


@in_trio
async def test_a_node_that_dials_the_client_port_is_named(tmp_path, caplog):
    async with serving(tmp_path) as node:
        hello = b"".join(encode_frame(hello_header(Hello("append", node=2, boot_epoch=1))))
        answer = await answer_to(node.config.node.client_address.port, hello)
        reader = FrameReader(HANDSHAKE_LIMITS)
        reader.buffer_for_receive()[:len(answer)] = answer
        reader.received(len(answer))
        frame = reader.next_frame()
        assert frame is not None and "nodes use the peer port" in frame.header["text"]
        check(caplog, "client", "multiraft, between nodes", "nodes use the peer port")


def tls_connections(authority: Authority) -> ClientConnections:
    """Return the connections of a client port that requires TLS."""
    files = authority.issue("localhost")
    nothing = SimpleNamespace(forget=lambda session: None)
    security = Security(SecurityConfig(client_certificate=files.certificate,
                                       client_key=files.key), CLUSTER)
    sessions = Sessions(directory=SimpleNamespace(metadata_index=0), limits=Limits(),
                        request_round=lambda: None, turns=None)
    native = NativeRequests(
        sessions, produce_handler=nothing, fetch_handler=nothing, offsets=nothing,
        corruption_reports=nothing, admin=nothing, batch_bytes_max=1 << 20, cluster_id=CLUSTER,
        node=1, boot_epoch=1, loop=POLLER)
    return ClientConnections(sessions, native, POLLER, None, silent_log(), security, lambda: 9301)


POLLER = SimpleNamespace(add=lambda *_: None, remove=lambda *_: None, yield_due=False)


@in_trio
@pytest.mark.parametrize("case", IN_TLS)
async def test_the_client_port_with_tls_says_what_speaks_without(tmp_path, caplog, case):
    data, protocol, words, farewell = IN_TLS[case]
    connections, number = tls_connections(Authority(tmp_path)), free_port()
    where = SimpleNamespace(host="127.0.0.1", port=number)
    async with trio.open_nursery() as nursery:
        await nursery.start(Listener(listen(where), connections.handle, 10).serve)
        answer = await answer_to(number, data)
        nursery.cancel_scope.cancel()
    assert answer.startswith(farewell) and bool(answer) == bool(farewell)
    check(caplog, "client", protocol, words)
    assert connections.closed_by_error == 1


@in_trio
@pytest.mark.parametrize("case", IN_TLS)
async def test_the_peer_port_with_tls_says_what_speaks_without(tmp_path, caplog, case):
    data, protocol, words, farewell = IN_TLS[case]
    receiver = Receiver(certificates(Authority(tmp_path), 2))
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        answer = await answer_to(receiver.address.port, data)
        nursery.cancel_scope.cancel()
    assert answer.startswith(farewell) and bool(answer) == bool(farewell)
    check(caplog, "peer", protocol, words.replace("on port 9301", "HTTP is off"))
    assert receiver.port.refused == 1
    assert not receiver.core.stepped


@in_trio
async def test_https_to_a_peer_port_with_tls_is_answered_in_tls(tmp_path, caplog):
    authority = Authority(tmp_path)
    receiver = Receiver(certificates(authority, 2))
    context = client_context(authority.issue("node-1.example.org"), check_hostname=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        sock = socket.create_connection(("127.0.0.1", receiver.address.port))
        sock.setblocking(False)
        with TlsSocket(sock, context, "x") as client:
            while not client.handshake():
                await trio.lowlevel.wait_readable(sock)
            client.send(GET)
            answer = bytearray(100)
            while True:
                try:
                    count = client.recv_into(answer)
                    break
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(sock)
        nursery.cancel_scope.cancel()
    assert answer[:count].startswith(b"HTTP/1.1 400 Bad Request\r\n")
    check(caplog, "peer", "HTTP", "HTTP is off")
