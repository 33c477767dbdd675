"""Program of confluent-kafka (librdkafka)."""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from serve import HEADER, decoded, encoded, serve

SERVERS = {"bootstrap.servers": sys.argv[1]}
#: Bound of every call that takes one.
TIMEOUT_S = 30.0
#: Largest messages of one call of ``consume``.
MESSAGES = 500
POLL_S = 0.2
# Its futures fail when the client is collected.
admin = AdminClient(SERVERS)
producers: dict[tuple, Producer] = {}


def produce(topic, partition, acks, compression, idempotent, header, records, timeout_s):
    """Produce records; return the offset of each, -1 if the broker tells none, null if it was not
    acknowledged."""
    key = (acks, compression, idempotent)
    if key not in producers:
        producers[key] = Producer({
            **SERVERS, "acks": acks, "compression.type": compression, "linger.ms": 5,
            "enable.idempotence": idempotent, "delivery.timeout.ms": int(timeout_s * 1000),
            "message.max.bytes": 1_000_000, "batch.size": 16_384})
    offsets = [None] * len(records)

    def delivered(place: int):
        def note(error, message):
            if error is None:
                offsets[place] = -1 if message.offset() is None else message.offset()
        return note

    for place, (name, value) in enumerate(records):
        producers[key].produce(topic, decoded(value), decoded(name), partition,
                               on_delivery=delivered(place), headers=[(HEADER, decoded(header))])
    producers[key].flush(timeout_s + 1)
    return offsets


def consumer(**settings) -> Consumer:
    """Return a consumer without a group of its own."""
    return Consumer({**SERVERS, "group.id": "unused", "enable.auto.commit": False,
                     "auto.offset.reset": "error", **settings})


def fetch(topic, partition, start, count, timeout_s):
    """Return up to ``count`` records from ``start`` on."""
    reader = consumer()
    place = {"beginning": -2}.get(start, start) if not isinstance(start, dict) else \
        reader.offsets_for_times([TopicPartition(topic, partition, start["time"])],
                                 TIMEOUT_S)[0].offset
    reader.assign([TopicPartition(topic, partition, place)])
    rows, give_up = [], time.monotonic() + timeout_s
    while len(rows) < count and time.monotonic() < give_up:
        for message in reader.consume(min(MESSAGES, count - len(rows)), POLL_S):
            # librdkafka looks for the coordinator of any group.id; this cluster refuses groups.
            if message.error() and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue
            if message.error():
                raise KafkaException(message.error())
            rows.append([message.offset(), message.timestamp()[1], encoded(message.key()),
                         encoded(message.value()), encoded(message.headers()[0][1])])
    reader.close()
    return rows


def offsets(topic, partition, at):
    """Return an offset: "earliest", "latest", or of a time; -1 if no record is as late."""
    reader = consumer()
    part = TopicPartition(topic, partition)
    if isinstance(at, dict):
        part.offset = at["time"]
        found = reader.offsets_for_times([part], TIMEOUT_S)[0].offset
    else:
        found = reader.get_watermark_offsets(part, TIMEOUT_S)[at == "latest"]
    reader.close()
    return found


def metadata(topic):
    """Return ids of brokers and the number of partitions."""
    found = admin.list_topics(topic, TIMEOUT_S)
    return {"brokers": sorted(found.brokers), "partitions": len(found.topics[topic].partitions)}


def create(topic, partitions, replication):
    """Create a topic."""
    wait(admin.create_topics([NewTopic(topic, partitions, replication)]))


def wait(futures) -> list:
    """Return the results of futures. Raises ``KafkaException``."""
    return [future.result(TIMEOUT_S) for future in futures.values()]


def describe(topic, name):
    """Return the value of a setting of a topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return wait(admin.describe_configs([resource]))[0][name].value


def alter(topic, name, value):
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    wait(admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))


def delete_records(topic, partition, before):
    """Delete the records before an offset."""
    wait(admin.delete_records([TopicPartition(topic, partition, before)]))


def delete(topic):
    """Delete a topic."""
    wait(admin.delete_topics([topic]))


serve({each.__name__: each for each in (
    produce, fetch, offsets, metadata, create, describe, alter, delete_records, delete)},
    (KafkaException, KafkaError, BufferError, TimeoutError))
