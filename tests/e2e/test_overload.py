"""Scenario S45: more load than the nodes can take, with a follower that lags; then normal load
again.
"""

from __future__ import annotations

import re
import signal
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable

import trio

from multiraft.client import Client, Producer, Record
from multiraft.wire.errors import AmbiguousOutcome, RequestError
from tests.e2e.world import WAIT_S, World, wait_for

#: Limit of a group below the load of one producer, so that most batches are refused.
SMALL = """
[raft]
uncommitted_entries_max = 4
"""


def small(world: World) -> None:
    """Yield a leader with a small limit."""
    for node in world.ids():
        world.configure(node, SMALL)


REFUSED = re.compile(r'^multiraft_rejections_total\{.*reason="QUEUE_FULL".*\} (\d+)', re.MULTILINE)
SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": small}
PRODUCERS = 6
OVERLOAD_S = 60.0
#: Small, because a minute of this load is a log that all three nodes keep.
BATCH_RECORDS = 8
RECORD = bytes(range(256)) * 2
#: A producer with this many open batches waits for outcomes.
OPEN_MAX = 40
#: Appends of normal load, one after the other, that are timed together.
SOME = 40
WINDOWS = 5
#: Normal appends may be slower by this factor so soon after the overload, because other programs
#: use the machine too.
SLOWER_MAX = 3.0
RETURNS_S = 60.0


async def flood(client: Client, topic: str, until_s: float, outcomes: Counter[str]) -> None:
    """Send small batches as fast as they are accepted, with more of them open than a group may
    hold."""
    room = trio.Semaphore(OPEN_MAX)
    async with client.producer(delivery_timeout_ms=5_000) as producer:
        async with trio.open_nursery() as nursery:
            while trio.current_time() < until_s:
                # One delivery, unless the records took so long to pass that some had been sent
                # before.
                deliveries = {await producer.send(Record(topic, RECORD))
                              for _ in range(BATCH_RECORDS)}
                for delivery in deliveries:
                    await room.acquire()
                    outcomes["given"] += 1
                    nursery.start_soon(note, delivery, room, outcomes)


async def note(delivery, room: trio.Semaphore, outcomes: Counter[str]) -> None:
    """Note the outcome of a batch: accepted, refused, or ambiguous."""
    try:
        await delivery.wait()
    except AmbiguousOutcome:
        outcomes["unknown"] += 1
    except RequestError:
        outcomes["refused"] += 1
    else:
        outcomes["taken"] += 1
    room.release()


def held_back(world: World, nodes: Iterable[int]) -> int:
    """Return the batches that these nodes have refused because a group was at its limit."""
    count = 0
    for node in nodes:
        url = f"http://{world.dev.record.node(node).http_address}/metrics"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            count += sum(map(int, REFUSED.findall(answer.read().decode())))
    return count


class Normal:
    """Appends one after the other."""

    def __init__(self, producer: Producer, topic: str):
        self._producer = producer
        self._topic = topic
        self.offsets: list[int] = []

    async def some(self) -> float:
        """Return the time of some appends, in seconds."""
        begun_s = time.monotonic()
        for _ in range(SOME):
            delivery = self._producer.send_nowait(Record(self._topic, b"normal", key=b"one"))
            self.offsets.append((await delivery.wait()).base_offset)
        return time.monotonic() - begun_s


async def overload(world: World, client: Client, topic: str) -> None:
    """Overload the group; return when every batch has its outcome and the follower is no longer
    held."""
    leader = await trio.to_thread.run_sync(world.leader_of, topic)
    lagging = next(node for node in world.ids() if node != leader)
    others = [node for node in world.ids() if node != lagging]
    outcomes: Counter[str] = Counter()
    until_s = trio.current_time() + OVERLOAD_S
    world.signal(lagging, signal.SIGSTOP)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(PRODUCERS):
                nursery.start_soon(flood, client, topic, until_s, outcomes)
    finally:
        world.signal(lagging, signal.SIGCONT)
    ended = outcomes["taken"] + outcomes["refused"] + outcomes["unknown"]
    assert ended == outcomes["given"], f"every batch has an end: {outcomes}"
    assert outcomes["taken"], "two of three nodes go on meanwhile"
    assert held_back(world, others) > 0, "a leader takes only what its group may hold"


def test_after_an_overload_appends_flow_as_before_by_themselves(world):
    async def scenario():
        async with Client(world.addresses) as client, client.producer(linger_ms=0) as producer:
            await client.create_topic("overload", 2)
            normal = Normal(producer, "overload")
            before_s = statistics.median([await normal.some() for _ in range(WINDOWS)])
            async with Client(world.addresses) as flooding:
                await overload(world, flooding, "overload")
            await as_before(normal, before_s)
            assert normal.offsets == sorted({*normal.offsets}), "each is acknowledged, in order"
            return (await client.describe_topic("overload")).partitions[0].group

    group = trio.run(scenario)
    wait_for(lambda: caught_up(world, group), "the node that lagged has everything again")


async def as_before(normal: Normal, before_s: float) -> None:
    """Wait until appends take no longer than before."""
    took_s: list[float] = []
    with trio.move_on_after(RETURNS_S):
        while not took_s or took_s[-1] > SLOWER_MAX * before_s:
            took_s.append(await normal.some())
        return
    raise AssertionError(f"{SOME} appends took {before_s:.3f} s before the overload, in the "
                         f"{RETURNS_S} s behind it {', '.join(f'{each:.3f}' for each in took_s)}")


def caught_up(world, group: int) -> bool:
    """True if all replicas of the group report the same end."""
    with world.client() as client:
        ends = {client.group_describe(group, world.address(node)).last_index
                for node in world.ids()}
    return len(ends) == 1
