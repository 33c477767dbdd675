"""S45: more than the nodes can take, with a follower that lags; then normal load again."""

from __future__ import annotations

import signal

import trio

from multiraft.client import Client, Record
from multiraft.wire.errors import AmbiguousOutcome, RequestError
from tests.e2e.world import wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3}
PRODUCERS = 6
BATCHES = 40
BATCH_RECORDS = 8
RECORD = bytes(range(256)) * 256
AFTERWARDS = 200


async def flood(client: Client, topic: str, outcomes: list[str]) -> None:
    """Batches of half a MiB as fast as they are taken, more of them open than a group may hold."""
    async with client.producer(batch_bytes=1 << 20, delivery_timeout_ms=5_000) as producer:
        async with trio.open_nursery() as nursery:
            for _ in range(BATCHES):
                # One, unless it took so long to hand them over that some had left before.
                deliveries = {await producer.send(Record(topic, RECORD))
                              for _ in range(BATCH_RECORDS)}
                for delivery in deliveries:
                    nursery.start_soon(note, delivery, outcomes)


async def note(delivery, outcomes: list[str]) -> None:
    """What became of a batch: taken, refused, or unknown."""
    try:
        await delivery.wait()
    except AmbiguousOutcome:
        outcomes.append("unknown")
    except RequestError:
        outcomes.append("refused")
    else:
        outcomes.append("taken")


def test_after_an_overload_appends_flow_again_by_themselves(world):
    async def scenario():
        async with Client(world.addresses) as client:
            await client.create_topic("overload", 2)
            leader = await trio.to_thread.run_sync(world.leader_of, "overload")
            lagging = next(node for node in world.ids() if node != leader)
            world.signal(lagging, signal.SIGSTOP)
            outcomes: list[str] = []
            try:
                async with trio.open_nursery() as nursery:
                    for _ in range(PRODUCERS):
                        nursery.start_soon(flood, client, "overload", outcomes)
            finally:
                world.signal(lagging, signal.SIGCONT)
            assert len(outcomes) >= PRODUCERS * BATCHES, "every batch has an end"
            assert "taken" in outcomes, "two of three nodes go on meanwhile"
        async with Client(world.addresses) as client, client.producer(linger_ms=0) as producer:
            offsets = []
            for _ in range(AFTERWARDS):
                delivery = producer.send_nowait(Record("overload", b"normal", key=b"one"))
                offsets.append((await delivery.wait()).base_offset)
            assert offsets == sorted({*offsets}), "each is acknowledged, in order"
            return (await client.describe_topic("overload")).partitions[0].group

    group = trio.run(scenario)
    wait_for(lambda: caught_up(world, group), "the node that lagged has everything again", 60)


def caught_up(world, group: int) -> bool:
    """All replicas of the group say the same end."""
    with world.client() as client:
        ends = {client.group_describe(group, world.address(node)).last_index
                for node in world.ids()}
    return len(ends) == 1
