"""Ports for the nodes and clusters of tests, also of several test processes at once.

The ports are below the kernel's range of ephemeral ports, from which any connection on this machine
may get one at any time.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from admin_cli.development import dev_state

#: A range of ports belongs to this process while it listens at the base, where no node does.  No
#: test has more clusters than these at a time, so a further request releases the oldest range.
CLUSTERS_AT_ONCE = 8
TRIES = 50
_reserved: deque[socket.socket] = deque()

#: A single port belongs to this process while it holds the same port of an address without nodes.
SINGLE_PORTS = range(10_000, 15_000)
SINGLE_AT_ONCE = 200
RESERVED_ON = "127.0.0.2"
_singles: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a free loopback port that no other test process gets meanwhile."""
    return _reserve(SINGLE_PORTS, RESERVED_ON, lambda port: (port,), _singles, SINGLE_AT_ONCE)


def free_base_port(nodes: int) -> int:
    """Return a base above which the ports of ``multiraft dev`` are free, below the kernel's range
    of ephemeral ports, and which no other test process gets meanwhile."""
    return _reserve(range(15_000, 30_000, dev_state.PORTS), "127.0.0.1", lambda base: [
        base + number + role for role in range(0, dev_state.PORTS, 100)
        for number in range(1, nodes + 1)], _reserved, CLUSTERS_AT_ONCE)


def _reserve(bases: Sequence[int], held_on: str, listened_at: Callable[[int], Iterable[int]],
             held: deque[socket.socket], at_once: int) -> int:
    """Reserve a base with free ports; of more than ``at_once`` bases the oldest is released."""
    for base in random.sample(bases, k=min(TRIES, len(bases))):
        reservation = socket.socket()
        try:
            reservation.bind((held_on, base))
            _bind_all(listened_at(base))
        except OSError:
            reservation.close()
            continue
        held.append(reservation)
        if len(held) > at_once:
            held.popleft().close()
        return base
    raise AssertionError(f"{TRIES} of {bases} were tried and none is free")


def _bind_all(ports: Iterable[int]) -> None:
    """Bind all ports of the nodes for a moment.  Raises ``OSError`` when one is in use.  A port
    whose connections have ended is free, as it is for a node."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@atexit.register
def _release() -> None:
    for reservation in (*_reserved, *_singles):
        reservation.close()
