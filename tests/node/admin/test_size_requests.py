"""Requests about sizes: at a real node, and their bounds with 100,000 topics."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from multiraft.codec.layout import ENTRY_ALIGNMENT
from multiraft.partitions.partition_state import PartitionState
from multiraft.wire.errors import Code
from multiraft.wire.sizes import ROWS_MAX, PartitionSizes, TopicSizes
from node.admin import size_requests
from node.admin.size_requests import PARTITIONS_PER_REPLY_MAX, SizeAdmin
from node.loop.steps import ROWS_PER_STEP
from node.metadata.commands import Bootstrap, CreateTopic, NodeRecord
from node.metadata.placement_table import EpochEntry
from node.metadata.state_machine import MetadataState
from tests.node.harness import Client, batch, in_trio, serving

POOL = 4


def _size(*values: bytes) -> int:
    """Return the bytes of a batch with its padding in the journal."""
    return -(-len(batch(*values)) // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT


@in_trio
async def test_sizes_are_those_of_the_log(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("empty")
        first = await client.create("t", 2)
        for partition, values in ((first, (b"a", b"b")), (first, (b"c",)), (first + 1, (b"d",))):
            assert (await client.produce(partition, *values)).code == Code.OK
        small, large = _size(b"d"), _size(b"a", b"b") + _size(b"c")
        answer = await client.ask(TopicSizes())
        assert answer.reply.topics == (("t", first, 4, small + large, 0, 0, large),)
        assert not answer.reply.more
        answer = await client.ask(PartitionSizes("t"))
        assert answer.reply.partitions == ((0, 0, 3, large), (1, 0, 1, small))
        assert (await client.ask(PartitionSizes("u"))).code == Code.UNKNOWN_TOPIC


# ---- bounds -------------------------------------------------------------------------------------


class Counting:
    """Turns that only count the rows of one request."""

    def __init__(self):
        self.rows = 0

    async def take(self, rows=1):
        assert rows <= ROWS_PER_STEP
        self.rows += rows


class World:
    """A node that leads the groups of ``led``, of a pool of four; each partition that ``put`` names
    has a state."""

    def __init__(self, led=range(1, POOL + 1)):
        self.state = MetadataState()
        self.state.apply(1, Bootstrap(b"c" * 16, (NodeRecord(1, 0, 0, "h:1", "h:2"),), POOL, 1, 7,
                                      ((1,),) * (POOL + 1)))
        self.turns, self.index = Counting(), 1
        self.groups = {group: {} for group in range(1, POOL + 1)}
        core = SimpleNamespace(status=SimpleNamespace(is_leader=lambda group: group in led))
        self.admin = SizeAdmin(core, {group: SimpleNamespace(applied=states.get)
                                      for group, states in self.groups.items()},
                               SimpleNamespace(state=self.state), self.turns)

    def create(self, name, partitions=1):
        self.index += 1
        result = self.state.apply(self.index, CreateTopic(
            name, self.index.to_bytes(16, "big"), partitions))
        assert result.code == Code.OK, result
        return result.value.incarnation

    def put(self, incarnation, end, live_bytes, log_start=0, group=0):
        group = group or self.state.locate(incarnation).group
        self.groups[group][incarnation] = PartitionState(1, 0, end, log_start, False, 0, 0,
                                                         live_bytes)

    def ask(self, request):
        """Return the reply, and the rows of work that it took."""
        self.turns.rows = 0
        reply = trio.run(self.admin.handlers[type(request)], request)
        return reply, self.turns.rows


def test_unknown_bytes_are_counted_and_not_added():
    world = World()
    first = world.create("t", 3)
    world.put(first, 10, 500, log_start=4)
    world.put(first + 1, 20, -1, log_start=5)
    reply, _ = world.ask(TopicSizes())
    assert reply.topics == (("t", first, 6 + 15, 500, 1, 0, 500),)
    reply, _ = world.ask(PartitionSizes("t"))
    assert reply.partitions == ((0, 4, 10, 500), (1, 5, 20, -1))


def test_a_topic_of_which_all_bytes_are_unknown_has_no_largest_partition():
    world = World()
    world.put(world.create("t"), 10, -1)
    [row] = world.ask(TopicSizes())[0].topics
    assert (row.bytes, row.unknown, row.largest) == (0, 1, -1)


def test_a_node_answers_for_the_groups_that_it_leads_only():
    worlds = [World(led=(1, 2)), World(led=(3, 4))]
    for world in worlds:
        first = world.create("t", 40)
        for number in range(40):
            world.put(first + number, 1, 100)
    replies = [world.ask(TopicSizes())[0].topics[0] for world in worlds]
    assert sum(row.records for row in replies) == 40
    assert sum(row.bytes for row in replies) == 4_000
    assert all(row.records for row in replies)


@pytest.mark.parametrize("led, expected", [
    ((1, 2), (0, 4, 30, 300)), ((1,), (0, -1, -1, 100)), ((2,), (0, 4, 30, 200))])
def test_a_partition_with_a_history_has_bytes_in_each_of_its_groups(led, expected):
    world = World(led)
    first = world.create("t")
    world.state.placed.epoch_histories[first] = (EpochEntry(1, 1, 0), EpochEntry(2, 2, 20))
    world.put(first, 20, 100, log_start=3, group=1)
    world.put(first, 30, 200, log_start=4, group=2)
    assert world.ask(PartitionSizes("t"))[0].partitions == (expected,)


def test_the_work_of_a_request_is_bounded_with_100_000_topics():
    world = World()
    for number in range(100_000):
        incarnation = world.create(f"t{number:06}")
        if number % 1_000 == 7:
            world.put(incarnation, 1, number)
    after, found, requests = "", [], 0
    while True:
        reply, rows = world.ask(TopicSizes(after))
        assert rows <= 2 * ROWS_MAX + ROWS_PER_STEP
        found += [row.name for row in reply.topics]
        requests += 1
        if not reply.more:
            break
        after = reply.last
    assert found == [f"t{number:06}" for number in range(7, 100_000, 1_000)]
    assert requests == 100


def test_an_answer_ends_early_where_topics_have_many_partitions(monkeypatch):
    monkeypatch.setattr(size_requests, "PARTITIONS_PER_REPLY_MAX", 1_000)
    world = World()
    names = [f"t{number}" for number in range(9)]
    for name in names:
        first = world.create(name, 600)
        world.put(first, 1, 9)
    after, found = "", []
    while True:
        reply, rows = world.ask(TopicSizes(after))
        assert len(reply.topics) <= 2 and rows <= 1_200 + ROWS_PER_STEP
        found += [row.name for row in reply.topics]
        if not reply.more:
            break
        after = reply.last
    assert found == names
    assert PARTITIONS_PER_REPLY_MAX > 10_000, "a topic fits into an answer"


def test_a_name_longer_than_any_is_answered():
    world = World()
    world.create("t")
    reply, _ = world.ask(TopicSizes("z" * 4_000))
    assert reply == ((), "", False)
