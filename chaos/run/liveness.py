"""Liveness after healing: every group has a leader and takes an append, within a bound (A28).

Contract.  ``stuck_groups`` appends to one partition of every group and creates a topic for the
metadata group, all at once, and returns an anomaly for each that was not acknowledged in
``BOUND_S``.  The appends are operations of the history like any other.

Theory.  Availability under faults is reported, not judged; availability without any is a promise.
The bound is a hundred election timeouts: a busy machine is no excuse for more, and a group that
waits for an event that never happens is found by any bound.
"""

from __future__ import annotations

import random

import trio

from chaos.checkers.verdict import Anomaly
from chaos.workloads.appends import DELIVERY_TIMEOUT_MS, record_outcome, send
from chaos.workloads.churn import create
from chaos.workloads.records import RecordSource
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.errors import MultiRaftError

BOUND_S = 60.0
RETRY_S = 0.5
#: The metadata group.
METADATA_GROUP = 0


async def stuck_groups(context: WorkloadContext) -> list[Anomaly]:
    """Append to a partition of every group at the same time, and create a topic. Return an anomaly
    for each group, the metadata group included, that acknowledges nothing within ``BOUND_S``."""
    by_group = {place.group: place for place in context.topics.places}
    alive: set[int] = set()
    with trio.move_on_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            for place in by_group.values():
                nursery.start_soon(_append, context, place, alive)
            nursery.start_soon(_create, context, alive)
    stuck = sorted({METADATA_GROUP, *by_group} - alive)
    return [anomaly(context, group, by_group.get(group)) for group in stuck]


def anomaly(context: WorkloadContext, group: int, place: PartitionRef | None) -> Anomaly:
    """Return the anomaly of a group that does not recover. ``place``: the partition appended to;
    None for the metadata group."""
    leader = context.leaders.get(group)
    seen = f"node {leader} was seen leading it last" if leader else "no leader was ever seen"
    return Anomaly("A28", "stuck-group",
                   f"group {group} acknowledged nothing in {BOUND_S:.0f} s after everything was "
                   f"healed; {seen}", place.key if place else "", (), context.recorder.now_us())


async def _append(context: WorkloadContext, place: PartitionRef, alive: set[int]) -> None:
    """Append to a partition until one append is acknowledged, then add its group to ``alive``."""
    rng, recorder = context.rng(), context.recorder
    source = RecordSource(context.run, recorder.next_producer(), rng)
    process = recorder.process()
    async with context.client() as client:
        while True:
            try:
                await client.topic_metadata(place.topic)
            except MultiRaftError:
                await trio.sleep(RETRY_S)
                continue
            values, records = source.take(place)
            operation = process.invoke("append", key=place.key, values=values, acks="commit",
                                       producer=-1, epoch=-1, sequence=-1)
            # The producer gives up before ``record_outcome`` counts the client as one that does not
            # answer.
            async with client.producer(linger_ms=0,
                                       delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
                await record_outcome(context, operation, place, len(values),
                             send(client, producer, place, records))
            if operation.happened:
                alive.add(place.group)
                return
            await trio.sleep(RETRY_S)


async def _create(context: WorkloadContext, alive: set[int]) -> None:
    rng: random.Random = context.rng()
    process = context.recorder.process()
    attempt = 0
    async with context.client() as client:
        while await create(process, client, rng, f"alive-{attempt}", 1) is None:
            attempt += 1
            await trio.sleep(RETRY_S)
    alive.add(METADATA_GROUP)
