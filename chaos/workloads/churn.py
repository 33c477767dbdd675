"""Workload of topics that are created, used, deleted and created again under the same name.

Theory.  Each name has one owner, so that every incarnation has one key and a record names the
incarnation that it was made for: a record that appears in the next incarnation belongs to another
topic.  The owner continues with the client that created the topic, so that client knows the
incarnation.  The next incarnation is used by another client, which has seen no metadata of it.  It
is another process of the history, because a client's knowledge is promised to that client alone,
and while the metadata group has no leader a node may give a new client older metadata.  Reads of a
deleted incarnation go to the partition's own incarnation, and must no longer find anything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import trio

from chaos.workloads import reads
from chaos.workloads.appends import is_known, record_outcome, send
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import RecordSource
from chaos.workloads.session import Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext, partitions_of
from multiraft.client import Client, Producer

NO_SETTINGS: Mapping[str, int] = {}
NAMES = 3
PARTITIONS_MAX = 3
PER_SECOND = 6.0
#: Requests in one incarnation of a topic.
LIFE_MIN, LIFE_MAX = 10, 40
DELIVERY_TIMEOUT_MS = 6_000


async def run(context: WorkloadContext) -> None:
    """Own ``NAMES`` topic names, one task each, until cancelled."""
    async with trio.open_nursery() as nursery:
        for number in range(NAMES):
            nursery.start_soon(owning, context, f"churn-{number}")


async def owning(context: WorkloadContext, name: str) -> None:
    """Create, use and delete incarnations of one topic name, one after the other, each with a new
    client, until cancelled."""
    rng = context.rng()
    source = RecordSource(context.run, context.recorder.next_producer(), rng)
    while True:
        async with context.client() as client, Sessions() as sessions:
            await one_life(context, context.recorder.process(), client, sessions, rng, source,
                           name)


async def one_life(
    context: WorkloadContext,
    process: ClientProcess,
    client: Client,
    sessions: Sessions,
    rng: random.Random,
    source: RecordSource,
    name: str,
) -> None:
    """Create, use and delete one incarnation of a topic, and read it once more. When the creation
    is refused or ambiguous, delete the topic that exists, if one does."""
    await trio.sleep(context.pause_s(rng, PER_SECOND))
    places = await create(process, client, rng, name)
    if places is None:
        incarnation = await reads.describe(process, client, name)
        if incarnation is not None and incarnation >= 0:
            await delete(process, client, name, incarnation)
        return
    async with client.producer(linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        known: set[str] = set()
        for _ in range(rng.randint(LIFE_MIN, LIFE_MAX)):
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            await use(context, process, client, producer, sessions, rng, source, known,
                      rng.choice(places))
    if await delete(process, client, name, places[0].topic_incarnation):
        place = rng.choice(places)
        await reads.read(context, process, sessions, place, context.any_node(rng), 0)


async def use(context: WorkloadContext, process: ClientProcess, client: Client, producer: Producer,
              sessions: Sessions, rng: random.Random, source: RecordSource, known: set[str],
              place: PartitionRef) -> None:
    """Send one append, read or description, at random, and record it. Without an answer about the
    topic, a read replaces an append."""
    dice = rng.random()
    if dice < 0.6 and await is_known(client, known, place):
        values, records = source.take(place)
        operation = process.invoke("append", key=place.key, values=values, acks="commit",
                                   producer=-1, epoch=-1, sequence=-1)
        await record_outcome(context, operation, place, len(values),
                     send(client, producer, place, records))
    elif dice < 0.9:
        offset = rng.randint(0, context.topics.end(place.key))
        await reads.read(context, process, sessions, place, context.any_node(rng), offset)
    else:
        await reads.describe(process, client, place.topic)


async def create(process: ClientProcess, client: Client, rng: random.Random, name: str,
                 partitions: int = 0, settings: Mapping[str, int] = NO_SETTINGS,
                 ) -> list[PartitionRef] | None:
    """Create a topic with ``partitions``, 0 = a random number, and these settings, and return its
    partitions; None = refused or ambiguous. The request and its outcome are recorded."""
    partitions = partitions or rng.randint(1, PARTITIONS_MAX)
    with process.invoke("create_topic", topic=name, partitions=partitions) as operation:
        topic = await client.create_topic(name, partitions, settings=settings)
        operation.ok(incarnation=topic.incarnation)
        return partitions_of(topic)
    return None


async def delete(process: ClientProcess, client: Client, name: str, incarnation: int) -> bool:
    """Delete an incarnation of a topic, and record that; return True if the deletion was confirmed,
    False if it was refused or is ambiguous."""
    with process.invoke("delete_topic", topic=name, incarnation=incarnation) as operation:
        await client.delete_topic(name, incarnation)
        operation.ok()
    return operation.happened
