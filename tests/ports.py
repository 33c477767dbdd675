"""Ports for the clusters of tests, also of several test processes at once."""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
from collections import deque

from admin_cli import dev_state

#: A range of ports is this process's as long as it listens at its base, where no node does.  No
#: test has more clusters than these at a time; whoever asks for another one is done with the first.
CLUSTERS_AT_ONCE = 8
TRIES = 20
_reserved: deque[socket.socket] = deque()


def free_base_port(nodes: int) -> int:
    """A base above which the ports of ``multiraft dev`` are free, below the kernel's own range, and
    which no other test process gets meanwhile."""
    for base in random.sample(range(15_000, 30_000, dev_state.PORTS), k=TRIES):
        reservation = socket.socket()
        try:
            reservation.bind(("127.0.0.1", base))
            _bind_all(base, nodes)
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        if len(_reserved) > CLUSTERS_AT_ONCE:
            _reserved.popleft().close()
        return base
    raise AssertionError(f"{TRIES} ranges of ports were tried and none is free")


def _bind_all(base: int, nodes: int) -> None:
    """All ports that nodes listen at, for a moment; ``OSError`` when one is taken."""
    with contextlib.ExitStack() as stack:
        for port in (base + number + role for role in range(0, dev_state.PORTS, 100)
                     for number in range(1, nodes + 1)):
            stack.enter_context(socket.socket()).bind(("127.0.0.1", port))


@atexit.register
def _release() -> None:
    for reservation in _reserved:
        reservation.close()
