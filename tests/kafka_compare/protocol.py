"""Requests that are no requests, versions, and coordinators."""

from __future__ import annotations

import struct

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.hot_messages import MetadataRequest
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.messages.describe_acls import DescribeAclsRequest
from multiraft.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.kafka_compare.outcome import Outcome
from tests.kafka_compare.server import CLOSED, SILENT, Server

_HEADER = struct.Struct(">ihhih")
#: Names of a client that Kafka does not accept.
WRONG_SOFTWARE = ("", "bad name", "-x")


def frame(key: int, version: int, rest: bytes = b"", length: int | None = None) -> bytes:
    """Return a frame with a header of version 1, whose client id is null."""
    size = _HEADER.size - 4 + len(rest)
    return _HEADER.pack(size if length is None else length, key, version, 7, -1) + rest


def raw(server: Server, label: str, data: bytes, ends: bool = False) -> None:
    """Send bytes and note if the connection is closed. ``ends``: nothing follows."""
    server.close()
    connection = server.connection()
    try:
        connection.sendall(data)
        if ends:
            connection.shutdown(1)
        outcome: Outcome = {"": f"answers {len(server.receive())} bytes"}
    except (EOFError, ConnectionError):
        outcome = CLOSED
    except TimeoutError:
        outcome = SILENT
    server.close()
    server.note(label, outcome)


def versions(server: Server) -> None:
    """Ask for versions, and send what is not supported."""
    key = ApiKey.API_VERSIONS
    server.ask_each("versions", key, ApiVersionsRequest(
        client_software_name="compare", client_software_version="1.0"))
    for name in WRONG_SOFTWARE:
        server.ask(f"versions for a client named {name!r}", key, ApiVersionsRequest(
            client_software_name=name, client_software_version="1.0"))
    server.ask("versions for a client without a version", key, ApiVersionsRequest(
        client_software_name="compare", client_software_version=""))
    present = server.send(ApiKey.METADATA, MetadataRequest(topics=[]))
    for label, cluster, node in (
            ("the cluster alone", present.cluster_id, -1), ("the node alone", None, 1),
            ("this node", present.cluster_id, 1), ("another node", present.cluster_id, 77),
            ("another cluster", "another-cluster-of-one", 1)):
        server.ask(f"versions: {label}", key, ApiVersionsRequest(
            client_software_name="compare", client_software_version="1.0", cluster_id=cluster,
            node_id=node))
    later(server)
    raw(server, "an API that does not exist", frame(999, 0))
    raw(server, "a negative API", frame(-1, 0))
    raw(server, "a version of Produce above the last", frame(0, 99))
    raw(server, "a version of Produce below the first", frame(0, 2))
    raw(server, "a negative version", frame(3, -1))
    raw(server, "metadata that end early", frame(3, 1, b"\0\0"))
    raw(server, "metadata with a count above the bytes", frame(3, 1, b"\x7f\xff\xff\xff"))
    raw(server, "metadata with a negative count", frame(3, 1, b"\xff\xff\xff\xfe"))
    raw(server, "a negative length", b"\xff\xff\xff\xf0")
    raw(server, "a length of zero", bytes(4), ends=True)
    raw(server, "a length of 200 MiB", frame(3, 1, length=200 << 20))
    raw(server, "HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ends=True)
    raw(server, "part of a frame and the end", frame(3, 1, length=500), ends=True)


def later(server: Server) -> None:
    """Ask for versions in a version that does not exist: the answer has version 0."""
    server.close()
    server.connection().sendall(frame(ApiKey.API_VERSIONS, 99, bytes(3)))
    data = server.receive()
    fields = struct.unpack_from(">ihi", data)
    keys = {key for key, _low, _high in struct.iter_unpack(">hhh", data[10:10 + 6 * fields[2]])}
    server.note("versions in a version that does not exist", {
        "error_code": fields[1], "has all APIs": set(APIS) <= keys or "not all"})
    server.close()


def coordinators(server: Server) -> None:
    """Ask for coordinators of groups and transactions, and for access rules."""
    key = ApiKey.FIND_COORDINATOR

    def asked(version: int, kind: int, name: str) -> FindCoordinatorRequest:
        fields = {"coordinator_keys": [name]} if version >= 4 else {"key": name}
        return FindCoordinatorRequest(key_type=kind if version else 0, **fields)

    server.ask_each("coordinator of a group", key, lambda version: asked(version, 0, "group"))
    server.ask_each("coordinator of a transaction", key,
                    lambda version: asked(version, 1, "transaction"), since=1)
    server.ask("coordinator of an unknown kind", key, asked(6, 9, "group"))
    server.ask_each("access rules", ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(
        resource_type_filter=1, operation=1, permission_type=1))


