"""Durations by powers of two: each is counted below its own bound and above the one before."""

import pytest

from node.histogram import BITS_MAX, Histogram


@pytest.mark.parametrize("micros", [0, 1, 63, 64, 65, 127, 128, 1_000, 1 << 23, (1 << 24) - 1])
def test_a_duration_is_in_every_bucket_whose_bound_is_above_it(micros):
    histogram = Histogram()
    histogram.observe(micros)
    for bound, count in histogram.buckets()[:-1]:
        assert count == (micros / 1e6 < float(bound)), bound
    assert histogram.buckets()[-1] == ("+Inf", 1)
    assert histogram.total_us == micros


def test_what_is_longer_than_the_last_bound_is_counted_all_the_same():
    histogram = Histogram()
    histogram.observe(1 << BITS_MAX)
    assert histogram.buckets()[-2][1] == 0
    assert histogram.buckets()[-1][1] == 1


def test_a_copy_stays_as_it_is():
    histogram = Histogram()
    histogram.observe(100)
    copied = histogram.copy()
    histogram.observe(100)
    assert (copied.buckets()[-1][1], copied.total_us) == (1, 100)


def test_counts_are_cumulative():
    histogram = Histogram()
    for micros in (10, 100, 1_000, 10_000, 100_000_000):
        histogram.observe(micros)
    counts = [count for _bound, count in histogram.buckets()]
    assert counts == sorted(counts)
    assert counts[-1] == 5
