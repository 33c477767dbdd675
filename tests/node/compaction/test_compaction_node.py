"""A real node that orders compactions, with a store that says what it carried out."""

from __future__ import annotations

import dataclasses

from multiraft.core import BatchBuilder
from multiraft.partitions.retention_records import Compaction
from multiraft.storage.store import Store
from multiraft.wire.messages import BatchPart, CreateTopic, Produce
from node.config import CompactionConfig, parse
from tests.node.harness import Client, in_trio, make_node, one_node_table, running, serving, until

LIMITS = {"retention_check_interval_ms": 1_000, "raft_log_bytes_newest": 0,
          "node_raft_log_bytes_newest": 0}


async def appended(client: Client) -> int:
    answer = await client.ask(CreateTopic("t", settings=(("cleanup.policy", "compact"),)))
    incarnation = answer.reply.topic.incarnation
    for value in (b"a", b"b", b"c"):
        builder = BatchBuilder(1 << 20)
        assert builder.append(1_700_000_000_000, b"key", value)
        data = builder.build()
        answer = await client.ask(
            Produce("commit", 15_000, (BatchPart(incarnation, len(data)),)), data)
        assert not answer.reply.results[0].code
    return incarnation


async def in_record_store(served, incarnation: int) -> None:
    """Have checkpoints written until the Raft start has passed a partition's batches."""
    group = served.metadata.log.state.locate(incarnation).group

    def is_passed() -> bool:
        if served.store.raft_start(group) <= served.store.partition_states[group].applied_index:
            served.store.require_checkpoints()
            return False
        return True

    await until(is_passed, "the Raft start rises")


@in_trio
async def test_a_node_orders_a_compaction_and_waits_until_it_is_carried_out(tmp_path,
                                                                             monkeypatch):
    carried = {}
    monkeypatch.setattr(Store, "carried_out",
                        lambda _store, _group, partition: carried.get(partition, 0))
    async with serving(tmp_path, **LIMITS) as served, await Client.open(served) as client:
        incarnation = await appended(client)
        states = served.store.partition_states[served.metadata.log.state.locate(incarnation).group]
        assert not states.applied(incarnation).compaction.generation
        await in_record_store(served, incarnation)
        await until(lambda: states.applied(incarnation).compaction == Compaction(1, 2, 0),
                    "a COMPACT is applied")
        passes = served.compaction.passes
        assert (passes.proposed, passes.in_flight, passes.dirty_share_max) == (1, 1, 1.0)
        carried[incarnation] = 1
        await until(lambda: not passes.in_flight, "it is carried out")
        assert passes.proposed == 1


@in_trio
async def test_the_configuration_turns_it_off(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "carried_out", lambda *_asked: 0)
    config = dataclasses.replace(parse(one_node_table(**LIMITS), tmp_path),
                                 compaction=CompactionConfig(enabled=False))
    async with running(make_node(config)) as served, await Client.open(served) as client:
        incarnation = await appended(client)
        await in_record_store(served, incarnation)
        assert list(served.compaction.passes.steps(1 << 40)) == []
        assert not served.compaction.passes.examined
