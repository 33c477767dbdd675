"""Recognition of other protocols by the first bytes of a connection.

Contract.  ``recognise`` reads bytes that are no handshake of this protocol, and names the
protocol that they belong to.  It needs ``BYTES_MIN`` bytes, and decides nothing: the connection
ends in any case, and only the error's text and the farewell depend on it.
``recognise_in_place_of_kafka`` does the same for a port that speaks Kafka's protocol.  It needs
``NATIVE_BYTES_MIN`` bytes and decides about a handshake of multiraft, which Kafka's framing
accepts.

Theory.  The length of a handshake frame is at most 4 KiB, so its first two bytes are zero.  The
first bytes of HTTP and TLS are not.  A Kafka request begins with a length too; the number of its
API and that number's version are where this protocol has the length of the header, which they
exceed.

A handshake of multiraft is a frame without a payload, whose header is a CBOR map.  As a request of
Kafka it would be a Produce of a version that is 4 less than the length of the request, with a
negative correlation id.  A Produce that short exists in no version up to 14.
"""

from __future__ import annotations

import enum
import ssl
import struct

from multiraft.wire.errors import RemoteProtocolError

#: Bytes after which a protocol is recognised.
BYTES_MIN = 8
#: Bytes after which a handshake of multiraft is recognised at a port of Kafka's protocol.
NATIVE_BYTES_MIN = 9

#: Beginnings of HTTP requests (RFC 9110, section 9; ``PRI`` is that of HTTP/2).
_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC",
            b"PRI ")
_KAFKA = struct.Struct(">IHH")
#: Above all numbers of Kafka's APIs and their versions; below any length of a header times 65,536.
_KAFKA_APIS_MAX, _KAFKA_VERSIONS_MAX = 512, 64
#: A first request of Kafka is smaller: the name of a client and of a mechanism.
_KAFKA_BYTES_MAX = 64 << 10
#: Lengths of a native frame and of its header, and the first byte of the header.
_NATIVE = struct.Struct(">IIB")
#: Upper 3 bits of the first byte of a CBOR map.
_CBOR_MAP = 5


class Foreign(enum.Enum):
    """Protocol of the other side of a connection."""

    HTTP_REQUEST = "HTTP"
    HTTP_RESPONSE = "an HTTP response"
    KAFKA = "Kafka"
    TLS = "TLS"
    TLS_ALERT = "a TLS alert"
    NATIVE = "multiraft"
    PLAIN = "multiraft without TLS"
    PEER = "multiraft, between nodes"
    UNKNOWN = "unknown"


_RECEIVED = {
    Foreign.HTTP_REQUEST: "the other side sent an HTTP request",
    Foreign.HTTP_RESPONSE: "the other side answers with HTTP: this is its HTTP port, or another "
                           "server; clients dial the client port of a node, and nodes its peer "
                           "port",
    Foreign.KAFKA: "the other side sent a request of Kafka's protocol",
    Foreign.TLS: "the other side began a TLS handshake, and this connection has no TLS",
    Foreign.TLS_ALERT: "the other side requires TLS, and this connection has none",
    Foreign.NATIVE: "the other side sent a handshake of multiraft, and this port speaks Kafka's "
                    "protocol",
}


class ForeignProtocol(RemoteProtocolError):
    """The other side speaks another protocol."""

    def __init__(self, protocol: Foreign):
        super().__init__(_RECEIVED[protocol])
        self.protocol = protocol


class NotTls(ssl.SSLError):
    """The other side sent bytes that are not TLS to a port that requires it."""

    def __init__(self, protocol: Foreign):
        super().__init__(f"no TLS, but {protocol.value}")
        self.protocol = protocol


def recognise(data: bytes) -> Foreign | None:
    """Return the protocol that ``data`` begins, which is no handshake of this one; None = it is not
    known."""
    if data[:4] in _METHODS:
        return Foreign.HTTP_REQUEST
    if data[:4] == b"HTTP":
        return Foreign.HTTP_RESPONSE
    if data[:2] == b"\x16\x03":
        return Foreign.TLS
    if data[:2] == b"\x15\x03":
        return Foreign.TLS_ALERT
    if len(data) >= BYTES_MIN:
        length, api, version = _KAFKA.unpack_from(data)
        if (BYTES_MIN <= length <= _KAFKA_BYTES_MAX and 0 < api <= _KAFKA_APIS_MAX
                and version <= _KAFKA_VERSIONS_MAX):
            return Foreign.KAFKA
    return None


def recognise_plain(data: bytes) -> Foreign:
    """Return the protocol that ``data`` begins, on a port that requires TLS."""
    known = recognise(data)
    if known is None and len(data) >= BYTES_MIN and data[:2] == data[4:6] == b"\x00\x00":
        return Foreign.PLAIN
    return known or Foreign.UNKNOWN


def recognise_in_place_of_kafka(data: bytes) -> Foreign | None:
    """Return the protocol that ``data`` begins, on a port that speaks Kafka's; None = Kafka's, or
    it is not known."""
    if len(data) >= NATIVE_BYTES_MIN and data[:2] == data[4:6] == b"\x00\x00":
        length, header_bytes, first = _NATIVE.unpack_from(data)
        if length == header_bytes + 4 and first >> 5 == _CBOR_MAP:
            return Foreign.NATIVE
    known = recognise(data)
    return None if known is Foreign.KAFKA else known


def is_tls(data: bytes) -> bool:
    """Return True if ``data`` begins a record of TLS, or may still begin one."""
    return data[:1] in (b"", b"\x14", b"\x15", b"\x16", b"\x17") and data[1:2] in (b"", b"\x03")


# ---- farewells -------------------------------------------------------------------------------


def reason_to_reject(protocol: Foreign, port: str, http_port: int) -> str:
    """Return why a node rejects a connection, and what the other side should do.  ``port``:
    ``client``, ``peer`` or ``kafka``; ``http_port``: of metrics and health, 0 = off."""
    if protocol is Foreign.HTTP_REQUEST:
        where = (f"metrics and health are on port {http_port}" if http_port
                 else "HTTP is off on this node ([http] address)")
        return f"the {port} port does not speak HTTP; {where}"
    if protocol is Foreign.HTTP_RESPONSE:
        return (f"the {port} port received an HTTP response on a connection that the other side "
                "opened: check the proxy or load balancer in between")
    if protocol is Foreign.KAFKA:
        return (f"the {port} port does not speak Kafka's protocol: use the command or the client "
                "of multiraft")
    if protocol in (Foreign.TLS, Foreign.TLS_ALERT):
        return (f"the {port} port has no TLS: connect without TLS, or configure "
                f"security.{port}_certificate on the nodes")
    if protocol is Foreign.NATIVE:
        return (f"the {port} port speaks Kafka's protocol: use the client port of the node, or a "
                "client of Kafka")
    if protocol is Foreign.PEER:
        return (f"the {port} port serves clients, and nodes use the peer port: correct the address "
                "of the node")
    if protocol is Foreign.PLAIN:
        need = ("clients need the CA of the nodes (--cacert)" if port == "client"
                else "nodes need security.peer_certificate")
        return f"the {port} port requires TLS: {need}"
    return (f"the {port} port requires TLS, and received neither TLS nor a protocol that is known "
            "here: connect with TLS")


def farewell(protocol: Foreign, reason: str) -> bytes:
    """Return the bytes to send before the connection is closed; empty = none."""
    if protocol is Foreign.HTTP_REQUEST:
        body = f"multiraft: {reason}\n".encode()
        return (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
                b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
    if protocol in (Foreign.TLS, Foreign.PLAIN):
        return _ALERT
    return b""


#: A fatal alert of TLS, ``handshake_failure`` (RFC 8446, section 6): a TLS client reports it, and a
#: client of multiraft without TLS recognises it.
_ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
