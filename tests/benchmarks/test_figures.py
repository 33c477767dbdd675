"""Figures are judged on medians, and printed as one line of JSON each."""

from __future__ import annotations

import json

from benchmarks.figures import Series, bound, compare


def series(*values: float) -> Series:
    return Series("it", "MB/s", values)


def test_the_median_decides_and_not_the_best_run():
    figure = compare("speed", series(10, 20, 90), series(100, 100, 100), 0.15, at_least=True)
    assert figure.compared == 0.2
    assert figure.holds
    assert not compare("speed", series(10, 10, 90), series(100), 0.15, at_least=True).holds


def test_an_upper_bound_is_not_a_lower_one():
    assert compare("latency", series(5), series(1), 6, at_least=False).holds
    assert not compare("latency", series(7), series(1), 6, at_least=False).holds


def test_nothing_against_nothing_is_equal_and_something_against_nothing_is_not():
    assert compare("frames", series(0), series(0), 1.2, at_least=False).holds
    assert not compare("frames", series(3), series(0), 1.2, at_least=False).holds


def test_the_line_for_programs_has_every_repetition():
    line = json.loads(compare("speed", series(1, 2, 3), series(10), 0.1, at_least=True).as_json())
    assert line["values"] == [1, 2, 3]
    assert line["holds"] is True
    assert line["target"] == ">= 0.1"


def test_a_bound_is_judged_in_its_own_unit_by_the_median_or_by_the_worst():
    times = Series("it", "s", (1.0, 1.1, 1.4))
    assert bound("time", times, 1.2, at_least=False).holds
    assert not bound("time", times, 1.2, at_least=False, worst=True).holds
    assert not bound("rate", times, 1.05, at_least=True, worst=True).holds
    line = json.loads(bound("time", times, 1.2, at_least=False, worst=True).as_json())
    assert line["judged"] == 1.4 and "yardstick" not in line
