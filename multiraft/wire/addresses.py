"""Addresses as people and peers write them: ``host:port``.

Contract.  Pure; nothing is looked up.  A text that no resolver can be asked for is no address:
resolvers raise other errors for it than for a host that is not known, which end whoever does not
expect them.
"""

from __future__ import annotations

import re

PORT_MAX = 65_535
#: What can stand in a host: no part of a URL, no bracket.  A zone (``fe80::1%eth0``) can.
_HOST = re.compile(r"[^\s/@\[\]]+")
_PORT = re.compile(r"[0-9]{1,5}")


def split_address(text: str) -> tuple[str, int] | None:
    """``host:port`` or ``[v6]:port`` -> (host, port), the port from 0 to ``PORT_MAX``; None = it is
    no address."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not _PORT.fullmatch(port) or int(port) > PORT_MAX or not is_host(host):
        return None
    return host, int(port)


def is_host(text: str) -> bool:
    """Tell whether ``text`` can be looked up at all: by name, or as an address."""
    if not _HOST.fullmatch(text) or not text.isprintable():
        return False
    try:
        text.encode("idna")  # as looking it up does: labels have 1 to 63 characters
    except UnicodeError:
        return False
    return True
