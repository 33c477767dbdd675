"""Partitions that are added to topics: their numbers, incarnations, groups and limits, and the
table of a checkpoint."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import CodecError
from multiraft.wire.errors import Code
from node.metadata import placement_table, state_machine
from node.metadata.node_releases import added_partitions_fault
from node.metadata.state_machine import (
    AddPartitions,
    DecideSwitch,
    DeleteTopic,
    GrowPool,
    MetadataState,
    OpenPool,
    PublishSwitch,
)
from node.metadata.topics import Run
from placement import default_group
from tests.node.metadata.test_state_machine import Replica, create, node, uuid

SEED, POOL = 5, 8


def add(name, number, partitions, request=100):
    return AddPartitions(name, uuid(number), partitions, uuid(request))


def grown():
    """A topic of two partitions that got three more, and then one, with others in between."""
    return Replica(create("a", 1, 2), create("b", 2, 4), add("a", 1, 5), create("c", 3),
                   add("a", 1, 6, 101))


def saved(replica) -> dict:
    return cbor2.loads(cbor2.dumps(replica.state.snapshot()))


def test_added_partitions_have_incarnations_of_their_own():
    state = grown().state
    topic = state.topic("a")
    assert [topic.incarnation_of(number) for number in range(6)] == [1, 2, 7, 8, 9, 11]
    assert topic.runs() == [Run(0, 1, 2, POOL), Run(2, 7, 3, POOL), Run(5, 11, 1, POOL)]
    assert topic.runs(range(1, 4)) == [Run(1, 2, 1, POOL), Run(2, 7, 2, POOL)]
    assert state.topic("b").runs(range(1, 9)) == [Run(1, 4, 3, POOL)]
    assert state.topic("b").runs(range(4, 9)) == []
    for number in range(6):
        incarnation = topic.incarnation_of(number)
        location = state.locate(incarnation)
        assert (location.topic, location.partition) == (topic, number)
        assert location.group == default_group(incarnation, POOL, SEED)
        assert topic.number_of(incarnation) == number
    assert [state.locate(incarnation).topic.name for incarnation in range(3, 7)] == ["b"] * 4
    assert state.locate(10).topic.name == "c" and state.locate(12) is None
    assert topic.number_of(3) is topic.number_of(10) is topic.number_of(12) is None
    assert state.partitions_count == 11 and state.next_incarnation == 12


def test_the_same_request_adds_partitions_once():
    replica = grown()
    first = replica(add("a", 1, 5))
    assert first.code == Code.OK and first.value.partitions == 6
    assert replica(add("a", 1, 6, 101)).value == first.value
    assert replica.state.next_incarnation == 12
    assert replica(add("a", 1, 6, 102)).code == Code.INVALID_PARTITIONS
    again = Replica(create("a", 1, 1), add("a", 1, 2), DeleteTopic("a", uuid(1)), create("a", 2, 1))
    assert again(add("a", 2, 2)).value.partitions == 2, "another topic, another request"


@pytest.mark.parametrize("partitions", [0, 1, 5, 6])
def test_a_topic_never_gets_fewer_partitions(partitions):
    result = grown()(add("a", 1, partitions, 102))
    assert result.code == Code.INVALID_PARTITIONS and result.error.value == 6
    assert result.error.text == (f"topic a has 6 partitions: {partitions} would not be more, and "
                                 f"none can be taken away")


def test_a_request_names_the_life_of_the_topic_it_means():
    replica = Replica(create("a", 1), DeleteTopic("a", uuid(1)), create("a", 2))
    assert replica(add("a", 1, 3)).code == Code.UNKNOWN_TOPIC
    assert replica(add("none", 1, 3)).code == Code.UNKNOWN_TOPIC
    assert replica.state.topic("a").partitions == 1


@pytest.mark.parametrize("limit, amount, text", [
    ("PARTITIONS_MAX", 3, "partitions of the cluster: 4"),
    ("PARTITIONS_PER_TOPIC_MAX", 3, "partitions of a topic: 4")])
def test_limits_state_limit_and_value(monkeypatch, limit, amount, text):
    monkeypatch.setattr(state_machine, limit, amount)
    replica = Replica(create("a"))
    result = replica(add("a", 1, 4))
    assert result.code == Code.LIMIT_EXCEEDED and text in result.error.text
    assert (result.error.limit, result.error.value) == (amount, 4)
    assert replica(add("a", 1, 3)).code == Code.OK


def test_deletion_takes_the_added_partitions_too():
    replica = grown()
    incarnation = replica.state.topic("a").incarnation_of(3)
    place = replica.state.locate(incarnation)
    replica(DecideSwitch(incarnation, 2, place.group % POOL + 1))
    assert replica.state.placed.switches
    topic = replica(DeleteTopic("a", uuid(1))).value
    assert [topic.incarnation_of(number) for number in range(6)] == [1, 2, 7, 8, 9, 11]
    assert not replica.state.placed.switches
    assert [replica.state.locate(each) for each in (1, 2, 7, 8, 9, 11)] == [None] * 6
    assert replica.state.partitions_count == 5
    replica(create("a", 4, 2))
    assert replica.state.locate(7) is None and replica.state.locate(12).topic.id == uuid(4)


def test_an_added_partition_is_switched_like_any():
    replica = grown()
    incarnation = replica.state.topic("a").incarnation_of(5)
    group = replica.state.locate(incarnation).group % POOL + 1
    replica(DecideSwitch(incarnation, 2, group))
    replica(PublishSwitch(incarnation, 2, 7, 3))
    location = replica.state.locate(incarnation)
    assert (location.group, location.start_offset, location.partition) == (group, 7, 5)
    [entry] = replica.state.last_epoch_entries(location.topic, range(5, 6))
    assert entry.group == group


def test_after_a_growth_of_the_pool_added_partitions_use_it_and_the_others_stay():
    replica = Replica(create("a", 1, 64))
    before = [replica.state.locate(number + 1).group for number in range(64)]
    voters = replica.state.initial_configuration(1).voters
    replica(GrowPool(64, (voters,) * 56))
    replica(OpenPool(64))
    topic = replica(add("a", 1, 128)).value
    assert topic.runs() == [Run(0, 1, 64, 8), Run(64, 65, 64, 64)]
    entries = replica.state.last_epoch_entries(topic, range(128))
    assert [entry.group for entry in entries[:64]] == before
    assert any(entry.group > 8 for entry in entries[64:])
    restored = MetadataState.restore(saved(replica))
    restored._check()
    assert restored.last_epoch_entries(restored.topic("a"), range(128)) == entries


def test_a_full_group_passes_an_added_partition_on_to_another():
    replica = Replica(create("a"))
    for partitions in range(2, 400):
        replica(add("a", 1, partitions, partitions))
    assert replica.state.exceptions_count < placement_table.EXCEPTIONS_MAX // 2
    counts = [replica.state.group_partitions(group) for group in range(1, POOL + 1)]
    assert sum(counts) == 399 and max(counts) < 90


def test_a_checkpoint_has_the_additions_in_a_table_of_their_own():
    replica = grown()
    snapshot = saved(replica)
    assert snapshot["version"] == 9
    assert snapshot["topics"][0] == ["a", uuid(1), 1, 6, POOL]
    assert snapshot["added_partitions"] == [
        [1, [[7, 3, POOL, uuid(100)], [11, 1, POOL, uuid(101)]]]]
    restored = MetadataState.restore(snapshot)
    restored._check()
    assert restored.snapshot() == replica.state.snapshot()
    assert restored.topic("a").added == replica.state.topic("a").added
    assert restored.apply(restored.version + 1, add("a", 1, 5)).value.partitions == 6
    assert Replica(create("t")).state.snapshot()["added_partitions"] == []


@pytest.mark.parametrize("rows", [
    None, [[1]], [[1, [[7, 3]]]], [[1, []]], [[2, [[7, 3, 8, uuid(1)]]]],
    [[1, [[7, 6, 8, uuid(1)]]]], [[1, [[7, 0, 8, uuid(1)]]]], [[1, [[7, 3, 8, b"short"]]]],
    [[1, [[9, 1, 8, uuid(1)], [8, 1, 8, uuid(2)]]]],
    [[1, [[7, 3, 8, uuid(1)]]], [1, [[10, 1, 8, uuid(2)]]]]])
def test_a_table_that_contradicts_the_topics_is_refused(rows):
    snapshot = saved(grown())
    with pytest.raises(CodecError):
        MetadataState.restore({**snapshot, "added_partitions": rows})


def test_nodes_of_earlier_releases_would_stop_at_the_command():
    old = node(2, version="0.1.0")
    assert "partitions that are added to a topic need release 0.2" in added_partitions_fault(
        [node(1, version="0.2.0"), old])
    assert added_partitions_fault([node(1, version="0.2.0"), node(3, incarnation=0)]) == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12), st.booleans()), max_size=30))
def test_incarnations_are_never_given_twice(steps):
    replica, given_before = Replica(), set()
    for at, (number, partitions, deletes) in enumerate(steps):
        name = f"t{number}"
        topic = replica.state.topic(name)
        if topic is None:
            made = replica(create(name, 1000 + at, max(1, partitions)))
        elif deletes:
            assert replica(DeleteTopic(name, topic.id)).code == Code.OK
            continue
        else:
            made = replica(AddPartitions(name, topic.id, partitions, uuid(at)))
            if made.code != Code.OK:
                assert partitions <= topic.partitions
                continue
        before = topic.partitions if topic is not None else 0
        new = {made.value.incarnation_of(each) for each in range(before, made.value.partitions)}
        assert len(new) == made.value.partitions - before and not new & given_before
        given_before |= new
    restored = MetadataState.restore(saved(replica))
    restored._check()
    assert restored.snapshot() == replica.state.snapshot()
