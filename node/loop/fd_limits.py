"""Open files: as many as the limits need, and connections leave some for the disk.

Contract.  ``connections_that_fit`` raises the system's soft limit as far as the hard one allows and
says how many client connections fit into it.  Raises ``BadConfig`` when not even a few do.

Theory.  A node that is out of descriptors can still answer, but not open a segment: that is the end
of it.  So connections are bounded before the system does it.
"""

from __future__ import annotations

import logging
import resource

from node.errors import BadConfig
from node.limits import Limits

#: Segments, indexes, checkpoints, connections to peers, eventfds: what a node opens for itself.
DESCRIPTORS_OWN = 512
#: With fewer a node is of no use.
CONNECTIONS_MIN = 16


def connections_that_fit(limits: Limits) -> int:
    """``connections_max``, or what is left of the open files that this process may have."""
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
    """The same, said in the log when there are fewer than configured.  Raises ``BadConfig``."""
    fitting = connections_that_fit(limits)
    if fitting < limits.connections_max:
        log.warning("fewer connections than configured", extra={
            "connections_max": limits.connections_max, "fitting": fitting})
    return fitting
