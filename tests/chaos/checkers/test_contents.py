"""Checkers of contents: A1, A2, A4, A11, A13, A14b, A17 (changed), A27 (earlier incarnation), A29,
A30, A31.
"""

from __future__ import annotations

from chaos.history import CORRUPT, FOREIGN
from tests.chaos.checkers.timeline import KEY, LATER, OTHER, Timeline


def line_with(*appended: tuple[list[int], int]) -> Timeline:
    line = Timeline()
    for values, offset in appended:
        line.appended(values, offset)
    return line


def test_two_values_read_at_one_offset_are_inconsistent_and_taken_back():
    line = line_with(([1], 0))
    line.info(line.append([2]))
    line.was_read([1])
    line.was_read([2])
    assert line.ids() == {"A1", "A17", "A14"}


def test_another_value_than_the_acknowledged_one_is_inconsistent_and_lost():
    line = line_with(([1], 0))
    line.info(line.append([2]))
    line.was_read([2])
    assert line.ids() == {"A1", "A3", "A14"}


def test_an_acknowledgement_at_an_offset_that_was_read_otherwise_is_inconsistent():
    line = Timeline()
    line.info(line.append([2]))
    late = line.append([1])
    line.was_read([2])
    line.ok(late, offset=0)
    assert line.ids() == {"A1", "A3"}


def test_one_offset_acknowledged_twice_is_reassigned():
    line = Timeline()
    first, second = line.append([1]), line.append([2])
    line.ok(first, offset=0)
    line.ok(second, offset=0)
    assert {"A14b", "A1"} <= line.ids()


def test_overlapping_batches_are_reassigned():
    line = Timeline()
    first, second = line.append([1, 2, 3]), line.append([4, 5])
    line.ok(first, offset=0)
    line.ok(second, offset=2)
    assert {"A14b", "A1"} <= line.ids()


def test_an_offset_that_only_leader_claimed_may_be_taken_by_another():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.appended([2], 0)
    line.was_read([2])
    assert line.ids() == set()


def test_two_leaders_may_claim_one_offset():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.ok(line.append([2], acks="leader"), offset=0)
    line.was_read([2])
    assert line.ids() == set()


def test_a_value_at_two_offsets_is_a_duplicate():
    line = line_with(([1], 0))
    line.was_read([1])
    line.info(line.append([2]))
    line.was_read([1, 1])
    assert line.ids() == {"A2"}


def test_a_value_read_elsewhere_than_acknowledged_is_a_duplicate():
    line = line_with(([1], 0))
    line.appended([2], 1)
    line.was_read([1], offset=1)
    assert "A2" in line.ids()


def test_an_append_with_leader_may_be_read_elsewhere_once():
    """An earlier attempt is committed after the leader that acknowledged the later one has gone."""
    line = Timeline()
    line.info(line.append([9]))
    line.ok(line.append([1], acks="leader", producer=3, epoch=0, sequence=0), offset=0)
    line.was_read([9, 1])
    assert line.ids() == set()


def test_a_batch_whose_records_are_apart_is_torn():
    line = Timeline()
    line.info(line.append([1, 2]))
    line.info(line.append([3]))
    line.was_read([1, 3, 2])
    assert line.ids() == {"A13"}


def test_a_batch_whose_records_are_reversed_is_out_of_order():
    line = Timeline()
    line.info(line.append([1, 2]))
    line.was_read([2, 1])
    assert line.ids() == {"A11", "A13"}


def test_half_a_batch_with_another_record_behind_it_is_torn():
    line = Timeline()
    line.info(line.append([1, 2, 3]))
    line.info(line.append([4]))
    line.was_read([1, 2, 4])
    assert line.ids() == {"A13"}


def test_half_a_batch_at_the_certain_end_is_torn():
    line = Timeline()
    line.info(line.append([1, 2]))
    line.finale([1])
    assert line.ids() == {"A13"}


def test_the_end_of_a_batch_at_the_start_of_the_log_is_torn():
    line = Timeline()
    line.info(line.append([1, 2]))
    line.was_read([2])
    assert line.ids() == {"A13"}


def test_half_a_batch_in_a_result_that_ends_there_is_fine():
    line = Timeline()
    line.info(line.append([1, 2]))
    line.was_read([1], end=2)
    assert line.ids() == set()


def test_a_batch_entered_in_its_middle_is_fine():
    line = line_with(([1, 2, 3], 0))
    line.was_read([3], offset=2)
    line.was_read([2, 3], offset=1)
    assert line.ids() == set()


def test_a_failed_append_that_is_read_is_aborted():
    line = Timeline()
    line.fail(line.append([1]))
    line.was_read([1])
    assert line.ids() == {"A4"}


def test_a_failed_append_that_had_been_read_is_aborted():
    line = Timeline()
    operation = line.append([1])
    line.was_read([1])
    line.fail(operation)
    assert line.ids() == {"A4"}


def test_an_unknown_append_may_be_read_and_may_appear_late():
    line = Timeline()
    line.info(line.append([1]))
    line.appended([2], 0)
    line.was_read([2])
    line.appended([3], 2)
    line.was_read([2, 1, 3])
    assert line.ids() == set()


def test_an_append_without_a_completion_may_be_read():
    line = Timeline()
    line.append([1])
    line.was_read([1])
    assert line.ids() == set()


def test_a_read_that_overlaps_its_append_is_fine():
    line = Timeline()
    reading = line.read(0)
    operation = line.append([1])
    line.answer(reading, [1])
    line.ok(operation, offset=0)
    assert line.ids() == set()


def test_a_value_of_nobody_is_unknown():
    line = line_with(([1], 0))
    line.info(line.append([2]))
    line.was_read([1, 77])
    assert line.ids() == {"A31"}


def test_a_value_read_before_it_was_sent_is_unknown():
    line = Timeline()
    line.info(line.append([9]))
    line.was_read([1])
    line.append([1])
    assert line.ids() == {"A31"}


def test_a_damaged_record_is_corrupt():
    line = line_with(([1, 2], 0))
    line.was_read([1, CORRUPT])
    assert line.ids() == {"A30"}


def test_a_record_made_for_another_key_is_a_leak():
    line = line_with(([1, 2], 0))
    line.was_read([1, FOREIGN])
    assert line.ids() == {"A29"}


def test_a_value_appended_to_another_partition_is_a_leak():
    line = line_with(([1], 0))
    line.append([2], key=OTHER)
    line.was_read([1], key=OTHER)
    assert line.ids() == {"A29"}


def test_a_value_of_an_earlier_life_is_a_leak_and_an_old_life():
    line = line_with(([1], 0))
    line.append([2], key=LATER)
    line.was_read([1], key=LATER)
    assert line.ids() == {"A29", "A27"}


def test_a_recreated_topic_begins_at_offset_0_again():
    line = line_with(([1, 2], 0))
    line.ok(line.invoke("delete_topic", topic="t", incarnation=7))
    line.ok(line.invoke("create_topic", topic="t", partitions=1), incarnation=9)
    line.appended([3], 0, key=LATER)
    line.finale([3], key=LATER)
    line.finale([], end=0)
    assert line.ids() == set()


def test_an_anomaly_names_its_key_and_its_operations():
    line = Timeline()
    operation = line.append([1])
    line.fail(operation)
    reading = line.was_read([1])
    (anomaly,) = line.check().anomalies
    assert (anomaly.key, set(anomaly.operations)) == (KEY, {operation, reading})
    assert anomaly.time_us == line.now_us
