"""Partitions over groups: golden vectors, the cap, rare exceptions."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import LimitExceeded, assign, default_group, group_cap
from placement.describe import describe_counts

TESTDATA = Path(__file__).parent / "testdata"


def fill(pool_size, partitions, seed, counts=None):
    """Create one partition after the other; (counts, exceptions)."""
    counts = [0] * (pool_size + 1) if counts is None else counts
    total, exceptions = sum(counts), 0
    for incarnation in range(1, partitions + 1):
        made = assign((incarnation,), counts, total, seed)
        counts[made.groups[0]] += 1
        total += 1
        exceptions += len(made.exceptions)
    return counts, exceptions


def test_golden():
    lines = (TESTDATA / "assign.txt").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            pool_size, seed, first, *expected = map(int, line.split())
            made = assign(range(first, first + len(expected)), [0] * (pool_size + 1), 0, seed)
            assert list(made.groups) == expected


def test_the_metadata_group_holds_no_partition():
    counts, _ = fill(3, 500, seed=1)
    assert counts[0] == 0


def test_a_single_group_takes_everything_without_exceptions():
    assert fill(1, 100, seed=1) == ([0, 100], 0)


@pytest.mark.parametrize("pool_size, partitions", [(3, 200), (8, 2000), (64, 6400), (512, 5120)])
def test_no_group_passes_the_cap_and_exceptions_are_rare(pool_size, partitions):
    counts, exceptions = fill(pool_size, partitions, seed=7)
    mean = partitions / pool_size
    assert max(counts) <= group_cap(partitions, pool_size)
    assert max(counts) <= 1 + max(1.05 * (mean + 1), mean + 4 * sqrt(mean + 1) + 4)
    assert min(counts[1:]) >= mean - 5 * sqrt(mean)
    assert exceptions <= partitions // 200


def test_a_full_group_is_avoided_and_the_exception_reported():
    full = default_group(11, 4, seed=5)
    counts = [0, 0, 0, 0, 0]
    counts[full] = 1000
    made = assign((11,), counts, 1000, seed=5)
    assert made.groups[0] != full
    assert made.exceptions == ((11, made.groups[0]),)


def test_partitions_of_one_call_see_each_other_as_separate_calls_do():
    counts = [0, 40, 0, 0, 0, 0]
    together = assign(range(100, 200), counts, 40, seed=9)
    total, groups, exceptions = 40, [], []
    for incarnation in range(100, 200):
        made = assign((incarnation,), counts, total, seed=9)
        counts[made.groups[0]] += 1
        total += 1
        groups += made.groups
        exceptions += made.exceptions
    assert together == (tuple(groups), tuple(exceptions))
    assert exceptions


def test_the_cap_is_the_greater_of_both_rules():
    assert group_cap(0, 8) == 4
    assert group_cap(800, 8) == 100 + 40 + 4
    assert group_cap(8_000_000, 8) == 1_050_000


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 2**64 - 1),
       st.integers(1, 2**64 - 1))
def test_the_chosen_group_is_always_below_the_cap(fills, seed, incarnation):
    counts = [0, *fills]
    group, = assign((incarnation,), counts, sum(fills), seed).groups
    assert 1 <= group <= len(fills)
    assert counts[group] < group_cap(sum(fills) + 1, len(fills))


def test_a_pool_outside_the_limit_is_refused():
    for counts in ([0], [0] * ((1 << 15) + 2)):
        with pytest.raises(LimitExceeded, match="pool_size"):
            assign((1,), counts, 0, 0)


def test_counts_as_text():
    assert describe_counts([0, 3, 5]) == ("8 partitions in 2 groups: least 3, mean 4.0, most 5, "
                                          "cap 16")
