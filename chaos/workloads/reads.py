"""Workload of reads: offsets from any replica, certain ends, and descriptions of topics.

Theory.  Reads use raw sessions: a client would choose the replica, and hide a bad answer.  A batch
that fails its check is handled as the client does: the node is notified, and the read has failed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import trio

from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import fetched, next_offset, runs_of
from chaos.workloads.session import NotSent, Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.client import Client
from multiraft.errors import CodecError, MultiRaftError
from multiraft.wire.errors import UnknownTopic, exception_for
from multiraft.wire.messages import (
    ANY,
    EARLIEST,
    LATEST,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
    ReportCorruption,
)

READERS = 4
PER_SECOND = 12.0
TIMEOUT_S = 3.0
#: Size of a read; a few batches, so that reads end within partitions.
BYTES_MAX = 32 << 10
#: Half of the reads begin within this many offsets of the end.
TAIL = 20
#: Shares of a reader's requests: reads, certain ends, uncertain ends; the rest are descriptions.
READS, CERTAIN, UNCERTAIN = 0.75, 0.15, 0.05


class ReadOutcome(NamedTuple):
    """Offset that a read reached, and the high watermark; -1 when it failed, with the reason in
    ``refusal``."""

    reached: int
    high_watermark: int
    refusal: str


async def run(context: WorkloadContext) -> None:
    """Run ``READERS`` readers, until cancelled."""
    async with trio.open_nursery() as nursery:
        for _ in range(READERS):
            nursery.start_soon(reading, context)


async def reading(context: WorkloadContext) -> None:
    """Send requests of random kinds to the nodes, with a pause before each, until cancelled; one
    process."""
    rng, process = context.rng(), context.recorder.process()
    async with context.client() as client, Sessions() as sessions:
        while True:
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            place, dice = context.topics.pick(rng), rng.random()
            if dice < READS:
                await read(context, process, sessions, place, context.any_node(rng),
                           offset_near(rng, context.topics.end(place.key)))
            elif dice < READS + CERTAIN:
                node = context.leaders.get(place.group) or context.any_node(rng)
                await offsets(context, process, sessions, place, node, "linearizable")
            elif dice < READS + CERTAIN + UNCERTAIN:
                await offsets(context, process, sessions, place, context.any_node(rng), "committed")
            else:
                await describe(process, client, place.topic)


def offset_near(rng: random.Random, end: int) -> int:
    """Return a random offset to begin a read at: anywhere below ``end``, or within its last
    ``TAIL`` offsets, or a little beyond it."""
    low = max(0, end - TAIL) if rng.random() < 0.5 else 0
    return rng.randint(low, end + 2)


async def read(
    context: WorkloadContext,
    process: ClientProcess,
    sessions: Sessions,
    place: PartitionRef,
    node: int,
    offset: int,
    final: bool = False,
    bytes_max: int = BYTES_MAX,
) -> ReadOutcome:
    """Read once at ``offset`` what the replica of ``node`` serves as committed, and record it. A
    failed read has the reason in the result, and ``offset`` as what it reached; damage is also
    reported to the node."""
    asked = {"final": True} if final else {}
    operation = process.invoke("read", key=place.key, offset=offset, mode="committed", node=node,
                               **asked)
    reached, high_watermark = offset, -1
    with operation:
        address = address_of(context, node)
        result, payload = await fetch(sessions, address, place, offset, bytes_max)
        try:
            runs = runs_of(context.run, place.key,
                           fetched(place, payload, offset, result.high_watermark))
        except CodecError:
            await report_corruption(sessions, address, place, offset)
            raise
        operation.ok(runs=runs, start=result.log_start, high_watermark=result.high_watermark,
                     node=node)
        reached, high_watermark = next_offset(runs, offset), result.high_watermark
        context.topics.heard(place.key, high_watermark)
    return ReadOutcome(reached, high_watermark, operation.refusal)


def address_of(context: WorkloadContext, node: int) -> str:
    """Return the address of a node.  Raises ``NotSent`` when it is no longer a member."""
    address = context.nodes().get(node)
    if address is None:
        raise NotSent(f"node {node} is no longer a member")
    return address


async def fetch(sessions: Sessions, address: str, place: PartitionRef, offset: int, bytes_max: int):
    """Return (``FetchResult``, bytes) of one partition from the node at ``address``, any replica.
    Raises as ``Session.ask``, and the refusal of the partition."""
    request = Fetch((FetchPart(place.incarnation, offset, bytes_max),), 1, bytes_max, 0, ANY)
    reply = await sessions.ask(address, request, timeout_s=TIMEOUT_S)
    result = reply.results[0]
    if result.code:
        raise exception_for(result.code, result.error)
    return result, reply.payload


async def report_corruption(
    sessions: Sessions, address: str, place: PartitionRef, offset: int
) -> None:
    """Report to the node that its batch failed the check, as clients do; whether the report arrives
    does not matter."""
    try:
        await sessions.ask(
            address, ReportCorruption(place.incarnation, offset), timeout_s=TIMEOUT_S
        )
    except MultiRaftError:
        return  # the report was sent, or the node is gone


async def offsets(
    context: WorkloadContext,
    process: ClientProcess,
    sessions: Sessions,
    place: PartitionRef,
    node: int,
    mode: str,
    final: bool = False,
) -> tuple[int, int] | None:
    """Return log start and next offset of a partition, as ``node`` knows them, and record them;
    None = no answer or a refusal. ``mode``: "linearizable" has the leader confirm them, "committed"
    not."""
    asked = {"final": True} if final else {}
    operation = process.invoke("offsets", key=place.key, mode=mode, node=node, **asked)
    request = ListOffsets((OffsetQuery(place.incarnation, EARLIEST),
                           OffsetQuery(place.incarnation, LATEST)), mode == "linearizable")
    with operation:
        reply = await sessions.ask(address_of(context, node), request, timeout_s=TIMEOUT_S)
        for result in reply.results:
            if result.code:
                raise exception_for(result.code, result.error)
        start, end = (result.offset for result in reply.results)
        operation.ok(start=start, high_watermark=end)
        context.topics.heard(place.key, end)
        return start, end
    return None


async def describe(process: ClientProcess, client: Client, topic: str) -> int | None:
    """Describe a topic through the client and record it; return its incarnation, -1 = it does not
    exist, None = no answer or another refusal."""
    with process.invoke("describe", topic=topic) as operation:
        await client.catch_up()
        try:
            found = await client.topic_metadata(topic)
        except UnknownTopic:
            operation.ok(incarnation=-1, epoch=-1, groups=[])
            return -1
        operation.ok(incarnation=found.incarnation,
                     epoch=sum(part.epoch for part in found.partitions),  # grows by one per switch
                     groups=[part.group for part in found.partitions])
        return found.incarnation
    return None
