"""The socket-level publisher counts acknowledgements, wherever the stream is cut."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from benchmarks.nats import BLOCK, Session
from benchmarks.processes import BenchmarkError

ANSWER = b'MSG _INBOX.bench 2 32\r\n{"stream":"BENCH","seq":1234567}\r\n'
WAIT_S = 120.0


class Server(threading.Thread):
    """Server that speaks enough of the protocol on one end of a socket pair; answers with
    ``pieces``."""

    def __init__(self, end: socket.socket, answer: bytes, piece: int):
        super().__init__(daemon=True)
        self._end, self._answer, self._piece = end, answer, piece
        self.received = b""

    def run(self) -> None:
        self._end.sendall(b'INFO {"version":"2.9.10"}\r\n')
        self._read_until(b"PING\r\n")
        self._end.sendall(b"PONG\r\n")
        self._read_until(b"PUB ")
        stream = self._answer * BLOCK
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(stream), self._piece):
                self._end.sendall(stream[at:at + self._piece])
        with contextlib.suppress(ConnectionError):  # a client may leave with answers unread
            while data := self._end.recv(65536):
                self.received += data

    def _read_until(self, mark: bytes) -> None:
        while mark not in self.received:
            self.received += self._end.recv(65536)


@pytest.fixture
def connect():
    started = []

    def make(answer: bytes, piece: int) -> tuple[Session, Server]:
        ours, theirs = socket.socketpair()
        server = Server(theirs, answer, piece)
        started.append((ours, theirs, server))
        server.start()
        return Session(ours), server

    yield make
    for ours, theirs, server in started:
        ours.close()
        server.join(WAIT_S)
        assert not server.is_alive()
        theirs.close()


@pytest.mark.parametrize("piece", [1, 7, 57, 1000])
def test_every_acknowledgement_counts_once(connect, piece):
    session, _server = connect(ANSWER, piece)
    assert session.publish(BLOCK, b"x" * 16) > 0


def test_a_ping_between_acknowledgements_is_answered_and_not_counted(connect):
    session, server = connect(ANSWER + b"PING\r\n", 11)
    session.publish(BLOCK, b"x" * 16)
    session.close()
    server.join(WAIT_S)
    assert b"PONG\r\n" in server.received


def test_a_refused_message_ends_the_run(connect):
    session, _server = connect(b'MSG _INBOX.bench 2 30\r\n{"error":{"code":503,"x":"abc"}}\r\n', 99)
    with pytest.raises(BenchmarkError, match="refused"):
        session.publish(BLOCK, b"x" * 16)
