"""Liveness after healing: every group has a leader and takes an append, within a bound (A28).

Contract.  ``stuck_groups`` appends to one partition of every group and creates a topic for the
metadata group, all at once, and returns an anomaly for each that was not acknowledged in
``BOUND_S``.  The appends are operations of the history like any other.

Theory.  Availability under faults is reported, not judged; availability without any is a promise.
The bound is a hundred election timeouts: a busy machine is no excuse for more, and a group that
waits for an event that never happens is found by any bound.
"""

from __future__ import annotations

import random

import trio

from chaos.checkers.verdict import Anomaly
from chaos.workloads.appends import DELIVERY_TIMEOUT_MS, send, settle
from chaos.workloads.churn import create
from chaos.workloads.records import Source
from chaos.workloads.setting import Place, Setting
from multiraft.errors import MultiRaftError

BOUND_S = 60.0
RETRY_S = 0.5
#: The metadata group.
METADATA_GROUP = 0


async def stuck_groups(setting: Setting) -> list[Anomaly]:
    """Append to every group; return an anomaly for each one that does not acknowledge in time."""
    by_group = {place.group: place for place in setting.topics.places}
    alive: set[int] = set()
    with trio.move_on_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            for place in by_group.values():
                nursery.start_soon(_append, setting, place, alive)
            nursery.start_soon(_create, setting, alive)
    stuck = sorted({METADATA_GROUP, *by_group} - alive)
    return [anomaly(setting, group, by_group.get(group)) for group in stuck]


def anomaly(setting: Setting, group: int, place: Place | None) -> Anomaly:
    """Return the anomaly of a group that does not recover."""
    leader = setting.leaders.get(group)
    seen = f"node {leader} was seen leading it last" if leader else "no leader was ever seen"
    return Anomaly("A28", "stuck-group",
                   f"group {group} acknowledged nothing in {BOUND_S:.0f} s after everything was "
                   f"healed; {seen}", place.key if place else "", (), setting.recorder.now_us())


async def _append(setting: Setting, place: Place, alive: set[int]) -> None:
    """Append until one append is acknowledged."""
    rng, recorder = setting.rng(), setting.recorder
    source = Source(setting.run, recorder.next_producer(), rng)
    process = recorder.process()
    async with setting.client() as client:
        while True:
            try:
                await client.topic_metadata(place.topic)
            except MultiRaftError:
                await trio.sleep(RETRY_S)
                continue
            values, records = source.take(place)
            operation = process.invoke("append", key=place.key, values=values, acks="commit",
                                       producer=-1, epoch=-1, sequence=-1)
            # The producer gives up before ``settle`` counts the client as one that does not answer.
            async with client.producer(linger_ms=0,
                                       delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
                await settle(setting, operation, place, len(values),
                             send(client, producer, place, records))
            if operation.happened:
                alive.add(place.group)
                return
            await trio.sleep(RETRY_S)


async def _create(setting: Setting, alive: set[int]) -> None:
    rng: random.Random = setting.rng()
    process = setting.recorder.process()
    attempt = 0
    async with setting.client() as client:
        while await create(process, client, rng, f"alive-{attempt}", 1) is None:
            attempt += 1
            await trio.sleep(RETRY_S)
    alive.add(METADATA_GROUP)
