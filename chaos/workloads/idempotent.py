"""Workload of idempotent producers: the product's, which pipelines and retries, and one on a raw
session that repeats batches on purpose.

Theory.  The product's client hides its retries; the history sees one append and one outcome.  On a
raw session the sequence is known: after any lost answer the same batch goes to the current leader,
and now and then a batch that was acknowledged is sent again, as an append of its own with the same
sequence and values.  Both must be answered with the first offset.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import trio

from chaos.workloads.appends import is_known, jitter, record_outcome, send
from chaos.workloads.recorder import ClientProcess, Operation
from chaos.workloads.records import RecordSource
from chaos.workloads.session import NoAnswer, Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft import core
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import (
    AmbiguousOutcome,
    OutOfOrderSequence,
    RequestError,
    TimedOut,
    UnknownPartition,
    exception_for,
)
from multiraft.wire.messages import BatchPart, InitProducer, Produce

#: Ack level of each pipelining producer.
LEVELS = ("commit", "commit", "leader")
BY_HAND = 3
PER_SECOND = 12.0
IN_FLIGHT_MAX = 5
DELIVERY_TIMEOUT_MS = 12_000
ATTEMPT_S = 1.5
GIVE_UP_S = 10.0
RETRY_S = 0.15
#: Chance that an acknowledged batch is sent once more.
REPLAY = 0.15
BATCH_BYTES_MAX = 64 << 10


async def run(context: WorkloadContext) -> None:
    """Run a pipelining producer for each of ``LEVELS``, and ``BY_HAND`` producers on raw sessions,
    until cancelled."""
    async with trio.open_nursery() as nursery:
        for acks in LEVELS:
            nursery.start_soon(pipelining, context, acks)
        for _ in range(BY_HAND):
            nursery.start_soon(repeating, context)


# ---- the product's producer -------------------------------------------------------------------


async def pipelining(context: WorkloadContext, acks: str) -> None:
    """Run one producer of the product with at most ``IN_FLIGHT_MAX`` appends under way, and record
    their outcomes, until cancelled."""
    rng, process = context.rng(), context.recorder.process()
    number = context.recorder.next_producer()
    source = RecordSource(context.run, number, rng)
    room = trio.CapacityLimiter(IN_FLIGHT_MAX)
    async with context.client() as client, client.producer(
            acks=acks, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        known: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(context.pause_s(rng, PER_SECOND))
                place = context.topics.pick(rng)
                if not await is_known(client, known, place):
                    continue
                token = object()
                await room.acquire_on_behalf_of(token)
                values, records = source.take(place)
                operation = process.invoke("append", key=place.key, values=values, acks=acks,
                                           producer=number, epoch=-1, sequence=-1)
                nursery.start_soon(_record_outcome, context, operation, place, len(values),
                                   send(client, producer, place, records), room, token)


async def _record_outcome(
    context: WorkloadContext,
    operation: Operation,
    place: PartitionRef,
    count: int,
    deliveries,
    room: trio.CapacityLimiter,
    token: object,
) -> None:
    try:
        await record_outcome(context, operation, place, count, deliveries)
    finally:
        room.release_on_behalf_of(token)


# ---- by hand ----------------------------------------------------------------------------------


@dataclass
class ProducerSession:
    """A producer id with its epoch, and the next sequence of each partition."""

    producer: int
    epoch: int
    sequences: dict[int, int]


async def repeating(context: WorkloadContext) -> None:
    """Run one producer on raw sessions, until cancelled. It retries each append until it has an
    answer or gives up, and then continues with a new producer id."""
    rng, process = context.rng(), context.recorder.process()
    source = RecordSource(context.run, context.recorder.next_producer(), rng)
    identity: ProducerSession | None = None
    async with Sessions() as sessions:
        while True:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            if identity is None:
                identity = await identify(context, sessions, rng)
            elif not await append(context, process, sessions, rng, source, identity):
                identity = None  # a sequence may be missing: continue with a new producer id


async def identify(
    context: WorkloadContext, sessions: Sessions, rng: random.Random
) -> ProducerSession | None:
    """Return a new producer id with its epoch; None = none was assigned by a random node, nor by
    the leader that it named."""
    address = context.nodes()[context.any_node(rng)]
    for _ in range(2):
        try:
            reply = await sessions.ask(address, InitProducer(), timeout_s=ATTEMPT_S)
        except RequestError as error:
            address = error.detail.leader_address
            if not address:
                return None
        except MultiRaftError:
            return None
        else:
            return ProducerSession(reply.producer_id, reply.producer_epoch, {})
    return None


async def append(
    context: WorkloadContext,
    process: ClientProcess,
    sessions: Sessions,
    rng: random.Random,
    source: RecordSource,
    identity: ProducerSession,
) -> bool:
    """Send one append with all its attempts and record its outcome; return True if it was
    acknowledged, then perhaps send it again. False = it was not, and its sequence may be missing in
    the log."""
    place = context.topics.pick(rng)
    values, records = source.take(place)
    sequence = identity.sequences.get(place.incarnation, 0)
    batch = build(records, identity, sequence)
    said = {"key": place.key, "values": values, "acks": "commit", "producer": identity.producer,
            "epoch": identity.epoch, "sequence": sequence}
    with process.invoke("append", **said) as operation:
        offset = await insist(context, sessions, rng, place, batch)
        operation.ok(offset=offset)
    if not operation.happened:
        return False
    context.topics.heard(place.key, offset + len(values))
    identity.sequences[place.incarnation] = sequence + len(values)
    if rng.random() < REPLAY:
        await replay(context, process, sessions, place, batch, said)
    return True


def build(records: list[bytes], identity: ProducerSession, sequence: int) -> bytearray:
    """Return the records as one batch with the producer's id, epoch and this sequence."""
    builder = core.BatchBuilder(BATCH_BYTES_MAX)
    for record in records:
        took = builder.append(time.time_ns() // 1_000_000, None, record)
        assert took, "a few small records fit into a batch"
    return builder.build(identity.producer, identity.epoch, sequence)


async def insist(
    context: WorkloadContext,
    sessions: Sessions,
    rng: random.Random,
    place: PartitionRef,
    batch: bytearray,
) -> int:
    """Send a batch until it is acknowledged, ``GIVE_UP_S`` have passed, or a refusal is definite;
    return its offset.

    Raises ``AmbiguousOutcome`` when an attempt may have appended it, else the last refusal.
    """
    deadline = trio.current_time() + GIVE_UP_S
    perhaps, hint = False, context.leader_address(place)
    while True:
        address = hint or context.nodes()[context.any_node(rng)]
        try:
            return await attempt(sessions, address, place, batch)
        except (NoAnswer, AmbiguousOutcome) as error:
            problem, hint, perhaps = error, None, True
        except RequestError as error:
            problem, hint = error, error.detail.leader_address or None
            if not error.retriable and not isinstance(error, (OutOfOrderSequence, TimedOut,
                                                              UnknownPartition)):
                break
        if trio.current_time() > deadline:
            break
        await trio.sleep(jitter(rng, RETRY_S))
    if perhaps:
        raise AmbiguousOutcome(f"given up; last: {type(problem).__name__}: {problem}")
    raise problem


async def attempt(sessions: Sessions, address: str, place: PartitionRef, batch: bytearray) -> int:
    """Send a batch once and return its offset.  Raises as ``Session.ask``, and the refusal of the
    batch."""
    request = Produce("commit", int(ATTEMPT_S * 1000), (BatchPart(place.incarnation, len(batch)),))
    reply = await sessions.ask(address, request, [batch], timeout_s=ATTEMPT_S + 1)
    result = reply.results[0]
    if result.code:
        raise exception_for(result.code, result.error)
    return result.base_offset


async def replay(
    context: WorkloadContext,
    process: ClientProcess,
    sessions: Sessions,
    place: PartitionRef,
    batch: bytearray,
    said: dict,
) -> None:
    """Send an acknowledged batch again, as an operation of its own with the same sequence; no-op
    while its leader is unknown."""
    address = context.leader_address(place)
    if address is not None:
        with process.invoke("append", **said) as operation:
            operation.ok(offset=await attempt(sessions, address, place, batch))
