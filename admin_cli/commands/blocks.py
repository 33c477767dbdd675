"""Positions at which readers of committed records stop.

Contract.  Asks a client and returns its ``Wait`` rows, by topic and partition.  Fetches the records
that lie before those positions, and decodes none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from multiraft.client.blocking import Wait
from multiraft.wire.sinks import StagedTopics


def of_topics(client: Any, topics: Sequence[str]) -> list[Wait]:
    """Read topics from their beginning, and return the positions before their ends at which readers
    of committed records stop. O(records)."""
    return [wait for topic in topics for wait in _stops(client.consume(topic, until_end=True))]


def of_open_transactions(client: Any) -> list[Wait]:
    """Return the positions at which readers of committed records stop before the end, in all topics
    in which open transactions stage. These topics are read from where the transactions began;
    deleted ones are left out.

    O(partitions of open transactions + records after that)."""
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
                found += _stops(client.consume(
                    name, partition, start, until_end=True, offset_reset="earliest"))
    return sorted(found)


def _stops(consumer: Any) -> Iterator[Wait]:
    """Read to the end, and yield the positions at which a reader of committed records stops before
    the end."""
    for _batch in consumer:
        pass
    yield from sorted(consumer.unread)
