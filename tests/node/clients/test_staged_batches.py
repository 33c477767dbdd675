"""Staged batches at a real node: those of transactions that were never opened are refused, others
are taken."""

from __future__ import annotations

import secrets

import pytest
import trio

from multiraft import client as reader
from multiraft import core
from multiraft.wire.errors import Code, LeaderUnknown
from multiraft.wire.messages import BatchPart, Produce
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    UNOPENED,
    VOID,
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    ResolveTransactions,
    ResolveTransactionsReply,
    TransactionDescription,
    TransactionRef,
    TransactionStates,
    producer_identity,
)
from node.clients import staged_batches
from tests.node.harness import Client, batch, in_trio, serving, until


def staged(sink: int, txn: int, sequence: int = 0, *, value: bytes = b"staged",
           transactional: bool = True, task: int = 0, attempt: int = 0) -> bytearray:
    """Return a staged batch of a transaction."""
    data = batch(value)
    if transactional:
        data[22] |= 0x10
    core.stamp_producer(data, *producer_identity(sink, txn, task, attempt), sequence)
    return data


async def append(client: Client, topic: int, data: bytearray, seen_index: int = 0):
    """Return the result of one batch."""
    answer = await client.ask(Produce("commit", 15_000, (BatchPart(topic, len(data)),)), data,
                              seen_index=seen_index)
    return answer.reply.results[0]


async def opened(client: Client, sink: str = "s", batch_number: int = 0) -> tuple[int, int]:
    """Return (sink, transaction) of an open transaction."""
    reply = (await client.ask(BeginTransaction(sink, batch_number, secrets.token_bytes(16)))).reply
    return reply.sink, reply.transaction


@in_trio
@pytest.mark.parametrize("sink, txn", [(777, 0), (777, 1), (0, 1), (1, 0), (1, 2), (1, 1 << 20)])
async def test_a_batch_of_a_transaction_that_nobody_opened_is_refused(tmp_path, sink, txn):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        assert await opened(client) == (1, 1)
        refused = await append(client, topic, staged(sink, txn))
        assert refused.code == (Code.STALE_TRANSACTION if 0 in (sink, txn) else Code.INVALID_BATCH)
        assert f"transaction {txn} of sink {sink}" in refused.error.text
        assert (await append(client, topic, batch(b"plain"))).base_offset == 0
        assert node.clients.produce_handler.refusals[refused.code] == 1


@in_trio
async def test_an_open_transaction_takes_batches_and_a_decided_one_takes_no_more(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for number, end in enumerate((CommitTransaction(1, 1, 0), AbortTransaction(1, 2))):
            sink, txn = await opened(client, batch_number=number)
            assert (await append(client, topic, staged(sink, txn))).base_offset == number
            await client.ask(end)
            late = await append(client, topic, staged(sink, txn, 1))
            assert late.code == Code.STALE_TRANSACTION and "no more batches" in late.error.text
        assert node.clients.produce_handler._staged.count == 0


@in_trio
async def test_a_transaction_of_a_sink_is_no_plain_producer(tmp_path):
    """Its records would be visible at once, and its numbers would fence the tasks of the
    transaction."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        sink, txn = await opened(client)
        refused = await append(client, topic, staged(sink, txn, transactional=False))
        assert refused.code == Code.INVALID_BATCH and "transactional" in refused.error.text
        assert (await append(client, topic, staged(sink, txn))).base_offset == 0


class MetadataWaiter:
    """A node whose metadata lag behind its clients; it answers questions when the test lets it."""

    def __init__(self):
        self.known: dict[TransactionRef, str] = {}
        self.asked: list[ResolveTransactions] = []
        self.answers: list = []
        self.told = trio.Event()

    def known_state(self, txn: TransactionRef) -> str:
        """Return the state in the node's own copy of the ledger."""
        return self.known.get(txn, UNOPENED)

    async def ask_within(self, request: ResolveTransactions,
                         timeout_s: float) -> ResolveTransactionsReply:
        """Return the metadata leader's answer, once the test lets it arrive."""
        self.asked.append(request)
        await self.told.wait()
        self.told = trio.Event()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ResolveTransactionsReply(
            0, tuple(TransactionDescription(*txn, answer) for txn in request.transactions)
        )

    def say(self, answer, state: str = UNOPENED) -> None:
        """Answer as the leader about transaction 1 of sink 1; the node has applied ``state`` by
        then."""
        self.answers.append(answer)
        self.known[TransactionRef(1, 1)] = state
        self.told.set()


@in_trio
@pytest.mark.parametrize("answer, state, code", [
    (OPEN, OPEN, Code.OK), (UNOPENED, UNOPENED, Code.INVALID_BATCH),
    (COMMITTED, COMMITTED, Code.STALE_TRANSACTION), (VOID, VOID, Code.STALE_TRANSACTION),
    (OPEN, UNOPENED, Code.STALE_METADATA),
    (LeaderUnknown("nobody leads"), UNOPENED, Code.STALE_METADATA)])
async def test_a_node_that_is_behind_asks_before_it_judges(tmp_path, monkeypatch, answer, state,
                                                           code):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic, behind = await client.create("t"), MetadataWaiter()
        monkeypatch.setattr(staged_batches.StagedBatches, "_state",
                            lambda _self, txn: behind.known_state(txn))
        monkeypatch.setattr(node.clients.produce_handler._staged, "_requests", behind)
        for sequence in (0, 1):  # in order of arrival
            data = staged(1, 1, sequence)
            await client.begin(Produce("commit", 15_000, (BatchPart(topic, len(data)),)), data)
        await until(lambda: behind.asked and node.clients.produce_handler._staged.count == 2)
        assert behind.asked == [ResolveTransactions((TransactionRef(1, 1),), False)]
        behind.say(answer, state)
        results = [(await client.event()).reply.results[0]]
        if code != Code.OK and state == UNOPENED:
            behind.say(answer, state)  # the second one came after the question: it asks again
        results.append((await client.event()).reply.results[0])
        assert [result.code for result in results] == [code] * 2
        if code == Code.OK:
            assert [result.base_offset for result in results] == [0, 1]


@in_trio
async def test_a_batch_that_came_after_the_question_is_not_judged_by_its_answer(tmp_path,
                                                                                 monkeypatch):
    """The transaction is opened between an invented batch and the first real one."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic, behind = await client.create("t"), MetadataWaiter()
        monkeypatch.setattr(staged_batches.StagedBatches, "_state",
                            lambda _self, txn: behind.known_state(txn))
        monkeypatch.setattr(node.clients.produce_handler._staged, "_requests", behind)
        first, second = staged(1, 1, value=b"made up"), staged(1, 1, value=b"real")
        await client.begin(Produce("commit", 15_000, (BatchPart(topic, len(first)),)), first)
        await until(lambda: behind.asked)
        await client.begin(Produce("commit", 15_000, (BatchPart(topic, len(second)),)), second)
        await until(lambda: node.clients.produce_handler._staged.count == 2)
        behind.say(UNOPENED)
        assert (await client.event()).reply.results[0].code == Code.INVALID_BATCH
        await until(lambda: len(behind.asked) == 2)
        behind.say(OPEN, OPEN)
        assert (await client.event()).reply.results[0].base_offset == 0


@in_trio
async def test_batches_that_wait_are_bounded(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic, behind = await client.create("t"), MetadataWaiter()
        monkeypatch.setattr(staged_batches, "WAITING_MAX", 1)
        monkeypatch.setattr(node.clients.produce_handler._staged, "_requests", behind)
        data = staged(9, 1)
        await client.begin(Produce("commit", 15_000, (BatchPart(topic, len(data)),)), data)
        await until(lambda: behind.asked)
        refused = await append(client, topic, staged(9, 2))
        assert (refused.code, refused.error.limit, refused.error.value) == (Code.QUEUE_FULL, 1, 2)


@in_trio
async def test_the_metadata_leader_makes_void_what_nobody_opened(tmp_path):
    """Permanently: the number is skipped, so that records which readers left out stay left out."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        assert await opened(client) == (1, 1)
        asked = (
            TransactionRef(1, 1),
            TransactionRef(1, 2),
            TransactionRef(2, 1),
            TransactionRef(9, 0),
        )

        async def states(void: bool) -> list[str]:
            reply = (await client.ask(ResolveTransactions(asked, void))).reply
            assert reply.index <= node.metadata.log.state.version
            return [fact.state for fact in reply.transactions]

        assert await states(False) == [OPEN, UNOPENED, UNOPENED, VOID]
        assert await states(True) == await states(False) == [OPEN, VOID, VOID, VOID]
        assert [
            row.state for row in (await client.ask(TransactionStates(asked))).reply.transactions
        ] == [OPEN, VOID, VOID, VOID]
        fact = (await client.ask(ResolveTransactions(asked))).reply.transactions[0]
        assert (fact.name, fact.batch, fact.open_ms >= 0) == ("s", 0, True)
        assert await opened(client, batch_number=1) == (1, 3)
        assert await opened(client, "another") == (2, 2)


@in_trio
async def test_what_nobody_opened_is_given_up_like_an_open_transaction(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        for _ in range(2):
            assert (await client.ask(AbortTransaction(5, 7))).reply.committed is False
        assert node.metadata.log.state.sinks.known_state(TransactionRef(5, 7)) == VOID


@in_trio
async def test_a_cluster_of_several_releases_makes_nothing_void(tmp_path, monkeypatch):
    """Nodes of earlier releases stop at the command that does it."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        state = node.metadata.log.state
        await until(lambda: state.nodes() and state.nodes()[0].version)
        record = state.nodes()[0]
        monkeypatch.setattr(type(state), "nodes", lambda _self: (record._replace(version="0.0.9"),))
        reply = (await client.ask(ResolveTransactions((TransactionRef(1, 1),)))).reply
        fact = reply.transactions[0]
        assert fact.state == UNOPENED and "node 1 runs release 0.0.9" in fact.why
        refused = await client.ask(AbortTransaction(1, 1))
        assert refused.code == Code.STALE_METADATA and "0.0.9" in refused.error.text
        assert state.sinks.known_state(TransactionRef(1, 1)) == UNOPENED




@in_trio
async def test_what_an_earlier_release_took_is_left_out_by_readers(tmp_path, monkeypatch):
    """Numbers above the newest transaction, of a sink that exists and of one that does not."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await until(lambda: node.metadata.log.state.nodes()[0].version)
        sink, txn = await opened(client)
        with monkeypatch.context() as earlier:
            earlier.setattr(staged_batches.StagedBatches, "waits", lambda *_: False)
            for made_up in ((1, 2), (777, 0), (777, 1)):
                assert (await append(client, topic, staged(*made_up, task=7))).code == Code.OK
        assert (await append(client, topic, batch(b"plain"))).code == Code.OK
        assert (await append(client, topic, staged(sink, txn))).base_offset == 4
        async with reader.Client([str(node.config.node.client_address)]) as reading:
            consumer = reading.consume("t", until_end=True)
            assert [record.value async for each in consumer for record in each] == [b"plain"]
            [left] = consumer.unread
            assert (left.offset, left.end_offset, left.transaction) == (
                4,
                5,
                TransactionRef(sink, txn),
            )
            assert "'s', whose batch 0 has been open" in left.reason
            await client.ask(CommitTransaction(sink, txn, 0))
            consumer = reading.consume("t", until_end=True)
            assert [record.value async for each in consumer for record in each] == [
                b"plain", b"staged"]
            assert consumer.unread == ()
        assert await opened(client, batch_number=1) == (1, 3)
