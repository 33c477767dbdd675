"""Setting of a run that every workload is given: topics, nodes, leaders, random numbers.

Contract.  Plain data and small queries.  ``Topics`` are those that live as long as the run; a few
of them are hot.  ``WorkloadContext.nodes``, ``kafka_nodes`` and ``leaders`` are read again for each
request, because nodes come and go.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.checkers.verdict import Anomaly
from chaos.history import key_of
from chaos.workloads.recorder import Recorder
from multiraft.client import Client
from multiraft.wire.messages import TopicMetadata

#: Share of the requests that concern the hot topics.
HOT_SHARE = 0.6


class PartitionRef(NamedTuple):
    """One incarnation of a partition, and the group that it was last seen in."""

    topic: str
    topic_incarnation: int
    partition: int
    incarnation: int  # of the partition
    group: int

    @property
    def key(self) -> str:
        """Return the key of the partition's incarnation in the history."""
        return key_of(self.topic, self.topic_incarnation, self.partition)


def partitions_of(topic: TopicMetadata) -> list[PartitionRef]:
    """Return the partitions of a topic."""
    return [
        PartitionRef(topic.name, topic.incarnation, part.partition, part.incarnation, part.group)
        for part in topic.partitions
    ]


class Topics:
    """Partitions that live as long as the run, and the highest known end of each."""

    def __init__(self):
        self.places: list[PartitionRef] = []
        self.hot: list[PartitionRef] = []
        self._ends: dict[str, int] = {}

    def add(self, places: Iterable[PartitionRef], hot: bool = False) -> None:
        """Add partitions that live as long as the run; ``hot``: those that many requests
        concern."""
        places = list(places)
        self.places += places
        if hot:
            self.hot += places

    def pick(self, rng: random.Random) -> PartitionRef:
        """Return a random partition, with probability ``HOT_SHARE`` a hot one; there must be
        one."""
        if self.hot and rng.random() < HOT_SHARE:
            return rng.choice(self.hot)
        return rng.choice(self.places)

    def end(self, key: str) -> int:
        """Return the highest known end of a partition (offset after its last record), by its key; 0
        = unknown."""
        return self._ends.get(key, 0)

    def heard(self, key: str, end: int) -> None:
        """Record that the partition reaches at least ``end``; a lower end than the known one is
        ignored."""
        if end > self._ends.get(key, 0):
            self._ends[key] = end


@dataclass(slots=True)
class WorkloadContext:
    """Run number, topics, nodes and clients of one run."""

    run: int  # in every record of this run
    recorder: Recorder
    topics: Topics
    nodes: Callable[[], dict[int, str]]  # id -> client address
    seed: int
    pace: float = 1.0  # factor of all requests per second
    leaders: dict[int, int] = field(default_factory=dict)  # group -> node, as seen last
    staged: set[str] = field(default_factory=set)  # topics of which consumers leave records out
    #: id -> address for Kafka's clients; empty in a run without them
    kafka_nodes: Callable[[], dict[int, str]] = dict
    #: Of the run: what workloads find that is no outcome of an operation.
    anomalies: list[Anomaly] = field(default_factory=list)
    seeds_given: int = 0

    def rng(self) -> random.Random:
        """Return a new random generator, another one at each call; the seed and the number of the
        call decide it."""
        self.seeds_given += 1
        return random.Random(f"{self.seed}/{self.seeds_given}")

    def client(self) -> Client:
        """Return a new client of the product, which knows the present members; use it with ``async
        with``."""
        return Client(list(self.nodes().values()), rng=self.rng())

    def pause_s(self, rng: random.Random, per_second: float) -> float:
        """Return a random pause, at most 2 s, until the next request of a process that sends
        ``per_second`` at pace 1."""
        return min(2.0, rng.expovariate(per_second * self.pace))

    def leader_address(self, place: PartitionRef) -> str | None:
        """Return the last known address of a partition's leader; None = unknown, or no longer a
        member."""
        return self.nodes().get(self.leaders.get(place.group, 0))

    def any_node(self, rng: random.Random) -> int:
        """Return a random node, running or not."""
        return rng.choice(list(self.nodes()))


Workload = Callable[[WorkloadContext], Awaitable[None]]
