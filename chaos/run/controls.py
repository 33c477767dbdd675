"""Control arms: runs that must lose records, to prove that the checkers detect a loss.

Contract.  A ``Control`` names the fault that it needs, the differences of cluster and load, the
schedule that replaces the rotation, and the ack level of which records must be lost:
``chaos.run.evaluation`` calls a control arm invalid when its checkers report no loss.

Theory.  A run without anomalies had none, or its checkers could not see them.  Each arm removes
exactly one protection of a record: the sync before the acknowledgement, or the majority that holds
it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import trio

from chaos.backends.backend import PARTITION, POWER_LOSS, all_links
from chaos.run.runner import RunState, blocking
from chaos.workloads import reads
from chaos.workloads.idempotent import BATCH_BYTES_MAX
from chaos.workloads.kafka_client import PRODUCER_ENDED
from chaos.workloads.recorder import ClientProcess
from chaos.workloads.records import RecordSource
from chaos.workloads.session import NotSent, Sessions
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft import core
from multiraft.wire.errors import exception_for
from multiraft.wire.messages import BatchPart, Produce

#: Delay of syncs: a record is lost when no node has synced it yet, and with the default every node
#: syncs twenty times a second.
FLUSH_INTERVAL_MS = 2_000
#: Seconds of load between two faults, so that there are records to lose.
BETWEEN_S = 4.0
#: Power losses, or isolated leaders, of one run.
BLOWS = 3
#: An isolated leader gets no message and steps down when its lease has expired, within a second.
ISOLATED_S = 4.0
ATTEMPT_S = 1.0
#: Appends to each leader that is being isolated, at most; an append is answered in milliseconds.
APPENDS_MAX = 2_000


@dataclass(frozen=True)
class Control:
    """One control arm."""

    schedule: Callable[[RunState], Awaitable[None]]
    needs: str  # kind of fault
    storage: Mapping[str, object]  # the table of node.toml
    workloads: tuple[str, ...]
    level: str  # ack level of which records must be lost
    #: Anomalies that follow from the missing protection; any other one counts.
    expected: frozenset[str]
    text: str
    meets_all: bool = False  # no node runs while the fault is on


# ---- power loss with relaxed durability -------------------------------------------------------


async def power_losses(run_state: RunState) -> None:
    """Cut the power of all nodes at once, under load, ``BLOWS`` times."""
    backend, recorder = run_state.backend, run_state.context.recorder
    for _ in range(BLOWS):
        await trio.sleep(BETWEEN_S)
        nodes = tuple(backend.nodes())
        run_state.active.append(POWER_LOSS)
        recorder.fault(POWER_LOSS, True, nodes, "all nodes lose power at once")
        await blocking(backend.power_loss, nodes)
        await blocking(backend.heal_all)
        recorder.fault(POWER_LOSS, False, nodes, "all nodes run again")
        run_state.active.clear()
    await trio.sleep(BETWEEN_S)


# ---- a leader that does not know that it is alone ---------------------------------------------


async def isolated_leaders(run_state: RunState) -> None:
    """Isolate ``BLOWS`` leaders, one after the other, from all other nodes while clients append to
    them with acks "leader". A blow is left out while no leader is known."""
    rng = run_state.context.rng()
    for _ in range(BLOWS):
        await trio.sleep(BETWEEN_S)
        led = _places_by_leader(run_state.context)
        if led:
            node = rng.choice(sorted(led))
            await _isolate(run_state, rng, node, led[node])
    await trio.sleep(BETWEEN_S)


def _places_by_leader(context: WorkloadContext) -> dict[int, list[PartitionRef]]:
    led: dict[int, list[PartitionRef]] = {}
    for place in context.topics.places:
        leader = context.leaders.get(place.group)
        if leader in context.nodes():
            led.setdefault(leader, []).append(place)
    return led


async def _isolate(
    run_state: RunState, rng: random.Random, node: int, places: list[PartitionRef]
) -> None:
    """Cut ``node`` off from the others but not from its clients for ``ISOLATED_S``, and append
    there meanwhile. The history records both ends of the fault."""
    backend, recorder = run_state.backend, run_state.context.recorder
    others = [other for other in backend.nodes() if other != node]
    run_state.active.append(f"{PARTITION} {node}")
    recorder.fault(PARTITION, True, (node,), f"node {node} hears no other node, only clients")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            run_state.crashes.survive,
            "appends at the isolated leader",
            _append_there,
            run_state.context,
            rng,
            node,
            places,
        )
        await blocking(backend.cut, all_links([node], others))
        await trio.sleep(ISOLATED_S)
        nursery.cancel_scope.cancel()
    await blocking(backend.cut, ())
    recorder.fault(PARTITION, False, (node,), f"node {node} hears all nodes")
    run_state.active.clear()


async def _append_there(
    context: WorkloadContext,
    rng: random.Random,
    node: int,
    places: list[PartitionRef],
) -> None:
    """Append to ``places`` and read there at one node, ``APPENDS_MAX`` times at most. A place whose
    append was not acknowledged is left out from then on; returns when no place is left."""
    process, led = context.recorder.process(), list(places)
    source = RecordSource(context.run, context.recorder.next_producer(), rng)
    async with Sessions() as sessions:
        for _ in range(APPENDS_MAX):
            if not led:
                return
            place = rng.choice(led)
            if not await _append_at(context, process, sessions, source, node, place):
                led.remove(place)
            await reads.read(context, process, sessions, place, node,
                             max(0, context.topics.end(place.key) - 2))


async def _append_at(
    context: WorkloadContext,
    process: ClientProcess,
    sessions: Sessions,
    source: RecordSource,
    node: int,
    place: PartitionRef,
) -> bool:
    """Append a few records once, with acks "leader", at this very node; return True if that was
    acknowledged. Any outcome is recorded as an operation of ``process``.

    The acknowledged offset is not noted as an end of the partition, because the record may be lost.
    """
    values, records = source.take(place)
    builder = core.BatchBuilder(BATCH_BYTES_MAX)
    for record in records:
        took = builder.append(0, None, record)
        assert took, "a few small records fit into a batch"
    batch = builder.build()
    request = Produce("leader", int(ATTEMPT_S * 1000), (BatchPart(place.incarnation, len(batch)),))
    with process.invoke("append", key=place.key, values=values, acks="leader", producer=-1,
                        epoch=-1, sequence=-1) as operation:
        address = context.nodes().get(node)
        if address is None:
            raise NotSent(f"node {node} is no longer a member")
        reply = await sessions.ask(address, request, [batch], timeout_s=2 * ATTEMPT_S)
        result = reply.results[0]
        if result.code:
            raise exception_for(result.code, result.error)
        operation.ok(offset=result.base_offset)
    return operation.happened


#: Anomalies that follow when acknowledged records are lost: the records are missing, other records
#: get their offsets, readers see another record than before, and idempotent producers get the error
#: that a sequence is missing.
GONE = frozenset({
    "inconsistent-offsets", "reassigned-offset", "lost-write", "unseen", "acks-contract",
    "read-then-lost", "stale-read", "end-goes-back", "real-time-order", "nonmonotonic-send",
    "nonmonotonic-poll", "poll-skip", "gap", "int-poll-skip", "int-send-skip", "duplicate",
    "idempotence", PRODUCER_ENDED})

CONTROLS: dict[str, Control] = {
    "relaxed-power-loss": Control(
        power_losses, POWER_LOSS,
        {"durability": "relaxed", "flush_interval_ms": FLUSH_INTERVAL_MS}, ("appends", "reads"),
        "commit", GONE,
        "appends with acks commit under durability = relaxed; all nodes lose power at once",
        meets_all=True),
    "isolated-leader": Control(
        isolated_leaders, PARTITION, {}, ("appends", "reads", "consumers"), "leader",
        frozenset(), "appends with acks leader at leaders that are cut off before they step down"),
}
