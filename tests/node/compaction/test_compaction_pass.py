"""Passes of compaction by key: which partitions they examine, what they propose, and what not."""

from __future__ import annotations

import pytest

from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import Compaction, LogStart, log_starts_payload
from multiraft.storage.errors import BlockNotCached
from multiraft.types import EntryKind
from node.compaction import compaction_pass
from node.metadata.state_machine import DecideSwitch, DeleteTopic, PublishSwitch, RegisterNode
from tests.node.compaction.world import LAST_BYTES, CompactionWorld
from tests.node.retention.world import BUCKET_MS

SECOND = 1_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR


def far(world, offset_ms=HOUR):
    """Let the clocks of two other nodes be ``offset_ms`` away."""
    for node in (2, 3):
        world.skew.hear(node, offset_ms)
    world.skew.compare()


def compacted(world, topic, left=0.0):
    """Store a batch, and have it compacted."""
    world.store(topic, 10)
    world.compact()
    world.carry_out(topic, left)
    world.compact(BUCKET_MS)


# ---- when ---------------------------------------------------------------------------------------


def test_the_first_batches_of_the_record_store_are_compacted():
    world = CompactionWorld()
    topic = world.topic()
    world.compact()
    world.store(topic, 10, 5)
    world.append(topic, 3)  # stays in the Raft log
    world.compact()
    assert world.orders(topic) == [Compaction(1, 16, 0)]
    assert [(each.partition, each.compaction) for each in world.reports] == [
        (topic, Compaction(1, 16, 0))]
    assert (world.compaction.proposed, world.compaction.dirty_bytes) == (1, 160 + LAST_BYTES)


def test_the_last_batch_stays_until_another_one_follows():
    world = CompactionWorld()
    topic = world.topic(min_cleanable_dirty_ratio="0", max_compaction_lag_ms=HOUR,
                        delete_retention_ms=HOUR)
    world.append(topic, 10)
    world.raise_start(world.group_of(topic))
    for _ in range(10):
        world.run(HOUR)
        world.compact()
    assert not world.orders(topic)
    world.append(topic, 5)
    world.compact(BUCKET_MS)
    assert not world.orders(topic), "nothing tells that it was examined too early"
    world.raise_start(world.group_of(topic))
    world.compact(BUCKET_MS)
    assert world.orders(topic) == [Compaction(1, 10, 0)]
    world.carry_out(topic)
    for _ in range(10):
        world.run(HOUR)
        world.compact()
    assert world.orders(topic) == [Compaction(1, 10, 0), Compaction(2, 10, 10)]
    assert world.of(topic).next_offset == 15


def test_an_idle_partition_is_not_examined_for_its_last_batch():
    world = CompactionWorld()
    topic = world.topic(max_compaction_lag_ms=HOUR, min_compaction_lag_ms=60 * SECOND)
    world.append(topic, 10)
    world.run(BUCKET_MS)
    world.run(BUCKET_MS)
    world.raise_start(world.group_of(topic))
    world.compact()
    examined = world.compaction.examined
    world.compact(60 * SECOND, times=50)
    assert world.compaction.examined == examined
    world.compact(HOUR, times=100)
    assert world.compaction.examined <= examined + 1 and not world.compaction.candidates


def test_nothing_is_compacted_before_the_raft_start_passes_it():
    world = CompactionWorld()
    topic = world.topic()
    for _ in range(5):
        world.append(topic, 10)
        world.compact(BUCKET_MS)
    assert not world.orders(topic)


@pytest.mark.parametrize("settings", [{"cleanup_policy": "delete"}, {"cleanup_policy": None}])
def test_other_topics_are_left_alone(settings):
    world = CompactionWorld()
    topic = world.topic(**{key: value for key, value in settings.items() if value})
    if settings["cleanup_policy"] is None:
        world.alter(topic, cleanup_policy=None)
    world.store(topic, 10)
    world.compact(times=3)
    assert not world.orders(topic) and not world.compaction.candidates


def test_the_next_one_waits_until_enough_is_dirty():
    world = CompactionWorld()
    topic = world.topic(min_cleanable_dirty_ratio="0.5")
    world.store(topic, *[10] * 8)
    world.compact()
    world.carry_out(topic, left=0.5)  # 8 * 40 bytes are clean
    for stored in range(1, 4):
        world.store(topic, 10)
        world.compact(BUCKET_MS)
        assert len(world.orders(topic)) == 1, stored
        dirty = (80 + LAST_BYTES) * stored  # the earlier last batches, and none of the last one
        assert world.compaction.dirty_share_max == pytest.approx(dirty / (dirty + 320))
    world.store(topic, 10)
    world.compact(BUCKET_MS)
    assert world.orders(topic)[1:] == [Compaction(2, 124, 0)]


def test_a_record_waits_at_most_as_long_as_the_topic_says():
    world = CompactionWorld()
    topic = world.topic(min_cleanable_dirty_ratio="1", max_compaction_lag_ms=HOUR)
    world.store(topic, 10)
    world.compact()
    world.carry_out(topic, left=1)
    world.store(topic, 10)
    at_ms = world.now_ms
    while len(world.orders(topic)) < 2:
        assert world.now_ms < at_ms + 1.1 * HOUR
        world.compact(30 * SECOND)
    assert world.now_ms >= at_ms + HOUR
    assert world.last(topic) == Compaction(2, 21, 0)


def test_a_record_stays_as_long_as_the_topic_says():
    world = CompactionWorld()
    topic = world.topic(min_compaction_lag_ms=HOUR)
    world.store(topic, 10)
    young_ms = world.now_ms
    while not world.orders(topic):
        assert world.now_ms < young_ms + 1.1 * HOUR
        world.compact(30 * SECOND)
    assert world.now_ms >= young_ms + HOUR
    assert world.last(topic) == Compaction(1, 10, 0)


def test_only_the_old_part_is_compacted():
    world = CompactionWorld()
    topic = world.topic(min_compaction_lag_ms=100 * SECOND)
    appended = []
    for _ in range(40):
        world.store(topic, 10)
        appended.append((world.of(topic).next_offset, world.now_ms))
        world.run(10 * SECOND)
        world.compact()
        if world.last(topic).generation:
            world.carry_out(topic)
        for up_to, at_ms in appended:
            assert up_to > world.last(topic).up_to or world.now_ms - at_ms >= 100 * SECOND
    assert len(world.orders(topic)) > 5


def test_an_idle_partition_costs_no_examination():
    world = CompactionWorld()
    topics = [world.topic(f"t{each}") for each in range(50)]
    for topic in topics:
        compacted(world, topic)
    examined, walked = world.compaction.examined, world.compaction.reader.walked
    world.compact(BUCKET_MS, times=20)
    assert (world.compaction.examined, world.compaction.reader.walked) == (examined, walked)


def test_batches_are_counted_once():
    world = CompactionWorld()
    topic = world.topic(min_cleanable_dirty_ratio="1")
    world.store(topic, *[1] * 100)
    world.compact()
    world.carry_out(topic, left=1)
    world.compact(BUCKET_MS)
    walked = world.compaction.reader.walked
    for _ in range(50):
        world.store(topic, 1)
        world.compact(BUCKET_MS)
    assert world.compaction.reader.walked - walked <= 100 + 50 * 2 + 50 + 3, (
        "each one, and the last one again")


def test_what_is_known_of_a_partition_is_dropped_after_an_hour_without_use():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=0, min_cleanable_dirty_ratio="1")
    compacted(world, topic, left=1)
    world.carry_out(topic, left=1)
    world.store(topic, 1)
    world.compact(BUCKET_MS, times=3)
    assert world.compaction.candidates == 1 and not world.compaction.in_flight
    world.compact(HOUR, times=3)
    assert world.compaction.candidates == 0


def test_altered_settings_are_carried_out():
    world = CompactionWorld()
    topic = world.topic(cleanup_policy="delete")
    world.store(topic, 10)
    world.compact()
    world.alter(topic, cleanup_policy="compact")
    world.compact()
    assert world.last(topic) == Compaction(1, 10, 0)


def test_altered_defaults_of_the_cluster_are_carried_out():
    world = CompactionWorld()
    topic = world.topic()
    world.alter(topic, cleanup_policy=None)
    world.store(topic, 10)
    world.compact()
    assert not world.orders(topic)
    world.alter(0, cleanup_policy="compact")
    world.compact()
    assert world.last(topic) == Compaction(1, 10, 0)


def test_a_log_start_takes_dirty_and_clean_bytes_away():
    world = CompactionWorld()
    topic = world.topic(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.5")
    world.store(topic, *[10] * 4)
    world.compact()
    world.carry_out(topic, left=1)
    world.store(topic, 10, 10)
    world.compact(BUCKET_MS)
    assert len(world.orders(topic)) == 1
    world.propose(world.group_of(topic), EntryKind.LOG_START,
                  log_starts_payload([LogStart(topic, 30, 240)]))
    world.store(topic, 10)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(2, 72, 0), "of 80 clean bytes and 256 dirty ones"


def test_a_log_start_behind_everything_leaves_nothing_to_compact():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    world.propose(world.group_of(topic), EntryKind.LOG_START,
                  log_starts_payload([LogStart(topic, 11, 0)]))
    world.compact(BUCKET_MS)
    assert not world.orders(topic)


# ---- one at a time ------------------------------------------------------------------------------


def test_the_next_one_waits_until_this_replica_has_carried_out_the_last():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    world.compact()
    for _ in range(20):
        world.store(topic, 100)
        world.compact(BUCKET_MS)
    assert len(world.orders(topic)) == 1 and world.compaction.in_flight == 1
    world.carry_out(topic)
    world.compact(BUCKET_MS)
    assert world.orders(topic)[1:] == [Compaction(2, 2030, 0)]


def test_the_next_one_waits_for_other_nodes_that_report():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    world.compact()
    world.carry_out(topic)
    world.told[topic] = 0
    world.store(topic, 100)
    world.compact(BUCKET_MS, times=5)
    assert len(world.orders(topic)) == 1
    world.told[topic] = 1
    world.compact(BUCKET_MS)
    assert len(world.orders(topic)) == 2 and world.compaction.in_flight == 1


def test_one_that_is_not_applied_is_waited_for():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    world.applies = False
    world.carried[topic] = 99
    world.compact(BUCKET_MS, times=5)
    assert len(world.orders(topic)) == 1
    world.apply()
    world.applies = True
    world.store(topic, 100)
    world.compact(BUCKET_MS)
    assert len(world.orders(topic)) == 2


def test_a_group_has_a_bounded_number_in_flight(monkeypatch):
    monkeypatch.setattr(compaction_pass, "IN_FLIGHT_MAX", 3)
    world = CompactionWorld()
    topic = world.topic(partitions=200)
    partitions = [each for each in range(topic, topic + 200)
                  if world.group_of(each) == world.group_of(topic)]
    assert len(partitions) > 6
    for partition in partitions:
        world.store(partition, 10)
    done = set()
    while len(done) < len(partitions):
        world.compact(BUCKET_MS)
        examined = world.compaction.examined
        ordered = {each for each in partitions if world.orders(each)} - done
        assert 0 < len(ordered) <= 3 and world.compaction.in_flight == len(ordered)
        world.compact(BUCKET_MS)
        assert world.compaction.examined - examined <= 3, "those that wait are not examined"
        for each in ordered:
            world.carry_out(each)
        done |= ordered
    assert all(len(world.orders(each)) == 1 for each in partitions)


def test_a_refused_proposal_is_repeated():
    world = CompactionWorld()
    topic = world.topic()
    world.compact()
    world.store(topic, 10)
    world.refuses = True
    world.compact()
    assert world.compaction.refused == 1 and not world.orders(topic)
    world.refuses = False
    world.compact(BUCKET_MS, times=10)
    assert len(world.orders(topic)) == 1


# ---- tombstones ---------------------------------------------------------------------------------


def wait_for(world, topic, orders, limit_ms, step_ms=60 * SECOND):
    """Run passes of retention and compaction until a partition has so many COMPACT entries."""
    begin_ms = world.now_ms
    while len(world.orders(topic)) < orders:
        assert world.now_ms < begin_ms + limit_ms, world.orders(topic)
        world.run(step_ms)
        world.compact()
    return world.now_ms - begin_ms


def test_tombstones_go_after_their_time_in_a_partition_that_falls_idle():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=DAY)
    world.store(topic, 10)
    world.compact()
    world.now_ms += HOUR  # the replicas take their time
    world.carry_out(topic)
    took_ms = wait_for(world, topic, 2, 1.1 * DAY)
    assert took_ms >= DAY, "from the time at which it was carried out"
    assert world.last(topic) == Compaction(2, 10, 10)
    world.carry_out(topic)
    for _ in range(100):
        world.run(HOUR)
        world.compact()
    assert len(world.orders(topic)) == 2, "no tombstone can be left"


def test_tombstones_wait_until_all_members_have_carried_it_out():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    compacted(world, topic)
    world.told_by_all[topic] = 0
    world.compaction.lead(world.group_of(topic))  # a report from before is forgotten
    for _ in range(50):
        world.run(HOUR)
        world.compact()
    assert len(world.orders(topic)) == 1
    world.told_by_all[topic] = 1
    took_ms = wait_for(world, topic, 2, 1.2 * HOUR)
    assert took_ms >= HOUR, "from the time at which all had told"
    assert world.last(topic) == Compaction(2, 10, 10)


def test_the_next_compaction_does_not_wait_for_members_that_are_down():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    world.told_by_all[topic] = 0
    for generation in range(1, 30):
        world.store(topic, 10)
        world.run(10 * 60 * SECOND)
        world.compact()
        assert world.last(topic) == Compaction(generation, 11 * generation - 1, 0)
        world.carry_out(topic)


def test_a_partition_that_waits_for_members_is_looked_at_again_after_some_passes():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=DAY)
    world.told_by_all[topic] = 0
    compacted(world, topic)
    lookups = world.lookups
    for passes in range(1, 4 * compaction_pass.PASSES_PER_RETRY + 1):
        world.compact(BUCKET_MS)
        assert world.lookups - lookups == passes // compaction_pass.PASSES_PER_RETRY
    world.told_by_all[topic] = 1
    world.compact(BUCKET_MS, times=compaction_pass.PASSES_PER_RETRY)
    examined = world.compaction.examined
    world.compact(BUCKET_MS, times=5 * compaction_pass.PASSES_PER_RETRY)
    assert world.compaction.examined == examined, "it waits for the time of tombstones alone"


@pytest.mark.parametrize("why", ["tombstones are gone", "the log starts behind it"])
def test_no_member_is_waited_for_where_no_tombstone_is_left(why):
    world = CompactionWorld()
    topic = world.topic(cleanup_policy="compact,delete", delete_retention_ms=0)
    compacted(world, topic)
    assert world.last(topic) == Compaction(2, 10, 10)
    world.told_by_all[topic] = 0
    if why == "the log starts behind it":
        world.alter(topic, delete_retention_ms=DAY)
        world.carry_out(topic)
        world.store(topic, 10)
        world.compact(BUCKET_MS)
        assert world.last(topic) == Compaction(3, 21, 10)
        world.propose(world.group_of(topic), EntryKind.LOG_START,
                      log_starts_payload([LogStart(topic, 21, 0)]))
    world.carry_out(topic)
    world.compact(BUCKET_MS, times=3)
    examined, lookups = world.compaction.examined, world.lookups
    world.compact(BUCKET_MS, times=10 * compaction_pass.PASSES_PER_RETRY)
    assert (world.compaction.examined, world.lookups) == (examined, lookups)
    assert not world.compaction.in_flight


def test_an_old_mark_is_no_reason_while_the_last_one_waits_for_members():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    compacted(world, topic)
    world.told_by_all[topic] = 1
    world.store(topic, 10)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(2, 21, 0)
    world.carry_out(topic)
    for _ in range(10):
        world.run(HOUR)
        world.compact()
    assert len(world.orders(topic)) == 2
    world.told_by_all[topic] = 2
    assert wait_for(world, topic, 3, 1.2 * HOUR) >= HOUR
    assert world.last(topic) == Compaction(3, 21, 21)


def test_tombstones_go_with_the_next_compaction_after_their_time():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    up_to, carried = {}, []
    for at in range(60):
        world.store(topic, 10)
        world.run(5 * 60 * SECOND)
        world.compact()
        last = world.last(topic)
        if last.generation not in up_to:
            up_to[last.generation] = last.up_to
            old = [each for each, at_ms in carried if world.now_ms - at_ms >= HOUR]
            assert last.tombstones_below <= max((up_to[each] for each in old), default=0)
            late = [each for each, at_ms in carried if world.now_ms - at_ms >= 1.5 * HOUR]
            assert last.tombstones_below >= max((up_to[each] for each in late), default=0)
        world.carry_out(topic)
        world.compact()
        carried.append((last.generation, world.now_ms))
        assert at < 15 or last.tombstones_below > 0
    assert len(up_to) > 40


def test_tombstones_alone_are_no_reason_more_often_than_their_time():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR, min_cleanable_dirty_ratio="1")
    compacted(world, topic, left=1)
    orders, at_ms = len(world.orders(topic)), []
    for _ in range(600):  # 50 hours, with a few records in each
        world.store(topic, 1)
        world.run(5 * 60 * SECOND)
        world.compact()
        if len(world.orders(topic)) > orders:
            orders = len(world.orders(topic))
            at_ms.append(world.now_ms)
            world.carry_out(topic, left=1)
    assert len(at_ms) > 10
    assert all(later - before >= HOUR for before, later in zip(at_ms, at_ms[1:], strict=False))


def test_tombstones_stay_for_no_time_if_the_topic_says_so():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=0)
    world.store(topic, 10)
    world.compact()
    assert world.last(topic) == Compaction(1, 10, 0)
    world.carry_out(topic)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(2, 10, 10)
    world.carry_out(topic)
    world.compact(BUCKET_MS, times=5)
    assert len(world.orders(topic)) == 2


def test_another_leader_lets_tombstones_wait_anew():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=DAY)
    world.store(topic, 10)
    world.compact()
    world.carry_out(topic)
    for _ in range(20):
        world.run(HOUR)
        world.compact()
    world.compaction.lead(world.group_of(topic))
    took_ms = wait_for(world, topic, 2, 1.1 * DAY)
    assert took_ms >= DAY
    assert world.last(topic) == Compaction(2, 10, 10)
    world.carry_out(topic)
    world.compaction.lead(world.group_of(topic))
    world.store(topic, 10)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(3, 21, 10), "it never falls"


def test_a_group_gets_one_clock_behind_what_was_carried_out():
    world = CompactionWorld()
    topic = world.topic(partitions=40)
    group = world.group_of(topic)
    partitions = [each for each in range(topic, topic + 40) if world.group_of(each) == group]
    for partition in partitions:
        world.store(partition, 10)
    world.run(BUCKET_MS)
    world.run(BUCKET_MS)
    world.compact()
    assert all(world.orders(each) for each in partitions)
    for partition in partitions:
        world.carry_out(partition)
    clocks = world.kinds(group).count(EntryKind.CLOCK)
    for _ in range(10):
        world.run(BUCKET_MS)
        world.compact()
    assert world.kinds(group).count(EntryKind.CLOCK) == clocks + 1


# ---- clocks and releases ------------------------------------------------------------------------


def test_a_clock_that_is_far_lets_nothing_be_old():
    world = CompactionWorld()
    aged = world.topic("aged", min_compaction_lag_ms=HOUR)
    late = world.topic("late", min_cleanable_dirty_ratio="1", max_compaction_lag_ms=HOUR)
    dead = world.topic("dead", delete_retention_ms=HOUR)
    for topic in (late, dead):
        world.store(topic, 10)
    world.compact()
    for topic in (late, dead):
        world.carry_out(topic, left=1)
        world.compact(BUCKET_MS)
    for topic in (aged, late):
        world.store(topic, 10)
    world.run(BUCKET_MS)
    world.run(BUCKET_MS)
    before = {topic: len(world.orders(topic)) for topic in (aged, late, dead)}
    far(world)
    for _ in range(10):
        world.run(HOUR)
        world.compact()
    assert {topic: len(world.orders(topic)) for topic in before} == before
    far(world, 0)
    world.compact(BUCKET_MS, times=2)
    assert {topic: len(world.orders(topic)) for topic in before} == {
        topic: count + 1 for topic, count in before.items()}


def test_a_clock_that_is_far_does_not_matter_where_no_age_does():
    world = CompactionWorld()
    topic = world.topic()
    far(world)
    world.store(topic, 10)
    world.compact()
    assert world.last(topic) == Compaction(1, 10, 0)


def test_nothing_is_proposed_before_all_nodes_carry_it_out():
    world = CompactionWorld(version="0.1.0")
    topic = world.topic()
    world.store(topic, 10)
    world.compact(BUCKET_MS, times=3)
    assert not world.orders(topic) and not world.compaction.examined
    for node in world.state.nodes():
        world.command(RegisterNode(node._replace(version="0.2.1", boot_epoch=2)))
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(1, 10, 0)


def test_nothing_is_examined_where_it_would_not_be_carried_out():
    world = CompactionWorld(is_on=False)
    topic = world.topic()
    world.store(topic, 10)
    world.compaction.lead(world.group_of(topic))
    world.alter(topic, min_cleanable_dirty_ratio="0")
    assert world.compact(BUCKET_MS, times=3) == 0
    assert not world.orders(topic) and not world.compaction.examined


# ---- leaders, switches, deletions ---------------------------------------------------------------


def test_a_new_leader_examines_what_it_finds():
    world = CompactionWorld()
    topic = world.topic()
    group = world.group_of(topic)
    world.compact()
    world.led.discard(group)
    world.raise_start(group)
    world.led.add(group)
    world.append(topic, 10)
    world.append(topic, 1)
    world.led.discard(group)
    world.raise_start(group)
    world.compact(BUCKET_MS)
    assert not world.orders(topic)
    world.led.add(group)
    world.new_leaders.add(group)
    world.compaction.lead(group)
    world.compact(BUCKET_MS)
    assert not world.orders(topic), "it has not applied an entry of its term"
    world.new_leaders.discard(group)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(1, 10, 0)


def test_a_leader_that_lacks_records_waits_for_them():
    world = CompactionWorld()
    topic = world.topic()
    world.lacking[world.group_of(topic)] = 1
    world.store(topic, 10)
    world.compact(BUCKET_MS, times=20)
    assert not world.orders(topic)
    world.lacking.clear()
    world.compact(BUCKET_MS, times=10)
    assert len(world.orders(topic)) == 1


def test_a_lower_raft_start_of_another_leader_takes_nothing_back():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    compacted(world, topic)
    other = CompactionWorld(shares=world)
    other.raft_starts = {}
    group = world.group_of(topic)
    world.led.discard(group)
    other.led.add(group)
    other.now_ms = world.now_ms
    other.append(topic, 10)
    other.compaction.lead(group)
    for _ in range(4):
        other.run(HOUR)
        other.compact()
    assert other.orders(topic) == [Compaction(1, 10, 0), Compaction(2, 10, 10)]


def test_a_partition_that_is_being_switched_waits():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    group = world.group_of(topic)
    to_group = next(each for each in world.led if each != group)
    world.command(DecideSwitch(topic, 2, to_group))
    world.compact(BUCKET_MS, times=20)
    assert not world.log[group][-1].kind == EntryKind.COMPACT and not world.orders(topic)


def test_no_tombstone_goes_while_a_partition_has_a_history():
    world = CompactionWorld()
    topic = world.topic(delete_retention_ms=HOUR)
    world.append(topic, 10)
    group = world.group_of(topic)
    to_group = next(each for each in world.led if each != group)
    world.command(DecideSwitch(topic, 2, to_group))
    world.propose(group, EntryKind.PARTITION_SEAL, seal_payload(1), topic, 10)
    world.propose(to_group, EntryKind.PARTITION_OPEN, open_payload(2, 10, 5, 0), topic)
    world.command(PublishSwitch(topic, 2, 10, 5))
    assert world.group_of(topic) == to_group
    world.store(topic, 10)
    world.compact()
    assert world.orders(topic) == [Compaction(1, 20, 0)]
    world.carry_out(topic)
    for _ in range(10):
        world.run(HOUR)
        world.compact()
    assert len(world.orders(topic)) == 1
    world.store(topic, 100)
    world.compact(BUCKET_MS)
    assert world.last(topic) == Compaction(2, 121, 0)


def test_a_deleted_topic_is_forgotten():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    world.compact()
    world.command(DeleteTopic("t", world.state.topic_at(topic).id))
    world.compact(BUCKET_MS, times=3)
    assert not world.compaction.candidates and not world.compaction.in_flight


# ---- bounded steps ------------------------------------------------------------------------------


def test_a_pass_takes_many_small_steps():
    world = CompactionWorld()
    topic = world.topic(partitions=500, min_cleanable_dirty_ratio="1")
    for partition in range(topic, topic + 500):
        world.append(partition, 1)
    for group in list(world.led):
        world.raise_start(group)
    examined, walked = [0], [0]
    for _ in world.compaction.steps(world.now_ms):
        examined.append(world.compaction.examined)
        walked.append(world.compaction.reader.walked)
    assert examined[-1] >= 500
    assert max(b - a for a, b in zip(examined, examined[1:], strict=False)) <= (
        compaction_pass.PARTITIONS_PER_STEP)


def test_a_partition_with_many_batches_takes_many_steps():
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, *[1] * 2000)
    walked = [0]
    for _ in world.compaction.steps(world.now_ms):
        walked.append(world.compaction.reader.walked)
    assert walked[-1] == 2001
    assert max(b - a for a, b in zip(walked, walked[1:], strict=False)) <= (
        2 * compaction_pass.BATCHES_PER_STEP)
    assert world.last(topic) == Compaction(1, 2000, 0)


@pytest.mark.parametrize("event", ["seal", "leader", "compact"])
def test_what_comes_between_two_steps_is_noticed(event, monkeypatch):
    world = CompactionWorld()
    topic = world.topic()
    group = world.group_of(topic)
    world.store(topic, *[1] * 2000)
    steps = world.compaction.steps(world.now_ms)
    while world.compaction.reader.walked < 600:
        next(steps)
    if event == "seal":
        world.propose(group, EntryKind.PARTITION_SEAL, seal_payload(1), topic, 2001)
    elif event == "leader":
        world.led.discard(group)
    else:
        world.propose(group, EntryKind.COMPACT, compaction_pass.compact_payload(
            Compaction(7, 5, 0)), topic)
    before = len(world.orders(topic))
    for _ in steps:
        pass
    assert len(world.orders(topic)) == before


def test_a_block_that_is_missing_is_asked_for(monkeypatch):
    world = CompactionWorld()
    topic = world.topic()
    world.store(topic, 10)
    lacking, known = [BlockNotCached(3, 7)], world.batches

    def batches(*asked):
        if lacking:
            raise lacking[0]
        return known(*asked)

    world.batches = batches
    wanted = []
    for _ in world.compaction.steps(world.now_ms):
        if world.compaction.reader.wanted_block is not None:
            wanted.append(world.compaction.reader.wanted_block)
            lacking.clear()
            world.compaction.reader.wanted_block = None
    assert len(wanted) == 1
    assert world.last(topic) == Compaction(1, 10, 0)
