"""Kept responses with the metadata of all topics: when they are used, and when they are built
again."""

import pytest
import trio

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.hot_messages import MetadataRequest
from multiraft.kafka.requests import EncodedMessage
from multiraft.types import Configuration
from node.kafka import in_sync
from node.kafka.in_sync import InSyncReplicas
from node.kafka.metadata_cache import CACHE_BYTES_MAX, MetadataCache
from tests.node.harness import batch, in_trio, until
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka
from tests.node.kafka.test_kafka_epochs import elect


class Builder:
    """A cache of responses of a size, and their builds."""

    def __init__(self, size: int = 10, bytes_max: int = 100):
        self.signature, self.size, self.builds = 0, size, 0
        self.gate: trio.Event | None = None
        self.cache = MetadataCache(lambda: self.signature, bytes_max)

    async def build(self):
        self.builds += 1
        number = self.builds
        if self.gate is not None:
            await self.gate.wait()
        return EncodedMessage(3, 0, number.to_bytes(self.size, "big"))

    async def ask(self, key="all"):
        return int.from_bytes((await self.cache.response(key, self.build)).data, "big")


@in_trio
async def test_a_response_is_kept_until_the_signature_changes():
    built = Builder()
    assert [await built.ask() for _ in range(3)] == [1, 1, 1]
    assert built.cache.found("all") and built.cache.found("other") is None
    built.signature = 1
    assert built.cache.found("all") is None and built.cache.bytes == 0
    assert [await built.ask() for _ in range(2)] == [2, 2]


@in_trio
async def test_the_response_used_least_recently_goes_first():
    built = Builder(bytes_max=20)
    assert [await built.ask(key) for key in "abac"] == [1, 2, 1, 3]
    assert built.cache.bytes == 20 and built.cache.found("b") is None
    assert built.cache.found("a") and built.cache.found("c")
    built.size = 21
    assert [await built.ask("d") for _ in range(2)] == [4, 5], "too large to be kept"
    assert built.cache.found("a") and built.cache.bytes == 20


@in_trio
async def test_requests_at_a_time_share_a_build_that_began_after_they_arrived():
    built, found = Builder(), []
    built.gate = trio.Event()

    async def ask():
        found.append(await built.ask())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        built.signature = 1  # what is being built may be out of date
        built.gate.set()
    assert sorted(found) == [1, 2, 2, 2, 2] and built.builds == 2


@in_trio
async def test_a_build_that_fails_or_is_cancelled_is_begun_by_another_request():
    built, found = Builder(), []
    built.gate = trio.Event()

    async def ask():
        found.append(await built.ask())

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as first:
                first.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        built.gate.set()
    assert found == [2]

    async def refuse():
        raise ValueError

    built.signature = 1
    for _ in range(2):
        with pytest.raises(ValueError):
            await built.cache.response("all", refuse)


@in_trio
async def test_all_topics_are_described_once_for_each_version(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        for name in "tu":
            await client.create(name, 3)
        cache = node.kafka.requests._handlers[ApiKey.METADATA].handle.__self__.cache
        first, last = APIS[ApiKey.METADATA].served
        for version in range(first, last + 1):
            request = MetadataRequest(topics=None if version else [])
            answers = [await client.ask(ApiKey.METADATA, request, version) for _ in range(3)]
            assert cache.built == version - first + 1
            assert len({repr(answer) for answer in answers}) == 1 or all(
                [topic.name for topic in answer.topics] == ["t", "u"] for answer in answers)
        with_operations = await client.metadata(include_topic_authorized_operations=True)
        assert with_operations.topics[0].topic_authorized_operations > 0
        assert (await client.metadata()).topics[0].topic_authorized_operations < 0
        assert 0 < cache.bytes < CACHE_BYTES_MAX


@in_trio
async def test_a_kept_response_follows_topics_leaders_and_nodes(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic.topic_id, batch(b"v"))
        before = (await client.metadata()).topics[0].partitions[0]
        epoch = await elect(node, "t")
        after = (await client.metadata()).topics[0].partitions[0]
        assert before.leader_epoch < after.leader_epoch == epoch
        await client.create("u")
        assert [each.name for each in (await client.metadata()).topics] == ["t", "u"]
        group = node.metadata.directory.locate(
            node.metadata.log.state.topic("t").incarnation).group
        node.core.resign(group, "a test")
        assert (await client.metadata()).topics[0].partitions[0].error_code == 5
        await until(lambda: node.core.status.has_applied_in_term(group), "leads again")
        found = await client.metadata()
        assert found.topics[0].partitions[0].error_code == 0 and len(found.brokers) == 1
        known = node.metadata.known
        record = known.facts.nodes[1]._replace(kafka_address="other:7")
        known.facts = known.facts._replace(nodes={1: record})
        assert [(each.host, each.port) for each in (await client.metadata()).brokers] == [
            ("other", 7)]


class Leader:
    """The core of a node that leads group 1 of three voters, and not group 2."""

    def __init__(self):
        self.members, self.down = frozenset({1, 2, 3}), set()
        self.status = self

    def led_groups(self):
        return [1]

    def is_leader(self, group):
        return group == 1

    def caught_up(self, group):
        return self.members if group == 1 else None

    def configuration(self, _group):
        return Configuration((1, 2, 3))

    def is_up(self, node):
        return node not in self.down


class Turns:
    async def take(self, _rows=1):
        pass


@in_trio
async def test_in_sync_replicas_are_examined_from_time_to_time():
    core, now = Leader(), [10_000]
    replicas = InSyncReplicas(core, Turns(), lambda: now[0])
    of = lambda group: replicas.of(group, core.configuration(group))  # noqa: E731
    await replicas.refresh()
    assert of(1) == [1, 2, 3] and replicas.version == 0
    core.members = frozenset({1, 2})
    await replicas.refresh()
    assert of(1) == [1, 2, 3] and not replicas.is_due
    now[0] += in_sync.CHECK_MS
    await replicas.refresh()
    assert of(1) == [1, 2] and replicas.version == 1
    assert of(2) == [1, 2, 3], "only a leader knows how far its members are"
    core.down = {2}
    assert of(1) == [1] and of(2) == [1, 3]
    core.members = frozenset({1, 2, 3})
    now[0] += in_sync.CHECK_MS
    await replicas.refresh()
    assert of(1) == [1, 3] and replicas.version == 2
