"""Reader with old metadata: it reads partitions of topics that were deleted meanwhile.

Contract.  ``start`` begins reads at a steady rate until ``stop``.  The reader learns of topics as
the other clients do, and of no deletion for ``KEPT_US``.  So it asks nodes that know of a deletion,
and nodes that do not.  Its reads are judged like all others, and change nothing for other clients.

Theory.  Group 0 and the groups of partitions are replicated apart.  A node may have the deletion of
a partition in the log of its group before it knows that the topic is deleted.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from chaos.simulator.clients.workload import READ_BYTES_MAX, FetchRequest

if TYPE_CHECKING:
    from chaos.simulator.clients.topics import Topics
    from chaos.simulator.clients.workload import Workload
    from chaos.simulator.env.event_queue import EventQueue

#: Network address of the client.
LATE_READER = 1901
#: Mean time between two reads.
INTERVAL_US = 30_000
#: Time for which the reader uses what it has learned of a partition.
KEPT_US = 2_000_000


class LateReader:
    """The late reader of one run."""

    def __init__(self, queue: EventQueue, workload: Workload, topics: Topics, rng: random.Random):
        self._queue = queue
        self._workload = workload
        self._topics = topics
        self._rng = rng
        self._is_running = False
        self._places: dict[int, tuple[int, int]] = {}  # partition -> group, when it was learned

    def start(self) -> None:
        """Begin to read."""
        self._is_running = True
        self._read()

    def stop(self) -> None:
        """Read no more."""
        self._is_running = False

    def _read(self) -> None:
        if not self._is_running:
            return
        now_us, workload = self._queue.now_us, self._workload
        self._places |= {partition: (group, now_us) for partition, group in self._topics.places()}
        self._places = {partition: place for partition, place in self._places.items()
                        if now_us - place[1] <= KEPT_US}
        if self._places:
            partition = self._rng.choice(sorted(self._places))
            group = self._places[partition][0]
            workload.deliver(LATE_READER, self._rng.choice(workload.voters_of(group)), (
                FetchRequest(LATE_READER, 0, group, partition,
                             workload.position_of(LATE_READER, partition), READ_BYTES_MAX, 0),))
        self._queue.after(1 + int(self._rng.expovariate(1 / INTERVAL_US)), self._read)
