"""Where readers of committed records stop.

Contract.  Asks a client and returns its ``Wait`` rows, by topic and partition.  Reads what it has
to read, and decodes none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from multiraft.client.blocking import Wait
from multiraft.wire.sinks import StagedTopics


def of_topics(client: Any, topics: Sequence[str]) -> list[Wait]:
    """Of topics that are read from their begin.  O(records)."""
    return [wait for topic in topics for wait in _stops(client.consume(topic, until_end=True))]


def of_open_runs(client: Any) -> list[Wait]:
    """Of all topics in which open runs stage, read from where these began.  O(partitions of open
    runs + records behind)."""
    staged = client.sink_request(StagedTopics()).topics
    names = {row.incarnation: row.name for row in client.list_topics()} if staged else {}
    found: list[Wait] = []
    for row in staged:
        if row.incarnation not in names:
            continue  # deleted meanwhile
        name = names[row.incarnation]
        for partition, span in client.list_offsets(name).items():
            start = max(row.offsets[partition], span.start_offset)
            if start < span.end_offset:
                found += _stops(client.consume(name, partition, start, until_end=True))
    return sorted(found)


def _stops(consumer: Any) -> Iterator[Wait]:
    """Where a reader to the end stops before it."""
    for _batch in consumer:
        pass
    yield from sorted(consumer.unread)
