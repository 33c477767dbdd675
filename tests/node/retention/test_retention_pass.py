"""Passes of retention: which partitions they examine, what they propose, and what they leave."""

from __future__ import annotations

import pytest

from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    delete_payload,
    parse_log_starts,
)
from multiraft.types import EntryKind
from node.metadata.state_machine import DecideSwitch, DeleteTopic, PublishSwitch, RegisterNode
from node.retention import retention_pass
from node.retention.earlier_epochs import EpochPart, Question
from tests.node.retention.world import BUCKET_MS, World

SECOND = 1_000
HOUR = 3_600 * SECOND


def group_of(world, partition):
    return world.state.locate(partition).group


def far(world, offset_ms=HOUR):
    """Let the clocks of two other nodes be ``offset_ms`` away."""
    for node in (2, 3):
        world.skew.hear(node, offset_ms)
    world.skew.compare()


# ---- age ----------------------------------------------------------------------------------------


def test_records_leave_after_their_age_and_not_before():
    world = World()
    topic = world.topic(retention_ms=HOUR)
    world.run()
    world.append(topic, 10)
    appended_ms = world.now_ms
    while world.of(topic).log_start < 10:
        assert world.now_ms < appended_ms + 1.2 * HOUR
        world.run(30 * SECOND)
    assert world.now_ms > appended_ms + HOUR
    assert world.of(topic).live_bytes == 0
    assert not world.retention.scheduled


def test_a_group_that_falls_idle_gets_one_clock_more_and_then_none():
    world = World()
    topic = world.topic(retention_ms=HOUR)
    group = group_of(world, topic)
    world.run()
    for _ in range(30):
        world.append(topic)
        world.run(SECOND)
    clocks = world.kinds(group).count(EntryKind.CLOCK)
    assert clocks == 3
    world.run_until(100 * SECOND)
    assert world.kinds(group).count(EntryKind.CLOCK) == clocks + 1
    assert world.kinds(group)[-1] == EntryKind.CLOCK


def test_only_what_is_old_leaves_a_partition_that_takes_batches():
    world = World()
    topic = world.topic(retention_ms=100 * SECOND)
    world.run()
    appended = []
    for _ in range(300):
        entry = world.append(topic)
        appended.append((entry.base_offset, world.now_ms))
        world.run(SECOND)
        for offset, at_ms in appended[:world.of(topic).log_start]:
            assert world.now_ms - at_ms >= 100 * SECOND, offset
    youngest_gone = appended[world.of(topic).log_start - 1][1]
    assert world.now_ms - youngest_gone < 125 * SECOND
    rows = sum(kind == EntryKind.LOG_START for kind in world.kinds(group_of(world, topic)))
    assert rows <= 1 + 200 / 6, "a row for each batch"


def test_nothing_leaves_by_age_while_the_clock_is_far_and_all_of_it_after():
    world = World()
    topic = world.topic(retention_ms=HOUR)
    world.run()
    world.append(topic)
    world.run_until(5 * SECOND)
    far(world)
    world.run(3 * HOUR)
    world.run_until(3 * BUCKET_MS)
    assert world.of(topic).log_start == 0
    assert world.paused == [("clock", True)] and world.retention.reasons["clock"] == 1
    before = world.clocks.proposed
    world.append(topic)
    assert world.clocks.proposed == before, "a CLOCK of a wrong clock"
    far(world, 0)
    world.run_until(3 * BUCKET_MS)
    assert world.of(topic).log_start == 1, "one batch has no clock behind it from that time"
    assert world.paused[-1] == ("clock", False)


def test_a_clock_that_is_behind_the_last_one_makes_no_record_older():
    world = World()
    topic = world.topic(retention_ms=HOUR)
    world.run()
    world.append(topic)
    world.run_until(5 * SECOND)
    world.now_ms -= 5 * HOUR
    world.append(topic)
    world.now_ms += 5 * HOUR + HOUR // 2
    world.append(topic)
    world.run(HOUR * 6 // 10)
    world.run_until(3 * BUCKET_MS)
    assert world.of(topic).log_start == 1


# ---- bytes and records --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"retention_bytes": 800}, {"retention_records": 10}])
def test_at_least_the_limit_stays_and_not_much_more(limit):
    world = World()
    topic = world.topic(**limit)
    world.run()
    for at in range(1, 40):
        world.append(topic)
        world.run(SECOND)
        assert world.of(topic).records >= min(at, 10)
        assert world.of(topic).live_bytes == 80 * world.of(topic).records
    assert world.of(topic).records == 10
    assert world.retention.records_removed == 29 and world.retention.bytes_removed == 29 * 80


def test_a_small_part_of_a_limit_waits_for_a_minute():
    world = World()
    topic = world.topic(retention_records=1_000)
    world.run()
    world.append(topic, 1_000)
    for _ in range(3):
        world.append(topic)
        world.run(SECOND)
    assert world.of(topic).log_start == 0
    world.append(topic, 997)  # the first batch leaves 1,000 records behind
    world.run(SECOND)
    assert world.of(topic).log_start == 1_000
    world.append(topic, 20)
    world.run(SECOND)
    assert world.of(topic).log_start == 1_000
    world.run_until(retention_pass.PASSES_PER_RETRY * BUCKET_MS + BUCKET_MS)
    assert world.of(topic).log_start == 1_003


def test_what_is_not_committed_neither_goes_nor_counts():
    world = World()
    topic = world.topic(retention_records=5)
    world.run()
    world.append(topic, 5)
    world.applies = False
    for _ in range(5):
        world.append(topic)
    world.run(SECOND)
    assert world.of(topic).log_start == 0
    world.apply()
    world.run(SECOND)
    world.apply()
    assert world.of(topic).log_start == 5


def test_bytes_that_the_state_does_not_know_are_counted_once():
    world = World()
    topic = world.topic(retention_bytes=800)
    world.run()
    group = group_of(world, topic)
    for _ in range(20):
        world.append(topic, 1, 77)
    world.propose(group, EntryKind.LOG_START, b"", topic, 2)  # of version 1
    assert world.of(topic).live_bytes == UNKNOWN_BYTES
    world.run(SECOND)
    assert world.of(topic).live_bytes == 18 * 80
    world.append(topic)
    world.run(SECOND)
    assert (world.of(topic).log_start, world.of(topic).live_bytes) == (11, 800)


def test_a_count_without_a_batch_that_was_just_proposed_is_not_told():
    world = World()
    topic = world.topic(retention_bytes=80)
    world.run()
    group = group_of(world, topic)
    world.append(topic)
    world.append(topic)
    world.propose(group, EntryKind.LOG_START, b"", topic, 1)
    indexed = list(world.log[group])
    world.append(topic)
    world.log[group], complete = indexed, world.log[group]
    world.run(SECOND)
    assert world.of(topic).live_bytes == UNKNOWN_BYTES and world.of(topic).log_start == 1
    world.log[group] = complete + world.log[group][len(indexed):]
    world.append(topic)
    world.run(SECOND)
    assert world.of(topic).live_bytes == 240 and world.of(topic).log_start == 1


# ---- which partitions ---------------------------------------------------------------------------


def test_a_pass_over_idle_topics_examines_none_of_them():
    world = World()
    topics = [world.topic(f"t{each}", retention_ms=100 * HOUR) for each in range(300)]
    world.run()
    for topic in topics:
        world.append(topic)
    world.run_until(30 * SECOND)
    examined, walked = world.retention.examined, world.retention.reader.walked
    for _ in range(100):
        assert world.run(SECOND) <= 1
    assert (world.retention.examined, world.retention.reader.walked) == (examined, walked)
    assert world.retention.scheduled == 300


def test_topics_without_limits_are_examined_once_per_pass_and_not_scheduled():
    world = World()
    topic = world.topic()
    world.run()
    for _ in range(5):
        world.append(topic)
    world.run(SECOND)
    assert world.retention.examined == 1 and not world.retention.scheduled
    world.run_until(100 * SECOND)
    assert world.retention.examined == 1


@pytest.mark.parametrize("of_cluster", [False, True])
def test_altered_settings_hold_without_a_further_batch(of_cluster):
    world = World()
    topic = world.topic(partitions=3)
    world.run()
    for partition in range(topic, topic + 3):
        for _ in range(4):
            world.append(partition)
    world.run(SECOND)
    world.alter(0 if of_cluster else topic, retention_records=1)
    world.run(SECOND)
    assert [world.of(each).log_start for each in range(topic, topic + 3)] == [3, 3, 3]


def test_a_new_leader_examines_its_partitions_once_it_has_applied_an_entry_of_its_term():
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    group = group_of(world, topic)
    world.led.discard(group)
    world.led.add(group)
    for _ in range(3):
        world.append(topic)
    world.led.discard(group)
    world.run(SECOND)
    assert world.of(topic).log_start == 0
    world.led.add(group)
    world.new_leaders.add(group)
    world.retention.lead(group)
    world.run(SECOND)
    assert world.of(topic).log_start == 0
    world.new_leaders.clear()
    world.run(SECOND)
    assert world.of(topic).log_start == 2


def test_a_leader_that_copies_records_removes_none_until_it_has_them():
    """It would not count the bytes of those that it lacks."""
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    for _ in range(3):
        world.append(topic)
    world.lacking[group_of(world, topic)] = 5
    world.run(SECOND)
    assert world.of(topic).log_start == 0
    world.lacking.clear()
    world.run(60 * SECOND)
    assert world.of(topic).log_start == 2


def test_many_partitions_take_steps_and_few_entries():
    world = World()
    topic = world.topic(partitions=700, retention_records=1)
    world.run()
    for partition in range(topic, topic + 700):
        world.append(partition)
        world.append(partition)
    assert world.run(SECOND) > 700 / retention_pass.PARTITIONS_PER_STEP
    assert all(world.of(each).log_start == 1 for each in range(topic, topic + 700))
    entries = [entry for log in world.log.values() for entry in log
               if entry.kind == EntryKind.LOG_START]
    assert len(entries) <= len(world.log)
    assert sum(len(parse_log_starts(entry.payload)) for entry in entries) == 700


def test_a_long_partition_is_examined_in_steps():
    world = World()
    topic = world.topic()
    world.run()
    for _ in range(2 * retention_pass.BATCHES_PER_STEP):
        world.append(topic)
    world.run(SECOND)
    world.alter(topic, retention_records=1)
    assert world.run(SECOND) >= 2
    assert world.of(topic).records == 1


def test_a_deleted_topic_is_forgotten():
    world = World()
    topic = world.topic(retention_ms=HOUR)
    world.run()
    world.append(topic)
    world.run(SECOND)
    assert world.retention.scheduled == 1
    world.command(DeleteTopic("t", world.state.topic("t").id))
    world.run(2 * HOUR)
    world.run_until(3 * BUCKET_MS)
    assert world.retention.scheduled == 0


@pytest.mark.parametrize("settings", (
    {"retention_records": 1}, {"retention_bytes": 1, "retention_ms": HOUR}))
def test_a_deletion_between_two_steps_ends_the_examination(monkeypatch, settings):
    monkeypatch.setattr(retention_pass, "PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr(retention_pass, "BATCHES_PER_STEP", 1)
    monkeypatch.setattr(retention_pass, "FIRST_BATCHES", 1)
    for steps_before in range(1, 9):
        world = World()
        topic = world.topic(**settings)
        world.run()
        for _ in range(6):
            world.append(topic)
        steps = world.retention.steps(world.now_ms + SECOND)
        for _ in range(steps_before):
            next(steps)
        world.applies = False
        world.propose(group_of(world, topic), EntryKind.PARTITION_DELETE,
                      delete_payload(world.commands, [topic]))
        for _ in steps:
            pass
        assert EntryKind.LOG_START not in world.kinds(group_of(world, topic))


def test_an_internal_topic_has_a_default_of_its_own():
    world = World(internal={"__m": (("retention.records", "2"),)})
    topic = world.topic("__m")
    world.run()
    for _ in range(5):
        world.append(topic)
    world.run(SECOND)
    assert world.of(topic).records == 2


# ---- producers ----------------------------------------------------------------------------------


def expiries(world, group):
    return world.kinds(group).count(EntryKind.PRODUCERS_EXPIRE)


def test_producers_expire_a_week_after_their_last_batch_and_no_entry_is_written_without_one():
    world = World()
    topic = world.topic()
    group = group_of(world, topic)
    states = world.partition_states[group]
    world.run()
    world.append(topic, producer=7)
    world.run_until(3 * SECOND)
    for _ in range(8 * 24):
        world.append(topic)  # of no producer
        world.run(HOUR)
        world.run(SECOND)
        age_ms = world.now_ms - 1_000_000_000
        assert expiries(world, group) == 0 or age_ms >= retention_pass.PRODUCER_EXPIRY_MS
    assert states.windows(topic) == {}
    assert 1 <= expiries(world, group) == world.retention.expiries
    states.forget_expired()
    before = expiries(world, group)
    for _ in range(48):
        world.run(HOUR)
    assert expiries(world, group) == before


def test_a_far_clock_lets_no_producer_expire():
    world = World()
    topic = world.topic()
    world.run()
    world.append(topic, producer=7)
    world.run_until(3 * SECOND)
    far(world)
    world.now_ms += 2 * retention_pass.PRODUCER_EXPIRY_MS
    for _ in range(4):
        world.run(HOUR)
    assert expiries(world, group_of(world, topic)) == 0


# ---- what is not possible -----------------------------------------------------------------------


def test_nothing_is_proposed_until_all_nodes_know_the_entries():
    world = World(version="0.1.0")
    topic = world.topic(retention_records=1)
    for _ in range(3):
        world.append(topic)
        world.run(SECOND)
    assert world.of(topic).log_start == 0
    assert {EntryKind.CLOCK, EntryKind.LOG_START}.isdisjoint(world.kinds(group_of(world, topic)))
    assert world.paused == [("releases", True)]
    for node in world.state.nodes():
        world.command(RegisterNode(node._replace(version="0.2.1", boot_epoch=2)))
    world.run(SECOND)
    assert world.of(topic).log_start == 2 and world.paused[-1] == ("releases", False)


def test_nodes_of_a_new_cluster_that_have_not_registered_yet_are_no_reason_to_act():
    world = World(version="")
    nodes = world.state.nodes()
    assert not any(node.incarnation for node in nodes)
    topic = world.topic(retention_records=1)
    for _ in range(3):
        world.append(topic)
        world.run(SECOND)
    assert world.of(topic).log_start == 0 and not world.paused
    for node in nodes:
        world.command(RegisterNode(node._replace(version="0.2.0", incarnation=node.id,
                                                  boot_epoch=1)))
        world.run(SECOND)
    assert world.of(topic).log_start == 2 and not world.paused


def test_a_node_that_has_registered_without_a_release_pauses_retention():
    world = World(version="")
    first, *others = world.state.nodes()
    for node in others:
        world.command(RegisterNode(node._replace(version="0.2.0", incarnation=node.id,
                                                  boot_epoch=1)))
    world.command(RegisterNode(first._replace(incarnation=9, boot_epoch=1)))
    world.run(SECOND)
    assert world.paused == [("releases", True)]


def test_a_refused_proposal_is_repeated():
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    for _ in range(3):
        world.append(topic)
    world.refuses = True
    world.run(SECOND)
    assert world.retention.refused == 1 and world.of(topic).log_start == 0
    world.refuses = False
    world.run_until((retention_pass.PASSES_PER_RETRY + 1) * BUCKET_MS)
    assert world.of(topic).log_start == 2


def test_a_log_start_that_was_raised_meanwhile_is_not_overtaken():
    world = World()
    topic = world.topic(retention_records=4)
    world.run()
    for _ in range(9):
        world.append(topic)
    steps = world.retention.steps(world.now_ms + SECOND)
    next(steps)  # it is decided, and not proposed yet
    world.propose(group_of(world, topic), EntryKind.LOG_START, b"", topic, 3)
    for _ in steps:
        pass
    assert world.of(topic).log_start == 3
    world.run_until((retention_pass.PASSES_PER_RETRY + 1) * BUCKET_MS)
    assert world.of(topic).log_start == 5


def switched(world, topic, sealed=True):
    """Switch the partition to the next group, with the seal and the opening."""
    place = world.state.locate(topic)
    to_group = place.group % world.state.pool_size + 1
    world.command(DecideSwitch(topic, place.epoch + 1, to_group))
    before = world.of(topic)
    if sealed:
        world.propose(place.group, EntryKind.PARTITION_SEAL, seal_payload(place.epoch), topic,
                      before.next_offset)
        world.propose(to_group, EntryKind.PARTITION_OPEN,
                      open_payload(place.epoch + 1, before.next_offset, 5, before.log_start), topic)
        world.command(PublishSwitch(topic, place.epoch + 1, before.next_offset, 5))
    return to_group


def answer_all(world, parts):
    """Answer the questions that the last pass left; ``parts``: partition -> of earlier epochs."""
    for partition, question in world.retention.questions.items():
        world.retention.answer(partition, question, parts[partition])
    world.retention.questions.clear()


def test_nothing_leaves_a_partition_while_groups_of_earlier_epochs_do_not_answer():
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    world.append(topic, 5)
    to_group = switched(world, topic)
    append_in(world, topic, to_group, 4)
    world.run_until(20 * SECOND)
    assert world.of(topic).log_start == 0 and world.retention.held == 1
    world.run(SECOND)
    answer_all(world, {topic: [EpochPart(5, 80, 0)]})
    world.run(SECOND)
    assert world.of(topic).log_start == 5
    world.run_until(10 * SECOND)
    assert world.of(topic).log_start == 8 and world.retention.held == 0


@pytest.mark.parametrize("leads_last", (True, False))
def test_a_batch_right_before_a_switch_gets_an_age(leads_last):
    world = World()
    topic = world.topic(retention_ms=3_600_000)
    home = world.append(topic).group
    world.run_until(3 * BUCKET_MS)
    assert world.kinds(home)[-1] == EntryKind.CLOCK
    world.append(topic)
    last = switched(world, topic)
    if not leads_last:
        world.led.discard(last)
    world.run_until(2 * BUCKET_MS)
    assert world.kinds(home)[-1] == EntryKind.CLOCK
    closed = len(world.log[home])
    world.run_until(20 * BUCKET_MS)
    assert len(world.log[home]) == closed


def test_an_answer_about_another_log_start_decides_nothing():
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    world.append(topic, 5)
    append_in(world, topic, switched(world, topic), 4)
    world.run_until(2 * SECOND)
    world.retention.answer(topic, Question(3, -1), [EpochPart(5, 80, 3)])
    world.run(SECOND)
    assert world.of(topic).log_start == 0


def append_in(world, topic, group, count):
    for _ in range(count):
        assert world.append(topic).group == group


def test_a_partition_that_is_being_switched_is_left_alone():
    world = World()
    topic = world.topic(retention_records=1)
    world.run()
    world.append(topic, 5)
    world.append(topic, 5)
    switched(world, topic, sealed=False)
    world.run(SECOND)
    assert world.of(topic).log_start == 0
