"""Chains and switches in the metadata: compare-and-set on the epoch, limits, snapshots."""

from __future__ import annotations

import cbor2
import pytest

from multiraft.errors import CodecError
from multiraft.wire.errors import Code
from node.metadata import placement_table
from node.metadata.state_machine import (
    DecideSwitch,
    DeleteTopic,
    EpochEntry,
    MetadataState,
    PublishSwitch,
    Switch,
    TrimEpochHistory,
)
from tests.node.metadata.test_state_machine import Replica, create, uuid

P = 1


def made(partitions=1) -> Replica:
    return Replica(create("t", partitions=partitions))


def epoch_history(replica: Replica, partition=P):
    return replica.state.locate(partition).epoch_history


def other(replica: Replica, partition=P, by=1) -> int:
    """Another group of the pool of 8."""
    return (epoch_history(replica, partition)[-1].group - 1 + by) % 8 + 1


def move(replica: Replica, start: int, base: int = 0, partition=P) -> None:
    """A whole switch."""
    epoch = epoch_history(replica, partition)[-1].epoch + 1
    for command in (DecideSwitch(partition, epoch, other(replica, partition)),
                    PublishSwitch(partition, epoch, start, base)):
        result = replica(command)
        assert result.code == Code.OK, result


def test_a_switch_is_decided_and_then_published():
    replica = made()
    state, first = replica.state, epoch_history(replica)[-1]
    to_group = other(replica)
    assert replica(DecideSwitch(P, 2, to_group)).value == Switch(2, to_group)
    assert epoch_history(replica) == (first,) and state.locate(P).switch == Switch(2, to_group)
    assert (state.group_partitions(first.group), state.group_partitions(to_group)) == (1, 0)
    assert replica(PublishSwitch(P, 2, 100, 7)).value == first
    assert epoch_history(replica) == (first, EpochEntry(2, to_group, 100, 7))
    assert state.locate(P)[2:5] == (to_group, 2, 100) and state.locate(P).switch is None
    assert (state.group_partitions(first.group), state.group_partitions(to_group)) == (0, 1)


def test_what_is_proposed_twice_is_done_once():
    replica = made()
    decide, publish = DecideSwitch(P, 2, other(replica)), PublishSwitch(P, 2, 5, 0)
    assert [replica(command).code for command in (decide, decide, publish)] == [Code.OK] * 3
    before = epoch_history(replica)
    assert replica(publish) == replica(PublishSwitch(P, 1, 0, 0))
    assert replica(publish).value is None, "nobody is told of a move that was told"
    assert replica(decide).code == Code.OK
    assert epoch_history(replica) == before and replica.state.locate(P).switch is None


@pytest.mark.parametrize("epoch", [0, 1, 3, 1 << 63])
def test_a_switch_from_another_epoch_is_refused_with_the_one_it_is_at(epoch):
    replica = made()
    refused = replica(DecideSwitch(P, epoch, other(replica)))
    assert (refused.code, refused.error.value) == (Code.STALE_EPOCH, 1)
    assert "the next one is 2" in refused.error.text


def test_one_switch_at_a_time():
    replica = made()
    replica(DecideSwitch(P, 2, other(replica)))
    for command in (DecideSwitch(P, 2, other(replica, by=2)), DecideSwitch(P, 3, other(replica))):
        refused = replica(command)
        assert refused.code == Code.STALE_EPOCH and "is being switched" in refused.error.text


@pytest.mark.parametrize("group", [0, 9, 1 << 31])
def test_a_group_outside_the_pool_is_refused(group):
    assert made()(DecideSwitch(P, 2, group)).code == Code.INVALID_REQUEST


def test_where_it_is_already_it_is_not_switched_to():
    replica = made()
    refused = replica(DecideSwitch(P, 2, epoch_history(replica)[-1].group))
    assert refused.code == Code.INVALID_REQUEST and "already" in refused.error.text


@pytest.mark.parametrize("command", [DecideSwitch(9, 2, 3), PublishSwitch(9, 2, 0, 0),
                                     TrimEpochHistory(9, 5)])
def test_an_unknown_partition_is_refused(command):
    assert made()(command).code == Code.UNKNOWN_PARTITION


def test_nothing_is_published_that_was_not_decided():
    replica = made()
    assert replica(PublishSwitch(P, 2, 0, 0)).code == Code.STALE_EPOCH
    replica(DecideSwitch(P, 2, other(replica)))
    assert replica(PublishSwitch(P, 3, 0, 0)).code == Code.STALE_EPOCH
    move_on = replica(PublishSwitch(P, 2, 50, 0))
    assert move_on.code == Code.OK
    replica(DecideSwitch(P, 3, other(replica)))
    backwards = replica(PublishSwitch(P, 3, 49, 0))
    assert backwards.code == Code.INVALID_REQUEST and "begins at 50" in backwards.error.text


def test_a_link_without_records_leaves_no_trace_but_its_epoch():
    replica = made()
    move(replica, 0)
    assert [link[:1] + link[2:3] for link in epoch_history(replica)] == [(2, 0)]
    move(replica, 10)
    move(replica, 10)
    assert [(link.epoch, link.start_offset) for link in epoch_history(replica)] == [(2, 0), (4, 10)]


def test_links_that_retention_has_emptied_go():
    replica = made()
    for start in (10, 20, 30):
        move(replica, start)
    assert replica(TrimEpochHistory(P, 9)).value == ()
    assert [link.epoch for link in replica(TrimEpochHistory(P, 20)).value] == [1, 2]
    assert [link.start_offset for link in epoch_history(replica)] == [20, 30]
    replica(TrimEpochHistory(P, 1000))
    assert [link.start_offset for link in epoch_history(replica)] == [30], "the last one stays"


def test_a_deleted_topic_takes_its_epoch_histories_and_switches_with_it():
    replica = made(partitions=3)
    move(replica, 5)
    replica(DecideSwitch(P, 3, other(replica)))
    replica(DecideSwitch(P + 1, 2, other(replica, P + 1)))
    replica(DeleteTopic("t", uuid(1)))
    assert replica.state.placed.snapshot() == {"chains": [], "switches": []}
    replica(create("t", 2))
    assert replica.state.locate(4).epoch == 1


@pytest.mark.parametrize("name, value, words", [
    ("EPOCH_ENTRIES_MAX", 1, "groups that hold a part"),
    ("SWITCHES_MAX", 0, "switches under way"),
    ("EXCEPTIONS_MAX", 0, "elsewhere than the hash says"),
    ("PARTITIONS_PER_GROUP_MAX", 0, "partitions of the group")])
def test_each_limit_is_named_with_its_value(monkeypatch, name, value, words):
    replica = made()
    monkeypatch.setattr(placement_table, name, value)
    refused = replica(DecideSwitch(P, 2, other(replica)))
    assert refused.code == Code.LIMIT_EXCEEDED
    assert words in refused.error.text and refused.error.limit == value
    assert refused.error.value == value + 1


def test_switches_under_way_count_as_the_exceptions_that_they_become(monkeypatch):
    replica = made(partitions=3)
    monkeypatch.setattr(placement_table, "EXCEPTIONS_MAX", 2)
    for partition in (P, P + 1):
        assert replica(DecideSwitch(partition, 2, other(replica, partition))).code == Code.OK
    assert replica(DecideSwitch(P + 2, 2, other(replica, P + 2))).code == Code.LIMIT_EXCEEDED
    replica(PublishSwitch(P, 2, 3, 0))
    move(replica, 6), move(replica, 9)
    assert replica.state.exceptions_count == 1


def test_a_snapshot_has_it_all():
    replica = made(partitions=2)
    move(replica, 5, base=3)
    replica(DecideSwitch(P + 1, 2, other(replica, P + 1)))
    again = MetadataState.restore(cbor2.loads(cbor2.dumps(replica.state.snapshot())))
    again._check()
    for partition in (P, P + 1):
        assert again.locate(partition) == replica.state.locate(partition)


def test_a_snapshot_of_version_2_is_read():
    replica = made()
    move(replica, 0)
    old = replica.state.snapshot()
    old["version"] = 2
    del old["switches"]
    old["chains"] = [[partition, [link[:3] for link in links]] for partition, links in
                     old["chains"]]
    again = MetadataState.restore(cbor2.loads(cbor2.dumps(old)))
    assert again.locate(P) == replica.state.locate(P)


@pytest.mark.parametrize("damage", [
    lambda s: s.update(switches=3), lambda s: s.update(switches=[[1, 2]]),
    lambda s: s.update(switches=[[1, "2", 3]]),
    lambda s: s.update(chains=[[1, [[1, 2, 3]]]]),
    lambda s: s.update(chains=[[1, [[1, 2, 3, -1]]]])])
def test_a_malformed_snapshot_is_a_typed_error(damage):
    snapshot = made().state.snapshot()
    damage(snapshot)
    with pytest.raises(CodecError):
        MetadataState.restore(snapshot)
