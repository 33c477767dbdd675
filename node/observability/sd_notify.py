"""Systemd's notification protocol: reports the state of the process to a service manager.

Contract.  ``tell`` sends one datagram to the socket that the environment names, and nothing when it
names none.  A service manager that does not listen is no error: the node serves all the same.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

READY, STOPPING = "READY=1", "STOPPING=1"


def tell(environ: Mapping[str, str], state: str) -> bool:
    """Send ``state`` to the service manager. Return False if the environment names no socket or the
    datagram was not taken."""
    path = environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    if path.startswith("@"):  # abstract namespace: a name without a file
        path = "\0" + path[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)  # a full queue must not block the node
        try:
            sock.sendto(state.encode(), path)
        except OSError:
            return False
    return True
