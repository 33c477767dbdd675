"""Self-describing records, for the tests of tables."""

from __future__ import annotations

import datetime

from multiraft.client.blocking import Client, Record

BEGIN_MS = 1_700_000_000_000


def record(topic: str, at: int, partitions: int = 3) -> Record:
    """Return the at-th record of a topic: to each partition in turn, a second apart, two of three
    with a key."""
    return Record(topic, b"value %d" % at, b"key" if at % 3 else None, at % partitions,
                  BEGIN_MS + 1000 * at, (("n", b"%d" % at),))


def row(each: Record, at: int, partitions: int = 3) -> tuple:
    """Return the row of a record in a table."""
    when = datetime.datetime.fromtimestamp(each.timestamp_ms / 1000, datetime.timezone.utc)
    return (each.topic, each.partition, at // partitions, when.replace(tzinfo=None), each.key,
            each.value)


def append(servers, topic: str, first: int, end: int, partitions: int = 3) -> list[Record]:
    """Append records ``first``..``end`` - 1, in small batches; creates the topic for record 0."""
    records = [record(topic, at, partitions) for at in range(first, end)]
    with Client(list(servers)) as client:
        if first == 0:
            client.create_topic(topic, partitions)
        with client.producer(batch_bytes=300) as producer:
            producer.send_many(topic, records)
    return records
