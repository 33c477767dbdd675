"""Checkers of reads: A7, A8, A15, A15b, A17, A25 (exposure), A32."""

from __future__ import annotations

import pytest

from tests.chaos.checkers.timeline import KEY, OTHER, Timeline


def line_of(count: int) -> Timeline:
    """Return a history with values 1.. at offsets 0.., acknowledged and read."""
    line = Timeline()
    for offset in range(count):
        line.appended([offset + 1], offset)
    if count:
        line.was_read(list(range(1, count + 1)))
    return line


def test_a_hole_over_a_known_record_is_a_skip_and_a_gap():
    line = Timeline()
    line.appended([1, 2, 3], 0)
    line.was_read(runs=[[0, [1]], [2, [3]]])
    assert line.ids() == {"A32", "A7", "A3"}


def test_a_hole_over_nothing_that_is_known_is_a_gap():
    line = Timeline()
    line.info(line.append([1]))
    line.info(line.append([2]))
    line.info(line.append([3]))
    line.was_read(runs=[[0, [1]], [2, [3]]])
    assert line.ids() == {"A32"}


def test_a_hole_over_what_was_read_takes_it_back():
    line = line_of(3)
    line.was_read(runs=[[0, [1]], [2, [3]]])
    assert line.ids() == {"A32", "A7", "A17"}


def test_a_result_that_begins_behind_the_asked_offset_leaves_a_gap():
    line = line_of(3)
    line.was_read([3], offset=1, at=2)
    assert line.ids() == {"A32", "A7", "A17"}


def test_runs_that_follow_each_other_are_fine():
    line = line_of(3)
    line.was_read(runs=[[0, [1]], [1, [2, 3]]])
    assert line.ids() == set()


@pytest.mark.parametrize("runs", [[[0, [1, 2]], [1, [2]]], [[1, [2]], [0, [1]]]])
def test_a_result_that_goes_back_is_not_monotonic(runs):
    line = line_of(3)
    line.was_read(runs=runs, end=3)
    assert "A8" in line.ids()


def test_a_result_that_begins_below_the_asked_offset_is_not_monotonic():
    line = line_of(3)
    line.was_read([2, 3], offset=2, at=1)
    assert line.ids() == {"A8"}


def test_a_poll_that_leaves_out_a_record_is_a_skip():
    line = line_of(3)
    line.assign({KEY: 0})
    line.poll({KEY: [[0, [1]], [2, [3]]]})
    assert line.ids() == {"A7", "A32", "A17"}


def test_a_log_start_that_nothing_moved_is_a_gap():
    line = line_of(3)
    line.was_read([3], offset=2, start=2)
    assert line.ids() == {"A32"}


def test_an_offset_above_all_that_was_sent_is_a_gap():
    line = line_of(2)
    line.append([3])
    line.was_read([3], offset=10)
    assert "A32" in line.ids()


def test_an_end_above_all_that_was_sent_is_a_gap():
    line = line_of(2)
    line.was_read([1, 2], end=3)
    assert line.ids() == {"A32"}


def test_an_absurd_offset_costs_no_memory():
    line = line_of(1)
    line.append([2])
    line.was_read([2], offset=1 << 60)
    line.ok(line.append([3]), offset=1 << 61)
    assert "A32" in line.ids()


# ---- certain ends --------------------------------------------------------------------------------


def test_a_certain_end_below_an_acknowledged_append_is_stale():
    line = Timeline()
    line.appended([1], 0)
    line.offsets(0)
    line.was_read([1])
    assert line.ids() == {"A15"}


def test_a_linearizable_read_below_an_acknowledged_append_is_stale():
    line = Timeline()
    line.appended([1], 0)
    line.was_read([], mode="linearizable", end=0)
    assert line.ids() == {"A15"}


def test_a_certain_end_below_what_a_reader_was_shown_is_stale():
    line = Timeline()
    line.info(line.append([1]))
    line.was_read([1])
    line.offsets(0)
    assert line.ids() == {"A15"}


def test_a_certain_end_that_overlaps_the_append_may_miss_it():
    line = Timeline()
    operation = line.append([1])
    asking = line.invoke("offsets", 3, key=KEY, mode="linearizable")
    line.ok(operation, offset=0)
    line.ok(asking, start=0, high_watermark=0)
    assert line.ids() == set()


def test_a_certain_end_knows_nothing_of_what_only_the_leader_acknowledged():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.offsets(0)
    assert line.ids() == set()


def test_an_uncertain_end_may_be_behind():
    line = line_of(2)
    line.offsets(0, mode="committed")
    line.was_read([], mode="committed", end=0, node=2)
    assert line.ids() == set()


def test_a_final_end_that_a_later_one_corrects_was_stale():
    line = line_of(2)
    line.offsets(0, final=True)
    line.finale([1, 2])
    assert line.ids() == {"A15"}


# ---- ends of one node ----------------------------------------------------------------------------


def test_the_end_of_one_node_never_goes_back():
    line = line_of(3)
    line.was_read([1], end=1, node=1)
    assert line.ids() == {"A15b"}


def test_the_ends_of_two_nodes_differ():
    line = line_of(3)
    line.was_read([1], end=1, node=2)
    line.was_read([1, 2], end=2, node=2)
    assert line.ids() == set()


def test_the_end_of_a_node_that_a_fault_touched_may_go_back():
    line = line_of(3)
    line.fault("kill", True, 1)
    line.fault("kill", False, 1)
    line.was_read([1], end=1, node=1)
    line.was_read([1, 2], end=2, node=1)
    assert line.ids() == set()


def test_a_fault_of_another_node_excuses_nothing():
    line = line_of(3)
    line.fault("kill", True, 2)
    line.fault("kill", False, 2)
    line.was_read([1], end=1, node=1)
    assert line.ids() == {"A15b"}


def test_the_second_of_two_faults_of_one_kind_still_touches_its_node():
    line = line_of(1)
    line.fault("kill", True, 1)
    line.fault("kill", True, 2)
    line.fault("kill", False, 2)
    line.appended([2], 1)
    line.was_read([1, 2], node=1)
    line.was_read([1], node=1, end=1)
    assert line.ids() == set()


def test_reads_that_overlap_may_end_in_any_order():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    early, late = line.read(0), line.read(0)
    line.answer(late, [1, 2])
    line.answer(early, [1])
    assert line.ids() == set()


# ---- what is taken back --------------------------------------------------------------------------


def test_an_offset_that_was_read_is_never_out_of_range():
    line = line_of(3)
    line.fail(line.read(1), "OffsetOutOfRange")
    assert line.ids() == {"A17"}


def test_an_acknowledged_offset_is_never_out_of_range():
    line = Timeline()
    line.appended([1, 2], 0)
    line.fail(line.read(1), "OffsetOutOfRange")
    line.was_read([1, 2])
    assert line.ids() == {"A17"}


def test_the_end_and_beyond_may_be_out_of_range():
    line = line_of(3)
    line.fail(line.read(3), "OffsetOutOfRange")
    line.fail(line.read(7), "OffsetOutOfRange")
    assert line.ids() == set()


def test_an_offset_that_appeared_meanwhile_may_be_out_of_range():
    line = line_of(1)
    reading = line.read(1)
    line.appended([2], 1)
    line.fail(reading, "OffsetOutOfRange")
    line.was_read([1, 2])
    assert line.ids() == set()


@pytest.mark.parametrize("error", ["OffsetNotAvailable", "NotLeader", "Quarantined"])
def test_a_refused_read_says_nothing(error):
    line = line_of(3)
    line.fail(line.read(1), error)
    line.info(line.read(1))
    assert line.ids() == set()


def test_a_deleted_topic_is_out_of_range():
    line = line_of(3)
    line.invoke("delete_topic", topic="t", incarnation=7)
    line.fail(line.read(1), "OffsetOutOfRange")
    assert line.ids() == set()


def test_a_record_that_was_read_and_is_gone_at_the_end_was_taken_back():
    line = Timeline()
    line.appended([1], 0)
    line.info(line.append([2]))
    line.was_read([1, 2])
    line.finale([1])
    assert line.ids() == {"A17"}


def test_a_record_with_leader_that_was_read_must_stay():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.was_read([1])
    line.finale([], end=0)
    assert line.ids() == {"A17"}


def test_a_record_with_leader_that_nobody_read_may_go():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.finale([], end=0)
    assert line.ids() == set()


def test_a_record_with_none_that_was_read_must_stay():
    line = Timeline()
    line.ok(line.append([1], acks="none"), offset=-1)
    line.was_read([1])
    line.finale([], end=0)
    assert line.ids() == {"A17"}


def test_an_end_that_was_shown_must_stay():
    """No reader has read the record, but one was shown an end above it."""
    line = Timeline()
    line.info(line.append([1]))
    line.was_read([], end=1)
    line.finale([], end=0)
    assert line.ids() == {"A17"}


def test_final_reads_of_a_replica_that_is_behind_prove_nothing():
    line = line_of(2)
    line.was_read([1], final=True, end=1, node=2)
    line.finale([1, 2])
    assert line.ids() == set()


def test_records_above_the_high_watermark_are_exposed_early():
    line = line_of(2)
    line.was_read([1, 2], end=1, node=3)
    assert line.ids() == {"A25"}


def test_keys_do_not_mix():
    line = line_of(2)
    line.appended([5], 0, key=OTHER)
    line.was_read([5], key=OTHER, end=1)
    line.offsets(1, key=OTHER)
    assert line.ids() == set()
