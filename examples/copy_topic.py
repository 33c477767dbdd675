"""Copy a topic, record by record, into another one, perhaps of another cluster.

    python examples/copy_topic.py 127.0.0.1:9101 orders 127.0.0.1:9101 orders-copy positions.json

Run it again to copy what is new.  Positions are stored after the copies are: a run that was
killed copies its last records again (at least once).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from multiraft.client.blocking import Client, FetchedBatch, Producer, Record

#: Batches between two stored positions.
BATCHES_PER_CHECKPOINT = 100


def main(source: str, topic: str, target: str, copy: str, file: str) -> None:
    positions = Path(file)
    start = {int(key): offset for key, offset in json.loads(positions.read_text()).items()} \
        if positions.exists() else "earliest"
    copied = 0
    with Client(source) as reads, Client(target) as writes:
        partitions = len(reads.topic_metadata(topic).partitions)
        writes.create_topic(copy, partitions=partitions, if_not_exists=True)
        with writes.producer() as producer:
            consumer = reads.consume(topic, start=start, until_end=True)
            for number, batch in enumerate(consumer, 1):
                copied += append(producer, copy, batch)
                if number % BATCHES_PER_CHECKPOINT == 0:
                    producer.flush()
                    positions.write_text(json.dumps(consumer.positions()))
        positions.write_text(json.dumps(consumer.positions()))  # the block above has flushed
    print(f"{copied} records copied")


def append(producer: Producer, topic: str, batch: FetchedBatch) -> int:
    """Append the records of a batch to the same partition of ``topic``.  Returns their number."""
    producer.send_many(topic, [
        Record(topic, record.value, record.key, batch.partition, record.timestamp_ms,
               record.headers) for record in batch])
    return batch.count


main(*sys.argv[1:])
