"""Client that deletes records: the log starts of some partitions are to be raised.

Contract.  ``strike`` sends requests about partitions that clients know, each to the node that they
take for the leader, or to another one.  A node judges a request like that of any client; its answer
is checked when the node gives it (``node/clients/client_port.py``).  A request is not repeated, but
the network may repeat it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chaos.simulator.clients.workload import Workload

#: Network address of the client.
DELETER = 1900
#: Maximum number of requests of a strike.
REQUESTS_MAX = 3
#: Above all offsets: all records were to be deleted.
EVERY = 1 << 62
#: Probability that the request goes to a random replica.
STRAY = 0.2
#: Probability that all records are to be deleted, and that more are than there are.
ALL, BEYOND = 0.2, 0.1
#: Largest number of offsets by which a request exceeds what is known to be acknowledged.
BEYOND_MAX = 1000


class DeletionRequest(NamedTuple):
    """Request of a client to delete the records below an offset (-1 = all) of each partition."""

    client: int
    partitions: tuple[tuple[int, int], ...]
    seen_index: int


class RecordDeletions:
    """The deleting client of one run."""

    def __init__(self, workload: Workload, rng: random.Random):
        self._workload = workload
        self._rng = rng
        self._asked: dict[int, int] = {}  # partition -> highest offset of a request

    def strike(self) -> None:
        """Send some requests, each about some partitions of one group."""
        for _ in range(self._rng.randrange(1, REQUESTS_MAX + 1)):
            self._send()

    def _send(self) -> None:
        rng, workload = self._rng, self._workload
        group = rng.choice(sorted(workload.partitions))
        partitions = workload.known_partitions(group)
        chosen = rng.sample(partitions, rng.randrange(1, len(partitions) + 1))
        node = workload.leader_of(group)
        voters = workload.voters_of(group)
        if not node or rng.random() < STRAY:
            node = rng.choice(voters)
        rows = tuple((partition, self._before(partition)) for partition in chosen)
        for partition, before in rows:
            self._asked[partition] = max(self.asked(partition), before if before >= 0 else EVERY)
        workload.deliver(DELETER, node, (DeletionRequest(DELETER, rows, workload.seen_index),))

    def asked(self, partition: int) -> int:
        """Return the highest offset below which records of a partition were to be deleted."""
        return self._asked.get(partition, 0)

    def _before(self, partition: int) -> int:
        known, drawn = self._workload.acknowledged_end(partition), self._rng.random()
        if drawn < ALL:
            return -1
        if drawn < ALL + BEYOND:
            return known + self._rng.randrange(1, BEYOND_MAX)
        return self._rng.randrange(known + 1)
