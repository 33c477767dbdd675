"""The list of a group's clocks: what it says of the age of entries, and what thinning costs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.partitions.clock_list import (
    CLOCKS_MAX,
    checked,
    index_before,
    last_clock,
    time_after,
    with_clock,
)

#: (distance of the index, distance of the time) of successive CLOCK entries; times may go back.
STEPS = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(-1_000, 1 << 40)), max_size=60)


def entries_of(steps):
    """Return (index, time) of CLOCK entries; no time is below the one before, as replicas check."""
    index, clock_ms, entries = 0, 1, []
    for distance, later in steps:
        index, clock_ms = index + distance, max(clock_ms, clock_ms + later)
        entries.append((index, clock_ms))
    return entries


def list_of(entries):
    clocks = b""
    for index, clock_ms in entries:
        clocks = with_clock(clocks, index, clock_ms)
    return clocks


@given(STEPS, st.data())
def test_an_entry_was_appended_by_the_first_later_clock_that_exceeds_those_before(steps, data):
    entries = entries_of(steps)
    rising = [(index, clock_ms) for (index, clock_ms), before
              in zip(entries, [(0, 0), *entries], strict=False) if clock_ms > before[1]]
    clocks = checked(list_of(entries))
    index = data.draw(st.integers(0, entries[-1][0] + 2 if entries else 5))
    expected = next((clock_ms for at, clock_ms in rising if at > index), None)
    assert time_after(clocks, index) == expected
    limit_ms = data.draw(st.integers(0, entries[-1][1] + 2 if entries else 5))
    assert index_before(clocks, limit_ms) == max(
        (at - 1 for at, clock_ms in rising if clock_ms <= limit_ms), default=0)
    assert last_clock(clocks) == (rising[-1] if rising else (0, 0))


@given(st.integers(1, 5 * CLOCKS_MAX), st.integers(1, 9), st.integers(1, 60_000), st.data())
def test_thinning_makes_entries_younger_and_keeps_the_newest(count, distance, interval_ms, data):
    entries = [(1 + distance * at, 1_000 + interval_ms * at) for at in range(count)]
    clocks = list_of(entries)
    assert len(checked(clocks)) <= CLOCKS_MAX * 16
    assert last_clock(clocks) == entries[-1]
    index = data.draw(st.integers(0, entries[-1][0] - 1))
    true_ms = next(clock_ms for at, clock_ms in entries if at > index)
    found_ms = time_after(clocks, index)
    assert found_ms >= true_ms
    assert index_before(clocks, true_ms) <= entries[(true_ms - 1_000) // interval_ms][0] - 1


@given(st.binary(min_size=3 * CLOCKS_MAX, max_size=3 * CLOCKS_MAX))
def test_a_full_list_takes_any_further_clock(powers):
    clocks, clock_ms = b"", 0
    for index, power in enumerate(powers, 1):
        clock_ms = min(clock_ms + (1 << power % 63), (1 << 63) - 1)
        clocks = with_clock(clocks, index, clock_ms)
    assert len(checked(clocks)) <= CLOCKS_MAX * 16 and last_clock(clocks)[1] == clock_ms


def test_the_error_in_an_age_stays_small_beside_it():
    interval_ms, clocks = 10_000, b""
    now_ms = 0
    for at in range(1, 50_000):  # six days
        now_ms = at * interval_ms
        clocks = with_clock(clocks, at, now_ms)
    for at in range(1, 50_000, 97):
        age_ms = now_ms - at * interval_ms
        error_ms = time_after(clocks, at - 1) - at * interval_ms
        assert error_ms <= max(interval_ms, age_ms / 20), f"{error_ms} at an age of {age_ms}"


def test_replicas_that_took_a_suffix_back_have_the_same_list():
    entries = [(at, 10 * at) for at in range(1, 3 * CLOCKS_MAX)]
    lists = list(itertools.accumulate(entries, lambda clocks, entry: with_clock(clocks, *entry),
                                      initial=b""))
    again = lists[CLOCKS_MAX]
    for entry in entries[CLOCKS_MAX:]:
        again = with_clock(again, *entry)
    assert again == lists[-1]


@pytest.mark.parametrize("clocks", [
    b"\0" * 15, list_of([(1, 1)]) * 2, list_of([(2, 5)]) + list_of([(3, 5)]),
    list_of([(1, 1 << 62)])[:8] + b"\xff" * 8,
    b"".join(list_of([(at, at)]) for at in range(1, CLOCKS_MAX + 2))])
def test_other_bytes_are_no_list(clocks):
    with pytest.raises(ValueError):
        checked(clocks)
