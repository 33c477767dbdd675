"""Program that receives numbered datagrams and reports arrivals, to prove the faults of links.

    python -m chaos.backends.packet_probe ADDRESS PORT COUNT SECONDS

Contract.  Prints ``listening``, then, when ``COUNT`` datagrams have come, or ``SECONDS`` after its
input has ended (when all are sent), one line of JSON: for each datagram, in order of arrival, its
number and the nanoseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time


def listen(sock: socket.socket, sender, count: int, seconds: float) -> list[tuple[int, int]]:
    """Return (number, arrival in nanoseconds) of each datagram that arrives until ``seconds`` after
    the end of ``sender``, or until there are ``count``."""
    arrived: list[tuple[int, int]] = []
    end_s = None
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        selector.register(sender, selectors.EVENT_READ)
        while len(arrived) < count and (end_s is None or time.monotonic() < end_s):
            wait_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            for key, _ in selector.select(wait_s):
                if key.fileobj is sock:
                    arrived.append((int(sock.recv(64)), time.monotonic_ns()))
                elif not sender.read(64):
                    selector.unregister(sender)
                    end_s = time.monotonic() + seconds
    return arrived


def main() -> None:
    """Bind the address of the command line, print ``listening``, receive datagrams, and print their
    numbers and arrivals as JSON."""
    address, port, count, seconds = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, int(port)))
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        arrived = listen(sock, sys.stdin.buffer.raw, int(count), float(seconds))
        sys.stdout.write(json.dumps(arrived) + "\n")


if __name__ == "__main__":
    main()
