"""What every workload is given: the run, the topics, the nodes, a source of chance.

Contract.  Plain data and small questions.  ``Topics`` are those that live as long as the run; a few
of them are hot.  ``Setting.nodes`` and ``leaders`` are looked at again for each question, because
nodes come and go.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.history import key_of
from chaos.workloads.recorder import Recorder
from multiraft.client import Client
from multiraft.wire.messages import TopicMetadata

#: Of all that is asked, this much concerns the hot topics.
HOT_SHARE = 0.6


class Place(NamedTuple):
    """One life of a partition, and where it was seen last."""

    topic: str
    topic_incarnation: int
    partition: int
    incarnation: int  # of the partition
    group: int

    @property
    def key(self) -> str:
        """Its name in the history."""
        return key_of(self.topic, self.topic_incarnation, self.partition)


def places_of(topic: TopicMetadata) -> list[Place]:
    """The partitions of a topic."""
    return [Place(topic.name, topic.incarnation, part.partition, part.incarnation, part.group)
            for part in topic.partitions]


class Topics:
    """The partitions that live as long as the run, and how far they are known to reach."""

    def __init__(self):
        self.places: list[Place] = []
        self.hot: list[Place] = []
        self._ends: dict[str, int] = {}

    def add(self, places: Iterable[Place], hot: bool = False) -> None:
        """More partitions."""
        places = list(places)
        self.places += places
        if hot:
            self.hot += places

    def pick(self, rng: random.Random) -> Place:
        """Any partition, often a hot one."""
        if self.hot and rng.random() < HOT_SHARE:
            return rng.choice(self.hot)
        return rng.choice(self.places)

    def end(self, key: str) -> int:
        """The highest offset that was heard of, plus one."""
        return self._ends.get(key, 0)

    def heard(self, key: str, end: int) -> None:
        """The partition reaches at least so far."""
        if end > self._ends.get(key, 0):
            self._ends[key] = end


@dataclass(slots=True)
class Setting:
    """See the module docstring."""

    run: int  # in every record of this run
    recorder: Recorder
    topics: Topics
    nodes: Callable[[], dict[int, str]]  # id -> client address
    seed: int
    pace: float = 1.0  # questions per second of everybody, as a factor
    leaders: dict[int, int] = field(default_factory=dict)  # group -> node, as seen last
    staged: set[str] = field(default_factory=set)  # topics of which consumers leave records out
    seeds_given: int = 0

    def rng(self) -> random.Random:
        """A source of chance of one's own: another one for each who asks."""
        self.seeds_given += 1
        return random.Random(f"{self.seed}/{self.seeds_given}")

    def client(self) -> Client:
        """The product's client; use it with ``async with``."""
        return Client(list(self.nodes().values()), rng=self.rng())

    def pause_s(self, rng: random.Random, per_second: float) -> float:
        """Until the next question of a process that asks so often."""
        return min(2.0, rng.expovariate(per_second * self.pace))

    def leader_address(self, place: Place) -> str | None:
        """Where the leader of a partition was seen last; None = nowhere."""
        return self.nodes().get(self.leaders.get(place.group, 0))

    def any_node(self, rng: random.Random) -> int:
        """Any node, running or not."""
        return rng.choice(list(self.nodes()))


Workload = Callable[[Setting], Awaitable[None]]
