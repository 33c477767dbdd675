"""Workload of topics from which records leave: by number, by bytes, by age, and on request.

Theory.  Each topic has one owner, which appends, deletes records, asks where the partition begins,
and reads from there, from below, and from anywhere.  A reader may find that an offset is gone at
any time, also between two of its questions.  Whether it may be gone is known from the replicas'
logs alone, where the checkers look for a committed log start above it.  The last topic is deleted
now and then, and created again with other limits.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import trio

from chaos.workloads import reads
from chaos.workloads.appends import is_known, record_outcome, send
from chaos.workloads.churn import create, delete
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import RecordSource
from chaos.workloads.session import Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.client import Client, Producer

#: Settings of the topics that live as long as the run.  An age is the time of the next clock behind
#: a record, so a short one takes some tens of seconds.
KEPT: tuple[Mapping[str, int], ...] = (
    {"retention.records": 30},
    {"retention.bytes": 3_000},
    {"retention.ms": 3_000},
    {},
    {"retention.records": 0, "retention.bytes": 500},
)
#: Choice of settings of the topic that is created again and again.
CHURNED: tuple[Mapping[str, int], ...] = (
    {"retention.records": 5}, {"retention.ms": 1_000}, {"retention.bytes": 0}, {})
PARTITIONS = 2
PER_SECOND = 8.0
#: Requests in one incarnation of the churned topic.
LIFE_MIN, LIFE_MAX = 20, 80
DELIVERY_TIMEOUT_MS = 6_000
#: Shares of an owner's requests: appends, deletions of records, questions; the rest are reads.
APPENDS, DELETIONS, QUESTIONS = 0.55, 0.07, 0.13
#: Probability that all records are deleted, and that more are to be than there are.
ALL, BEYOND = 0.2, 0.1


async def run(context: WorkloadContext) -> None:
    """Own the topics, one task each, until cancelled."""
    async with trio.open_nursery() as nursery:
        for number, settings in enumerate(KEPT):
            nursery.start_soon(owning, context, f"kept-{number}", (settings,), 0)
        nursery.start_soon(owning, context, "kept-churned", CHURNED, LIFE_MAX)


async def owning(context: WorkloadContext, name: str, choice: tuple[Mapping[str, int], ...],
                 life_max: int) -> None:
    """Create and use a topic with one of some settings until cancelled; with ``life_max`` delete it
    after so many requests, and begin anew with a new client."""
    rng = context.rng()
    source = RecordSource(context.run, context.recorder.next_producer(), rng)
    while True:
        async with context.client() as client, Sessions() as sessions:
            life = rng.randint(LIFE_MIN, life_max) if life_max else 0
            await one_life(context, context.recorder.process(), client, sessions, rng, source, name,
                           rng.choice(choice), life)


async def one_life(context: WorkloadContext, process: ClientProcess, client: Client,
                   sessions: Sessions, rng: random.Random, source: RecordSource, name: str,
                   settings: Mapping[str, int], life: int) -> None:
    """Create one incarnation of a topic, send ``life`` requests about it (0 = without end), and
    delete it. When the creation is refused or ambiguous, delete the topic that exists, if one does.
    """
    await trio.sleep(context.pause_s(rng, PER_SECOND))
    places = await create(process, client, rng, name, PARTITIONS, settings)
    if places is None:
        incarnation = await reads.describe(process, client, name)
        if incarnation is not None and incarnation >= 0:
            await delete(process, client, name, incarnation)
        return
    owner = Owner(context, process, client, sessions, rng, source)
    async with client.producer(linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        sent = 0
        while not life or sent < life:
            sent += 1
            await trio.sleep(context.pause_s(rng, PER_SECOND))
            await owner.use(producer, rng.choice(places))
    await delete(process, client, name, places[0].topic_incarnation)


class Owner:
    """Requests about one incarnation of a topic."""

    def __init__(self, context: WorkloadContext, process: ClientProcess, client: Client,
                 sessions: Sessions, rng: random.Random, source: RecordSource):
        self._context = context
        self._process = process
        self._client = client
        self._sessions = sessions
        self._rng = rng
        self._source = source
        self._known: set[str] = set()
        self._starts: dict[str, int] = {}  # key -> log start, as last heard

    async def use(self, producer: Producer, place: PartitionRef) -> None:
        """Send one request of a random kind, and record it. Without an answer about the topic, a
        read replaces an append or a deletion."""
        context, rng, dice = self._context, self._rng, self._rng.random()
        if dice < APPENDS + DELETIONS and await is_known(self._client, self._known, place):
            if dice < APPENDS:
                await self._append(producer, place)
            else:
                await self._delete_records(place)
        elif dice < APPENDS + DELETIONS + QUESTIONS:
            mode = rng.choice(("linearizable", "committed"))
            node = context.leaders.get(place.group) or context.any_node(rng)
            span = await reads.offsets(context, self._process, self._sessions, place, node, mode)
            if span is not None:
                self._starts[place.key] = span[0]
        else:
            start, end = self._starts.get(place.key, 0), context.topics.end(place.key)
            offset = rng.choice((start, start, max(0, start - rng.randint(1, 5)),
                                 rng.randint(0, end)))
            await reads.read(context, self._process, self._sessions, place, context.any_node(rng),
                             offset)

    async def _append(self, producer: Producer, place: PartitionRef) -> None:
        values, records = self._source.take(place)
        operation = self._process.invoke("append", key=place.key, values=values, acks="commit",
                                         producer=-1, epoch=-1, sequence=-1)
        await record_outcome(self._context, operation, place, len(values),
                             send(self._client, producer, place, records))

    async def _delete_records(self, place: PartitionRef) -> None:
        """Delete the records of a partition below a random offset, perhaps all, or more than there
        are."""
        end, dice = self._context.topics.end(place.key), self._rng.random()
        before = self._rng.randint(0, end)
        if dice < ALL + BEYOND:
            before = -1 if dice < ALL else end + 1_000
        with self._process.invoke("delete_records", key=place.key, before=before) as operation:
            found = (await self._client.delete_records(place.topic,
                                                       {place.partition: before}))[place.partition]
            if found.error is not None:
                raise found.error
            operation.ok(log_start=found.start_offset)
            self._starts[place.key] = found.start_offset
