"""Workload of appends by clients of Kafka: with and without idempotence, with each ack level.

Theory.  Each record is an append of its own: librdkafka decides which records share a batch, and
gives each of them its offset.  A burst of records at one partition makes batches of several
records, so an answer with the wrong base offset is seen.  The records have times, some of them
earlier than those before, so that a question for a time has an exact answer.
"""

from __future__ import annotations

import random
import time

import trio

from chaos.workloads import kafka_client
from chaos.workloads.appends import jitter
from chaos.workloads.kafka_client import AT_KAFKAS_PORT, Append, KafkaProducer
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import RecordSource
from chaos.workloads.workload_context import PartitionRef, WorkloadContext

#: Ack level of each producer, and whether it is idempotent.
PRODUCERS = (("commit", True), ("commit", True), ("commit", False), ("leader", False),
             ("none", False))
#: Bursts per second of one producer.
PER_SECOND = 4.0
#: A producer is closed after this time, and another one opened.
LIFE_S = 40.0
#: Times of records lie back by this much, at most.
BACK_MS_MAX = 2_000


async def run(context: WorkloadContext) -> None:
    """Append with one producer for each of ``PRODUCERS``, until cancelled."""
    async with trio.open_nursery() as nursery:
        for acks, idempotent in PRODUCERS:
            nursery.start_soon(appending, context, acks, idempotent)


async def appending(context: WorkloadContext, acks: str, idempotent: bool) -> None:
    """Run producers of one kind, one after the other, until cancelled."""
    rng = context.rng()
    while True:
        await one_life(context, rng, acks, idempotent)


async def one_life(context: WorkloadContext, rng: random.Random, acks: str, idempotent: bool
                   ) -> None:
    """Append bursts to random partitions with one producer, for ``LIFE_S`` or until its identity is
    of no use, and wait for all outcomes."""
    process = context.recorder.process()
    number = context.recorder.next_producer()
    source = RecordSource(context.run, number, rng)
    ends = trio.current_time() + jitter(rng, LIFE_S)
    async with kafka_client.producer(context, acks, idempotent) as producer:
        while trio.current_time() < ends and not producer.is_fatal:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            await burst(process, rng, source, producer, context.topics.pick(rng), acks,
                        number if idempotent else -1)
        await producer.settled()


async def burst(process: ClientProcess, rng: random.Random, source: RecordSource,
                producer: KafkaProducer, place: PartitionRef, acks: str, number: int) -> None:
    """Append some records to a partition, each as an append of its own. ``number``: of an
    idempotent producer, else -1."""
    now_ms = time.time_ns() // 1_000_000
    await producer.room()
    appends = []
    for value, record in zip(*source.take(place), strict=True):
        time_ms = now_ms - rng.randrange(BACK_MS_MAX)
        operation = process.invoke(
            "append", key=place.key, values=[value], acks=acks, producer=number, epoch=-1,
            sequence=-1, times=[time_ms], **AT_KAFKAS_PORT)
        appends.append(Append(place, record, time_ms, operation))
    await producer.send(appends)
