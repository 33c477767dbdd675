"""Workload of readers that are clients of Kafka: consumers with assigned partitions, single reads,
ends, offsets of times.

Theory.  A consumer of librdkafka reads ahead, so what a poll returns may have been read before it
was invoked; an assignment ends that.  Ends are confirmed by a majority at Kafka's port, so a
question for them is a linearizable one.  A fetch on a raw connection has what librdkafka hides: the
high watermark that comes with the records.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import trio

from chaos.workloads import kafka_client, kafka_session
from chaos.workloads.consumers import assignment
from chaos.workloads.kafka_appends import BACK_MS_MAX
from chaos.workloads.kafka_client import AT_KAFKAS_PORT, KafkaConsumer, NotKnown, Received
from chaos.workloads.reads import offset_near
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import fetched, next_offset, runs_of
from chaos.workloads.workload_context import PartitionRef, WorkloadContext

#: Isolation level of each consumer, and of each reader.
ISOLATIONS = ("read_committed", "read_uncommitted")
PER_SECOND = 6.0
#: Records of one poll, and the time that it waits; chance that an assignment follows.
POLL_RECORDS_MAX, POLL_S, REASSIGN = 200, 0.25, 0.1
#: Records of one read, and the time to wait for the first one or for the end.
READ_RECORDS_MAX, READ_S = 50, 3.0
#: Shares of a reader's requests: fetches, ends that any node is asked for, reads, ends; the rest
#: are questions for times.
FETCHES, ANY_ENDS, READS, ENDS = 0.35, 0.15, 0.2, 0.15
#: A question is for a time of the last so many milliseconds.
AGE_MS_MAX = 30_000


async def run(context: WorkloadContext) -> None:
    """Run a consumer and a reader for each of ``ISOLATIONS``, until cancelled."""
    async with trio.open_nursery() as nursery:
        for isolation in ISOLATIONS:
            nursery.start_soon(consuming, context, isolation)
            nursery.start_soon(reading, context, isolation)


# ---- consumers -------------------------------------------------------------------------------


async def consuming(context: WorkloadContext, isolation: str) -> None:
    """Run one consumer until cancelled: assignments, each with its polls, and a pause after each
    poll."""
    rng, process = context.rng(), context.recorder.process()
    positions: dict[PartitionRef, int] = {}
    async with kafka_client.consumer(context, isolation) as consumer:
        while True:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            positions = assignment(rng, context, positions)
            with process.invoke("assign", positions={
                    place.key: at for place, at in positions.items()}, **AT_KAFKAS_PORT) as begun:
                await consumer.assign(positions)
                begun.ok()
            number = process.number
            while begun.happened and number == process.number and rng.random() > REASSIGN:
                if not await poll(context, process, consumer, positions):
                    break
                await trio.sleep(context.pause_s(rng, PER_SECOND))


async def poll(context: WorkloadContext, process: ClientProcess, consumer: KafkaConsumer,
               positions: dict[PartitionRef, int]) -> bool:
    """Poll once, record the result and update ``positions``; return True if the consumer can
    continue."""
    with process.invoke("poll", keys=[place.key for place in positions],
                        **AT_KAFKAS_PORT) as operation:
        received, _ = await consumer.take(POLL_RECORDS_MAX, POLL_S)
        found = {}
        for place, records in by_place(positions, received).items():
            runs = found[place.key] = kafka_client.runs_of(context.run, place.key, records)
            positions[place] = next_offset(runs, positions[place])
            context.topics.heard(place.key, positions[place])
        operation.ok(runs=found)
    return operation.happened


def by_place(places: dict[PartitionRef, int], received: list[Received]
             ) -> dict[PartitionRef, list[Received]]:
    """Return the records of each partition, without those that have none."""
    named = {(place.topic, place.partition): place for place in places}
    found: dict[PartitionRef, list[Received]] = {}
    for record in received:
        found.setdefault(named[record.topic, record.partition], []).append(record)
    return found


# ---- readers ---------------------------------------------------------------------------------


async def reading(context: WorkloadContext, isolation: str) -> None:
    """Send requests of random kinds, with a pause before each, until cancelled; one process."""
    rng, process = context.rng(), context.recorder.process()
    async with kafka_client.consumer(context, isolation) as consumer:
        while True:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            place = context.topics.pick(rng)
            await one_request(context, process, rng, consumer, place, isolation)


async def one_request(context: WorkloadContext, process: ClientProcess, rng: random.Random,
                      consumer: KafkaConsumer, place: PartitionRef, isolation: str) -> None:
    """Send one request of a random kind about a partition, and record it."""
    dice = rng.random()
    offset = offset_near(rng, context.topics.end(place.key))
    if dice < FETCHES:
        node = context.leaders.get(place.group) or context.any_node(rng)
        await fetch(context, process, place, node, offset, isolation)
    elif dice < FETCHES + ANY_ENDS:
        await end_at(context, process, place, context.any_node(rng))
    elif dice < FETCHES + ANY_ENDS + READS:
        await read(context, process, consumer, place, offset)
    elif dice < FETCHES + ANY_ENDS + READS + ENDS:
        await offsets(context, process, consumer, place)
    else:
        now_ms = time.time_ns() // 1_000_000
        await offset_for_time(process, consumer, place,
                              now_ms - BACK_MS_MAX - rng.randrange(AGE_MS_MAX))


async def fetch(context: WorkloadContext, process: ClientProcess, place: PartitionRef, node: int,
                offset: int, isolation: str) -> bool:
    """Fetch once on a raw connection and record it; return True if records or an end came."""
    with process.invoke("read", key=place.key, offset=offset, mode="committed", node=node,
                        **AT_KAFKAS_PORT) as operation:
        address = context.kafka_nodes().get(node)
        result = await kafka_session.fetch(address, place, offset, isolation)
        runs = runs_of(context.run, place.key,
                       fetched(place, result.records, offset, result.high_watermark))
        operation.ok(runs=runs, start=result.log_start, high_watermark=result.high_watermark,
                     node=node)
        context.topics.heard(place.key, result.high_watermark)
    return operation.happened


async def end_at(context: WorkloadContext, process: ClientProcess, place: PartitionRef, node: int
                 ) -> None:
    """Ask a node for the end of a partition, whether or not it leads, and record the answer: a node
    that answers must have the end confirmed."""
    with process.invoke("offsets", key=place.key, mode="linearizable", node=node,
                        **AT_KAFKAS_PORT) as operation:
        end = await kafka_session.end(context.kafka_nodes().get(node), place)
        operation.ok(start=-1, high_watermark=end)
        context.topics.heard(place.key, end)


async def read(context: WorkloadContext, process: ClientProcess, consumer: KafkaConsumer,
               place: PartitionRef, offset: int) -> bool:
    """Read once from an offset on and record it; return True if records or the end came."""
    with process.invoke("read", key=place.key, offset=offset, mode="committed",
                        **AT_KAFKAS_PORT) as operation:
        await consumer.assign({place: offset})
        received, ended = await consumer.take(READ_RECORDS_MAX, READ_S, until_end=True)
        if not received and not ended:
            raise NotKnown(f"neither a record nor the end in {READ_S:.0f} s")
        runs = kafka_client.runs_of(context.run, place.key, received)
        operation.ok(runs=runs)
        context.topics.heard(place.key, next_offset(runs, 0))
    return operation.happened


async def offsets(context: WorkloadContext, process: ClientProcess, consumer: KafkaConsumer,
                  place: PartitionRef, final: bool = False) -> tuple[int, int] | None:
    """Return log start and end of a partition, and record them; None = no answer."""
    asked = {"final": True} if final else {}
    with process.invoke("offsets", key=place.key, mode="linearizable", **asked,
                        **AT_KAFKAS_PORT) as operation:
        start, end = await consumer.ask("get_watermark_offsets", part(place), timeout=READ_S,
                                        cached=False)
        operation.ok(start=start, high_watermark=end)
        context.topics.heard(place.key, end)
        return start, end
    return None


async def offset_for_time(process: ClientProcess, consumer: KafkaConsumer, place: PartitionRef,
                          time_ms: int) -> None:
    """Ask for the first record at or after a time, and record the answer."""
    with process.invoke("offset_for_time", key=place.key, time_ms=time_ms,
                        **AT_KAFKAS_PORT) as operation:
        (found,) = await consumer.ask("offsets_for_times", [part(place, time_ms)], timeout=READ_S)
        if found.error is not None:
            raise kafka_client.error_of(found.error, False)
        operation.ok(offset=found.offset)


def part(place: PartitionRef, offset: int | None = None):
    """Return a partition as librdkafka names it, with an offset or a time if given."""
    make: Callable = kafka_client.library().TopicPartition
    return make(place.topic, place.partition, *(() if offset is None else (offset,)))
