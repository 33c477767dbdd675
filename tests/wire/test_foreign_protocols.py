"""Other protocols are recognised by their first bytes, and no handshake of ours is."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.client.tls import server_context
from multiraft.wire.connection import Connection, Role
from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import (
    BYTES_MIN,
    NATIVE_BYTES_MIN,
    Foreign,
    ForeignProtocol,
    NotTls,
    farewell,
    reason_to_reject,
    recognise,
    recognise_in_place_of_kafka,
    recognise_plain,
)
from multiraft.wire.frames import HANDSHAKE_LIMITS, FrameReader, encode_frame
from multiraft.wire.messages import Hello, hello_header
from multiraft.wire.tls import TlsSocket
from tests.certificates import Authority
from tests.wire.test_tls import sockets

#: librdkafka's first request, ApiVersions version 3, and Java's Metadata and SaslHandshake.
KAFKA = bytes.fromhex("0000002b00120003000000010007726466b6166b61000b6c696272646b61666b6100")
METADATA = b"\x00\x00\x00\x20\x00\x03\x00\x09\x00\x00\x00\x01\x00\x06client"
SASL = b"\x00\x00\x00\x20\x00\x11\x00\x01\x00\x00\x00\x01\x00\x06client"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50)
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

CASES = {
    "ApiVersions": (KAFKA, Foreign.KAFKA),
    "Metadata": (METADATA, Foreign.KAFKA),
    "SaslHandshake": (SASL, Foreign.KAFKA),
    "GET": (GET, Foreign.HTTP_REQUEST),
    "POST": (b"POST / HTTP/1.1\r\n\r\n", Foreign.HTTP_REQUEST),
    "OPTIONS": (b"OPTIONS * HTTP/1.1\r\n\r\n", Foreign.HTTP_REQUEST),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign.HTTP_REQUEST),
    "HTTP response": (b"HTTP/1.1 400 Bad Request\r\n\r\n", Foreign.HTTP_RESPONSE),
    "TLS": (CLIENT_HELLO, Foreign.TLS),
    "TLS alert": (b"\x15\x03\x03\x00\x02\x02\x28" + bytes(9), Foreign.TLS_ALERT),
}


def error_of(data: bytes, size: int) -> RemoteProtocolError:
    """Return the error of a server's connection that receives ``data``, ``size`` bytes at a time.
    """
    connection = Connection(Role.SERVER)
    with pytest.raises(RemoteProtocolError) as raised:
        for at in range(0, len(data), size):
            connection.receive_data(data[at:at + size])
            while connection.next_event():
                break
    return raised.value


@pytest.mark.parametrize("size", [1, 4, 8, 1_000])
@pytest.mark.parametrize("case", CASES)
def test_a_server_names_the_protocol_however_the_bytes_arrive(case, size):
    data, protocol = CASES[case]
    error = error_of(data, size)
    assert isinstance(error, ForeignProtocol) and error.protocol is protocol
    assert "announced" not in str(error)


def test_bytes_of_no_known_protocol_are_reported_by_their_lengths():
    assert type(error_of(b"\xff" * 64, 64)) is FrameTooLarge


@given(st.builds(Hello, connection=st.sampled_from(["client", "append", "liveness"]),
                 node=st.integers(0, 2**31 - 1), boot_epoch=st.integers(0, 2**64 - 1),
                 client_id=st.text(max_size=60), incarnation=st.integers(0, 2**64 - 1),
                 process=st.integers(0, 2**64 - 1), version=st.just(2), after=st.none(),
                 cluster=st.none() | st.binary(min_size=16, max_size=16),
                 nonce=st.none() | st.binary(min_size=32, max_size=32)))
def test_no_hello_is_taken_for_another_protocol(hello):
    data = b"".join(encode_frame(hello_header(hello)))
    assert recognise(data) is None
    assert recognise_plain(data) is Foreign.PLAIN
    assert recognise_in_place_of_kafka(data[:NATIVE_BYTES_MIN]) is Foreign.NATIVE


@given(st.one_of(st.binary(max_size=40), st.builds(
    bytes.__add__, st.sampled_from([data for data, _ in CASES.values()]), st.binary(max_size=40))))
def test_the_first_bytes_decide_and_fewer_of_them_never_decide_otherwise(data):
    known = recognise(data)
    assert known is recognise(data[:BYTES_MIN])
    assert recognise_plain(data) is recognise_plain(data[:BYTES_MIN])
    for size in range(BYTES_MIN):
        assert recognise(data[:size]) in (None, known)
    assert known is None or recognise_plain(data) is known


@given(st.one_of(st.binary(max_size=40), st.builds(
    bytes.__add__, st.sampled_from([data for data, _ in CASES.values()]), st.binary(max_size=40))))
def test_a_port_of_kafka_recognises_what_this_one_does_except_kafka(data):
    known = recognise(data)
    there = recognise_in_place_of_kafka(data)
    assert there is Foreign.NATIVE or there is (None if known is Foreign.KAFKA else known)
    assert there is recognise_in_place_of_kafka(data[:NATIVE_BYTES_MIN])
    for size in range(NATIVE_BYTES_MIN):
        assert recognise_in_place_of_kafka(data[:size]) in (None, there)


def test_only_the_first_frame_can_be_of_another_protocol():
    """A later frame that cannot be read is damage of this protocol."""
    reader = FrameReader(HANDSHAKE_LIMITS)
    data = b"".join(encode_frame({"op": "hello"})) + GET
    reader.buffer_for_receive()[:len(data)] = data
    reader.received(len(data))
    assert reader.next_frame() is not None
    with pytest.raises(FrameTooLarge):
        reader.next_frame()


# ---- a port that requires TLS ------------------------------------------------------------------


@pytest.mark.parametrize(("data", "protocol"), [
    (GET, Foreign.HTTP_REQUEST), (KAFKA, Foreign.KAFKA), (b"hello, world", Foreign.UNKNOWN),
    (b"".join(encode_frame(hello_header(Hello()))), Foreign.PLAIN)])
def test_plain_bytes_are_named_by_a_port_that_requires_tls(tmp_path, data, protocol):
    near, far = sockets()
    server = TlsSocket(far, server_context(Authority(tmp_path).issue("node-1.example.org")))
    with near, far:
        near.send(data)
        with pytest.raises(NotTls) as raised:
            server.handshake()
        assert raised.value.protocol is protocol
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            near.recv(100)  # the caller says farewell in the protocol of the other side


def test_tls_that_fails_is_not_taken_for_plain_bytes(tmp_path):
    near, far = sockets()
    server = TlsSocket(far, server_context(Authority(tmp_path).issue("node-1.example.org")))
    with near, far:
        near.send(b"\x16\x03\x01\x00\x05hello")
        with pytest.raises(ssl.SSLError) as raised:
            server.handshake()
        assert not isinstance(raised.value, NotTls)


# ---- farewells -----------------------------------------------------------------------------------


#: What the reason says that the other side should do.
ACTIONS = {
    Foreign.HTTP_REQUEST: "metrics and health are on port 9301",
    Foreign.HTTP_RESPONSE: "check the proxy or load balancer",
    Foreign.KAFKA: "use the command or the client of multiraft",
    Foreign.TLS: "connect without TLS, or configure",
    Foreign.TLS_ALERT: "connect without TLS, or configure",
    Foreign.PEER: "correct the address of the node",
    Foreign.UNKNOWN: "connect with TLS",
}


@pytest.mark.parametrize(("protocol", "port"), [
    (protocol, port) for protocol in Foreign for port in ("client", "peer")
    # Nodes belong there, and so does multiraft.
    if (protocol, port) != (Foreign.PEER, "peer") and protocol is not Foreign.NATIVE])
def test_every_reason_names_the_port_and_what_to_do(protocol, port):
    reason = reason_to_reject(protocol, port, 9301)
    assert reason.startswith(f"the {port} port ")
    actions = {**ACTIONS, Foreign.PLAIN: {"client": "--cacert",
                                          "peer": "security.peer_certificate"}[port]}
    assert actions[protocol] in reason
    assert f"security.{port}_certificate" in reason or protocol not in (Foreign.TLS,
                                                                        Foreign.TLS_ALERT)


def test_a_client_of_this_project_learns_which_port_it_needs():
    reason = reason_to_reject(Foreign.NATIVE, "kafka", 9301)
    assert reason.startswith("the kafka port ") and "use the client port" in reason
    assert "Kafka" in str(ForeignProtocol(Foreign.NATIVE))
    assert farewell(Foreign.NATIVE, reason) == b""


def test_an_http_response_is_no_reason_to_ask_for_tls():
    assert "TLS" not in reason_to_reject(Foreign.HTTP_RESPONSE, "client", 9301)


def test_a_node_that_dials_an_http_port_is_told_its_own_port():
    text = str(ForeignProtocol(Foreign.HTTP_RESPONSE))
    assert "clients" in text and "nodes" in text


def test_an_http_client_reads_where_the_http_port_is():
    reason = reason_to_reject(Foreign.HTTP_REQUEST, "client", 9301)
    head, _, body = farewell(Foreign.HTTP_REQUEST, reason).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
    assert b"port 9301" in body
    assert "off" in reason_to_reject(Foreign.HTTP_REQUEST, "client", 0)


def test_a_tls_client_receives_an_alert():
    alert = farewell(Foreign.TLS, "")
    near, far = sockets()
    with near, far:
        client = TlsSocket(near, ssl._create_unverified_context(), "x")
        assert not client.handshake()
        far.send(alert)
        with pytest.raises(ssl.SSLError, match="(?i)handshake.failure"):
            client.handshake()
