"""What only the trio client does: several tasks wait for one delivery, and some give up."""

from __future__ import annotations

import trio

from multiraft import client as trio_client
from multiraft.client import Record


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
