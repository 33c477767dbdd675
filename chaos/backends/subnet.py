"""A range of addresses that is unused on this machine.

Contract.  ``free`` proposes ranges of 10.0.0.0/8 in the order of a generator and takes the first
that overlaps no route.  Another program may take it in between: creating the network then fails,
and the caller asks again.
"""

from __future__ import annotations

import ipaddress
import json
import random

from chaos.backends import host
from chaos.backends.backend import BackendError

#: Ranges that are tried; if all are taken, the routes are wrong.
TRIES = 200


def free(rng: random.Random) -> ipaddress.IPv4Network:
    """Return a random /24 for a cluster that overlaps no route of this machine. Raises
    ``BackendError`` when none of ``TRIES`` ranges is free."""
    taken = routes()
    for _ in range(TRIES):
        found = ipaddress.ip_network((10 << 24 | rng.randrange(64, 255) << 16
                                      | rng.randrange(256) << 8, 24))
        if not any(found.overlaps(other) for other in taken):
            return found
    raise BackendError(f"none of {TRIES} ranges in 10.0.0.0/8 is free")


def routes() -> list[ipaddress.IPv4Network]:
    """Return the networks of this machine's routes, without the default route."""
    rows = json.loads(host.run("ip", "-json", "-4", "route"))
    return [ipaddress.ip_network(row["dst"], strict=False) for row in rows
            if row["dst"] != "default"]
