"""The choice of operations and the reading of HTTP answers in the benchmark of costly requests."""

import socket

import pytest

from benchmarks.costliest_requests import Costly, chosen, skip_http
from benchmarks.processes import BenchmarkError

OPERATIONS = [Costly("fetch", lambda _id: b""), Costly("fetch, small", lambda _id: b"")]


def test_operations_are_chosen_by_name_and_without_names_all_are():
    assert chosen(OPERATIONS, ["fetch, small"]) == OPERATIONS[1:]
    assert chosen(OPERATIONS, []) == OPERATIONS


def test_an_unknown_operation_is_answered_with_the_names():
    with pytest.raises(BenchmarkError, match="'fetch, smal'; there are: fetch; fetch, small"):
        chosen(OPERATIONS, ["fetch, smal"])


@pytest.mark.parametrize("header, kept", [("", True), ("Connection: close\r\n", False)])
def test_an_http_answer_says_whether_its_connection_is_kept(header, kept):
    node, client = socket.socketpair()
    with node, client:
        node.sendall(f"HTTP/1.1 200 OK\r\n{header}Content-Length: 5\r\n\r\nhello".encode())
        assert skip_http(client) is kept
        node.sendall(b"!")
        assert client.recv(10) == b"!", "the answer was read to its end and no further"
