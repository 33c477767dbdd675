"""The address for Kafka's clients at a real node: registered at each start, and checked there."""

from dataclasses import replace
from types import SimpleNamespace

import trio
import trio.testing

from multiraft.wire.errors import Code
from multiraft.wire.messages import ClusterStatus
from multiraft.wire.nodes import DescribeNode, JoinCluster, JoinClusterReply, ListNodes
from node.cluster.registration import Registration
from node.config import KafkaConfig, NodeConfig, parse
from node.metadata.commands import NodeRecord
from node.metadata.node_releases import kafka_addresses_fault
from tests.node.harness import (
    Client,
    in_trio,
    make_node,
    one_node_table,
    running,
    serving,
    silent_log,
    until,
)


async def registered(config: NodeConfig) -> set[str]:
    """Run a node until it has registered, and return the addresses for Kafka's clients that it
    tells in different ways."""
    async with running(make_node(config)) as node, await Client.open(node) as client:
        await until(lambda: node.metadata.log.state.node(1).boot_epoch == node.store.boot_epoch,
                    "it is registered")
        return {row.kafka_address for row in (
            node.metadata.known.facts.nodes[1],
            (await client.ask(ListNodes())).reply.nodes[0].node,
            (await client.ask(DescribeNode(1))).reply.node.node,
            (await client.ask(ClusterStatus())).reply.nodes[0])}


@in_trio
async def test_another_address_is_registered_at_the_next_start(tmp_path):
    config = parse(one_node_table(), tmp_path)
    for kafka, told in ((KafkaConfig(), ""), (KafkaConfig("127.0.0.1:9401"), "127.0.0.1:9401"),
                        (KafkaConfig("127.0.0.1:9401", "k.example.org:9092"), "k.example.org:9092"),
                        (KafkaConfig(), "")):
        assert await registered(replace(config, kafka=kafka)) == {told}


@in_trio
async def test_an_address_that_clients_cannot_connect_to_is_not_registered(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        row = (await client.ask(ListNodes())).reply.nodes[0].node
        joins = row._replace(id=0, incarnation=9, boot_epoch=0)
        for told, says in (("0.0.0.0:9092", "the kafka_address cannot be 0.0.0.0"),
                           ("nowhere", "the kafka_address must be 'host:port'")):
            refused = await client.ask(JoinCluster(joins._replace(kafka_address=told)))
            assert refused.code == Code.INVALID_REQUEST and says in refused.error.text
        joined = (await client.ask(JoinCluster(joins._replace(
            kafka_address="k.example.org:9092")))).reply
        assert {each.id: each.kafka_address for each in joined.nodes} == {
            1: "", 2: "k.example.org:9092"}


def record(node: int, incarnation: int = 0, **fields: str) -> NodeRecord:
    """Return the record of a node."""
    return NodeRecord(node, incarnation, 1, "a:1", "a:2", **fields)


class Known:
    """The nodes that a node knows, with their releases."""

    def __init__(self, **releases: str):
        self.releases = releases
        self._changed = trio.Event()

    @property
    def facts(self):
        nodes = {int(name[1:]): record(int(name[1:]), 7, version=release)
                 for name, release in self.releases.items()}
        return SimpleNamespace(nodes=nodes, removed={})

    def learn(self, *_):
        return False

    def peers(self):
        return []

    def change(self, **releases: str) -> None:
        self.releases |= releases
        self._changed.set()

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed = trio.Event()


class Leader:
    """A metadata leader that accepts every registration."""

    def __init__(self):
        self.registered = []

    async def ask(self, request):
        self.registered.append(request.node.kafka_address)
        return JoinClusterReply(request.node.id, bytes(16), 1, 1, (), (), 1)


@in_trio
async def test_an_address_is_registered_when_every_node_can_read_it():
    known, leader = Known(n1="0.2.0", n2="0.1.0"), Leader()
    admission = SimpleNamespace(admitted=trio.Event())
    admission.admitted.set()
    own = record(1, 7, version="0.2.0", kafka_address="a:3")
    task = Registration(leader, None, known, own, admission, SimpleNamespace(), silent_log())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await until(lambda: leader.registered == [""], "it registers without the address")
        known.change(n3="0.1.0")
        await trio.testing.wait_all_tasks_blocked()
        assert leader.registered == [""]
        known.change(n2="0.2.0", n3="0.3.0")
        await until(lambda: leader.registered == ["", "a:3"], "it registers the address")
        known.change()
        await trio.testing.wait_all_tasks_blocked()
        assert leader.registered == ["", "a:3"]
        nursery.cancel_scope.cancel()


def test_a_node_that_was_never_started_delays_no_address():
    assert not kafka_addresses_fault([record(1, 7, version="0.2.0"), record(2)])
    assert "node 2" in kafka_addresses_fault([record(1, 7, version="0.2.0"), record(2, 7)])
