"""Program that delays the packets of a netfilter queue: delay and reordering without ``netem``.

    python -m chaos.backends.held_packets --queue 1 --ms 50 [--jitter-ms 20] [--reorder]

Contract.  Runs in the network namespace whose queue it is; prints ``holding`` on standard output
when it is ready, and ends when its standard input ends, because the process that started it is gone
then.  Each packet waits ``ms`` plus or minus up to ``jitter-ms``; without ``--reorder`` none
overtakes another.

Theory.  The kernel hands over packet ids through a netlink socket and waits for a verdict on each;
the program keeps the ids in a heap by the time they are due.  No packet is copied.  When the queue
is full, or no program listens, packets pass undelayed: a delay must not become a loss.
"""

from __future__ import annotations

import argparse
import heapq
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

#: linux/netfilter/nfnetlink_queue.h
_NETLINK_NETFILTER = 12
_PACKET, _VERDICT, _CONFIG = (3 << 8), (3 << 8) | 1, (3 << 8) | 2
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN, _CFG_MASK, _CFG_FLAGS = 1, 2, 3, 4, 5
_CMD_BIND, _COPY_META = 1, 1
_FLAG_FAIL_OPEN, _FLAG_GSO = 1, 4
_PACKET_HDR, _VERDICT_HDR = 1, 2
_REQUEST = 1
_ACCEPT = 1
_SOL_NETLINK, _NETLINK_NO_ENOBUFS = 270, 5
#: Packets that may wait: seconds of a cluster's traffic.
QUEUE_PACKETS_MAX = 65_536
_RECEIVE_BYTES = 1 << 16


def _attribute(kind: int, value: bytes) -> bytes:
    padding = -len(value) % 4
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * padding


def _message(kind: int, queue: int, *attributes: bytes) -> bytes:
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, queue) + b"".join(attributes)
    return struct.pack("IHHII", 16 + len(body), kind, _REQUEST, 0, 0) + body


def open_queue(queue: int) -> socket.socket:
    """Open a socket to which the kernel passes the packets of ``queue``.  Raises ``OSError``."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    sock.bind((0, 0))
    sock.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    flags = struct.pack(">I", _FLAG_FAIL_OPEN | _FLAG_GSO)
    sock.send(_message(_CONFIG, queue, _attribute(_CFG_CMD, struct.pack(">BxH", _CMD_BIND, 0))))
    sock.send(_message(
        _CONFIG, queue,
        _attribute(_CFG_PARAMS, struct.pack(">IB", 0, _COPY_META)),
        _attribute(_CFG_QUEUE_MAXLEN, struct.pack(">I", QUEUE_PACKETS_MAX)),
        _attribute(_CFG_MASK, flags), _attribute(_CFG_FLAGS, flags)))
    return sock


def packet_ids(data: bytes) -> Iterator[int]:
    """Yield the ids of the packets that one read from the socket announces."""
    while len(data) >= 16:
        length, kind = struct.unpack_from("IH", data)
        attributes = data[20:length]
        while kind == _PACKET and len(attributes) >= 4:
            size, name = struct.unpack_from("HH", attributes)
            if name == _PACKET_HDR:
                yield struct.unpack_from(">I", attributes, 4)[0]
                break
            attributes = attributes[(size + 3) & ~3:]
        data = data[(length + 3) & ~3:]


def verdict(queue: int, packet: int) -> bytes:
    """Return the netlink message with which the kernel releases a packet of ``queue``."""
    return _message(_VERDICT, queue, _attribute(_VERDICT_HDR, struct.pack(">II", _ACCEPT, packet)))


class Waiting:
    """Packets that wait, and the times at which they are due."""

    def __init__(self, ms: float, jitter_ms: float, reorder: bool, rng: random.Random):
        self._ms, self._jitter_ms, self._reorder, self._rng = ms, jitter_ms, reorder, rng
        self._heap: list[tuple[float, int]] = []
        self._last_due_ms = 0.0

    def add(self, packet: int, now_ms: float) -> None:
        """Add a packet that arrived at ``now_ms``, and draw its delay. Without reordering it is due
        no sooner than the packet before it."""
        due_ms = now_ms + max(0.0, self._ms + self._rng.uniform(-1, 1) * self._jitter_ms)
        if not self._reorder:
            due_ms = self._last_due_ms = max(due_ms, self._last_due_ms)
        heapq.heappush(self._heap, (due_ms, packet))

    def take_due(self, now_ms: float) -> Iterator[int]:
        """Remove and yield the packets that are due, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[1]

    def next_ms(self, now_ms: float) -> float | None:
        """Return the milliseconds until the next packet is due; None when no packet waits."""
        return max(0.0, self._heap[0][0] - now_ms) if self._heap else None


def hold(queue: int, sock: socket.socket, waiting: Waiting) -> None:
    """Release each arriving packet when it is due, until standard input ends. Packets that still
    wait are not released."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(waiting.next_ms(_now_ms()))}
        if sys.stdin.fileno() in ready:
            return
        if sock.fileno() in ready:
            for packet in packet_ids(sock.recv(_RECEIVE_BYTES)):
                waiting.add(packet, _now_ms())
        for packet in waiting.take_due(_now_ms()):
            sock.send(verdict(queue, packet))


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6


def main() -> None:
    """Read the options from the command line, print ``holding`` when the queue is open, and hold
    its packets until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m chaos.backends.held_packets")
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--ms", type=float, required=True)
    parser.add_argument("--jitter-ms", type=float, default=0.0)
    parser.add_argument("--reorder", action="store_true")
    chosen = parser.parse_args()
    waiting = Waiting(chosen.ms, chosen.jitter_ms, chosen.reorder, random.Random())
    with open_queue(chosen.queue) as sock:
        sys.stdout.write("holding\n")
        sys.stdout.flush()
        hold(chosen.queue, sock, waiting)


if __name__ == "__main__":
    main()
