"""A node gives the space of records back that left their partitions, also after a restart."""

from __future__ import annotations

import pytest

from multiraft.storage.config import StorageConfig
from multiraft.types import METADATA_GROUP
from multiraft.wire.messages import DeleteTopic
from node.config import parse
from node.metadata import node_releases
from tests.node.clients.test_fetch import fetch
from tests.node.harness import Client, in_trio, make_node, one_node_table, running, until

KIB = 1 << 10
#: Segments and checkpoints that come often.
SMALL = StorageConfig(entry_bytes_max=64 * KIB, first_segment_bytes=128 * KIB,
                      segment_bytes_max=128 * KIB, checkpoint_bytes=128 * KIB,
                      checkpoint_growth_factor=1)
VALUE = bytes(30 * KIB)


@pytest.fixture
def all_releases(monkeypatch):
    """All releases take snapshots of groups with partitions."""
    monkeypatch.setattr(node_releases, "DATA_SNAPSHOTS_SINCE", (0, 0))


def config(tmp_path):
    return parse(one_node_table(
        raft_log_bytes_newest=0, node_raft_log_bytes_newest=128 * KIB), tmp_path)


def segments(node) -> int:
    return len(list((node.config.data_dir / "lane-0").glob("*.segment")))


class WrittenSince:
    """True, when called, if a checkpoint was written since this was made."""

    def __init__(self, node):
        self._checkpoints = node.replicas.checkpoints
        self._before = self._checkpoints.written

    def __call__(self) -> bool:
        return self._checkpoints.written > self._before


async def fill(node, client, incarnation: int, rounds: int) -> None:
    """Append so many times what makes a checkpoint due, and have each written."""
    for _ in range(rounds):
        written = WrittenSince(node)
        for _ in range(6):
            assert (await client.produce(incarnation, VALUE)).code == 0
        await until(written, "a checkpoint is written")


@in_trio
async def test_the_space_of_a_deleted_topic_returns_on_a_node_that_is_idle_then(
        tmp_path, all_releases):
    async with running(make_node(config(tmp_path), storage=SMALL)) as node:
        async with await Client.open(node) as client:
            kept = await client.create("kept")
            gone = await client.create("gone")
            assert (await client.produce(kept, b"first")).code == 0
            await fill(node, client, gone, 10)
            before = segments(node)
            assert before > 10
            await client.ask(DeleteTopic("gone"))
            remover, task = node.storage.remover, node.replicas.compaction
            await until(lambda: remover.segments_removed >= before - 6, "the segments go")
            assert segments(node) <= 6 and task.entries_compacted > 40
            assert remover.bytes_removed >= remover.segments_removed * 128 * KIB
            counters = node.status.statistics.snapshot(await node.admin.group_health.fresh())
            assert counters["segments_removed"] == remover.segments_removed
            assert counters["raft_entries_compacted"] == task.entries_compacted
            await until(lambda: not node.store.unnamed_bytes, "all are named")
            written = node.replicas.checkpoints.written
            fetched = await client.ask(fetch(kept, 0))
            assert b"first" in bytes(fetched.reply.payload)
            assert node.replicas.checkpoints.written == written, "an idle node writes none"
    async with running(make_node(config(tmp_path), storage=SMALL)) as node:
        assert not node.store.damage and segments(node) <= 6
        async with await Client.open(node) as client:
            fetched = await client.ask(fetch(kept, 0))
            assert b"first" in bytes(fetched.reply.payload)


@in_trio
async def test_while_a_node_cannot_take_snapshots_only_the_metadata_are_compacted(
        tmp_path, monkeypatch):
    monkeypatch.setattr(node_releases, "DATA_SNAPSHOTS_SINCE", (99, 0))
    async with running(make_node(config(tmp_path), storage=SMALL)) as node:
        async with await Client.open(node) as client:
            await fill(node, client, await client.create("topic"), 5)
            await until(lambda: node.store.raft_start(METADATA_GROUP) > 1, "metadata go")
            assert {node.store.raft_start(group) for group in (1, 2)} == {1}
