"""Unique appends with each ack level: one attempt, one answer, no retry that could double it.

Theory.  Without idempotence the client repeats only what was certainly not appended, so a lost
answer is an ``info`` and a refusal must be the truth: a checker that finds the value of a ``fail``
has found a lie of the client or of the node.
"""

from __future__ import annotations

import random

import trio

from chaos.workloads.recorder import Operation
from chaos.workloads.records import Source
from chaos.workloads.setting import Place, Setting
from multiraft.client import BatchDelivery, BatchReceipt, Client, Producer, Record
from multiraft.errors import MultiRaftError

#: Ack level of each process.
LEVELS = ("commit", "commit", "commit", "commit", "commit", "commit", "leader", "leader", "leader",
          "none")
#: Questions per second of one of them.
PER_SECOND = 8.0
#: After this an append is given up: a few elections long, so that many outcomes stay unknown.
DELIVERY_TIMEOUT_MS = 4_000
REQUEST_TIMEOUT_MS = 2_000
#: The client must have said something by then; it is a bug of the client when it has not.
ANSWER_TIMEOUT_S = 30.0


async def run(setting: Setting) -> None:
    """See ``chaos.workloads``."""
    async with trio.open_nursery() as nursery:
        for acks in LEVELS:
            nursery.start_soon(appending, setting, acks)


async def appending(setting: Setting, acks: str) -> None:
    """One process: an append, its outcome, a pause."""
    rng, process = setting.rng(), setting.recorder.process()
    source = Source(setting.run, setting.recorder.next_producer(), rng)
    async with setting.client() as client, client.producer(
            acks=acks, idempotent=False, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS) as producer:
        known: set[str] = set()
        while True:
            await trio.sleep(setting.pause_s(rng, PER_SECOND))
            place = setting.topics.pick(rng)
            if await is_known(client, known, place):
                values, records = source.take(place)
                operation = process.invoke("append", key=place.key, values=values, acks=acks,
                                           producer=-1, epoch=-1, sequence=-1)
                deliveries = send(client, producer, place, records)
                await settle(setting, operation, place, len(values), deliveries)


async def is_known(client: Client, known: set[str], place: Place) -> bool:
    """Whether the client knows where the topic is; it finds out if not, and may fail."""
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


def send(client: Client, producer: Producer, place: Place, records: list[bytes],
         ) -> list[BatchDelivery]:
    """Give the client one batch of records; it leaves at once."""
    deliveries = [producer.send_nowait(Record(place.topic, record, partition=place.partition))
                  for record in records]
    client.work()
    return deliveries


async def settle(setting: Setting, operation: Operation, place: Place, count: int,
                 deliveries: list[BatchDelivery]) -> None:
    """Wait for the outcome of one append and write it down."""
    with operation:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            receipts = await outcomes(deliveries)
        receipt = receipts[-1]
        if receipt.count != count or any(other != receipt for other in receipts):
            # Records of two appends in one batch: acknowledged, but which of them is where?
            operation.unknown("SharedBatch", f"{receipt.count} records in the batch of {count}")
            return
        operation.ok(offset=receipt.base_offset)
        if receipt.base_offset >= 0:
            setting.topics.heard(place.key, receipt.base_offset + count)


async def outcomes(deliveries: list[BatchDelivery]) -> list[BatchReceipt]:
    """What became of each.  Raises the first failure, when all are known: one that nobody waits for
    is the producer's to raise, at its end."""
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
    """Between half of it and all of it."""
    return seconds * (0.5 + rng.random() / 2)
