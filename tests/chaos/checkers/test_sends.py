"""The order of appends and of polls: A9, A10, A12, A14, A23, and the notes on consumers."""

from __future__ import annotations

import pytest

from tests.chaos.checkers.timeline import KEY, OTHER, Timeline


def producer(number: int, sequence: int, epoch: int = 0) -> dict:
    return {"producer": number, "epoch": epoch, "sequence": sequence}


# ---- real time -----------------------------------------------------------------------------------


def test_a_later_append_at_a_lower_offset_breaks_real_time():
    line = Timeline()
    line.append([8])
    line.appended([1], 1)
    line.appended([2], 0)
    assert line.ids() == {"A14"}


def test_an_overlapping_append_may_be_at_a_lower_offset():
    line = Timeline()
    slow = line.append([1])
    line.appended([2], 1)
    line.ok(slow, offset=0)
    assert line.ids() == set()


def test_an_unknown_append_is_judged_where_a_read_finds_it():
    line = Timeline()
    line.info(line.append([9]))
    line.appended([1], 1)
    line.info(line.append([2]))
    line.was_read([2, 1])
    assert line.ids() == {"A14"}


def test_an_unknown_append_that_was_sent_early_may_appear_low():
    line = Timeline()
    line.info(line.append([2]))
    line.appended([1], 1)
    line.was_read([2, 1])
    assert line.ids() == set()


def test_an_append_below_what_had_been_read_breaks_real_time():
    line = Timeline()
    line.info(line.append([1]))
    line.info(line.append([2]))
    line.was_read([1, 2])
    third = line.append([3])
    line.info(third)
    line.was_read([3], offset=0)
    assert "A14" in line.ids()


def test_what_only_the_leader_acknowledged_sets_no_floor():
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=5)
    for value in range(2, 8):
        line.append([value])
    line.appended([8], 0)
    line.was_read([8])
    assert line.ids() == set()


def test_an_append_with_leader_is_judged_where_a_read_finds_it():
    line = Timeline()
    line.append([9])
    line.appended([1], 1)
    line.ok(line.append([2], acks="leader"), offset=2)
    line.was_read([2, 1])
    assert line.ids() == {"A14"}


def test_other_keys_set_no_floor():
    line = Timeline()
    line.append([8])
    line.appended([1], 1)
    line.appended([2], 0, key=OTHER)
    assert line.ids() == set()


# ---- one producer's order -----------------------------------------------------------------------


def test_pipelined_appends_keep_their_order():
    line = Timeline()
    first = line.append([1], producer=4)
    second = line.append([2], producer=4)
    line.ok(second, offset=0)
    line.ok(first, offset=1)
    assert line.ids() == {"A12"}


def test_pipelined_appends_in_their_order_are_fine():
    line = Timeline()
    first = line.append([1], producer=4)
    second = line.append([2], producer=4)
    line.ok(second, offset=1)
    line.ok(first, offset=0)
    assert line.ids() == set()


def test_an_unknown_append_of_a_pipeline_counts_where_it_is_read():
    line = Timeline()
    line.info(line.append([1], producer=4))
    line.info(line.append([2], producer=4))
    line.was_read([2, 1])
    assert line.ids() == {"A12"}


def test_two_producers_and_plain_ones_have_no_order():
    line = Timeline()
    for value, number in ((1, 4), (2, 5), (3, -1), (4, -1)):
        line.info(line.append([value], producer=number))
    line.was_read([4, 3, 2, 1])
    assert line.ids() == set()


def test_a_number_without_sequences_is_not_the_producer_id_of_the_same_number():
    line = Timeline()
    line.info(line.append([1], producer=4))
    line.info(line.append([2], **producer(4, 0)))
    line.was_read([2, 1])
    assert line.ids() == set()


# ---- idempotence --------------------------------------------------------------------------------


def test_sequences_in_order_are_fine():
    line = Timeline()
    line.appended([1, 2], 0, **producer(3, 0))
    line.info(line.append([3], **producer(3, 2)))
    line.appended([4], 3, **producer(3, 3))
    line.appended([5], 4, **producer(3, 0, epoch=1))
    line.was_read([1, 2, 3, 4, 5])
    assert line.ids() == set()


def test_a_sequence_that_was_left_out_is_out_of_order():
    line = Timeline()
    line.appended([1], 0, **producer(3, 0))
    line.fail(line.append([2], **producer(3, 1)), "OutOfOrderSequence")
    line.appended([3], 1, **producer(3, 2))
    assert line.ids() == {"A23"}


def test_a_producer_begins_at_sequence_0():
    line = Timeline()
    line.append([1], **producer(3, 0))
    line.appended([2], 0, **producer(3, 1))
    assert line.ids() == {"A23"}


def test_a_log_of_which_something_is_unknown_excuses_a_missing_sequence():
    line = Timeline()
    line.info(line.append([1], **producer(3, 0)))
    line.appended([2], 1, **producer(3, 1))
    assert line.ids() == set()


def test_a_fenced_epoch_does_not_come_back():
    line = Timeline()
    old = line.append([1], **producer(3, 0))
    line.appended([2], 0, **producer(3, 0, epoch=1))
    line.ok(old, offset=1)
    assert line.ids() == {"A23", "A12"}


def test_one_sequence_twice_is_no_idempotence():
    line = Timeline()
    line.appended([1], 0, **producer(3, 0))
    line.appended([2], 1, **producer(3, 0))
    assert line.ids() == {"A23"}


def test_a_batch_sent_again_is_where_it_was():
    line = Timeline()
    line.appended([1, 2], 0, **producer(3, 0))
    line.appended([1, 2], 0, **producer(3, 0))
    line.was_read([1, 2])
    assert line.ids() == set()


def test_a_batch_sent_again_and_acknowledged_elsewhere_was_doubled():
    line = Timeline()
    line.appended([1, 2], 0, **producer(3, 0))
    line.append([3, 4])
    line.appended([1, 2], 2, **producer(3, 0))
    assert line.ids() == {"A23"}


def test_a_batch_refused_first_and_sent_again_is_not_aborted():
    line = Timeline()
    line.fail(line.append([1], **producer(3, 0)))
    line.appended([1], 0, **producer(3, 0))
    line.was_read([1])
    assert line.ids() == set()


def test_the_retries_inside_one_append_leave_one_batch():
    line = Timeline()
    line.appended([1], 0, **producer(3, 0))
    line.was_read([1, 1], end=2)
    assert {"A2", "A32"} <= line.ids()


# ---- consumers ----------------------------------------------------------------------------------


def consumed() -> Timeline:
    line = Timeline()
    for offset in range(4):
        line.appended([offset + 1], offset)
    line.assign({KEY: 0})
    return line


def test_polls_go_on_where_the_last_one_ended():
    line = consumed()
    line.poll({KEY: [[0, [1, 2]]]})
    line.poll({})
    line.poll({KEY: [[2, [3]]]})
    assert line.ids() == set()


def test_a_poll_that_begins_higher_skips():
    line = consumed()
    line.poll({KEY: [[0, [1]]]})
    line.poll({KEY: [[2, [3]]]})
    assert line.ids() == {"A9"}


def test_a_first_poll_that_begins_above_its_assignment_skips():
    line = consumed()
    line.poll({KEY: [[1, [2]]]})
    assert line.ids() == {"A9"}


def test_a_poll_that_begins_lower_goes_back():
    line = consumed()
    line.poll({KEY: [[0, [1, 2]]]})
    line.poll({KEY: [[1, [2, 3]]]})
    assert line.ids() == {"A10"}


def test_an_assignment_may_go_anywhere():
    line = consumed()
    line.poll({KEY: [[0, [1, 2]]]})
    line.assign({KEY: 1})
    line.poll({KEY: [[1, [2, 3]]]})
    line.assign({KEY: 3})
    line.poll({KEY: [[3, [4]]]})
    assert line.ids() == set()


@pytest.mark.parametrize("end", ["fail", "info"])
def test_a_poll_that_did_not_end_well_moves_nothing(end):
    line = consumed()
    getattr(line, end)(line.invoke("poll", 5, keys=[KEY]))
    line.poll({KEY: [[0, [1]]]})
    assert line.ids() == set()


def test_another_consumer_has_its_own_position():
    line = consumed()
    line.poll({KEY: [[0, [1, 2]]]})
    line.assign({KEY: 0}, process=6)
    line.poll({KEY: [[0, [1]]]}, process=6)
    assert line.ids() == set()


def test_how_often_and_how_late_records_are_polled_is_noted():
    line = consumed()
    line.sleep(2)
    line.poll({KEY: [[0, [1, 2]]]})
    line.assign({KEY: 0})
    line.poll({KEY: [[0, [1]]]})
    counts, lag = line.check().notes[:2]
    assert counts == "consume-counts: 1 polled 1 times, 1 polled 2 times"
    assert lag.startswith("realtime-lag: at most 2.0")
