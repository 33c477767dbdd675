"""Topics and their partitions in the metadata, and the rule for names of topics.

Contract.  Values.  A topic knows the incarnation of each of its partitions, also after it was
deleted: ``incarnation_of``, ``number_of`` and ``runs`` are the only places that compute them.

Invariants.  The partitions that a topic was created with have consecutive incarnations, the first
of which is the topic's own.  Those that were added later are numbered on, and each addition has
consecutive incarnations of its own, higher than all before.

Theory.  A checkpoint contains the topics as they are in memory, a million tuples of five values.
A topic to which partitions were added is a tuple of the same five values, with the additions
beside them; they have a table of their own in a checkpoint (``added_partitions.py``).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.wire.messages import TOPIC_NAME_MAX
from node.metadata.placement_table import EpochHistory, Switch

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,%d}" % TOPIC_NAME_MAX)


class Run(NamedTuple):
    """Partitions with consecutive numbers and incarnations.  ``pool_size``: that of the pool when
    they were created, by which their hash chooses a group."""

    number: int
    incarnation: int
    count: int  # type: ignore[assignment]
    pool_size: int

    def part(self, numbers: range) -> Run | None:
        """Return the partitions of the run that are in ``numbers``; None = none is."""
        first = max(self.number, numbers.start)
        count = min(self.number + self.count, numbers.stop) - first
        return Run(first, self.incarnation + first - self.number, count, self.pool_size) if (
            count > 0) else None


class Addition(NamedTuple):
    """Partitions that one request added to a topic.  ``request_id``: of that request."""

    number: int
    incarnation: int
    count: int  # type: ignore[assignment]
    pool_size: int
    request_id: bytes


class Topic(NamedTuple):
    """One incarnation of a topic."""

    name: str
    id: bytes
    incarnation: int
    partitions: int
    pool_size: int

    @property
    def added(self) -> tuple[Addition, ...]:
        """Additions of partitions, the earliest first."""
        return ()

    def incarnation_of(self, number: int) -> int:
        """Return the incarnation of partition ``number``, which must exist.  O(log additions)."""
        return self.incarnation + number

    def number_of(self, incarnation: int) -> int | None:
        """Return the number of the partition with that incarnation; None = the topic has none.
        O(log additions)."""
        number = incarnation - self.incarnation
        return number if 0 <= number < self.partitions else None

    def pool_size_of(self, incarnation: int) -> int:
        """Return the size that the pool had when a partition of the topic was created.  O(log
        additions)."""
        return self.pool_size

    def runs(self, numbers: range | None = None) -> list[Run]:
        """Return the partitions with these numbers, by default all, in order.  O(additions)."""
        own = Run(0, self.incarnation, self.partitions, self.pool_size)
        part = own if numbers is None else own.part(numbers)
        return [] if part is None else [part]

    def with_added(self, count: int, incarnation: int, pool_size: int,
                   request_id: bytes) -> GrownTopic:
        """Return the topic with ``count`` more partitions, the first of which has this
        incarnation.  O(additions)."""
        return GrownTopic.of(self._replace(partitions=self.partitions + count), (
            *self.added, Addition(self.partitions, incarnation, count, pool_size, request_id)))


class GrownTopic(Topic):
    """A topic to which partitions were added.  ``partitions`` counts them."""

    _added: tuple[Addition, ...]

    @classmethod
    def of(cls, topic: Topic, added: tuple[Addition, ...]) -> GrownTopic:
        """Return a topic with these additions, which ``topic.partitions`` counts."""
        grown = cls(*topic)
        grown._added = added
        return grown

    @property
    def added(self) -> tuple[Addition, ...]:
        return self._added

    def incarnation_of(self, number: int) -> int:
        place = bisect_right(self._added, number, key=attrgetter("number"))
        if not place:
            return self.incarnation + number
        run = self._added[place - 1]
        return run.incarnation + number - run.number

    def number_of(self, incarnation: int) -> int | None:
        run = self._addition_of(incarnation)
        first, number, count = ((self.incarnation, 0, self._added[0].number) if run is None
                                else (run.incarnation, run.number, run.count))
        return number + incarnation - first if 0 <= incarnation - first < count else None

    def pool_size_of(self, incarnation: int) -> int:
        run = self._addition_of(incarnation)
        return self.pool_size if run is None else run.pool_size

    def _addition_of(self, incarnation: int) -> Addition | None:
        place = bisect_right(self._added, incarnation, key=attrgetter("incarnation"))
        return self._added[place - 1] if place else None

    def runs(self, numbers: range | None = None) -> list[Run]:
        found = [Run(0, self.incarnation, self._added[0].number, self.pool_size),
                 *(Run(*addition[:4]) for addition in self._added)]
        if numbers is None:
            return found
        return [part for run in found if (part := run.part(numbers)) is not None]


class Location(NamedTuple):
    """A partition, the group that takes its appends now, and its epoch history.  ``switch``: the
    pending switch to another group, None = none.  ``batch_bytes_max``: the largest batch that the
    settings of the topic accept.  ``has_append_time``: by them, the leader stamps the time at which
    it appends a batch.  ``is_compacted``: by them, records leave by their keys, so each has one."""

    topic: Topic
    partition: int
    group: int
    epoch: int
    start_offset: int
    epoch_history: EpochHistory
    switch: Switch | None
    batch_bytes_max: int = BATCH_BYTES_MAX
    has_append_time: bool = False
    is_compacted: bool = False


def topic_name_fault(name: str) -> str:
    """Return the reason why ``name`` is not a valid topic name; empty when it is."""
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if _TOPIC_NAME.fullmatch(name) is None:
        return f"topic name {name!r:.80} is not [A-Za-z0-9._-]{{1,{TOPIC_NAME_MAX}}}"
    return ""
