"""Split of ranges into tasks: nothing is lost or doubled, and sizes are the requested ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from multiraft.client.ranges import Range  # noqa: E402
from pyspark_multiraft import splits  # noqa: E402

ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=30).map(
    lambda found: [Range("t", number, number + 1, start, start + count)
                   for number, (start, count) in enumerate(found)])


@given(ranges, st.integers(1, 5000), st.integers(0, 40))
def test_every_offset_is_in_exactly_one_task(parts, split_bytes, tasks_min):
    tasks = splits.split(parts, lambda part: 10.0 * part.count, split_bytes, tasks_min)
    pieces = [piece for task in tasks for piece in task]
    assert all(piece.count > 0 for piece in pieces) and all(tasks)
    covered = [(piece.partition, offset) for piece in pieces
               for offset in range(piece.start_offset, piece.end_offset)]
    wanted = [(part.partition, offset) for part in parts
              for offset in range(part.start_offset, part.end_offset)]
    assert sorted(covered) == wanted, "all of them, none twice"
    assert covered == wanted, "in their order"
    assert len(tasks) >= min(tasks_min, len(wanted))


@given(ranges, st.integers(1, 5000))
def test_a_task_has_what_was_asked_for_or_a_single_record(parts, split_bytes):
    for task in splits.split(parts, lambda part: 10.0 * part.count, split_bytes):
        records = sum(piece.count for piece in task)
        assert 10 * records <= max(split_bytes, 10) + 10 * len(task), "pieces are whole records"


def test_many_small_partitions_travel_together():
    parts = [Range(f"t{number}", 0, number + 1, 0, 10) for number in range(1000)]
    tasks = splits.split(parts, lambda part: 100.0, 10_000)
    assert [len(task) for task in tasks] == [100] * 10
