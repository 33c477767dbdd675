"""One line per cause and minute, with the number of occurrences, and a bounded table."""

import pytest

from node.loop import repeated_lines as module
from node.loop.repeated_lines import CAUSES_MAX, INTERVAL_MS, RepeatedLines


@pytest.fixture
def clock(monkeypatch) -> list[int]:
    now_ms = [5_000]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now_ms[0])
    return now_ms


def test_a_repeated_cause_is_one_line_a_minute_with_the_number(clock):
    lines = RepeatedLines()
    assert [lines.count("a") for _ in range(4)] == [1, 0, 0, 0]
    clock[0] += INTERVAL_MS - 1
    assert lines.count("a") == 0
    clock[0] += 1
    assert [lines.count("a"), lines.count("a")] == [5, 0]


def test_each_cause_has_its_own_line(clock):
    lines = RepeatedLines()
    assert [lines.count("a"), lines.count("b"), lines.count("a")] == [1, 1, 0]


def test_the_table_is_bounded_and_forgets_the_oldest_line(clock):
    lines = RepeatedLines()
    for number in range(CAUSES_MAX):
        assert lines.count(number) == 1
    clock[0] += INTERVAL_MS
    assert lines.count(0) == 1
    assert lines.count("new") == 1
    assert len(lines._causes) == CAUSES_MAX
    assert lines.count(0) == 0, "its line is the newest but one"
    assert lines.count(1) == 1, "forgotten"
