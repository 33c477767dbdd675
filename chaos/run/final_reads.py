"""Final reads: fresh clients read every partition from its log start, on every replica.

Contract.  ``read_everything`` finds out which topics of clients exist, asks the leader of each
partition for its certain end, and reads it from the log start to that end on each node that has a
replica, through new connections; then once through the product's consumer: where sinks stage, as a
reader of committed records, which leaves out void ones.  A node that has a replica of some of the
partition's groups is asked for the offsets of these groups, as long as it has the replica: a move
that a nemesis began may still be under way.  All of it is in the history, marked ``final``.  A
replica that does not reach the end within ``CATCH_UP_S`` is an anomaly: all faults are healed.  A
client that crashes ends the reads of its partition only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import trio

from chaos.checkers.verdict import Anomaly
from chaos.run.crashes import Crashes
from chaos.run.leadership import Leadership
from chaos.workloads import kafka_client, kafka_reads, reads
from chaos.workloads.kafka_client import AT_KAFKAS_PORT
from chaos.workloads.records import next_offset, runs_of
from chaos.workloads.session import Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext, partitions_of
from multiraft.errors import MultiRaftError
from multiraft.wire.placements import EpochRow

CATCH_UP_S = 60.0
RETRY_S = 0.2
BYTES_MAX = 1 << 20
#: Records that a client of Kafka is asked for at a time, and the time to wait for them.
KAFKA_RECORDS_MAX, KAFKA_WAIT_S = 1_000, 0.5
#: Partitions that are read at the same time.
TOGETHER = 8
#: Names of topics that nodes make for themselves begin so.
INTERNAL = "__"


class Unreadable(Exception):
    """Raised when the topics could not be listed."""


async def read_everything(context: WorkloadContext, leadership: Leadership, crashes: Crashes,
                          ) -> list[Anomaly]:
    """Read every partition of every topic on every replica, ``TOGETHER`` of them at a time. Return
    an anomaly for each replica or consumer that does not serve all of its part.

    An exception ends the reads of its partition only, and is noted in ``crashes``. Raises
    ``Unreadable`` if the topics cannot be listed.
    """
    places = await existing(context)
    anomalies: list[Anomaly] = []
    limit = trio.CapacityLimiter(TOGETHER)

    async def read(place: PartitionRef) -> None:
        anomalies.extend(await read_partition(context, leadership, place))

    async def one(place: PartitionRef) -> None:
        async with limit:
            await crashes.survive("final reads", read, place)

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(one, place)
    return anomalies


async def existing(context: WorkloadContext) -> list[PartitionRef]:
    """Return every partition of every existing topic of clients, asking for ``CATCH_UP_S``. Raises
    ``Unreadable`` without an answer by then.

    Internal topics are left out: nodes append to them, so no history has their records."""
    with trio.move_on_after(CATCH_UP_S):
        async with context.client() as client:
            while True:
                try:
                    return [place for topic in await client.list_topics()
                            if not topic.name.startswith(INTERNAL)
                            for place in partitions_of(await client.topic_metadata(topic.name))]
                except MultiRaftError:
                    await trio.sleep(RETRY_S)
    raise Unreadable(f"the topics could not be listed in {CATCH_UP_S:.0f} s")


async def read_partition(
    context: WorkloadContext, leadership: Leadership, place: PartitionRef
) -> list[Anomaly]:
    """Read one partition on every replica, then by a consumer; return an anomaly for each that does
    not serve all of it. One anomaly and no reads when its end or its groups could not be
    learned."""
    span = await certain_span(context, place)
    if span is None:
        return [_behind(context, place, "its end could not be learned from a leader")]
    start, end = span
    links = await settled_links(context, place)
    if links is None:
        return [_behind(context, place, "its switch to another group has not ended")]
    anomalies = []

    def parts() -> list[ReplicaRange]:
        return parts_of(links, start, end, leadership.members, context.nodes())

    for part in parts():
        owed = await read_replica(context, place, part, parts)
        if owed:
            anomalies.append(_behind(context, place, owed))
    if end and place.topic in context.staged:
        anomalies += await consume_committed(context, place, start, end)
    elif end:
        anomalies += await consume(context, place, start, end)
    if end and context.kafka_nodes():
        consume_there = (consume_committed_at_kafkas_port if place.topic in context.staged
                         else consume_at_kafkas_port)
        anomalies += await consume_there(context, place, start, end)
    return anomalies


def _behind(context: WorkloadContext, place: PartitionRef, what: str) -> Anomaly:
    return Anomaly("A28", "replica-behind",
                   f"{place.key} (group {place.group}): {what}, {CATCH_UP_S:.0f} s after "
                   f"everything was healed", place.key, (), context.recorder.now_us())


async def certain_span(context: WorkloadContext, place: PartitionRef) -> tuple[int, int] | None:
    """Return log start and end of a partition by a linearizable answer, asking again for
    ``CATCH_UP_S``; None = no leader answered. Only the log start may change from then on.

    The questions are recorded as final, and checkers take the end for the last one: appends must
    have ended."""
    process = context.recorder.process()
    async with Sessions() as sessions:
        with trio.move_on_after(CATCH_UP_S):
            while True:
                node = context.leaders.get(place.group) or next(iter(context.nodes()))
                span = await reads.offsets(context, process, sessions, place, node, "linearizable",
                                           final=True)
                if span is not None:
                    return span
                await trio.sleep(RETRY_S)
    return None


async def settled_links(
    context: WorkloadContext, place: PartitionRef
) -> tuple[EpochRow, ...] | None:
    """Return the epoch history of the partition (the groups that it was and is in) as soon as no
    switch of it is open. None = there was no such answer within ``CATCH_UP_S``."""
    with trio.move_on_after(CATCH_UP_S):
        async with context.client() as client:
            while True:
                try:
                    row = (await client.explain_placement(place.topic))[place.partition]
                except MultiRaftError:
                    row = None
                if row is not None and not row.switch_epoch:
                    return row.epoch_history
                await trio.sleep(RETRY_S)
    return None


class ReplicaRange(NamedTuple):
    """Offsets of a partition that a node has to serve."""

    node: int
    first: int
    end: int


def parts_of(links: Sequence[EpochRow], start: int, end: int,
             members: Mapping[int, Collection[int]], nodes: Collection[int]) -> list[ReplicaRange]:
    """Return the offsets that each node has to serve of a partition with the epoch history
    ``links``, from ``start`` up to ``end``. Adjacent parts of a node are one; a node that holds no
    records yet has an empty part. Epochs that end below ``start`` are left out.

    ``members``: group -> nodes. Where no leader reported them, every one of ``nodes`` is asked.
    """
    parts: dict[int, list[ReplicaRange]] = {}
    ends = [link.start_offset for link in links[1:]] + [end]
    for link, until in zip(links, ends):
        first = max(start, link.start_offset)
        if until < first:
            continue
        for node in members.get(link.group) or nodes:
            known = parts.setdefault(node, [])
            if known and known[-1].end == first:
                known[-1] = known[-1]._replace(end=until)
            else:
                known.append(ReplicaRange(node, first, until))
    return [part for node in sorted(parts) for part in parts[node]]


async def read_replica(context: WorkloadContext, place: PartitionRef, part: ReplicaRange,
                       parts: Callable[[], Sequence[ReplicaRange]]) -> str:
    """Read the part that one replica has, for at most ``CATCH_UP_S``; return a clause that says
    what it failed to serve, "" = nothing.

    ``parts``: returns the part of every node now; a replica that a move has removed no longer has
    to serve anything.
    """
    process, offset, node, said = context.recorder.process(), part.first, part.node, ""
    async with Sessions() as sessions:
        with trio.move_on_after(CATCH_UP_S):
            while True:
                answer = await reads.read(context, process, sessions, place, node, offset,
                                          final=True, bytes_max=BYTES_MAX)
                advanced, offset = answer.reached > offset, answer.reached
                if offset >= part.end or not _has(parts(), node, offset):
                    return ""
                if answer.refusal:  # the log start may have been raised
                    span = await reads.offsets(context, process, sessions, place, node, "committed")
                    offset = max(offset, min(span[0], part.end) if span is not None else 0)
                    advanced = offset > answer.reached
                    if offset >= part.end:
                        return ""
                said = answer.refusal or f"it says that {answer.high_watermark} is its end"
                await trio.sleep(0 if advanced else RETRY_S)
    return f"node {node} serves it up to offset {offset}, and its end there is {part.end}; {said}"


def _has(parts: Sequence[ReplicaRange], node: int, offset: int) -> bool:
    return any(part.node == node and part.first <= offset < part.end for part in parts)


async def consume(context: WorkloadContext, place: PartitionRef, start: int, end: int,
                  ) -> list[Anomaly]:
    """Read the partition from ``start`` to ``end`` as an application would, asking again when the
    first end that it gets is too early; where records were deleted meanwhile, continue at the log
    start. Return one anomaly if it does not come there within ``CATCH_UP_S``, else none."""
    process = context.recorder.process()
    process.invoke("assign", positions={place.key: start}, final=True).ok()
    reached = start
    async with context.client() as client:
        with process.invoke("poll", keys=[place.key], final=True) as operation:
            runs: list = []
            with trio.move_on_after(CATCH_UP_S):
                while reached < end:
                    consumer = client.consume(place.topic, place.partition, reached, until_end=True,
                                              offset_reset="earliest")
                    async for batch in consumer:
                        runs_of(context.run, place.key, [batch], runs)
                    reached = max(next_offset(runs, reached), consumer.positions()[place.partition])
                    await trio.sleep(0 if reached >= end else RETRY_S)
            if reached < end:
                operation.unknown("TooLate", f"{reached} of {end} records")
            else:
                operation.ok(runs={place.key: runs})
    if operation.happened:
        return []
    said = operation.refusal or f"its position is {reached}"
    return [_behind(context, place, f"no consumer comes to its end, {end}; {said}")]


async def consume_at_kafkas_port(
    context: WorkloadContext, place: PartitionRef, start: int, end: int
) -> list[Anomaly]:
    """Read the partition from ``start`` to ``end`` by a client of Kafka; where records were deleted
    meanwhile, continue at the log start. Return one anomaly if it does not come there within
    ``CATCH_UP_S``, else none."""
    process = context.recorder.process()
    reached, refused = start, ""
    async with kafka_client.consumer(context, "read_committed") as consumer:
        with trio.move_on_after(CATCH_UP_S):
            while reached < end:
                process.invoke("assign", positions={place.key: reached}, final=True,
                               **AT_KAFKAS_PORT).ok()
                with process.invoke("poll", keys=[place.key], final=True,
                                    **AT_KAFKAS_PORT) as operation:
                    runs = await _to_end(context, consumer, place, reached, end)
                    operation.ok(runs={place.key: runs})
                    reached = next_offset(runs, reached)
                if operation.refusal:
                    refused = operation.refusal
                    span = await kafka_reads.offsets(context, process, consumer, place)
                    reached = max(reached, span[0] if span is not None else 0)
    if reached >= end:
        return []
    return [_behind(context, place, f"no client of Kafka comes to its end, {end}; "
                    f"{refused or f'its position is {reached}'}")]


async def _to_end(context: WorkloadContext, consumer: kafka_client.KafkaConsumer,
                  place: PartitionRef, offset: int, end: int) -> list:
    """Return the records of a partition from ``offset`` up to ``end``, as runs.  Raises as
    ``KafkaConsumer.take``."""
    await consumer.assign({place: offset})
    received: list[kafka_client.Received] = []
    while not received or received[-1].offset + 1 < end:
        records, _ = await consumer.take(KAFKA_RECORDS_MAX, KAFKA_WAIT_S, until_end=True)
        received += records
    return kafka_client.runs_of(context.run, place.key, received)


async def consume_committed(
    context: WorkloadContext, place: PartitionRef, start: int, end: int
) -> list[Anomaly]:
    """Read a partition in which sinks have staged, to its end. No transaction is open at this time,
    so the reader can reach ``end``; return one anomaly if it does not within ``CATCH_UP_S``, else
    none."""
    process = context.recorder.process()
    async with context.client() as client:
        with process.invoke("poll_committed", positions={place.key: start},
                            final=True) as operation:
            runs, ended = [], False
            with trio.move_on_after(CATCH_UP_S):
                # otherwise a node with old metadata may report a run as open
                await client.catch_up()
                async for batch in client.consume(place.topic, place.partition, start,
                                                  until_end=True):
                    runs_of(context.run, place.key, [batch], runs)
                ended = True
            if ended:
                operation.ok(runs={place.key: runs},
                             reached={place.key: max(end, next_offset(runs, start))})
            else:
                operation.unknown("TooLate", f"up to {next_offset(runs, start)} of {end}")
    if operation.happened:
        return []
    return [_behind(context, place, f"no reader of committed records comes to the end, {end}; "
                    f"{operation.refusal or 'it still waits'}")]


async def consume_committed_at_kafkas_port(
    context: WorkloadContext, place: PartitionRef, start: int, end: int
) -> list[Anomaly]:
    """Read a partition in which sinks have staged, to its end, by a client of Kafka: the node
    leaves out what no committed transaction has. Return one anomaly if the client does not come to
    ``end`` within ``CATCH_UP_S``, else none."""
    process = context.recorder.process()
    reached = start
    async with kafka_client.consumer(context, "read_committed") as consumer:
        with process.invoke("poll_committed", positions={place.key: start}, final=True,
                            **AT_KAFKAS_PORT) as operation:
            await consumer.assign({place: start})
            received: list[kafka_client.Received] = []
            with trio.move_on_after(CATCH_UP_S):
                # With older metadata, a node takes transactions for open, and ends before them.
                while reached < end:
                    records, _ = await consumer.take(KAFKA_RECORDS_MAX, KAFKA_WAIT_S)
                    received += records
                    reached = max(reached, consumer.ends.get((place.topic, place.partition), 0))
            runs = kafka_client.runs_of(context.run, place.key, received)
            if reached >= end:
                operation.ok(runs={place.key: runs}, reached={place.key: end})
            else:
                operation.unknown("TooLate", f"up to {reached} of {end}")
    if operation.happened:
        return []
    return [_behind(context, place, f"no client of Kafka comes to the end of what is committed, "
                    f"{end}; {operation.refusal or f'its position is {reached}'}")]
