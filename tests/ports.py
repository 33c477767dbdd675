"""Ports for the nodes and clusters of tests, also of several test processes at once.

They lie below the range that the kernel hands out by itself, from which any connection on this
machine may get one between two moments.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from admin_cli import dev_state

#: A range of ports is this process's as long as it listens at its base, where no node does.  No
#: test has more clusters than these at a time; whoever asks for another one is done with the first.
CLUSTERS_AT_ONCE = 8
TRIES = 20
_reserved: deque[socket.socket] = deque()

#: A single port is this process's as long as it holds the same one of an address where no node is.
SINGLE_PORTS = range(10_000, 15_000)
SINGLE_AT_ONCE = 200
RESERVED_ON = "127.0.0.2"
_singles: deque[socket.socket] = deque()


def free_port() -> int:
    """A port of loopback that nobody has, and which no other test process gets meanwhile."""
    return _reserve(SINGLE_PORTS, RESERVED_ON, lambda port: (port,), _singles, SINGLE_AT_ONCE)


def free_base_port(nodes: int) -> int:
    """A base above which the ports of ``multiraft dev`` are free, below the kernel's own range, and
    which no other test process gets meanwhile."""
    return _reserve(range(15_000, 30_000, dev_state.PORTS), "127.0.0.1", lambda base: [
        base + number + role for role in range(0, dev_state.PORTS, 100)
        for number in range(1, nodes + 1)], _reserved, CLUSTERS_AT_ONCE)


def _reserve(bases: Sequence[int], held_on: str, listened_at: Callable[[int], Iterable[int]],
             held: deque[socket.socket], at_once: int) -> int:
    """A base whose ports nobody has, held from now on; of more than ``at_once`` the oldest goes."""
    for base in random.sample(bases, k=TRIES):
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
    """All ports that nodes listen at, for a moment; ``OSError`` when one is taken."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.socket()).bind(("127.0.0.1", port))


@atexit.register
def _release() -> None:
    for reservation in (*_reserved, *_singles):
        reservation.close()
