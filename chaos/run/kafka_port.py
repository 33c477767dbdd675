"""Kafka's port after healing: each node names every leader, and each group takes an append (A28).

Contract.  ``stuck_partitions`` asks each node for its metadata at Kafka's port until they name the
leaders that the nodes themselves report, and appends to one partition of every group through a
client of Kafka, both for at most ``BOUND_S``.  It returns an anomaly for each partition of which a
node still names another leader, and for each group without an acknowledged append.  The appends are
operations of the history like any other.

Theory.  At the native port a client finds a leader through any node, so a run without this check
would pass though no client of Kafka gets anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from chaos.checkers.verdict import Anomaly
from chaos.run.final_reads import existing
from chaos.run.liveness import BOUND_S, RETRY_S
from chaos.workloads import kafka_appends, kafka_client, kafka_session
from chaos.workloads.records import RecordSource
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.errors import MultiRaftError


async def stuck_partitions(context: WorkloadContext) -> list[Anomaly]:
    """Ask all nodes for leaders and append to a partition of every group, at the same time, and
    return the anomalies of what does not hold within ``BOUND_S``."""
    anomalies: list[Anomaly] = []
    async with trio.open_nursery() as nursery:
        for node in context.kafka_nodes():
            nursery.start_soon(_leaders_named, context, node, anomalies)
        nursery.start_soon(_groups_append, context, anomalies)
    return anomalies


class _Wrong(NamedTuple):
    """A partition of which a node names another leader than the nodes report."""

    key: str
    leader: int
    named: int = -1  # -1 = none, or the node has not answered


async def _leaders_named(context: WorkloadContext, node: int, anomalies: list[Anomaly]) -> None:
    """Add an anomaly for each partition of which the node names another leader than the nodes
    report, until the end of the time."""
    wrong: dict[int, _Wrong] | None = None  # None = the node has never answered
    with trio.move_on_after(BOUND_S):
        while wrong is None or wrong:
            wrong = await _wrongly_named(context, node, wrong)
            await trio.sleep(RETRY_S if wrong else 0)
    if wrong is None:
        wrong = {place.incarnation: _Wrong(place.key, context.leaders.get(place.group, 0))
                 for place in context.topics.places}
    for key, leader, named in wrong.values():
        anomalies.append(Anomaly(
            "A28", "kafka-port-stuck", f"node {node} names node {named} as the leader of {key} for "
            f"{BOUND_S:.0f} s at Kafka's port, it is node {leader}", key, (),
            context.recorder.now_us()))


async def _wrongly_named(context: WorkloadContext, node: int, before: dict[int, _Wrong] | None,
                         ) -> dict[int, _Wrong] | None:
    """Return the partitions among ``before``, None = all, of which the node names another leader
    now; ``before`` if it does not answer. The groups of partitions are read each time: switches
    change them. Raises ``Unreadable`` if no node lists the topics."""
    places = [place for place in await existing(context)
              if before is None or place.incarnation in before]
    try:
        named = await kafka_session.leaders(context.kafka_nodes().get(node),
                                            {place.topic for place in places})
    except MultiRaftError:
        return before
    found = {}
    for place in places:
        leader = context.leaders.get(place.group, 0)
        told = named.get((place.topic, place.partition), -1)
        if told != leader:
            found[place.incarnation] = _Wrong(place.key, leader, told)
    return found


async def _groups_append(context: WorkloadContext, anomalies: list[Anomaly]) -> None:
    """Append to one partition of every group until each has acknowledged an append; add an anomaly
    for each that has not in time."""
    by_group = {place.group: place for place in context.topics.places}
    waiting = set(by_group)
    number = context.recorder.next_producer()
    rng, source = context.rng(), RecordSource(context.run, number, context.rng())
    with trio.move_on_after(BOUND_S):
        async with kafka_client.producer(context, "commit", False) as producer:
            while waiting:
                for group in sorted(waiting):
                    process = context.recorder.process()
                    await kafka_appends.burst(process, rng, source, producer, by_group[group],
                                              "commit", -1)
                await producer.settled()
                waiting -= {group for group in waiting
                            if by_group[group].key in producer.acknowledged}
    anomalies += [_stuck(context, by_group[group]) for group in sorted(waiting)]


def _stuck(context: WorkloadContext, place: PartitionRef) -> Anomaly:
    return Anomaly("A28", "kafka-port-stuck",
                   f"no append to {place.key} (group {place.group}) was acknowledged at Kafka's "
                   f"port in {BOUND_S:.0f} s after everything was healed", place.key, (),
                   context.recorder.now_us())
