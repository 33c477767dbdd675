"""Each failure is raised once: by ``wait``, else by ``flush``, else at the end of the block."""

from __future__ import annotations

import pytest
import trio

from multiraft import client as trio_client
from multiraft.client import AmbiguousOutcome, Record, blocking
from multiraft.client._accumulator import _FAILURES_KEPT_MAX
from multiraft.client._network import Lost
from multiraft.wire import errors, messages
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.test_producer_state import Bench, metadata


def refuse_produce(_node, event, _connection):
    """Script that refuses each append definitely."""
    if not isinstance(event.request, messages.Produce):
        return None
    return ResponseEvent(event.id, messages.ProduceReply(tuple(
        messages.ProduceResult(Code.INVALID_BATCH, -1, ErrorDetail("refused"))
        for _ in event.request.batches)))


async def give_up(delivery):
    """Cancel a wait after a moment."""
    with trio.move_on_after(0.01) as scope:
        await delivery.wait()
    assert scope.cancelled_caught


def test_a_wait_that_was_given_up_was_told_nothing(world, cluster):
    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            producer = client.producer()
            await give_up(producer.send_nowait(Record("no-such", b"x")))
            with pytest.raises(errors.UnknownTopic) as caught:
                await producer.flush()
            assert caught.value.topic == "no-such"
            await producer.flush()
            with pytest.raises(errors.UnknownTopic):
                async with client.producer() as left:
                    await give_up(left.send_nowait(Record("no-such", b"x")))

    world.run(run)


def test_of_several_who_wait_one_is_enough(world, cluster):
    told = []

    async def wait(delivery):
        try:
            await delivery.wait()
        except errors.UnknownTopic as error:
            told.append(error)

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer() as producer:
                delivery = producer.send_nowait(Record("no-such", b"x"))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait, delivery)
                    nursery.start_soon(give_up, delivery)
                    nursery.start_soon(wait, delivery)
                await producer.flush()

    world.run(run)
    assert len(told) == 2


def test_a_flush_beside_a_wait_leaves_the_failure_to_it(world, cluster):
    cluster.add_topic("a")
    cluster.script = refuse_produce
    told = []

    async def wait(delivery):
        with pytest.raises(errors.InvalidBatch):
            await delivery.wait()
        told.append(delivery)

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer(linger_ms=600_000) as producer:
                delivery = await producer.send(Record("a", b"x"))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait, delivery)
                    await trio.sleep(0)
                    nursery.start_soon(producer.flush)

    world.run(run)
    assert len(told) == 1


def test_a_cancelled_wait_for_what_is_known_was_told_nothing(world, cluster):
    cluster.add_topic("a")
    cluster.script = refuse_produce

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            producer = client.producer(linger_ms=0)
            delivery = producer.send_nowait(Record("a", b"x"))
            while not delivery.done:
                await trio.sleep(0.001)
            with trio.CancelScope() as scope:
                scope.cancel()
                await delivery.wait()
            with pytest.raises(errors.InvalidBatch):
                await producer.flush()

    world.run(run)


def test_a_handler_that_raises_in_a_wait_was_told_nothing(world, cluster, monkeypatch):
    """As Ctrl-C does, which a program may survive."""
    with blocking.Client(cluster.servers()) as client:
        producer = client.producer()
        delivery = producer.send_nowait(Record("no-such", b"x"))

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(client, "listen", interrupted)
            with pytest.raises(KeyboardInterrupt):
                delivery.wait()
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        with pytest.raises(errors.UnknownTopic):
            producer.flush()
        producer.flush()


def test_every_failure_is_named_the_ambiguous_one_first(client, cluster):
    for name in ("a", "b"):
        cluster.add_topic(name)
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, messages.Produce) else None)
    with pytest.raises(AmbiguousOutcome, match="a/0") as caught:
        with client.producer(delivery_timeout_ms=300) as producer:
            producer.send_nowait(Record("no-such", b"x"))
            producer.send_nowait(Record("a", b"x"))
            producer.send_nowait(Record("b", b"x"))
    assert caught.value.topic == "a" and caught.value.partition == 0
    notes = "\n".join(caught.value.__notes__)
    assert "3 failures" in notes and "b/0" in notes and "no-such" in notes


def test_more_failures_than_are_kept_are_counted():
    bench = Bench()
    many = _FAILURES_KEPT_MAX + 7
    for _ in range(many):
        bench.send()
        for attempt in bench.poll():
            bench.answer(attempt, Code.INVALID_BATCH, detail=ErrorDetail("no"))
    failure = bench.state.records.take_failure()
    assert f"one of {many} failures" in failure.__notes__[0]
    assert bench.state.records.take_failure() is None


def test_each_record_that_waited_for_its_topic_has_to_be_told():
    """They are in one batch, and each sender has a delivery of its own."""
    bench = Bench()
    bench.metadata.forget_topic("t")
    deliveries = [bench.send() for _ in range(3)]
    bench.metadata.apply(("t",), metadata(), 0)
    attempt = bench.one()
    bench.answer(attempt, Code.INVALID_BATCH, detail=ErrorDetail("no"))
    for delivery in deliveries[:2]:
        with pytest.raises(errors.InvalidBatch):
            delivery.result()
    assert bench.state.records.take_failure() is not None
    bench.metadata.forget_topic("t")
    deliveries = [bench.send() for _ in range(3)]
    bench.metadata.apply(("t",), metadata(), 0)
    bench.answer(bench.one(), Code.INVALID_BATCH, detail=ErrorDetail("no"))
    for delivery in deliveries:
        with pytest.raises(errors.InvalidBatch):
            delivery.result()
    assert bench.state.records.take_failure() is None


def test_an_error_that_is_raised_again_has_no_traces_of_before(client, cluster):
    cluster.add_topic("a")
    cluster.script = refuse_produce
    with pytest.raises(errors.InvalidBatch) as first:
        with client.producer() as producer:
            producer.send_nowait(Record("a", b"x"))
    assert "refused" in str(first.value) and "a/0" in str(first.value)
    assert not getattr(first.value, "__notes__", [])


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_may_be_in_the_log_is_told_with_its_group_and_its_members(idempotent):
    """The leader died after the request was sent and the group has no other leader."""
    bench = Bench(delivery_timeout_ms=1000, idempotent=idempotent)
    bench.metadata.apply(("t",), metadata()._replace(groups=(
        messages.GroupReplicas(1, (1, 2)),)), 0)
    delivery = bench.send()
    bench.state.done(bench.one(), Lost(True, "the connection was reset"), 10)
    bench.poll(1000)
    assert isinstance(delivery.outcome, AmbiguousOutcome)
    assert "last: n1:1: the connection was reset; the last known leader of group 1 is node 1; " \
        "its members: node 1 (n1:1), node 2 (n2:1): not asked" in str(delivery.outcome)


def test_a_partition_without_a_leader_is_told_with_its_group_and_the_members_that_answer(
        driver, world, cluster):
    """One of three nodes lives; the error has to say so, and not that no node answers."""
    part, = cluster.add_topic("a")
    leader = cluster.leaders[part.group]
    alive = next(node for node in cluster.nodes if node != leader)
    with driver.client(cluster.addresses[alive]) as client:
        client.topic_metadata("a")
        for node in cluster.nodes:
            if node != alive:
                world.call(cluster.close, node)
        consumer = client.consume("a", unavailable_ms=300)
        with pytest.raises(errors.RequestError) as read:
            next(consumer)
        with client.producer(delivery_timeout_ms=300) as producer:
            # ambiguous if the connection was lost after the request was sent
            with pytest.raises((errors.TimedOut, errors.AmbiguousOutcome)) as written:
                producer.send(Record("a", b"x")).wait()
    for told in (read, written):
        text = str(told.value)
        assert "a/0" in text
        assert f"the last known leader of group {part.group} is node {leader}" in text
        assert f"node {alive} ({cluster.addresses[alive]}): answers" in text
        assert f"node {leader} ({cluster.addresses[leader]}): " in text, text
        assert (told.value.topic, told.value.partition) == ("a", 0)
