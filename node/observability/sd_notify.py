"""Tells a service manager how far the process is: systemd's notification protocol.

Contract.  ``tell`` sends one datagram to the socket that the environment names, and nothing when
it names none.  A service manager that does not listen is no error: the node serves all the same.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

READY, STOPPING = "READY=1", "STOPPING=1"


def tell(environ: Mapping[str, str], state: str) -> bool:
    """Whether somebody was told."""
    path = environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    if path.startswith("@"):  # a name of its own kind, without a file
        path = "\0" + path[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)  # a full queue holds up no node
        try:
            sock.sendto(state.encode(), path)
        except OSError:
            return False
    return True
