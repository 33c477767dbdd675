"""Program of kafka-python, of its versions 2.0 and later."""

from __future__ import annotations

import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from serve import HEADER, decoded, encoded, serve

SERVERS = sys.argv[1]
POLL_MS = 200
producers: dict[tuple, KafkaProducer] = {}


def produce(topic, partition, acks, compression, idempotent, header, records, timeout_s):
    """Produce records; return the offset of each, -1 if the broker tells none, null if it was not
    acknowledged."""
    key = (acks, compression, idempotent)
    if key not in producers:
        settings = {}
        if "enable_idempotence" in KafkaProducer.DEFAULT_CONFIG:
            settings = {"enable_idempotence": idempotent,
                        "delivery_timeout_ms": int(timeout_s * 1000)}
        producers[key] = KafkaProducer(
            bootstrap_servers=SERVERS, acks=acks if acks == "all" else int(acks), linger_ms=5,
            compression_type=None if compression == "none" else compression, **settings,
            retries=sys.maxsize, request_timeout_ms=int(timeout_s * 500))
    futures = [producers[key].send(topic, decoded(value), decoded(name), partition=partition,
                                   headers=[(HEADER, decoded(header))]) for name, value in records]
    producers[key].flush(timeout_s)
    return [future.value.offset if future.succeeded() else None for future in futures]


def fetch(topic, partition, start, count, timeout_s):
    """Return up to ``count`` records from ``start`` on."""
    reader = KafkaConsumer(bootstrap_servers=SERVERS, enable_auto_commit=False, group_id=None)
    part = TopicPartition(topic, partition)
    reader.assign([part])
    if start == "beginning":
        reader.seek_to_beginning(part)
    elif isinstance(start, dict):
        reader.seek(part, reader.offsets_for_times({part: start["time"]})[part].offset)
    else:
        reader.seek(part, start)
    rows, give_up = [], time.monotonic() + timeout_s
    while len(rows) < count and time.monotonic() < give_up:
        found = reader.poll(POLL_MS, max_records=count - len(rows))
        rows += [[each.offset, each.timestamp, encoded(each.key), encoded(each.value),
                  encoded(each.headers[0][1])] for each in found.get(part, [])]
    reader.close()
    return rows


def offsets(topic, partition, at):
    """Return an offset: "earliest", "latest", or of a time; -1 if no record is as late."""
    part = TopicPartition(topic, partition)
    reader = KafkaConsumer(bootstrap_servers=SERVERS, group_id=None)
    if isinstance(at, dict):
        row = reader.offsets_for_times({part: at["time"]})[part]
        found = -1 if row is None else row.offset
    else:
        asked = reader.beginning_offsets if at == "earliest" else reader.end_offsets
        found = asked([part])[part]
    reader.close()
    return found


def administer(method: str, *arguments, **options):
    """Call a method of the admin client."""
    admin = KafkaAdminClient(bootstrap_servers=SERVERS)
    try:
        return getattr(admin, method)(*arguments, **options)
    finally:
        admin.close()


def metadata(topic):
    """Return ids of brokers and the number of partitions."""
    cluster = administer("describe_cluster")
    topics = administer("describe_topics", [topic])
    return {"brokers": sorted(each["node_id" if "node_id" in each else "broker_id"]
                              for each in cluster["brokers"]),
            "partitions": len(topics[0]["partitions"])}


def create(topic, partitions, replication):
    """Create a topic."""
    administer("create_topics", [NewTopic(topic, partitions, replication)])


def describe(topic, name):
    """Return the value of a setting of a topic."""
    answer = administer("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)],
                        **({} if is_before_3() else {"config_filter": "all"}))
    if is_before_3():
        return {entry[0]: entry[1] for entry in answer[0].resources[0][4]}[name]
    return next(iter(answer.values()))[topic][name]["value"]


def is_before_3() -> bool:
    """Return True for versions whose admin client returns answers of the protocol."""
    return not hasattr(KafkaAdminClient, "reset_configs")


def alter(topic, name, value):
    """Change a setting of a topic."""
    answer = administer("alter_configs",
                        [ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
    if is_before_3() and any(each[0] for each in answer.resources):
        raise KafkaError(f"refused: {answer.resources}")


def delete_records(topic, partition, before):
    """Delete the records before an offset."""
    administer("delete_records", {TopicPartition(topic, partition): before})


def delete(topic):
    """Delete a topic."""
    administer("delete_topics", [topic])


serve({each.__name__: each for each in (
    produce, fetch, offsets, metadata, create, describe, alter, delete_records, delete)},
    (KafkaError, TimeoutError))
