"""Sinks that stage in real nodes, one of which is killed: readers of committed records are given
only what the checkers allow, and many records.
"""

from __future__ import annotations

import json
from pathlib import Path

import trio

from chaos.checkers import check
from chaos.history import HistoryWriter, read_history
from chaos.run.final_reads import ReplicaRange, certain_span, consume_committed, read_replica
from chaos.run.open_transactions import abort_open_transactions
from chaos.workloads import sinks
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import Topics, WorkloadContext, partitions_of
from tests.e2e import world as worlds

BOUND_S = 120.0
POLL_S = 0.02
#: Commits before the leader of the metadata is killed, and until the writers are stopped.
COMMITS_BEFORE, COMMITS = 6, 15
#: Writers do not pause, so that a short run has many transactions.
PACE = 10.0
METADATA = 0


def leaders(world: worlds.World, nodes: dict[int, str]) -> dict[int, int]:
    """Return the leader of each group, once all have one among ``nodes``."""
    def known() -> dict[int, int] | None:
        found = {row.group: row.leader for row in world.groups(min(nodes))}
        return found if set(found.values()) <= set(nodes) else None
    return worlds.wait_for(known, "every group has a leader")


async def told(recorder: Recorder, name: str, count: int) -> None:
    while recorder.counts[name, "ok"] < count:
        await trio.sleep(POLL_S)


async def used(context: WorkloadContext, world: worlds.World, nodes: dict[int, str]) -> None:
    """Run load, a kill in its middle, then the final reads."""
    recorder = context.recorder
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sinks.run, context)
        await told(recorder, "commit_transaction", COMMITS_BEFORE)
        victim = leaders(world, nodes)[METADATA]
        del nodes[victim]
        world.kill(victim)
        await told(recorder, "commit_transaction", COMMITS)
        nursery.cancel_scope.cancel()
    context.leaders.update(leaders(world, nodes))
    assert await abort_open_transactions(context) == []
    async with context.client() as client:
        for name in sinks.TOPICS:
            for place in partitions_of(await client.topic_metadata(name)):
                start, end = await certain_span(context, place)
                stored = ReplicaRange(min(nodes), 0, end)
                assert await read_replica(context, place, stored, lambda part=stored: [part]) == ""
                assert await consume_committed(context, place, start, end) == []


def test_transactions_are_seen_whole_or_not_at_all_while_the_leader_of_the_ledger_dies(
    tmp_path: Path,
):
    path = tmp_path / "history.jsonl"
    with (worlds.start(tmp_path / "dev", groups=3) as world,
          path.open("w", encoding="utf-8") as file):
        nodes = {node: world.address(node) for node in world.ids()}
        context = WorkloadContext(
            77, Recorder(HistoryWriter(file)), Topics(), lambda: nodes, seed=5, pace=PACE
        )

        async def bounded() -> None:
            with trio.fail_after(BOUND_S):
                await used(context, world, nodes)

        trio.run(bounded)
    verdict = check(read_history(path))
    assert verdict.counts == {}, json.dumps(verdict.to_json(), indent=1)
    checked = verdict.checked
    assert checked["transactions_committed"] >= COMMITS
    assert checked["transactions_void"] > 0
    assert checked["transactions_given"] >= checked["transactions_committed"], (
        "all of them are read in the end"
    )
