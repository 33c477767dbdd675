"""Closed clients, producers and consumers: later calls, and calls that wait, raise at once."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from multiraft import client as trio_client
from multiraft.client import AmbiguousOutcome, Closed, Record, blocking
from multiraft.client.ranges import Range, read_ranges
from multiraft.client.staging import begin_transaction
from multiraft.errors import MultiRaftError
from multiraft.wire import messages


def drop_produce(_node, event, _connection):
    """Script that never answers produce requests."""
    return "drop" if isinstance(event.request, messages.Produce) else None


def test_a_producer_that_was_closed_takes_nothing(client, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send(Record("a", b"x"))
    for use in (lambda: producer.send_nowait(Record("a", b"y")),
                lambda: producer.send(Record("a", b"y")),
                lambda: producer.send(Record("unknown", b"y")),
                lambda: producer.send_many("a", [b"y"]),
                lambda: producer.send_many("unknown", [b"y"]),
                lambda: producer.send_many("a", [Record("a", b"y")]),
                producer.flush, producer.__enter__):
        with pytest.raises(Closed, match="the producer was closed"):
            use()
    producer.close()
    producer.__exit__(None, None, None)
    assert cluster.topics["a"][0].values() == [b"x"]


def test_closing_a_producer_is_leaving_it(client, cluster):
    client.create_topic("a")
    producer = client.producer(linger_ms=60_000)
    delivery = producer.send_nowait(Record("a", b"x"))
    producer.close()
    assert delivery.wait().base_offset == 0


def test_a_consumer_that_was_closed_gives_nothing(client, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send(Record("a", b"x"))
    consumer = client.consume("a")
    next(consumer)
    consumer.close()
    for _ in range(2):
        with pytest.raises(Closed, match="the consumer was closed"):
            next(consumer)
        consumer.close()
    assert consumer.position(0) == 1


def test_batches_that_a_closed_consumer_had_fetched_are_not_given(client, cluster):
    client.create_topic("a")
    with client.producer(batch_bytes=200) as producer:
        producer.send_many("a", [bytes(100)] * 10)
    consumer = client.consume("a")
    next(consumer)
    consumer.close()
    with pytest.raises(Closed):
        next(consumer)


def test_the_end_of_a_consumer_stays_its_end(client):
    client.create_topic("a")
    consumer = client.consume("a", until_end=True)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(consumer)


def test_nothing_of_a_client_that_was_closed_can_be_used(driver, cluster):
    with driver.client(cluster.servers()) as client:
        client.create_topic("a")
        producer = client.producer()
        producer.send(Record("a", b"x")).wait()
        consumer, unread = client.consume("a"), client.consume("a", start="latest")
        next(consumer)
    for use in (client.list_topics, lambda: client.create_topic("b"),
                lambda: client.describe_topic("a"), client.cluster_status, client.catch_up,
                client.producer, lambda: client.consume("a"), client.__enter__,
                lambda: producer.send(Record("a", b"y")), producer.flush,
                lambda: next(consumer), lambda: next(unread)):
        with pytest.raises(Closed, match="the client was closed"):
            use()
    producer.close()
    consumer.close()


def test_ranges_and_staging_of_a_client_that_was_closed_are_refused(world, cluster):
    cluster.add_topic("a")
    with blocking.Client(cluster.servers()) as client:
        client.producer().send(Record("a", b"x")).wait()
        reading = read_ranges(client, [Range("a", 0, 0, 0, 1), Range("a", 0, 0, 0, 1)], at_once=1)
        next(reading)
    client.close()
    for use in (lambda: next(reading), lambda: next(read_ranges(client, [Range("a", 0, 0, 0, 1)])),
                lambda: begin_transaction(client, "sink", 1, bytes(16))):
        with pytest.raises(Closed):
            use()


def test_a_client_that_was_not_entered_says_so(world, cluster):
    async def run():
        client = trio_client.Client(cluster.servers())
        for use in (client.list_topics, client.producer().flush,
                    lambda: client.producer().send(Record("a", b"x"))):
            with pytest.raises(Closed, match="async with"):
                await use()
        async with client:
            with pytest.raises(RuntimeError, match="open already"):
                await client.__aenter__()

    world.run(run)


def test_what_a_client_leaves_unsent_is_told_when_it_is_closed(driver, cluster):
    cluster.add_topic("a")
    deliveries = []
    with pytest.raises(Closed, match="not sent: the client was closed"):
        with driver.client(cluster.servers()) as client:
            producer = client.producer(linger_ms=60_000)
            deliveries.append(producer.send_nowait(Record("a", b"x")))
    with pytest.raises(Closed):
        deliveries[0].result()


def test_a_body_that_failed_keeps_its_error_and_is_told_of_records_beside_it(driver, cluster):
    cluster.add_topic("a")
    with pytest.raises(ValueError, match="mine") as caught:
        with driver.client(cluster.servers()) as client:
            with client.producer(linger_ms=60_000) as producer:
                producer.send_nowait(Record("a", b"x"))
                raise ValueError("mine")
    assert any("not sent: the producer was closed" in note for note in caught.value.__notes__)


def told_while_waiting(world, cluster, wait, close, sends=False):
    """Return the error that a waiting task gets when another task closes.  Both tasks get (client,
    producer, consumer, delivery of a sent record or None)."""
    told = []

    async def waiting(parts, started):
        started.set()
        try:
            told.append(await wait(*parts))
        except MultiRaftError as error:
            told.append(error)

    async def run():
        async with trio.open_nursery() as nursery:
            async with trio_client.Client(cluster.servers()) as client:
                producer = client.producer(linger_ms=0)
                delivery = producer.send_nowait(Record("a", b"x")) if sends else None
                parts = client, producer, client.consume("a", start="latest"), delivery
                started = trio.Event()
                nursery.start_soon(waiting, parts, started)
                await started.wait()
                await trio.testing.wait_all_tasks_blocked(0.05)
                await close(*parts)

    world.run(run)
    assert len(told) == 1
    return told[0]


async def leave(*_):
    """Leave the client's block, which closes it."""


@pytest.mark.parametrize("close", ["consumer", "client"])
def test_a_task_that_reads_is_told(world, cluster, close):
    cluster.add_topic("a")

    async def closing(_client, _producer, consumer, _delivery):
        consumer.close()

    told = told_while_waiting(world, cluster, lambda _c, _p, consumer, _d: consumer.__anext__(),
                              closing if close == "consumer" else leave)
    assert isinstance(told, Closed) and f"the {close} was closed" in str(told)


@pytest.mark.parametrize("wait", ["delivery", "flush"])
@pytest.mark.parametrize("close", ["producer", "client"])
def test_a_task_that_waits_for_an_answer_is_told(world, cluster, wait, close):
    cluster.add_topic("a")
    cluster.script = drop_produce

    async def closing(_client, producer, _consumer, _delivery):
        try:
            raise ValueError
        except ValueError as error:
            await producer.__aexit__(ValueError, error, None)

    async def waiting(_client, producer, _consumer, delivery):
        return await (delivery.wait() if wait == "delivery" else producer.flush())

    told = told_while_waiting(world, cluster, waiting, closing if close == "producer" else leave,
                              sends=True)
    assert isinstance(told, AmbiguousOutcome)


def test_a_task_that_asks_is_told(world, cluster):
    cluster.add_topic("a")
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, messages.ListTopics) else None)
    told = told_while_waiting(world, cluster, lambda client, *_: client.list_topics(), leave)
    assert isinstance(told, Closed) and "the client was closed" in str(told)


def test_a_change_that_was_under_way_is_ambiguous(world, cluster):
    cluster.add_topic("a")
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, messages.CreateTopic) else None)
    told = told_while_waiting(world, cluster, lambda client, *_: client.create_topic("b"), leave)
    assert isinstance(told, AmbiguousOutcome)


def test_a_task_that_waits_for_room_is_told(world, cluster):
    cluster.add_topic("a")
    cluster.script = drop_produce
    told = []

    async def fill(producer):
        try:
            while True:
                await producer.send(Record("a", bytes(500)))
        except Closed as error:
            told.append(error)

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            producer = client.producer(batch_bytes=1000, buffer_bytes_max=2000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fill, producer)
                await trio.testing.wait_all_tasks_blocked(0.05)
                try:
                    raise ValueError
                except ValueError as error:
                    await producer.__aexit__(ValueError, error, None)

    world.run(run)
    assert len(told) == 1


def test_a_producer_whose_flush_is_cancelled_while_it_is_left_is_closed(world, cluster):
    cluster.add_topic("a")
    cluster.script = drop_produce

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            with trio.move_on_after(0.05) as scope:
                async with client.producer(linger_ms=0) as producer:
                    delivery = producer.send_nowait(Record("a", b"x"))
            assert scope.cancelled_caught
            with pytest.raises(Closed):
                producer.send_nowait(Record("a", b"y"))
            with pytest.raises(AmbiguousOutcome):
                await delivery.wait()

    world.run(run)


def test_a_signal_handler_that_closes_the_client_ends_the_wait(world, cluster, monkeypatch):
    """A handler may run between any two steps of the thread."""
    cluster.add_topic("a")
    cluster.script = drop_produce
    with blocking.Client(cluster.servers()) as client:
        delivery = client.producer(linger_ms=0).send_nowait(Record("a", b"x"))
        consumer = client.consume("a")
        listen = client.listen

        def interrupted(*args):
            monkeypatch.undo()
            listen(*args)
            with pytest.raises(Closed):
                client.close()

        monkeypatch.setattr(client, "listen", interrupted)
        with pytest.raises(Closed):
            delivery.wait()
        with pytest.raises(Closed):
            next(consumer)
