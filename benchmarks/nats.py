r"""NATS JetStream with three replicas, fed at socket level: the system that ours is compared to.

Contract.  File storage and the server's defaults, which do not fsync each message.  One publisher
connection to the stream's leader keeps up to ``IN_FLIGHT`` messages unacknowledged and counts the
acknowledgements; any error in one ends the run.  The frames are built before the clock starts, so
that only the server is measured.

Theory.  The client protocol is text: ``PUB <subject> <reply> <bytes>\r\n<payload>\r\n``; JetStream
answers each message to its reply subject with a small JSON document (docs.nats.io, client
protocol).  Counting line ends is enough to count acknowledgements: each is two lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import time
from pathlib import Path

from benchmarks.processes import BenchmarkError, ServerProcess, connect, free_ports

IN_FLIGHT = 5000
RECORD_BYTES = 1024
READY_S = 20.0
RUN_S = 120.0
SUBJECT = "bench.records"
STREAM = "BENCH"
REPLIES = "_INBOX.bench"
#: Messages before the clock starts, so that files exist and connections are warm.
WARM_UP = 5000
#: Messages per write to the socket: large writes, and still many per window.
BLOCK = 100

CONFIG = """\
server_name: n{number}
listen: 127.0.0.1:{client}
jetstream {{ store_dir: "{store}" }}
cluster {{
  name: bench
  listen: 127.0.0.1:{route}
  routes: [{routes}]
}}
"""


def find_server() -> str:
    """Return the path of ``nats-server``; installs Debian's package when this is root and it is
    missing."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    found = shutil.which("nats-server", path=path)
    if found:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=True, timeout=300)
        subprocess.run(["apt-get", "install", "-y", "-qq", "nats-server"], check=True, timeout=300,
                       stdout=subprocess.DEVNULL)
        return find_server()
    raise BenchmarkError("nats-server is missing; run: sudo apt-get install -y nats-server")


def version(server: str) -> str:
    """Return the server's own version text."""
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.strip().removeprefix("nats-server: ")


class Session:
    """Client connection with the operations that the benchmark needs."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._received = b""
        self._line()  # INFO
        self._connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        while self._line() != b"PONG":
            continue
        self._connection.sendall(f"SUB {REPLIES} 2\r\n".encode())

    def close(self) -> None:
        self._connection.close()

    def _line(self) -> bytes:
        while b"\r\n" not in self._received:
            data = self._connection.recv(65536)
            if not data:
                raise BenchmarkError("nats-server closed the connection")
            self._received += data
        line, self._received = self._received.split(b"\r\n", 1)
        if line.startswith(b"-ERR"):
            raise BenchmarkError(f"nats-server says {line.decode()}")
        return line

    def request(self, subject: str, body: dict) -> dict | None:
        """Send one request to the JetStream API; None when no server answers yet."""
        data = json.dumps(body).encode()
        self._connection.sendall(
            f"SUB _INBOX.api 1\r\nPUB {subject} _INBOX.api {len(data)}\r\n".encode()
            + data + b"\r\nUNSUB 1 1\r\n")
        self._connection.settimeout(2.0)
        try:
            while not self._line().startswith(b"MSG "):
                continue
            return json.loads(self._line())
        except TimeoutError:
            return None
        finally:
            self._connection.settimeout(None)

    def publish(self, count: int, payload: bytes) -> float:
        """Send ``count`` messages with ``IN_FLIGHT`` unacknowledged; return the seconds until the
        last acknowledgement.  Raises ``BenchmarkError`` for a refused message or after
        ``RUN_S``."""
        head = f"PUB {SUBJECT} {REPLIES} {len(payload)}\r\n".encode()
        block = memoryview((head + payload + b"\r\n") * BLOCK)
        self._connection.setblocking(False)
        sent = acknowledged = lines = 0
        rest = memoryview(b"")
        start = time.perf_counter()
        while acknowledged < count:
            if not rest and sent < count and sent + BLOCK - acknowledged <= IN_FLIGHT:
                rest = block
                sent += BLOCK
            readable, writable, _ = select.select(
                [self._connection], [self._connection] if rest else [], [], 5.0)
            if not readable and not writable or time.perf_counter() - start > RUN_S:
                raise BenchmarkError(f"JetStream stalled: {acknowledged} of {count} acknowledged")
            if readable:
                lines += self._count_acknowledgements()
                acknowledged = lines // 2
            if writable:
                rest = rest[self._connection.send(rest):]
        took = time.perf_counter() - start
        self._connection.setblocking(True)
        return took

    def _count_acknowledgements(self) -> int:
        data = self._connection.recv(1 << 18)
        if not data:
            raise BenchmarkError("nats-server closed the connection")
        data = self._received + data
        whole = data.rfind(b"\r\n") + 2 if b"\r\n" in data else 0
        data, self._received = data[:whole], data[whole:]
        if b'"error"' in data or b"-ERR" in data:
            raise BenchmarkError(f"JetStream refused a message: {data[-400:].decode()}")
        pings = data.count(b"PING\r\n")
        if pings:
            self._connection.send(b"PONG\r\n" * pings)
        return data.count(b"\r\n") - pings


@contextlib.contextmanager
def cluster(server: str, directory: Path):
    """Yield client ports of three servers on loopback with their files below ``directory``."""
    ports = free_ports(6)
    clients, routes = ports[:3], ports[3:]
    with contextlib.ExitStack() as stack:
        processes = []
        for number in range(3):
            config = directory / f"n{number}.conf"
            config.write_text(CONFIG.format(
                number=number, client=clients[number], route=routes[number],
                store=directory / f"store{number}",
                routes=", ".join(f"nats-route://127.0.0.1:{port}" for port in routes)))
            processes.append(stack.enter_context(ServerProcess(
                [server, "-c", str(config)], directory / f"n{number}.log")))
        for port, process in zip(clients, processes, strict=True):
            connect(port, READY_S, process).close()
        yield clients


def create_stream(clients: list[int]) -> int:
    """Create the stream with three replicas; return the client port of its leader."""
    config = {"name": STREAM, "subjects": [SUBJECT], "retention": "limits", "storage": "file",
              "num_replicas": 3, "max_msgs": -1, "max_bytes": -1, "discard": "old"}
    give_up = time.monotonic() + READY_S
    session = Session(connect(clients[0], READY_S))
    answer: dict | None = None
    try:
        while time.monotonic() < give_up:  # the servers elect a leader of their own first
            answer = session.request(f"$JS.API.STREAM.CREATE.{STREAM}", config)
            if answer and "error" not in answer and answer.get("cluster", {}).get("leader"):
                return clients[int(answer["cluster"]["leader"].removeprefix("n"))]
    finally:
        session.close()
    raise BenchmarkError(f"JetStream has no stream after {READY_S} s: {answer}")


def jetstream(directory: Path, count: int = 200_000) -> dict:
    """Measure one run with three fresh servers, one stream, ``count`` messages of 1 KiB; return MB
    per second."""
    server = find_server()
    with cluster(server, directory) as clients:
        session = Session(connect(create_stream(clients), READY_S))
        try:
            payload = os.urandom(RECORD_BYTES)
            session.publish(WARM_UP, payload)
            took = session.publish(count, payload)
        finally:
            session.close()
    return {"version": version(server), "count": count, "seconds": took,
            "mb_per_s": count * RECORD_BYTES / took / 1e6}
