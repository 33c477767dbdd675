"""Snapshots of groups with partitions between whole nodes, and the copies of their records."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from multiraft.errors import RecordsLeft
from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import Code
from node.config import parse
from node.main import Node
from node.observability.phase import SERVING
from node.replicas import record_copies
from tests.node.harness import CLUSTER, Client, in_trio, make_node, until
from tests.ports import free_port

GROUP = 1
WAIT_S = 60


class Cluster:
    """Nodes in one process, each with its own directory and connections."""

    def __init__(self, directory, count: int, nursery: trio.Nursery):
        self.rows = [{"id": node, "client_address": f"127.0.0.1:{free_port()}",
                      "peer_address": f"127.0.0.1:{free_port()}"} for node in range(1, count + 1)]
        self.directory = directory
        self.nursery = nursery
        self.nodes: dict[int, Node] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.ended: dict[int, trio.Event] = {}

    def table(self, node: int) -> dict:
        return {"node": {**self.rows[node - 1], "data_dir": f"data-{node}"},
                "limits": {"group_stall_ms_max": 60_000, "loop_stall_ms_max": 20_000},
                "metrics": {"publish": False},
                "cluster": {"id": CLUSTER, "groups": 1, "replication_factor": 3,
                            "nodes": self.rows}}

    async def start(self, node: int) -> Node:
        found = self.nodes[node] = make_node(parse(self.table(node), self.directory))
        self.scopes[node], self.ended[node] = trio.CancelScope(), trio.Event()
        self.nursery.start_soon(self._run, node, found)
        await until(lambda: found.life.phase == SERVING, f"node {node} serves")
        return found

    async def _run(self, node: int, running: Node) -> None:
        with self.scopes[node]:
            await running.run()
        running.close()
        self.ended[node].set()

    async def stop(self, node: int) -> None:
        self.nodes.pop(node).driver.rounds.stop()
        self.scopes[node].cancel()
        await self.ended[node].wait()

    def leader(self, group: int = GROUP) -> Node | None:
        return next((node for node in self.nodes.values()
                     if node.core.status.has_applied_in_term(group)), None)

    async def wait_for_leaders(self) -> None:
        """Wait for leaders, and for leases between all nodes: then one of them may stop without an
        election in the groups of the others."""
        await until(lambda: self.leader() and self.leader(METADATA_GROUP), "leaders")
        await until(lambda: all(node.core.status.supported_epoch(other)
                                for node in self.nodes.values() for other in self.nodes
                                if other != node.core.node), "leases")

    async def compact(self) -> None:
        """Have all nodes that are up forget the entries of the group that they have applied, as the
        driver of compaction does."""
        for node in self.nodes.values():
            if not node.core.status.has_group(GROUP):
                continue
            node.store.require_checkpoints()  # in two files
            async with node.replicas.checkpoints.alone:
                await node.replicas.checkpoints.write_installed()
            first_index = min(node.store.raft_start_max(GROUP),
                              node.core.status.applied_index(GROUP) + 1)
            node.core.compacted(GROUP, node.store.compact(GROUP, first_index))


@contextlib.asynccontextmanager
async def cluster(directory, count: int = 3) -> AsyncIterator[Cluster]:
    """Run a cluster whose group 1 has replicas on the first three nodes."""
    with trio.fail_after(4 * WAIT_S):
        async with trio.open_nursery() as nursery:
            nodes = Cluster(directory, count, nursery)
            for node in range(1, count + 1):
                await nodes.start(node)
            await nodes.wait_for_leaders()
            yield nodes
            for node in [*nodes.nodes]:
                await nodes.stop(node)


async def produce(nodes: Cluster, partition: int, first: int, count: int) -> None:
    """Append batches of one record each, through the leader."""
    leader = nodes.leader()
    assert leader is not None
    async with await Client.open(leader) as client:
        for number in range(first, first + count):
            result = await client.produce(partition, b"%d" % number * 40)
            assert result.code == Code.OK, result


def check_records(node: Node, partition: int, count: int) -> None:
    """Compare all records that a node has of a partition, on its disk or in memory."""
    payloads: list[bytes] = []
    offset = 0
    while offset < count:
        found = node.store.fetch(GROUP, partition, offset, 1 << 20, count)
        payloads += map(bytes, found.job.execute() if found.job is not None else found.buffers)
        assert found.next_offset > offset, f"nothing at offset {offset} of {count}"
        offset = found.next_offset
    assert len(payloads) == count
    for number, payload in enumerate(payloads):
        assert b"%d" % number * 40 in payload


async def topic(nodes: Cluster) -> int:
    leader = nodes.leader(METADATA_GROUP)
    async with await Client.open(leader) as client:
        partition = await client.create("t")
    await until(lambda: all(node.metadata.log.state.locate(partition) is not None
                            for node in nodes.nodes.values()), "all nodes know the topic")
    return partition


def is_whole(node: Node, partition: int, count: int) -> bool:
    """True if a node has applied so many records and has them all."""
    states = node.store.partition_states.get(GROUP)
    return (states is not None and states.epoch_of(partition) > 0
            and states.next_offset(partition) == count and node.store.is_complete(GROUP)
            and not node.replicas.record_copies.groups)


def state_of(nodes: Cluster, node: int) -> str:
    leader = nodes.leader()
    members = leader.core.status.of(GROUP).members if leader is not None else ()
    return next((member.state for member in members if member.node == node), "")


@in_trio
async def test_a_voter_that_was_away_behind_the_raft_start_copies_what_it_lacks(
        tmp_path, monkeypatch):
    monkeypatch.setattr(record_copies, "CHUNK_BYTES", 500)
    async with cluster(tmp_path) as nodes:
        partition = await topic(nodes)
        await produce(nodes, partition, 0, 10)
        away = next(node for node in nodes.nodes
                    if node not in (nodes.leader().core.node,
                                    nodes.leader(METADATA_GROUP).core.node))
        await nodes.stop(away)
        await produce(nodes, partition, 10, 30)
        await nodes.compact()
        await produce(nodes, partition, 40, 5)
        for _ in range(2):  # and after another restart nothing is lacking
            node = await nodes.start(away)
            await until(lambda: is_whole(nodes.nodes[away], partition, 45)
                        and state_of(nodes, away) == "replicate", "the replica is complete")
            check_records(node, partition, 45)
            check_records(nodes.leader(), partition, 45)
            assert node.store.table.logs[GROUP].raft_start > 40
            await nodes.stop(away)


@in_trio
async def test_a_learner_is_promoted_when_it_has_all_records(tmp_path, monkeypatch):
    monkeypatch.setattr(record_copies, "CHUNK_BYTES", 500)
    async with cluster(tmp_path, 4) as nodes:
        partition = await topic(nodes)
        await produce(nodes, partition, 0, 40)
        await nodes.compact()
        leader = nodes.leader()
        voters = leader.core.status.configuration(GROUP).voters
        new = next(node for node in nodes.nodes if node not in voters)
        joining = nodes.nodes[new]
        stopped = trio.Event()
        take = joining.replicas.record_copies._copies._take

        async def wait_and_take(*arguments):
            await stopped.wait()
            return await take(*arguments)

        monkeypatch.setattr(joining.replicas.record_copies._copies, "_take", wait_and_take)
        leader.core.change_members(GROUP, voters, (new,))
        leader.request_round()
        await until(lambda: state_of(nodes, new) == "copying", "the learner has the snapshot")
        assert not leader.core.status.of(GROUP).configuration.outgoing
        with pytest.raises(RecordsLeft, match=f"node {new} is still copying"):
            leader.core.change_members(GROUP, (*voters, new), ())
        stopped.set()
        await until(lambda: is_whole(joining, partition, 40)
                    and state_of(nodes, new) == "replicate", "the learner is complete")
        leader.core.change_members(GROUP, (*voters, new), ())
        leader.request_round()
        await until(lambda: joining.core.status.configuration(GROUP).voters == (*voters, new)
                    and not joining.core.status.of(GROUP).configuration.outgoing, "it votes")
        check_records(joining, partition, 40)
