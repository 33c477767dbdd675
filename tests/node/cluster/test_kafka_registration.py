"""The address for Kafka's clients at a real node: registered at each start, and checked there."""

from dataclasses import replace

from multiraft.wire.errors import Code
from multiraft.wire.messages import ClusterStatus
from multiraft.wire.nodes import DescribeNode, JoinCluster, ListNodes
from node.config import KafkaConfig, NodeConfig, parse
from tests.node.harness import Client, in_trio, make_node, one_node_table, running, serving, until


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
