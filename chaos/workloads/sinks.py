"""Workload of sinks with transactions, and of readers of committed records.

Theory.  A writer acts as Spark does: the tasks of a batch begin a transaction, with a nonce
in common, and stage records under it in several partitions; some tasks are run twice, and the
commit names the attempts that count.  Then the transaction is committed, or aborted, or left, as by
a writer that died: the same batch follows with another nonce, or a later one.  Transactions that
were left return late, as tasks and drivers do that have not learned of their end: whatever they
stage or commit then must change nothing.  An attempt whose append failed, or has an ambiguous
outcome, does not count.  A writer that does not know the outcome of a commit asks again, or runs
the batch again.

The readers are the product's consumers, each client with all partitions of all topics, from the
position of the previous reader or from the start.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import trio

from chaos.workloads import consumers
from chaos.workloads.appends import is_known, jitter, record_outcome, send
from chaos.workloads.churn import create
from chaos.workloads.recorder import ClientProcess, Operation
from chaos.workloads.records import RecordSource, next_offset, runs_of
from chaos.workloads.workload_context import PartitionRef, WorkloadContext, partitions_of
from multiraft.client import Client, Consumer
from multiraft.client.staging import identity_of
from multiraft.errors import MultiRaftError
from multiraft.wire.sinks import (
    COMMITTED,
    NONCE_BYTES,
    AbortTransaction,
    BeginTransaction,
    BeginTransactionReply,
    CommitTransaction,
    TopicEnds,
    Winner,
)

SINKS, READERS = 2, 2
#: Partitions of each topic in which sinks stage.
TOPICS = {"staged-0": 3, "staged-1": 2}
TRANSACTIONS_PER_SECOND, POLLS_PER_SECOND = 2.5, 5.0
TASKS_MAX, PLACES_PER_ATTEMPT_MAX = 3, 3
#: Attempts of a task before its transaction is left without a commit.
ATTEMPTS_MAX = 4
DELIVERY_TIMEOUT_MS = 4_000
RETRY_S = 0.2
#: Chances: a task is run twice, has an attempt that stages its records only later.
TWICE, SLOW = 0.25, 0.15
#: Outcomes of a transaction whose tasks have ended: share that is committed, share that is aborted;
#: the rest is left.
COMMITTED_SHARE, ABORTED_SHARE = 0.6, 0.12
#: Chances: an ambiguous commit is asked for again, a transaction that was left returns, a
#: transaction that is left is followed by the next batch, a writer dies after a transaction.
AGAIN, COMES_BACK, GOES_ON, DIES = 0.5, 0.4, 0.3, 0.15
#: Left transactions that may return.
LEFT_MAX = 4
#: Chance that a writer that died is followed by one with a new checkpoint, so with another sink: in
#: the ledger each sink keeps a bounded number of void transactions and of repeated tasks.
NEW_CHECKPOINT = 0.1
#: Chances that a reader is replaced by another one, and that the new one begins at the start.
REPLACED, FROM_START = 0.05, 0.3
UNAVAILABLE_MS = 8_000


async def run(context: WorkloadContext) -> None:
    """Create the topics of ``TOPICS``, then run ``SINKS`` sinks and ``READERS`` readers, until
    cancelled."""
    context.staged |= set(TOPICS)
    places = [place for name, count in TOPICS.items()
              for place in await insist_on_topic(context, name, count)]
    async with trio.open_nursery() as nursery:
        for number in range(SINKS):
            nursery.start_soon(writing, context, f"sink-{number}", places)
        for _ in range(READERS):
            nursery.start_soon(reading, context, places)


async def insist_on_topic(
    context: WorkloadContext, name: str, partitions: int
) -> list[PartitionRef]:
    """Create a topic and return its partitions, asking until that succeeds. A topic of this name
    that exists already counts."""
    rng = context.rng()
    async with context.client() as client:
        while True:
            places = await create(context.recorder.process(), client, rng, name, partitions)
            if places is not None:
                return places
            try:
                return partitions_of(await client.topic_metadata(name))
            except MultiRaftError:
                await trio.sleep(jitter(rng, RETRY_S))


# ---- writers ----------------------------------------------------------------------------------


@dataclass
class TaskAttempt:
    """One attempt of a task, as the ledger numbered it."""

    sink: int
    transaction: int
    task: int
    number: int

    @property
    def said(self) -> dict[str, int]:
        """Return the fields that name the attempt in the invocation of an append."""
        return {"sink": self.sink, "transaction": self.transaction, "task": self.task,
                "attempt": self.number}


@dataclass
class SinkBatch:
    """One transaction of a batch, as its driver knows it."""

    number: int
    nonce: bytes
    tasks: int
    sink: int = 0
    transaction: int = 0
    is_over: bool = False  # it was committed before, so there is nothing to do
    ended: dict[int, int] = field(default_factory=dict)  # task -> the attempt that counts
    slow: list[TaskAttempt] = field(default_factory=list)  # they stage later

    @property
    def is_whole(self) -> bool:
        """True if every task has an attempt whose appends were all acknowledged."""
        return len(self.ended) == self.tasks


class Writer:
    """One sink, with the process that writes to it now."""

    def __init__(self, context: WorkloadContext, name: str, places: list[PartitionRef]):
        self.context = context
        self.name = self.first_name = name
        self.checkpoints = 1
        self.places = places
        self.rng = context.rng()
        self.source = RecordSource(context.run, context.recorder.next_producer(), self.rng)
        self.number = 0  # of the next batch
        self.left: list[SinkBatch] = []
        self.client: Client | None = None
        self.known: set[str] = set()  # topics that the client knows

    async def life(self) -> None:
        """Run batches with one client, pausing before each, until the writer dies at random after
        one of them. At times it begins with a new checkpoint: a new sink name, batches from 0."""
        self.known = set()
        if self.rng.random() < NEW_CHECKPOINT:
            self.checkpoints += 1
            self.name, self.number = f"{self.first_name}.{self.checkpoints}", 0
        async with self.context.client() as self.client:
            while True:
                await trio.sleep(self.context.pause_s(self.rng, TRANSACTIONS_PER_SECOND))
                await self.one_transaction()
                if self.rng.random() < DIES:
                    return

    async def one_transaction(self) -> None:
        """Run the tasks of the next batch, or of the last one again if its number did not advance,
        at the same time; then decide. At times a transaction that was left is continued before."""
        rng = self.rng
        batch = SinkBatch(self.number, rng.randbytes(NONCE_BYTES), rng.randint(1, TASKS_MAX))
        async with trio.open_nursery() as nursery:
            for task in range(batch.tasks):
                nursery.start_soon(self.task, batch, task)
        if self.left and rng.random() < COMES_BACK:
            await self.come_back(self.left.pop(rng.randrange(len(self.left))))
        if batch.is_over:
            self.number += 1
        elif batch.transaction:
            await self.decide(batch)

    # ---- tasks ----

    async def task(self, batch: SinkBatch, task: int) -> None:
        """Run attempts of a task, ``ATTEMPTS_MAX`` at most, until as many as are needed have ended
        well; ``batch.ended`` names one of them. Slow attempts are left for later, in
        ``batch.slow``."""
        rng = self.rng
        wanted, well = 1 + (rng.random() < TWICE), []
        for _ in range(ATTEMPTS_MAX):
            attempt = await self.begin(batch, task)
            if attempt is None:
                return
            if rng.random() < SLOW:
                batch.slow.append(attempt)
            elif await self.stage(attempt):
                well.append(attempt.number)
            if len(well) == wanted:
                break
        if well:
            batch.ended[task] = rng.choice(well)

    async def begin(self, batch: SinkBatch, task: int) -> TaskAttempt | None:
        """Join the transaction of the batch, or begin it, and return a new attempt of the task.
        None = refused or ambiguous, or the batch is committed already, which ``batch.is_over``
        says."""
        request = BeginTransaction(
            self.name, batch.number, batch.nonce, (), task, self.rng.getrandbits(64)
        )
        process = self.context.recorder.process()
        reply = await self.open(process, request)
        if reply is None:
            return None
        batch.sink, batch.transaction = reply.sink, reply.transaction
        if reply.state == COMMITTED:
            batch.is_over = True
            return None
        missing = {place.topic: place.topic_incarnation for place in self.places
                   if place.topic_incarnation not in reply.topics}
        for topic, incarnation in missing.items():
            try:
                ends = await self.client.list_offsets(topic)
            except MultiRaftError:
                return None
            row = TopicEnds(incarnation, tuple(ends[at].end_offset for at in sorted(ends)))
            said = await self.open(process, request._replace(topics=(row,)))
            if said is None or said.state == COMMITTED:
                return None
        return TaskAttempt(reply.sink, reply.transaction, task, reply.attempt)

    async def open(self, process: ClientProcess,
                   request: BeginTransaction) -> BeginTransactionReply | None:
        """Ask the ledger of transactions for an attempt, or to note topics, and record that; return
        the reply, None = refused or ambiguous."""
        said = {"sink": request.sink, "batch": request.batch, "nonce": request.nonce.hex(),
                "task": request.task, "attempt_id": request.attempt_id,
                "topics": [row.incarnation for row in request.topics]}
        with process.invoke("begin_transaction", **said) as operation:
            reply: BeginTransactionReply = await self.client.sink_request(request)
            operation.ok(sink=reply.sink, transaction=reply.transaction, state=reply.state,
                         attempt=reply.attempt)
            return reply
        return None

    async def stage(self, attempt: TaskAttempt) -> bool:
        """Send appends of an attempt to some partitions and record them; return True if all were
        acknowledged. It ends at the first that was not."""
        rng, process = self.rng, self.context.recorder.process()
        chosen = rng.choices(self.places, k=rng.randint(1, PLACES_PER_ATTEMPT_MAX))
        for place in chosen:
            if not await is_known(self.client, self.known, place):
                return False
        identity = identity_of(attempt.sink, attempt.transaction, attempt.task, attempt.number)
        async with self.client.producer(identity=identity, linger_ms=0,
                                        delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
            for place in chosen:
                values, records = self.source.take(place)
                operation = process.invoke("append", key=place.key, values=values, acks="commit",
                                           producer=-1, epoch=-1, sequence=-1, **attempt.said)
                await record_outcome(self.context, operation, place, len(values),
                             send(self.client, producer, place, records))
                if not operation.happened:
                    return False
        return True

    # ---- drivers ----

    async def decide(self, batch: SinkBatch) -> None:
        """Commit the transaction, abort it, or leave it in ``left`` for later, at random; only a
        whole one is committed. Its slow attempts are staged after a commit or abort."""
        dice = self.rng.random()
        if dice < COMMITTED_SHARE and batch.is_whole:
            await self.commit(batch)
        elif dice < COMMITTED_SHARE + ABORTED_SHARE:
            await self.abort(batch)
        else:
            self.left = [*self.left, batch][-LEFT_MAX:]
            self.number += self.rng.random() < GOES_ON
            return
        for attempt in batch.slow:
            await self.stage(attempt)

    async def commit(self, batch: SinkBatch) -> None:
        """Ask to commit a transaction, perhaps repeatedly while the outcome is unknown. Without an
        acknowledgement the batch is run again."""
        operation = await self.ask_to_commit(batch)
        while not operation.happened and self.rng.random() < AGAIN:
            await trio.sleep(jitter(self.rng, RETRY_S))
            operation = await self.ask_to_commit(batch)
        self.number += operation.happened

    async def ask_to_commit(self, batch: SinkBatch) -> Operation:
        """Send one request to commit, naming the attempts that count, and return the completed
        operation: its ``happened`` says if it was acknowledged."""
        process, winners = self.context.recorder.process(), sorted(batch.ended.items())
        with process.invoke("commit_transaction", sink=batch.sink, transaction=batch.transaction,
                            batch=batch.number, winners=winners) as operation:
            await self.client.sink_request(CommitTransaction(
                batch.sink, batch.transaction, batch.number,
                tuple(Winner(task, attempt) for task, attempt in winners if attempt)))
            operation.ok()
        return operation

    async def abort(self, batch: SinkBatch) -> None:
        """Abort the transaction; a batch that was committed after all is finished."""
        if await abort(self.context, self.client, batch.sink, batch.transaction):
            self.number += 1

    async def come_back(self, batch: SinkBatch) -> None:
        """Continue a transaction that was left, late: stage its slow attempts, then ask to commit
        it, or abort it."""
        for attempt in batch.slow:
            await self.stage(attempt)
        if batch.is_whole and self.rng.random() < COMMITTED_SHARE:
            await self.ask_to_commit(batch)
        else:
            await abort(self.context, self.client, batch.sink, batch.transaction)


async def abort(
    context: WorkloadContext, client: Client, sink: int, transaction: int
) -> bool | None:
    """Ask to abort a transaction, and record that. Return True if it had been committed before,
    False if it is aborted, None without an answer or after a refusal."""
    process = context.recorder.process()
    with process.invoke("abort_transaction", sink=sink, transaction=transaction) as operation:
        committed = (await client.sink_request(AbortTransaction(sink, transaction))).committed
        operation.ok(committed=committed)
        return committed
    return None


async def writing(context: WorkloadContext, name: str, places: list[PartitionRef]) -> None:
    """Run the writers of one sink one after the other, until cancelled."""
    writer = Writer(context, name, places)
    while True:
        await writer.life()


# ---- readers ----------------------------------------------------------------------------------


async def reading(context: WorkloadContext, places: list[PartitionRef]) -> None:
    """Read all places with one client after the other, until cancelled. Each continues where the
    last one ended, or, at random, begins from the start."""
    rng = context.rng()
    positions = dict.fromkeys(places, 0)
    while True:
        process = context.recorder.process()
        async with context.client() as client:
            await read_on(context, process, client, rng, positions)
        if rng.random() < FROM_START:
            positions = dict.fromkeys(places, 0)


async def read_on(
    context: WorkloadContext,
    process: ClientProcess,
    client: Client,
    rng: random.Random,
    positions: dict[PartitionRef, int],
) -> None:
    """Poll with one client until it is replaced or fails; update ``positions``."""
    prefer = rng.choice(("leader", "nearest"))
    readers = {place: client.consume(place.topic, place.partition, at, prefer=prefer,
                                     unavailable_ms=UNAVAILABLE_MS, rack=rng.choice(("r1", "r2")))
               for place, at in positions.items()}
    try:
        while await poll(context, process, readers, positions) and rng.random() > REPLACED:
            await trio.sleep(context.pause_s(rng, POLLS_PER_SECOND))
    finally:
        for reader in readers.values():
            reader.close()


async def poll(
    context: WorkloadContext,
    process: ClientProcess,
    readers: dict[PartitionRef, Consumer],
    positions: dict[PartitionRef, int],
) -> bool:
    """Poll all partitions once as a reader of committed records, record the result and update
    ``positions``. Return True if it succeeded, so that the reader can continue."""
    asked = {place.key: at for place, at in positions.items()}
    with process.invoke("poll_committed", positions=asked) as operation:
        found: dict[str, list] = {}
        reached = dict(asked)
        for place, batches in (await consumers.take(readers)).items():
            found[place.key] = runs_of(context.run, place.key, batches)
        for place, reader in readers.items():
            stands_at = reader.position(place.partition)
            reached[place.key] = positions[place] = max(
                next_offset(found.get(place.key, []), positions[place]), stands_at or 0)
        operation.ok(runs=found, reached=reached)
    return operation.happened
