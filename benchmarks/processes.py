"""Processes of a benchmark: started, bounded, and ended by their own pid.

Contract.  ``ServerProcess`` is a context manager: its process is gone when it exits, also after an
error.  Only pids that it started itself are ever signalled.  Ports come from the kernel and are on
loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

STOP_S = 5.0
POLL_S = 0.02


class BenchmarkError(Exception):
    """Raised when a figure cannot be measured; the message names the remedy."""


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now; held together so that all differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def free_base_port(nodes: int) -> int:
    """Return a base such that the ports of ``multiraft dev`` above it are free: for clients base +
    1 .. base + nodes, for peers 100 further, then for metrics and for Kafka's clients.  It is below
    the range that the kernel assigns by itself."""
    for base in random.sample(range(15_000, 30_000, 400), k=20):
        with contextlib.ExitStack() as stack:
            try:
                for port in (base + number + role for role in (0, 100, 200, 300)
                             for number in range(1, nodes + 1)):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise BenchmarkError("20 ranges of ports were tried and none is free")


class ServerProcess:
    """One server in the background, its output in a file."""

    def __init__(self, command: list[str], log: Path):
        self._command = command
        self._log = log
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> ServerProcess:
        with open(self._log, "wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output,
                                             stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def require_alive(self) -> None:
        """Raise ``BenchmarkError`` with the end of the log when the server has ended."""
        if self._process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise BenchmarkError(f"{self._command[0]} ended with {self._process.returncode}:\n"
                                 f"{tail}")


def connect(port: int, limit_s: float, server: ServerProcess | None = None) -> socket.socket:
    """Return a connection to a port on loopback, as soon as a server listens there."""
    give_up = time.monotonic() + limit_s
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=limit_s)
        except ConnectionRefusedError:
            if server is not None:
                server.require_alive()
            if time.monotonic() > give_up:
                raise BenchmarkError(f"port {port} is not open after {limit_s} s") from None
            time.sleep(POLL_S)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, user and system, from ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def probe(directory: Path, *, frame: int = 256 << 10, count: int = 2000, window: int = 8,
          fsync: bool = False, limit_s: float = 120.0) -> dict:
    """Run ``limit_probe.py``, unchanged, as the yardstick; return its JSON line."""
    script = Path(__file__).with_name("limit_probe.py")
    command = [sys.executable, str(script), "--frame", str(frame), "--count", str(count),
               "--window", str(window), "--dir", str(directory), *["--fsync"] * fsync]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    return json.loads(done.stdout)
