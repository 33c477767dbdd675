"""Workload of the product's consumers with positions, which are assigned again now and then.

Theory.  A consumer of several partitions is one product consumer for each, so that each can be
assigned separately.  An assignment begins at the consumer's position, further back, or at the
start; between two assignments positions only go forward, without a gap.
"""

from __future__ import annotations

import random

import trio

from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import next_offset, runs_of
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.client import Client, Consumer, FetchedBatch
from multiraft.errors import MultiRaftError

CONSUMERS = 3
KEYS_MAX = 3
PER_SECOND = 5.0
#: Time that a poll waits for new records.
POLL_S = 0.25
#: Batches of one partition in one poll.
BATCHES_MAX = 8
#: Chance that a poll is followed by an assignment.
REASSIGN = 0.04
#: A partition that cannot be read for this long ends the assignment.
UNAVAILABLE_MS = 8_000


async def run(context: WorkloadContext) -> None:
    """Run ``CONSUMERS`` consumers, until cancelled."""
    async with trio.open_nursery() as nursery:
        for _ in range(CONSUMERS):
            nursery.start_soon(consuming, context)


async def consuming(context: WorkloadContext) -> None:
    """Run one consumer until cancelled: assignments, each with its polls, and a pause after each.
    """
    rng, process = context.rng(), context.recorder.process()
    positions: dict[PartitionRef, int] = {}
    async with context.client() as client:
        while True:
            positions = assignment(rng, context, positions)
            await assigned(context, process, client, rng, positions)
            await trio.sleep(context.pause_s(rng, PER_SECOND))


def assignment(rng: random.Random, context: WorkloadContext, positions: dict[PartitionRef, int],
               ) -> dict[PartitionRef, int]:
    """Return the partitions and offsets to read next: those of ``positions``, some of them further
    back, or others from the start."""
    if positions and rng.random() < 0.6:
        return {place: rng.choice((at, at, max(0, at - rng.randint(1, 10)), 0))
                for place, at in positions.items()}
    count = rng.randint(1, KEYS_MAX)
    return {context.topics.pick(rng): 0 for _ in range(count)}


async def assigned(
    context: WorkloadContext,
    process: ClientProcess,
    client: Client,
    rng: random.Random,
    positions: dict[PartitionRef, int],
) -> None:
    """Record an assignment at ``positions`` and poll, until the consumer is to be reassigned, at
    random, a poll fails, or the process number changes. Updates ``positions``."""
    process.invoke("assign", positions={place.key: at for place, at in positions.items()}).ok()
    readers = {place: client.consume(place.topic, place.partition, at,
                                     unavailable_ms=UNAVAILABLE_MS, prefer="nearest",
                                     rack=rng.choice(("r1", "r2", "r3")))
               for place, at in positions.items()}
    try:
        number = process.number
        while number == process.number and rng.random() > REASSIGN:
            if not await poll(context, process, readers, positions):
                return
            await trio.sleep(context.pause_s(rng, PER_SECOND))
    finally:
        for reader in readers.values():
            reader.close()


async def poll(
    context: WorkloadContext,
    process: ClientProcess,
    readers: dict[PartitionRef, Consumer],
    positions: dict[PartitionRef, int],
) -> bool:
    """Poll once, record the result and update ``positions``; return True if it succeeded, so that
    the consumer can continue."""
    with process.invoke("poll", keys=[place.key for place in readers]) as operation:
        found: dict[str, list] = {}
        for place, batches in (await take(readers)).items():
            runs = found[place.key] = runs_of(context.run, place.key, batches)
            positions[place] = next_offset(runs, positions[place])
            context.topics.heard(place.key, positions[place])
        operation.ok(runs=found)
    return operation.happened


async def take(readers: dict[PartitionRef, Consumer]) -> dict[PartitionRef, list[FetchedBatch]]:
    """Return the batches that arrive at each partition within ``POLL_S``, ``BATCHES_MAX`` at most;
    partitions without any are left out. Raises the first error that ended a consumer."""
    batches: dict[PartitionRef, list[FetchedBatch]] = {}
    ended: list[MultiRaftError] = []

    async def take_one(place: PartitionRef, reader: Consumer) -> None:
        try:
            while len(batches.get(place, ())) < BATCHES_MAX:
                batches.setdefault(place, []).append(await anext(reader))
        except MultiRaftError as error:
            ended.append(error)

    with trio.move_on_after(POLL_S):
        async with trio.open_nursery() as nursery:
            for place, reader in readers.items():
                nursery.start_soon(take_one, place, reader)
    if ended:
        raise ended[0]
    return {place: found for place, found in batches.items() if found}
