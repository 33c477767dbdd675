"""Partitions that are due at a time: against a model, and their cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.retention.retention_schedule import RetentionSchedule

STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 5), st.integers(0, 100)),
    st.tuples(st.just("forget"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("take"), st.just(0), st.integers(0, 100)))


@given(st.lists(STEP, max_size=40), st.integers(1, 12))
def test_a_partition_comes_once_at_its_time_or_one_bucket_later(steps, bucket_ms):
    schedule, model = RetentionSchedule(bucket_ms), {}
    for name, partition, at_ms in steps:
        if name == "put":
            schedule.put(partition, at_ms)
            model[partition] = at_ms
        elif name == "forget":
            schedule.forget(partition)
            model.pop(partition, None)
        else:
            taken = list(schedule.take(at_ms))
            assert len(taken) == len(set(taken))
            assert {p for p, due in model.items() if due <= at_ms - bucket_ms} <= set(taken)
            assert set(taken) <= {p for p, due in model.items() if due <= at_ms}
            for each in taken:
                del model[each]
        schedule._check()
        assert len(schedule) == len(model) and all(p in schedule for p in model)


def test_a_partition_that_is_put_while_others_are_taken_waits_for_its_time():
    schedule = RetentionSchedule(10)
    for partition in range(1, 4):
        schedule.put(partition, 5)
    taken = []
    for partition in schedule.take(20):
        taken.append(partition)
        schedule.put(partition, 21)
    assert taken == [1, 2, 3]
    assert list(schedule.take(29)) == [] and list(schedule.take(30)) == [1, 2, 3]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 12))
def test_the_earlier_of_two_times_counts_where_that_is_asked_for(first, second, bucket_ms):
    schedule, wanted = RetentionSchedule(bucket_ms), RetentionSchedule(bucket_ms)
    schedule.put_no_later(1, first)
    schedule.put_no_later(1, second)
    wanted.put(1, min(first, second))
    for now_ms in range(120):
        assert list(schedule.take(now_ms)) == list(wanted.take(now_ms))
