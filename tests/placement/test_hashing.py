"""Jump hash and mixing: the published vectors, ours, and what the paper promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.codec import reference
from placement import LimitExceeded, default_group, jump_hash, mix64, partition_key

TESTDATA = Path(__file__).parent / "testdata"


def vectors(name):
    """Lines of integers; text after # is a comment."""
    lines = (line.split("#")[0].split() for line in (TESTDATA / name).read_text().splitlines())
    return [tuple(int(word) for word in line) for line in lines if line]


@pytest.mark.parametrize("key, buckets, bucket", vectors("jump_hash.txt"))
def test_jump_hash_golden(key, buckets, bucket):
    assert jump_hash(key, buckets) == bucket


@pytest.mark.parametrize("incarnation, seed, attempt, key", vectors("partition_key.txt"))
def test_partition_key_golden(incarnation, seed, attempt, key):
    assert partition_key(incarnation, seed, attempt) == key


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 2**31 - 1))
def test_the_twin_of_the_hot_path_agrees(key, buckets):
    assert reference.jump_hash(key, buckets) == jump_hash(key, buckets)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 2**64 - 40), st.integers(0, 40), st.integers(1, 1 << 15),
       st.integers(0, 2**64 - 1))
def test_the_twin_for_many_partitions_agrees(first, count, pool_size, seed):
    assert reference.default_groups(first, count, pool_size, seed) == [
        default_group(incarnation, pool_size, seed)
        for incarnation in range(first, first + count)]


def test_a_new_bucket_takes_its_share_and_nothing_moves_elsewhere():
    keys = [partition_key(incarnation, 1) for incarnation in range(20_000)]
    moved = 0
    for key in keys:
        before, after = jump_hash(key, 10), jump_hash(key, 11)
        assert after in (before, 10)
        moved += after == 10
    assert 0.9 < moved / (len(keys) / 11) < 1.1


def test_consecutive_incarnations_spread_like_random_ones():
    counts = [0] * 64
    for incarnation in range(64 * 200):
        counts[jump_hash(partition_key(incarnation, 3), 64)] += 1
    chi_square = sum((count - 200) ** 2 / 200 for count in counts)
    assert 30 < chi_square < 110  # 63 degrees of freedom: 0.01 % each side


def test_mix64_is_a_bijection_on_a_sample_and_stays_in_64_bits():
    mixed = {mix64(value) for value in range(10_000)}
    assert len(mixed) == 10_000
    assert max(mixed) < 1 << 64


def test_seeds_and_attempts_give_independent_keys():
    keys = {partition_key(5, seed, attempt) for seed in range(50) for attempt in range(50)}
    assert len(keys) == 2500


@pytest.mark.parametrize("buckets", [0, -1, 1 << 31])
def test_buckets_outside_the_limit_are_refused(buckets):
    with pytest.raises(LimitExceeded, match=f"{buckets} is outside the limit of 2147483647"):
        jump_hash(1, buckets)
