"""Program of aiokafka."""

from __future__ import annotations

import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from serve import HEADER, decoded, encoded, serve

SERVERS = sys.argv[1]
POLL_MS = 200
producers: dict[tuple, AIOKafkaProducer] = {}
loop = asyncio.new_event_loop()


async def produce(topic, partition, acks, compression, idempotent, header, records, timeout_s):
    """Produce records; return the offset of each, -1 if the broker tells none, null if it was not
    acknowledged."""
    key = (acks, compression, idempotent)
    if key not in producers:
        producers[key] = AIOKafkaProducer(
            bootstrap_servers=SERVERS, acks=acks if acks == "all" else int(acks), linger_ms=5,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent, request_timeout_ms=int(timeout_s * 1000))
        await producers[key].start()
    futures = [await producers[key].send(topic, decoded(value), decoded(name), partition,
                                         headers=[(HEADER, decoded(header))])
               for name, value in records]
    await producers[key].flush()
    done = await asyncio.gather(*futures, return_exceptions=True)
    return [None if isinstance(each, Exception) else -1 if each is None else each.offset
            for each in done]


async def fetch(topic, partition, start, count, timeout_s):
    """Return up to ``count`` records from ``start`` on."""
    rows, give_up = [], time.monotonic() + timeout_s
    async with AIOKafkaConsumer(bootstrap_servers=SERVERS, enable_auto_commit=False) as reader:
        part = TopicPartition(topic, partition)
        reader.assign([part])
        if start == "beginning":
            await reader.seek_to_beginning(part)
        elif isinstance(start, dict):
            reader.seek(part, (await reader.offsets_for_times({part: start["time"]}))[part].offset)
        else:
            reader.seek(part, start)
        while len(rows) < count and time.monotonic() < give_up:
            found = await reader.getmany(part, timeout_ms=POLL_MS, max_records=count - len(rows))
            rows += [[each.offset, each.timestamp, encoded(each.key), encoded(each.value),
                      encoded(each.headers[0][1])] for each in found.get(part, [])]
    return rows


async def offsets(topic, partition, at):
    """Return an offset: "earliest", "latest", or of a time; -1 if no record is as late."""
    part = TopicPartition(topic, partition)
    async with AIOKafkaConsumer(bootstrap_servers=SERVERS) as reader:
        if isinstance(at, dict):
            found = (await reader.offsets_for_times({part: at["time"]}))[part]
            return -1 if found is None else found.offset
        asked = reader.beginning_offsets if at == "earliest" else reader.end_offsets
        return (await asked([part]))[part]


async def administer(method: str, *arguments):
    """Call a method of the admin client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=SERVERS)
    await admin.start()
    try:
        return await getattr(admin, method)(*arguments)
    finally:
        await admin.close()


async def metadata(topic):
    """Return ids of brokers and the number of partitions."""
    cluster = await administer("describe_cluster")
    topics = await administer("describe_topics", [topic])
    return {"brokers": sorted(each["node_id"] for each in cluster["brokers"]),
            "partitions": len(topics[0]["partitions"])}


async def create(topic, partitions, replication):
    """Create a topic."""
    answer = await administer("create_topics", [NewTopic(topic, partitions, replication)])
    refused([error[1:] for error in answer.topic_errors])


def refused(errors: list) -> None:
    """Return if no error code is set. Raises ``KafkaError``."""
    if any(error[0] for error in errors):
        raise KafkaError(f"refused: {errors}")


async def describe(topic, name):
    """Return the value of a setting of a topic."""
    answers = await administer("describe_configs",
                               [ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answers[0].resources[0][4]}[name]


async def alter(topic, name, value):
    """Change a setting of a topic."""
    answers = await administer("alter_configs", [
        ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
    answers = answers if isinstance(answers, list) else [answers]
    refused([each for answer in answers for each in answer.resources])


async def delete_records(topic, partition, before):
    """Delete the records before an offset."""
    await administer("delete_records", {TopicPartition(topic, partition): RecordsToDelete(before)})


async def delete(topic):
    """Delete a topic."""
    answer = await administer("delete_topics", [topic])
    refused([error[1:] for error in answer.topic_error_codes])


def waited(verb):
    """Return a function that runs a coroutine function to its end."""
    return lambda **arguments: loop.run_until_complete(verb(**arguments))


serve({each.__name__: waited(each) for each in (
    produce, fetch, offsets, metadata, create, describe, alter, delete_records, delete)},
    (KafkaError, TimeoutError))
