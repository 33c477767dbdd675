"""Limits of open files: connections are bounded so that descriptors remain for the disk.

Contract. ``connections_that_fit`` raises the soft limit of the process as far as the limits need
and the hard one allows, and returns how many client connections fit. Raises ``BadConfig`` if fewer
than ``CONNECTIONS_MIN`` do.

Theory. A node without free descriptors can still reply, but it cannot open the next segment, and
stops. So connections are limited before the system refuses descriptors.
"""

from __future__ import annotations

import logging
import resource

from node.errors import BadConfig
from node.limits import Limits

#: Descriptors of the node itself: segments, indexes, checkpoints, connections to peers, eventfds.
DESCRIPTORS_OWN = 512
#: Fewer client connections make a node useless.
CONNECTIONS_MIN = 16


def connections_that_fit(limits: Limits) -> int:
    """Raise the soft limit of open files as far as needed and allowed. Return ``connections_max``,
    or the smaller number of connections that the limit then leaves.

    Raises ``BadConfig`` if that is less than ``CONNECTIONS_MIN``."""
    reserved = DESCRIPTORS_OWN + limits.peer_connections_max
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = reserved + limits.connections_max
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    fitting = limits.connections_max if soft == resource.RLIM_INFINITY else soft - reserved
    if fitting < CONNECTIONS_MIN:
        raise BadConfig(f"this process may open {soft} files, which leaves {max(0, fitting)} "
                        f"client connections when {DESCRIPTORS_OWN} are the node's own and "
                        f"limits.peer_connections_max={limits.peer_connections_max} are for the "
                        "peer port: raise `ulimit -Hn`, or lower that limit")
    return min(fitting, limits.connections_max)


def connections_max(limits: Limits, log: logging.Logger) -> int:
    """Return ``connections_that_fit``, and log a warning if it is below the configured limit.
    Raises ``BadConfig`` if it is below ``CONNECTIONS_MIN``."""
    fitting = connections_that_fit(limits)
    if fitting < limits.connections_max:
        log.warning("connection_limit_lowered", extra={
            "connections_configured": limits.connections_max, "connections_permitted": fitting})
    return fitting
