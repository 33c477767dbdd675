"""Workload of topics that clients of Kafka create, use and delete, and whose records they delete.

Theory.  A client of Kafka names a topic by its name alone, and a request that was given up may
arrive after the topic was deleted and created again: then it belongs to the new topic, by Kafka's
rules too.  So each life has a name of its own.  The number of the incarnation is not told at
Kafka's port; a native client asks for it, and asks once more after the deletion, as a process of
its own, because what one port said is not promised to a client at the other.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import trio

from chaos.workloads import kafka_client, kafka_reads, reads
from chaos.workloads.kafka_appends import burst
from chaos.workloads.kafka_client import (
    AT_KAFKAS_PORT,
    KafkaAdmin,
    KafkaConsumer,
    KafkaProducer,
    NotKnown,
)
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import RecordSource
from chaos.workloads.session import Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext, partitions_of
from multiraft.client import Client
from multiraft.errors import MultiRaftError

OWNERS = 2
PARTITIONS_MAX = 3
PER_SECOND = 6.0
#: Requests in one life of a topic.
LIFE_MIN, LIFE_MAX = 30, 90
#: Time to learn of a topic that was created, at the other port.
KNOWN_S, RETRY_S = 5.0, 0.2
#: Shares of an owner's requests: bursts of appends, deletions of records, ends; the rest are reads.
APPENDS, DELETIONS, ENDS = 0.5, 0.1, 0.1
#: Probability that all records are deleted, and that more are to be than there are.
ALL, BEYOND = 0.2, 0.1


async def run(context: WorkloadContext) -> None:
    """Own topics, ``OWNERS`` tasks, until cancelled."""
    async with trio.open_nursery() as nursery:
        for number in range(OWNERS):
            nursery.start_soon(owning, context, f"kafka-{number}")


class Owner(NamedTuple):
    """One task's clients."""

    context: WorkloadContext
    rng: random.Random
    admin: KafkaAdmin
    consumer: KafkaConsumer
    client: Client
    sessions: Sessions


async def owning(context: WorkloadContext, name: str) -> None:
    """Create, use and delete topics, one after the other, each with new clients, until
    cancelled."""
    rng, life = context.rng(), 0
    while True:
        life += 1
        async with (kafka_client.consumer(context, rng.choice(kafka_reads.ISOLATIONS)) as consumer,
                    kafka_client.admin(context) as admin, context.client() as client,
                    Sessions() as sessions):
            await one_life(Owner(context, rng, admin, consumer, client, sessions),
                           f"{name}-{life}")


async def one_life(owner: Owner, name: str) -> None:
    """Create, use and delete one topic, and describe it natively afterwards. A topic whose creation
    was not acknowledged is left as it is."""
    context, rng = owner.context, owner.rng
    process = context.recorder.process()
    await trio.sleep(context.pause_s(rng, PER_SECOND))
    places = await create(owner, process, name)
    if places is None:
        return
    number = context.recorder.next_producer()
    source = RecordSource(context.run, number, rng)
    async with kafka_client.producer(context, "commit", True) as producer:
        for _ in range(rng.randint(LIFE_MIN, LIFE_MAX)):
            if producer.is_fatal:
                break
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            await use(owner, process, producer, source, number, rng.choice(places))
        await producer.settled()
    incarnation = places[0].topic_incarnation
    with process.invoke("delete_topic", topic=name, incarnation=incarnation,
                        **AT_KAFKAS_PORT) as operation:
        await owner.admin.delete(name)
        operation.ok()
    await reads.describe(context.recorder.process(), owner.client, name)


async def create(owner: Owner, process: ClientProcess, name: str) -> list[PartitionRef] | None:
    """Create a topic, and return its partitions once a native client has found it; None = the
    outcome is not known."""
    partitions = owner.rng.randint(1, PARTITIONS_MAX)
    with process.invoke("create_topic", topic=name, partitions=partitions,
                        **AT_KAFKAS_PORT) as operation:
        await owner.admin.create(name, partitions)
        with trio.move_on_after(KNOWN_S):
            while True:
                try:
                    topic = await owner.client.topic_metadata(name)
                except MultiRaftError:
                    await trio.sleep(RETRY_S)
                    continue
                operation.ok(incarnation=topic.incarnation)
                return partitions_of(topic)
        raise NotKnown(f"created, and not known natively after {KNOWN_S:.0f} s")
    return None


async def use(owner: Owner, process: ClientProcess, producer: KafkaProducer, source: RecordSource,
              number: int, place: PartitionRef) -> None:
    """Send one request of a random kind about a partition, and record it."""
    context, rng, dice = owner.context, owner.rng, owner.rng.random()
    end = context.topics.end(place.key)
    if dice < APPENDS:
        await burst(process, rng, source, producer, place, "commit", number)
    elif dice < APPENDS + DELETIONS:
        await delete_records(owner, process, place, end)
    elif dice < APPENDS + DELETIONS + ENDS:
        await kafka_reads.offsets(context, process, owner.consumer, place)
    elif dice < 0.85:
        node = context.leaders.get(place.group) or context.any_node(rng)
        await kafka_reads.fetch(context, process, place, node, rng.randint(0, end),
                                rng.choice(kafka_reads.ISOLATIONS))
    elif dice < 0.95:
        await kafka_reads.read(context, process, owner.consumer, place, rng.randint(0, end))
    else:
        await reads.read(context, process, owner.sessions, place, context.any_node(rng),
                         rng.randint(0, end))


async def delete_records(owner: Owner, process: ClientProcess, place: PartitionRef, end: int
                         ) -> None:
    """Delete the records of a partition below a random offset, perhaps all, or more than there
    are."""
    before, dice = owner.rng.randint(0, end), owner.rng.random()
    if dice < ALL + BEYOND:
        before = -1 if dice < ALL else end + 1_000
    with process.invoke("delete_records", key=place.key, before=before,
                        **AT_KAFKAS_PORT) as operation:
        operation.ok(log_start=await owner.admin.delete_records(place, before))
