"""The largest topics in the groups that this node leads, for metrics.

Contract.  One task reads the sizes of all topics, ``TOPICS_PER_STEP`` at a time with a pause after
each step, and then waits ``INTERVAL_S``.  ``found`` is replaced at the end of a pass by at most
``TOPICS_MAX`` topics, so a scrape has a bounded number of series, and reads no sizes.

Theory.  A step takes about a millisecond, and the pause is 100 times as long, so a pass takes at
most 1% of the loop whatever the number of topics: 100,000 take 80 s.  A pass is left out while
nothing was appended here and no metadata or leader changed: an idle node does no work.  Log starts
that move without any append are seen by the next pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import nlargest
from typing import NamedTuple

import trio

from multiraft.wire.sizes import TopicSize
from node.metadata.state_machine import MetadataState, Topic

#: Series of a metric.
TOPICS_MAX = 20
TOPICS_PER_STEP = 128
PAUSE_S = 0.1
INTERVAL_S = 60.0


class LargeTopic(NamedTuple):
    """Part of a topic that is in groups led here, in known bytes and in records."""

    bytes: int
    records: int
    name: str


class LargestTopics:
    """The largest topics of the last pass, the largest first."""

    def __init__(self, metadata: Callable[[], MetadataState],
                 size_of: Callable[[Topic], Awaitable[TopicSize | None]],
                 changes: Callable[[], object],
                 sleep: Callable[[float], Awaitable[None]] = trio.sleep):
        """Create the task.  ``changes``: a value that differs after an append or a change of
        leaders or metadata."""
        self._metadata = metadata
        self._size_of = size_of
        self._changes = changes
        self._sleep = sleep
        self.found: tuple[LargeTopic, ...] = ()

    async def run(self) -> None:
        """Read the sizes of all topics at an interval, until cancelled."""
        seen: object = None
        while True:
            changes = self._changes()
            if changes != seen:
                self.found = await self._pass()
                seen = changes
            await self._sleep(INTERVAL_S)

    async def _pass(self) -> tuple[LargeTopic, ...]:
        largest: list[LargeTopic] = []
        after, more = "", True
        while more:
            topics, more = self._metadata().list_topics(after, TOPICS_PER_STEP)
            partitions = 0
            for topic in topics:
                after, partitions = topic.name, partitions + topic.partitions
                size = await self._size_of(topic)
                if size is not None:
                    largest.append(LargeTopic(size.bytes, size.records, topic.name))
            largest = nlargest(TOPICS_MAX, largest)
            await self._sleep(PAUSE_S * max(1, partitions // TOPICS_PER_STEP))
        return tuple(largest)
