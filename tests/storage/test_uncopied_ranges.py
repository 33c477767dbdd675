"""Uncopied ranges against a set of indexes, and copies in the indexes against those appended."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.storage import uncopied_ranges
from multiraft.storage.index import Copy, PartitionIndex
from multiraft.storage.record_store import RecordStore, runs_fault, terms_from
from multiraft.storage.uncopied_ranges import UncopiedRanges, damage_value

LAST = 40
index = st.integers(1, LAST)
ranges = st.tuples(index, index).map(sorted).map(tuple)
lacking = st.lists(index, max_size=6, unique=True).map(sorted).map(
    lambda ends: tuple(zip(ends[::2], ends[1::2])))
actions = st.lists(st.one_of(
    st.tuples(st.just("add"), ranges),
    st.tuples(st.just("remove"), ranges, lacking),
    st.tuples(st.just("drop_below"), index),
), max_size=12)


def apply(uncopied: UncopiedRanges, known: set[int], actions) -> None:
    for what, *how in actions:
        if what == "add":
            uncopied.add(*how[0])
            known |= {*range(how[0][0], how[0][1] + 1)}
        elif what == "remove":
            (first, last), kept = how
            uncopied.remove(first, last, kept)
            known -= {at for at in range(first, last + 1)
                      if not any(low <= at <= high for low, high in kept)}
        else:
            uncopied.drop_below(how[0])
            known -= {*range(how[0])}
        uncopied._check()


@given(actions)
def test_uncopied_ranges_are_a_set_of_indexes(actions):
    uncopied, known = UncopiedRanges(), set()
    apply(uncopied, known, actions)
    assert {at for first, last in uncopied.ranges for at in range(first, last + 1)} == known
    assert (uncopied.count, bool(uncopied)) == (len(known), bool(known))
    assert UncopiedRanges(uncopied.ranges).ranges == uncopied.ranges
    for first in range(1, LAST + 1):
        for last in (first, first + 3, LAST):
            expected = [at for at in range(first, last + 1) if at in known]
            assert uncopied.first_in(first, last) == (expected[0] if expected else 0)
            assert [at for low, high in uncopied.within(first, last)
                    for at in range(low, high + 1)] == expected
        assert uncopied.first_in(first + 1, first) == 0


@given(actions, st.integers(1, 3))
def test_too_many_ranges_are_joined_and_none_is_forgotten(actions, limit):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncopied_ranges, "UNCOPIED_RANGES_MAX", limit)
        uncopied, known = UncopiedRanges(), set()
        apply(uncopied, known, actions)
        assert len(uncopied.ranges) <= limit
        assert known <= {at for first, last in uncopied.ranges for at in range(first, last + 1)}


def test_the_nearest_ranges_are_joined(monkeypatch):
    monkeypatch.setattr(uncopied_ranges, "UNCOPIED_RANGES_MAX", 2)
    uncopied = UncopiedRanges()
    for each in ((1, 2), (10, 11), (14, 20)):
        uncopied.add(*each)
    assert uncopied.ranges == ((1, 2), (10, 20))


#: (records, indexes to the next batch, offsets lost before it, timestamp) of each batch.
batches = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1),
                             st.integers(0, 9)), min_size=1, max_size=14)


@given(batches, st.integers(0, 1 << 30))
def test_copies_of_batches_come_in_any_order(sizes, seed):
    """In the end both indexes are as if they had been appended."""
    appended, copies, base, at = PartitionIndex(7, 1), [], 0, 0
    for count, step, lost, timestamp_ms in sizes:
        at, base = at + step, base + lost
        appended.append(base, count, at, timestamp_ms)
        copies.append(Copy(at, 2, 1000 * at, 64 + 8 * at, 0, 0, 7, base, count, timestamp_ms))
        base += count
    found, store = PartitionIndex(7, 1), RecordStore()
    store.uncopied.add(1, at)
    store.set_terms([(1, 2)], at + 1)
    rng = random.Random(seed)
    left = copies[:]
    while left:
        part = sorted(rng.sample(left, rng.randint(1, len(left))))
        left = [each for each in left if each not in part]
        found.insert(part)
        store.add(part, at + 1)
        found._check()
        store._check(at + 1)
    store.copied(1, at, (), at + 1)
    assert found.pack() == appended.pack()
    assert not store.uncopied and len(store) == len(copies)
    assert [store.locate(copy.index) for copy in copies] == [
        (2, copy.position, copy.size) for copy in copies]
    kept = [copy.index for copy in copies]
    for bytes_max in (1, 200, 1 << 20):
        taken, first = [], 1
        while first <= at:
            part, through = store.within(first, at, bytes_max)
            assert len(part) == 1 or sum(64 + 8 * each for each in part) <= bytes_max
            assert through >= first
            taken += part
            first = through + 1
        assert taken == kept


def test_a_copy_tells_the_term_of_an_index_whose_term_was_unknown():
    store = RecordStore()
    store.uncopied.add(1, 6)
    store.set_terms([(1, 0), (5, 3)], 7)
    store.add([Copy(2, 1, 100, 72, 0, 0, 7, 0, 1, 0)], 7)
    assert [store.term(at) for at in range(1, 7)] == [0, 1, 0, 0, 3, 3]


def test_a_single_index_that_is_lacking_is_missing_and_a_range_uncopied():
    store = RecordStore()
    store.uncopied.add(1, 9)
    store.set_terms([(1, 2)], 10)
    store.copied(1, 8, ((2, 2), (4, 5)), 10)
    assert store.uncopied.ranges == ((4, 5), (9, 9)) and [*store.missing] == [2]
    assert [store.first_missing(at, 10) for at in (1, 3, 5, 6, 10)] == [2, 4, 5, 9, 0]
    assert store.first_missing(1, 1) == store.first_missing(6, 8) == 0
    assert not store.is_complete and store.first_needed == 2


def test_runs_of_terms_are_checked_before_they_are_used():
    assert not runs_fault([(3, 1), (5, 0)], 3, 9) and not runs_fault([], 9, 9)
    for wrong in ([], [(2, 1)], [(4, 1)], [(3, 1), (9, 2)], [(3, 1), (6, 2), (5, 2)],
                  [(3, 1), (3, 2)]):
        assert runs_fault(wrong, 3, 9)
    assert terms_from([(3, 1), (5, 2)], 4) == [(4, 1), (5, 2)]


def test_a_value_names_a_set_of_damaged_ranges():
    assert damage_value([]) == 0
    assert damage_value([(64, 128), (512, 512)]) == damage_value(
        iter([(512, 512), (64, 128), (64, 128)]))
    sets = [[(64, 128)], [(64, 136)], [(72, 128)], [(64, 128), (512, 512)], [(512, 512)],
            [(64, 512), (128, 512)]]
    assert len({0, *map(damage_value, sets)}) == len(sets) + 1


def test_the_value_of_damage_is_never_that_of_none(monkeypatch):
    monkeypatch.setattr("multiraft.storage.uncopied_ranges.core.crc32c", lambda data: 0)
    assert damage_value([(64, 128)]) == 1
    assert damage_value([]) == 0
