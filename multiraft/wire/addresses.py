"""Parser of addresses of the form ``host:port``.

Contract.  Pure; no name is resolved.  A text that cannot be passed to a resolver is no address,
because resolvers raise other errors for it (``UnicodeError``, for example) than for an unknown
host, and callers do not expect these.
"""

from __future__ import annotations

import re

PORT_MAX = 65_535
#: Characters of a host: no part of a URL, no bracket.  A zone (``fe80::1%eth0``) is allowed.
_HOST = re.compile(r"[^\s/@\[\]]+")
_PORT = re.compile(r"[0-9]{1,5}")


def split_address(text: str) -> tuple[str, int] | None:
    """Return (host, port) of ``host:port`` or ``[v6]:port``, the port from 0 to ``PORT_MAX``; None
    = ``text`` is no address."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not _PORT.fullmatch(port) or int(port) > PORT_MAX or not is_host(host):
        return None
    return host, int(port)


def is_host(text: str) -> bool:
    """Return True if ``text`` can be passed to a resolver, as a name or as an address."""
    if not _HOST.fullmatch(text) or not text.isprintable():
        return False
    try:
        text.encode("idna")  # as resolvers do: labels have 1 to 63 characters
    except UnicodeError:
        return False
    return True
