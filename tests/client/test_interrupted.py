"""A ``KeyboardInterrupt`` anywhere in the sockets of a blocking client, which then closes."""

from __future__ import annotations

import select
import socket
from types import SimpleNamespace

import pytest

from multiraft.client import blocking
from multiraft.client._blocking_sockets import LinkSocket


class Interrupted:
    """A socket whose ``close`` closes it, and is interrupted then."""

    def __init__(self, sock: socket.socket):
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()
        raise KeyboardInterrupt


@pytest.fixture
def opened():
    """Yield a client and a socket of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = blocking.Client([f"127.0.0.1:{port}"])
        sock = LinkSocket(client, SimpleNamespace(host="127.0.0.1", port=port))
        client._sockets["link"] = sock
        yield client, sock
        assert not client._registered


def test_a_client_closes_after_an_interrupt_while_a_socket_was_closed(opened):
    client, sock = opened
    sock._sock = Interrupted(sock._sock)
    with pytest.raises(KeyboardInterrupt):
        sock.close()
    client.close()


def test_a_client_closes_after_an_interrupt_before_a_socket_was_registered(opened):
    client, sock = opened
    number = sock._sock.fileno()
    client._poll.unregister(number)
    del client._registered[number]
    client.close()


def test_a_client_closes_after_an_interrupt_between_the_two_registrations(opened):
    client, sock = opened
    client._poll.unregister(sock._sock.fileno())
    client.close()
    client._poll.register(0, select.POLLIN)  # the poll object is in order
    client._poll.unregister(0)
