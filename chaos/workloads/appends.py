"""Workload of unique appends with each ack level: one attempt, one answer, no retry that could
append twice.

Theory.  Without idempotence the client repeats only what was certainly not appended, so a lost
answer is an ``info`` and a refusal must be the truth: when a checker finds the value of a ``fail``,
the client or the node reported a wrong outcome.
"""

from __future__ import annotations

import random

import trio

from chaos.workloads.recorder import Operation
from chaos.workloads.records import RecordSource
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.client import BatchDelivery, BatchReceipt, Client, Producer, Record
from multiraft.errors import MultiRaftError

#: Ack level of each process.
LEVELS = ("commit", "commit", "commit", "commit", "commit", "commit", "leader", "leader", "leader",
          "none")
#: Requests per second of one process.
PER_SECOND = 8.0
#: An append is given up after this time: a few elections long, so that many outcomes stay
#: ambiguous.
DELIVERY_TIMEOUT_MS = 4_000
REQUEST_TIMEOUT_MS = 2_000
#: A client that has not answered by then has a bug.
ANSWER_TIMEOUT_S = 30.0


async def run(context: WorkloadContext) -> None:
    """Append with one process for each of ``LEVELS``, until cancelled."""
    async with trio.open_nursery() as nursery:
        for acks in LEVELS:
            nursery.start_soon(appending, context, acks)


async def appending(context: WorkloadContext, acks: str) -> None:
    """Append to random partitions and record each outcome, with a pause before each append, until
    cancelled; one process."""
    rng, process = context.rng(), context.recorder.process()
    source = RecordSource(context.run, context.recorder.next_producer(), rng)
    async with context.client() as client, client.producer(
            acks=acks, idempotent=False, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS) as producer:
        known: set[str] = set()
        while True:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            place = context.topics.pick(rng)
            if await is_known(client, known, place):
                values, records = source.take(place)
                operation = process.invoke("append", key=place.key, values=values, acks=acks,
                                           producer=-1, epoch=-1, sequence=-1)
                deliveries = send(client, producer, place, records)
                await record_outcome(context, operation, place, len(values), deliveries)


async def is_known(client: Client, known: set[str], place: PartitionRef) -> bool:
    """True if the client knows this incarnation of the topic. Asks a node about a topic that is not
    in ``known`` and adds it; False when no answer came or it was of another incarnation."""
    if place.topic in known:
        return True
    try:
        found = await client.topic_metadata(place.topic)
    except MultiRaftError:
        return False
    if found.incarnation != place.topic_incarnation:
        return False
    known.add(place.topic)
    return True


def send(client: Client, producer: Producer, place: PartitionRef, records: list[bytes],
         ) -> list[BatchDelivery]:
    """Give the client one batch of records, which it sends without waiting for more; return the
    deliveries of the records, to be awaited."""
    deliveries = [producer.send_nowait(Record(place.topic, record, partition=place.partition))
                  for record in records]
    client._work()
    return deliveries


async def record_outcome(
    context: WorkloadContext,
    operation: Operation,
    place: PartitionRef,
    count: int,
    deliveries: list[BatchDelivery],
) -> None:
    """Wait for the outcome of one append of ``count`` records, at most ``ANSWER_TIMEOUT_S``, and
    complete ``operation`` with it. Records of two appends in one batch are acknowledged in an
    unknown order: their outcome is ambiguous."""
    with operation:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            receipts = await outcomes(deliveries)
        receipt = receipts[-1]
        if receipt.count != count or any(other != receipt for other in receipts):
            # Records of two appends in one batch: acknowledged, but their order in it is unknown.
            operation.unknown("SharedBatch", f"{receipt.count} records in the batch of {count}")
            return
        operation.ok(offset=receipt.base_offset)
        if receipt.base_offset >= 0:
            context.topics.heard(place.key, receipt.base_offset + count)


async def outcomes(deliveries: list[BatchDelivery]) -> list[BatchReceipt]:
    """Return the receipts of all deliveries.  Raises the first failure once all outcomes are known:
    the producer would raise a failure that is never awaited when it closes."""
    receipts, failures = [], []
    for delivery in deliveries:
        try:
            receipts.append(await delivery.wait())
        except MultiRaftError as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    return receipts


def jitter(rng: random.Random, seconds: float) -> float:
    """Return a random time between half of ``seconds`` and all of it."""
    return seconds * (0.5 + rng.random() / 2)
