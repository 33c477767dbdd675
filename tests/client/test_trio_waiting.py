"""Trio client only: several tasks wait for one delivery, and some are cancelled."""

from __future__ import annotations

import trio
import trio.testing

from multiraft import client as trio_client
from multiraft.client import Record
from multiraft.wire import messages


def test_whoever_gives_up_waiting_leaves_the_batch_and_other_waiters_alone(world, cluster):
    cluster.add_topic("a")
    receipts = []

    async def wait(delivery):
        receipts.append(await delivery.wait())

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer(linger_ms=0) as producer:
                delivery = producer.send_nowait(Record("a", b"x"))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait, delivery)
                    nursery.start_soon(wait, delivery)
                    with trio.CancelScope() as scope:
                        scope.cancel()
                        await wait(delivery)
                    assert scope.cancelled_caught
                await wait(delivery)

    world.run(run)
    assert receipts == [trio_client.BatchReceipt("a", 0, 0, 1)] * 3


def test_a_record_that_is_only_sent_leaves_when_it_has_lingered(world, cluster):
    cluster.add_topic("a")

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer(linger_ms=0) as first:
                await (await first.send(Record("a", b"connected"))).wait()
            async with client.producer(linger_ms=20) as producer:
                delivery, event = await producer.send(Record("a", b"x")), trio.Event()
                delivery.when_done(event.set)  # which, unlike ``wait``, does nothing itself
                with trio.fail_after(60):
                    await event.wait()
                assert delivery.result().base_offset == 1

    world.run(run)


def test_tasks_that_wait_for_room_are_served_in_their_order(world, cluster):
    """Small records wait behind a large one; after a cancelled task the next one is served."""
    cluster.add_topic("a")
    held, order = [True], []
    cluster.script = lambda _node, event, _connection: (
        "drop" if held[0] and isinstance(event.request, messages.Produce) else None)

    async def send(producer, number):
        await producer.send(Record("a", bytes(100 if number else 1500)))
        order.append(number)

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer(batch_bytes=1000, buffer_bytes_max=2000,
                                       request_timeout_ms=200, suspect_ms=50) as producer:
                await producer.send_many("a", [bytes(500)] * 2)
                async with trio.open_nursery() as nursery:
                    given_up = trio.CancelScope()

                    async def give_up():
                        with given_up:
                            await send(producer, 1)

                    for number in range(5):
                        nursery.start_soon(*((give_up,) if number == 1
                                             else (send, producer, number)))
                        await trio.testing.wait_all_tasks_blocked()
                    given_up.cancel()
                    held[0] = False

    world.run(run)
    assert order == [0, 2, 3, 4]
