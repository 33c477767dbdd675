"""Reports of which compactions by key other nodes have carried out: rounds, members, limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.types import Configuration
from multiraft.wire.schema import Malformed
from node.compaction import generation_reports as module
from node.compaction.compaction_pass import PASSES_PER_RETRY, CarriedOut
from node.compaction.compaction_policy import GENERATION_MAX
from node.compaction.generation_reports import (
    OPERATION,
    PARTITIONS_MAX,
    ROUNDS,
    GenerationReports,
    read_reply,
    read_request,
    request_header,
)
from node.peers.errors import NoAnswer, NotSent
from tests.node.compaction.world import CompactionWorld
from tests.node.harness import in_trio
from tests.node.retention.world import BUCKET_MS

GROUP, OTHER, PARTITION = 7, 8, 70
LEADER, NODES = 1, range(1, 7)
#: Lookups of one kind and the other.
BOTH = ("elsewhere", "everywhere")


class Replicas:
    """The store of one node: what its replicas have carried out."""

    def __init__(self):
        self.carried = {}

    def carried_out(self, group, partition):
        return self.carried.get((group, partition), 0)


class Cluster:
    """Nodes that answer each other directly; node 1 asks.  Frames pass the codec as they are."""

    def __init__(self, configuration=None):
        self.configurations = {GROUP: configuration or Configuration((1, 2, 3)),
                               OTHER: Configuration((1, 2, 3))}
        self.led, self.up = {GROUP, OTHER}, set(NODES)
        self.asked = []  # (member, group, partitions)
        self.failing = {}  # member -> error
        self.replies = {}  # member -> header in place of its own reply
        self.during = lambda _member: None  # called after each answer
        self.stores = {node: Replicas() for node in NODES}
        self.groups = {node: {GROUP, OTHER} for node in NODES}
        self.reports = {node: GenerationReports(
            SimpleNamespace(node=node, status=SimpleNamespace(
                is_leader=self.led.__contains__, is_up=self.up.__contains__,
                configuration=self.configurations.get,
                has_group=self.groups[node].__contains__)),
            self.stores[node], SimpleNamespace(handlers={}, ask=self.ask)) for node in NODES}
        self.leader = self.reports[LEADER]

    async def ask(self, member, header):
        assert member != LEADER and member in self.up
        assert header["op"] == OPERATION
        self.asked.append((member, header["group"], header["partitions"]))
        if member in self.failing:
            raise self.failing[member]
        answer, payload = await self.reports[member].answer(LEADER, header, memoryview(b""))
        assert answer["op"] == OPERATION and not payload
        self.during(member)
        return SimpleNamespace(header=self.replies.get(member, answer))

    def carry_out(self, *members, generation=5, group=GROUP, partition=PARTITION):
        for member in members:
            self.stores[member].carried[group, partition] = generation

    def look(self, group=GROUP, partition=PARTITION):
        return (self.leader.elsewhere(group, partition),
                self.leader.everywhere(group, partition))

    async def rounds(self, count=1):
        for _ in range(count):
            await self.leader.ask()


# ---- which members count ------------------------------------------------------------------------


@pytest.mark.parametrize("configuration, lacking, down, elsewhere, everywhere", [
    (Configuration((1, 2, 3)), (), (), 5, 5),
    (Configuration((1, 2, 3)), (3,), (), 0, 0),
    (Configuration((1, 2, 3)), (), (3,), 5, 0),
    (Configuration((1, 2, 3)), (3,), (3,), 5, 0),
    (Configuration((1, 2, 3)), (1,), (), 5, 5),  # the node that asks
    (Configuration((1, 2), (3,)), (3,), (), 5, 0),  # a learner
    (Configuration((1, 2), (3,)), (), (3,), 5, 0),
    (Configuration((1, 2), (3,)), (), (), 5, 5),
    (Configuration((1, 2), (), (1, 3)), (3,), (), 0, 0),  # one that leaves
    (Configuration((1, 2), (), (1, 3)), (), (3,), 5, 0),
    (Configuration((1, 2), (), (1, 3)), (), (), 5, 5),
    (Configuration((2, 3), (), (1, 4)), (4,), (4,), 5, 0),
    (Configuration((2, 3)), (), (), 5, 5),  # the node that asks is no member
    (Configuration((1,)), (2, 3), (), GENERATION_MAX, GENERATION_MAX),
    (Configuration((1,), (2,)), (2,), (), GENERATION_MAX, 0),
    (Configuration((1, 2, 3)), (), (2, 3), GENERATION_MAX, 0),
])
@in_trio
async def test_voters_that_are_up_are_elsewhere_and_all_members_are_everywhere(
        configuration, lacking, down, elsewhere, everywhere):
    cluster = Cluster(configuration)
    cluster.carry_out(*{*NODES} - {*lacking})
    cluster.up.difference_update(down)
    cluster.look()
    await cluster.rounds(2)
    assert cluster.look() == (elsewhere, everywhere)
    asked = {member for member, _, _ in cluster.asked}
    assert asked == {*configuration.members()} - {LEADER, *down}


@in_trio
async def test_the_lowest_generation_counts():
    cluster = Cluster(Configuration((1, 2, 3, 4)))
    for member, generation in ((2, 9), (3, 4), (4, 6)):
        cluster.carry_out(member, generation=generation)
    cluster.look()
    await cluster.rounds(2)
    assert cluster.look() == (4, 4)
    cluster.up.discard(3)
    assert cluster.look() == (6, 4), "what it told in the last rounds counts for all members"
    await cluster.rounds()
    assert cluster.look() == (6, 0), "the last round has nothing of it"


@in_trio
async def test_a_voter_that_comes_up_has_to_tell_first():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.up.discard(3)
    cluster.look()
    await cluster.rounds(2)
    assert cluster.look() == (5, 0)
    cluster.up.add(3)
    assert cluster.look() == (0, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 5)


@in_trio
async def test_a_member_that_was_added_has_to_tell_twice():
    cluster = Cluster()
    cluster.carry_out(2, 3, 4)
    cluster.look()
    await cluster.rounds(2)
    cluster.configurations[GROUP] = Configuration((1, 2, 3), (4,))
    assert cluster.look() == (5, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 5)


# ---- rounds -------------------------------------------------------------------------------------


@in_trio
async def test_all_members_have_to_tell_in_two_rounds():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    assert cluster.look() == (0, 0), "no member was asked yet"
    await cluster.rounds()
    assert cluster.look() == (5, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 5)


@in_trio
async def test_a_generation_that_rises_between_two_rounds_counts_after_the_next():
    cluster = Cluster()
    cluster.carry_out(2, 3, generation=4)
    cluster.look()
    await cluster.rounds(2)
    cluster.carry_out(2, 3, generation=5)
    await cluster.rounds()
    assert cluster.look() == (5, 4)
    await cluster.rounds()
    assert cluster.look() == (5, 5)


@in_trio
async def test_a_member_that_is_replaced_between_two_rounds_is_noticed():
    """Node 2 tells that it carried out; then it is replaced by a copy of node 3, which has not yet,
    and does before it is asked."""
    cluster = Cluster()
    cluster.carry_out(2)

    def replace(member):
        if member == 2:
            cluster.carry_out(2, generation=0)
            cluster.carry_out(3)
            cluster.during = lambda _member: None

    cluster.during = replace
    cluster.look()
    await cluster.rounds()
    assert cluster.look() == (5, 0), "both told it, but node 2 has not carried it out"
    await cluster.rounds()
    assert cluster.look() == (0, 0)
    cluster.carry_out(2)
    await cluster.rounds()
    assert cluster.look() == (5, 0)
    await cluster.rounds()
    assert cluster.look() == (5, 5)


@in_trio
async def test_a_report_counts_for_its_round_alone():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.look()
    await cluster.rounds(3)
    cluster.carry_out(3, generation=0)
    await cluster.rounds()
    assert cluster.look() == (0, 0)


@pytest.mark.parametrize("error", [NoAnswer("gone"), NotSent("busy")])
@in_trio
async def test_a_report_that_is_lost_is_no_report(error):
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.look()
    await cluster.rounds(2)
    cluster.failing[3] = error
    await cluster.rounds()
    assert cluster.look() == (0, 0)
    cluster.failing.clear()
    await cluster.rounds()
    assert cluster.look() == (5, 0), "the round before lacks it"
    await cluster.rounds()
    assert cluster.look() == (5, 5)


@in_trio
async def test_other_errors_are_not_swallowed():
    cluster = Cluster()
    cluster.failing[3] = RuntimeError("a bug")
    cluster.look()
    with pytest.raises(RuntimeError, match="a bug"):
        await cluster.rounds()


@in_trio
async def test_a_member_without_an_answer_is_asked_once_in_a_round():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.carry_out(2, 3, group=OTHER, partition=80)
    cluster.failing[2] = NoAnswer("gone")
    cluster.look()
    cluster.look(OTHER, 80)
    await cluster.rounds()
    assert [member for member, _, _ in cluster.asked].count(2) == 1
    assert [member for member, _, _ in cluster.asked].count(3) == 2
    cluster.failing.clear()
    await cluster.rounds(2)
    assert cluster.look() == cluster.look(OTHER, 80) == (5, 5), "the next rounds ask it again"


# ---- what is asked ------------------------------------------------------------------------------


@in_trio
async def test_nothing_is_asked_while_nothing_is_looked_up():
    cluster = Cluster()
    await cluster.rounds(3)
    assert not cluster.asked
    cluster.look()
    await cluster.rounds(ROUNDS)
    assert len(cluster.asked) == 2 * ROUNDS
    await cluster.rounds(10)
    assert len(cluster.asked) == 2 * ROUNDS
    assert cluster.look() == (0, 0), "and no report is kept"


@pytest.mark.parametrize("kind", BOTH)
@in_trio
async def test_each_kind_of_lookup_has_the_partition_asked_about(kind):
    cluster = Cluster()
    getattr(cluster.leader, kind)(GROUP, PARTITION)
    await cluster.rounds()
    assert cluster.asked == [(2, GROUP, [PARTITION]), (3, GROUP, [PARTITION])]


@in_trio
async def test_a_partition_is_asked_about_until_it_is_looked_up_again():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    for passes in range(2, PASSES_PER_RETRY + 2):
        cluster.look()
        await cluster.rounds(passes)
        assert cluster.look() == (5, 5), passes
    cluster.look(GROUP, 71)
    await cluster.rounds()
    assert cluster.look() == (5, 5), "others do not take its place"


@in_trio
async def test_groups_that_this_node_does_not_lead_are_not_asked_about():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.carry_out(2, 3, group=OTHER, partition=80)
    for group, partition in ((GROUP, PARTITION), (OTHER, 80), (99, 990)):
        cluster.look(group, partition)
    cluster.led.discard(OTHER)
    await cluster.rounds(2)
    assert {group for _, group, _ in cluster.asked} == {GROUP}
    assert cluster.look() == (5, 5)
    assert cluster.look(OTHER, 80) == (0, 0)
    assert cluster.look(99, 990) == (0, 0), "without a replica here nothing is known"
    cluster.led.discard(GROUP)
    await cluster.rounds()
    assert cluster.look() == (0, 0)


@in_trio
async def test_partitions_and_groups_have_reports_of_their_own():
    cluster = Cluster()
    cluster.carry_out(2, 3, generation=5)
    cluster.carry_out(2, 3, generation=6, partition=71)
    cluster.carry_out(2, 3, generation=7, group=OTHER, partition=PARTITION)
    places = ((GROUP, PARTITION), (GROUP, 71), (OTHER, PARTITION))
    for place in places:
        cluster.look(*place)
    await cluster.rounds(2)
    assert [cluster.look(*place) for place in places] == [(5, 5), (6, 6), (7, 7)]


@in_trio
async def test_many_partitions_take_many_requests(monkeypatch):
    monkeypatch.setattr(module, "PARTITIONS_MAX", 4)
    cluster = Cluster(Configuration((1, 2)))
    for partition in range(10):
        cluster.carry_out(2, partition=partition, generation=partition + 1)
        cluster.look(partition=partition)
    await cluster.rounds(2)
    assert [len(partitions) for _, _, partitions in cluster.asked] == [4, 4, 2] * 2
    assert [cluster.look(partition=each) for each in range(10)] == [
        (each + 1, each + 1) for each in range(10)]


# ---- together with passes -----------------------------------------------------------------------


@pytest.mark.parametrize("late_ms", [0, 1, BUCKET_MS // 2])
@pytest.mark.parametrize("down_passes", [0, 40])
@in_trio
async def test_passes_go_on_with_what_members_report(late_ms, down_passes):
    """Passes come a little later than their interval, so a partition is examined in every other
    one; a member that was down holds only tombstones back."""
    world, cluster = CompactionWorld(), Cluster()
    world.compaction._carried_out = CarriedOut(
        lambda _group, partition: world.carried.get(partition, 0),
        cluster.leader.elsewhere, cluster.leader.everywhere)
    topic = world.topic(delete_retention_ms=0)
    group = world.group_of(topic)
    cluster.led.add(group)
    for groups in cluster.groups.values():
        groups.add(group)
    cluster.configurations[group] = Configuration((1, 2), (3,))

    async def run(passes):
        for _ in range(passes):
            world.compact(BUCKET_MS + late_ms)
            last = world.last(topic)
            if last.generation:
                world.carry_out(topic)
                cluster.carry_out(2, 3, generation=last.generation, group=group, partition=topic)
            await cluster.rounds()

    if down_passes:
        cluster.up.discard(3)
    world.store(topic, 10)
    await run(1)
    assert world.last(topic).generation == 1
    for generation in range(2, 2 + down_passes // 8):
        world.store(topic, 100 * generation)
        await run(8)
        assert world.last(topic).generation == generation
        assert world.last(topic).tombstones_below == 0
    cluster.up.add(3)
    before = world.last(topic)
    await run(2 * (PASSES_PER_RETRY + 2))
    assert world.last(topic) == (before.generation + 1, before.up_to, before.up_to)
    await run(ROUNDS + 4)
    asked, examined = len(cluster.asked), world.compaction.examined
    await run(50)
    assert (len(cluster.asked), world.compaction.examined) == (asked, examined)


# ---- requests and replies -----------------------------------------------------------------------


@in_trio
async def test_a_node_without_a_replica_has_carried_out_nothing():
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.groups[3].discard(GROUP)
    cluster.look()
    await cluster.rounds(2)
    assert cluster.look() == (0, 0)


@in_trio
async def test_the_handler_is_found_by_its_operation():
    bulk = SimpleNamespace(handlers={})
    reports = GenerationReports(SimpleNamespace(node=1, status=None), Replicas(), bulk)
    assert bulk.handlers == {OPERATION: reports.answer}


NO_NUMBERS = [None, 1, "12", {}, (1,), [None], [-1], [1 << 64], [True], [1.0], ["1"], [[1]],
              [1, -1], [0] * (PARTITIONS_MAX + 1)]


@pytest.mark.parametrize("group", [None, 0, -1, 1 << 64, True, 1.0, "7", [7]])
@in_trio
async def test_a_request_about_no_group_is_malformed(group):
    with pytest.raises(Malformed, match="group"):
        await Cluster().leader.answer(2, {"op": OPERATION, "group": group, "partitions": []},
                                      memoryview(b""))


@pytest.mark.parametrize("partitions", NO_NUMBERS)
@in_trio
async def test_a_request_about_no_partitions_is_malformed(partitions):
    with pytest.raises(Malformed, match="partitions"):
        await Cluster().leader.answer(2, {"group": GROUP, "partitions": partitions},
                                      memoryview(b""))


@pytest.mark.parametrize("header", [
    {}, *({"generations": each} for each in NO_NUMBERS), {"generations": []},
    {"generations": [5, 5]}, {"generations": [GENERATION_MAX + 1]}])
@in_trio
async def test_a_malformed_reply_is_no_report(header):
    with pytest.raises(Malformed):
        read_reply(header, 1)
    cluster = Cluster()
    cluster.carry_out(2, 3)
    cluster.replies[3] = header
    cluster.look()
    await cluster.rounds(2)
    assert cluster.look() == (0, 0)
    cluster.replies.clear()
    await cluster.rounds(2)
    assert cluster.look() == (5, 5)


@given(group=st.integers(1, (1 << 64) - 1),
       partitions=st.lists(st.integers(0, (1 << 64) - 1), max_size=9))
def test_a_request_is_read_as_it_was_written(group, partitions):
    assert read_request(request_header(group, partitions)) == (group, partitions)


def test_a_request_and_a_reply_may_be_as_long_as_the_limit():
    partitions = [*range(PARTITIONS_MAX)]
    assert read_request(request_header(GROUP, partitions)) == (GROUP, partitions)
    assert read_reply({"generations": [GENERATION_MAX] * PARTITIONS_MAX}, PARTITIONS_MAX) == [
        GENERATION_MAX] * PARTITIONS_MAX
