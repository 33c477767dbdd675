"""Repaired indexes against a set: a range may be larger than necessary, never smaller."""

from __future__ import annotations

import random

import pytest

from multiraft.storage import uncopied_ranges
from multiraft.storage.repaired_indexes import RepairedIndexes
from multiraft.storage.uncopied_ranges import UNCOPIED_RANGES_MAX


def indexes(known: RepairedIndexes) -> set[int]:
    return {index for first, last in known.ranges for index in range(first, last + 1)}


@pytest.mark.parametrize("ranges_max", [3, UNCOPIED_RANGES_MAX])
@pytest.mark.parametrize("seed", range(10))
def test_they_are_a_set_of_indexes_as_far_as_there_is_room(seed, ranges_max, monkeypatch):
    monkeypatch.setattr(uncopied_ranges, "UNCOPIED_RANGES_MAX", ranges_max)
    rng, known, expected = random.Random(seed), RepairedIndexes(), set()
    for _ in range(60):
        what = rng.randrange(8)
        if what < 5:
            index = rng.randrange(1, 90)
            known.add(index)
            expected.add(index)
        elif what < 7:
            start = rng.randrange(1, 90)
            gone = [*range(start, start + rng.randrange(12)), *rng.sample(range(1, 90), 2)]
            known.remove(gone)
            expected -= {*gone}
        else:
            first = rng.randrange(1, 20)
            known.drop_below(first)
            expected = {index for index in expected if index >= first}
        known._check()
        assert expected <= indexes(known)
        if ranges_max == UNCOPIED_RANGES_MAX:
            assert indexes(known) == expected
        assert RepairedIndexes(known.ranges).ranges == known.ranges
    known.drop_below(1000)
    assert not known.ranges
    known.remove([5])
    assert not known.ranges
