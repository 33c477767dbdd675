"""The memory budget of all connections, at a whole node in this process."""

import contextlib
import functools

import trio

from multiraft.core import BatchBuilder
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    BatchPart,
    Fetch,
    FetchPart,
    Metadata,
    NodeStatus,
    Produce,
)
from node.clients.memory_budget import MemoryBudget
from node.limits import Limits
from tests.node.harness import Client, batch, in_trio, serving, until

MIB = 1 << 20
#: Room for two frames of the largest size, at most one of them on one connection.
TIGHT = {"connection_bytes_in_flight_max": 16 * MIB, "node_bytes_in_flight_max": 24 * MIB}


def large_batch(size: int) -> bytes:
    builder = BatchBuilder(8 << 20)
    assert builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()


class Waiter:
    """A waiting session that records its notifications."""

    def __init__(self, called: list):
        self.called = called

    def memory_freed(self) -> None:
        self.called.append(self)


def test_who_waits_longest_is_served_first_and_nobody_overtakes():
    budget = MemoryBudget(Limits(node_bytes_in_flight_max=100 * MIB))
    called: list = []
    large, small = Waiter(called), Waiter(called)
    budget.bytes = 90 * MIB
    budget.waiting = {large: 50 * MIB, small: 5 * MIB}
    budget.grant_waiting()
    assert not called
    budget.bytes = 50 * MIB
    budget.grant_waiting()
    assert called == [large]
    assert list(budget.waiting) == [small], "there is no room for both"
    budget.bytes = 10 * MIB
    budget.grant_waiting()
    assert called == [large, small]


def test_a_refusal_names_the_limit_that_was_reached():
    budget = MemoryBudget(Limits())
    for name, attribute in (("node_requests_in_flight_max", "requests"),
                            ("node_bytes_in_flight_max", "bytes"),
                            ("node_send_buffer_bytes_max", "unsent")):
        limit = getattr(Limits(), name)
        setattr(budget, attribute, limit + 7)
        detail = budget.refusal()
        assert (detail.limit, detail.value) == (limit, limit + 7)
        assert name in detail.text
        setattr(budget, attribute, 0)
    assert budget.refused == 3


@in_trio
async def test_a_large_frame_waits_unread_while_others_fill_the_memory(tmp_path):
    """Two frames that never end use all memory. The third one waits, small requests do not, and it
    proceeds when one of the two connections closes."""
    async with serving(tmp_path, **TIGHT) as node, await Client.open(node) as small, \
            await Client.open(node) as third, contextlib.AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(await Client.open(node)) for _ in range(2)]
        topic = await small.create("t")
        announced = (12 * MIB - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")
        for holder in holders:
            await holder.say(announced, bytes(300 << 10))
        budget = node.clients.sessions.budget
        await until(lambda: budget.bytes == 24 * MIB)
        data = large_batch(4 * MIB)
        request = Produce("commit", 9_000, (BatchPart(topic, len(data)),))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(third.begin, request, data))
            await until(lambda: budget.waiting, "the third frame waits")
            assert (await small.ask(NodeStatus())).code == Code.OK
            assert budget.bytes == 24 * MIB
            holders[0].stream.socket.close()
            answer = await third.event()
        assert answer.reply.results[0].code == Code.OK
        holders[1].stream.socket.close()
        await until(lambda: budget.bytes == 0, "nothing is counted any more")
        assert budget.requests == 0


@in_trio
async def test_appends_beyond_the_bound_are_refused_early_and_later_taken(tmp_path):
    async with serving(tmp_path, **TIGHT) as node, await Client.open(node) as client:
        topic = await client.create("t")
        node.clients.sessions.budget.bytes += 25 * MIB  # what others have under way
        data = batch(b"x")
        refused = await client.ask(Produce("commit", 5_000, (BatchPart(topic, len(data)),)), data)
        assert refused.code == Code.QUEUE_FULL
        assert (refused.error.limit, refused.error.value) == (24 * MIB, 25 * MIB)
        await client.begin(Produce("none", 5_000, (BatchPart(topic, len(data)),)), data)
        assert (await client.ask(NodeStatus())).code == Code.QUEUE_FULL
        node.clients.sessions.budget.bytes -= 25 * MIB
        assert (await client.produce(topic, b"first")).base_offset == 0, "none of those is there"
        assert node.clients.sessions.budget.bytes == 0
        assert node.clients.sessions.budget.requests == 0


@in_trio
async def test_long_polls_count_until_their_client_is_gone(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        node.clients.sessions.budget.requests_max = 8
        topic = await client.create("t")
        poll = Fetch((FetchPart(topic, 0, 1000),), wait_max_ms=30_000)
        async with await Client.open(node) as patient:
            for _ in range(8):
                await patient.begin(poll)
            await until(lambda: node.clients.sessions.budget.requests == 8)
            answer = await client.ask(Metadata())
            assert (answer.code, answer.error.limit, answer.error.value) == (
                Code.QUEUE_FULL, 8, 9)
        await until(lambda: node.clients.sessions.budget.requests == 0)
        assert (await client.ask(Metadata())).code == Code.OK


@in_trio
async def test_answers_that_nobody_reads_are_counted_and_fetches_then_refused(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        data = large_batch(6 * MIB)
        answer = await client.ask(Produce("commit", 9_000, (BatchPart(topic, len(data)),)), data)
        assert answer.code == Code.OK
        fetch = Fetch((FetchPart(topic, 0, 7 * MIB),))
        budget = node.clients.sessions.budget
        async with await Client.open(node) as deaf:
            for _ in range(3):
                await deaf.begin(fetch)
            await until(lambda: budget.unsent > 6 * MIB)
            budget.unsent_max = 6 * MIB
            refused = await client.ask(fetch)
            assert (refused.code, refused.error.limit) == (Code.QUEUE_FULL, 6 * MIB)
            assert (await client.ask(NodeStatus())).code == Code.OK
        await until(lambda: budget.unsent == 0)
        assert (await client.ask(fetch)).code == Code.OK
