"""Listens for numbered datagrams and says which came, and when: how links are proven.

    python -m chaos.backends.packet_probe ADDRESS PORT SECONDS

Contract.  Says ``listening``, then, when ``SECONDS`` are over, one line of JSON: for each datagram,
in order of arrival, its number and the nanoseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import json
import socket
import sys
import time


def listen(sock: socket.socket, seconds: float) -> list[tuple[int, int]]:
    """What arrives within ``seconds``."""
    arrived = []
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while (left_ns := end_ns - time.monotonic_ns()) > 0:
        sock.settimeout(left_ns / 1e9)
        try:
            data = sock.recv(64)
        except TimeoutError:
            break
        arrived.append((int(data), time.monotonic_ns()))
    return arrived


def main() -> None:
    """The program."""
    address, port, seconds = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, int(port)))
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        sys.stdout.write(json.dumps(listen(sock, float(seconds))) + "\n")


if __name__ == "__main__":
    main()
