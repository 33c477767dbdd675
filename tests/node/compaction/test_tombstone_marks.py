"""Marks of COMPACT entries: bounded, and never older than what they mark."""

from __future__ import annotations

import random

import pytest

from node.compaction.tombstone_marks import MARKS_MAX, SHARES, Mark, TombstoneMarks

DAY = 86_400_000


def test_a_compaction_is_old_once_a_clock_behind_it_is():
    marks = TombstoneMarks()
    assert marks.newest is None and marks.old_up_to == 0
    marks.add(Mark(50, 10, 0), DAY)
    marks.judge(9)
    assert marks.old_up_to == 0 and marks.newest == Mark(50, 10, 0)
    marks.judge(10)
    assert marks.old_up_to == 50 and marks.newest is None


def test_the_latest_old_one_counts():
    marks = TombstoneMarks()
    for at in range(4):
        marks.add(Mark(10 * at + 10, at + 1, at * DAY), DAY)
    marks.judge(3)
    assert marks.old_up_to == 30 and marks.newest == Mark(40, 4, 3 * DAY)


def test_settings_of_now_decide():
    marks = TombstoneMarks()
    for at in range(4):
        marks.add(Mark(10 * at + 10, at + 1, at * DAY), DAY)
    marks.judge(2)
    assert marks.old_up_to == 20
    marks.judge(1)
    assert marks.old_up_to == 0, "tombstones have to be older now"
    marks.judge(4)
    assert marks.old_up_to == 40 and marks.newest is None


def test_a_mark_soon_after_another_takes_its_place_but_not_that_of_the_oldest():
    marks = TombstoneMarks()
    for at in range(3):
        marks.add(Mark(at + 1, at + 1, at), DAY)
    marks.judge(1)
    assert marks.old_up_to == 1 and marks.newest == Mark(3, 3, 2)
    marks.judge(2)
    assert marks.old_up_to == 1, "the second one was replaced by the third"
    marks.judge(3)
    assert marks.old_up_to == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_compaction_is_old_in_time_and_never_before(seed):
    """One COMPACT after the other, each carried out at an index that a CLOCK follows at once."""
    rng = random.Random(seed)
    marks, seen, now_ms, most = TombstoneMarks(), [], 0, 0
    for index in range(1, 400):
        now_ms += rng.choice((1, DAY // 500, DAY // SHARES, DAY // 3))
        marks.add(Mark(index * 10, index, now_ms), DAY)
        seen.append((now_ms, index * 10))
        old = [up_to for at_ms, up_to in seen if at_ms <= now_ms - DAY]
        marks.judge(len(old))
        most = max(most, len(marks._marks))
        assert marks.old_up_to <= max(old, default=0)
        late = [up_to for at_ms, up_to in seen if at_ms <= now_ms - DAY - DAY // SHARES]
        assert marks.old_up_to >= max(late, default=0), "it took much longer than a day"
    assert SHARES < most <= MARKS_MAX


def test_marks_are_bounded_while_no_time_passes():
    marks = TombstoneMarks()
    for index in range(1, 100):
        marks.add(Mark(index, index, index * DAY), DAY)
    assert len(marks._marks) == MARKS_MAX
    marks.judge(99)
    assert marks.old_up_to == 99
