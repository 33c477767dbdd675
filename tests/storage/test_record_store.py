"""The record store and the two indexes beside it, against plain dictionaries and lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.errors import Compacted
from multiraft.storage.index import GroupIndex, PartitionIndex
from multiraft.storage.record_store import (
    EntryPlace,
    MissingRecord,
    RecordStore,
    term_in,
    with_term,
)

LAST = 30


def raft_log(first_index: int, terms: list[int]) -> GroupIndex:
    """Entry i stands at 1000 * i and has 64 + 8 * i bytes."""
    log = GroupIndex(first_index, terms[0])
    for at, term in enumerate(terms, first_index):
        log.append(at, term, 1000 * at, 64 + 8 * at)
    return log


rising = st.lists(st.integers(1, 5), min_size=LAST, max_size=LAST).map(sorted)


@given(rising, st.integers(1, LAST + 1), st.integers(0, 5))
def test_a_compacted_index_is_that_of_the_remaining_entries(terms, first_index, appended):
    log, size = raft_log(1, terms), lambda at: 64 + 8 * at
    log.compact(first_index)
    log.compact(first_index - 1)
    for at in range(LAST + 1, LAST + 1 + appended):
        log.append(at, 6, 1000 * at, size(at))
    log._check()
    terms = [*terms, *[6] * appended]
    last = LAST + appended
    assert (log.first_index, log.last_index) == (first_index, last)
    assert log.prev_term == (terms[first_index - 2] if first_index > 1 else terms[0])
    assert [log.term(at) for at in range(first_index, last + 1)] == terms[first_index - 1:]
    assert [log.size(at) for at in range(first_index, last + 1)] == [
        size(at) for at in range(first_index, last + 1)]
    if first_index <= last:
        assert log.bytes_between(first_index, last) == sum(map(size, range(first_index, last + 1)))
        assert log.last_within(first_index, size(first_index)) == first_index
    with pytest.raises(Compacted):
        log.position(first_index - 1)
    log.truncate(first_index)
    log.append(first_index, 7, 8, 64)
    assert log.size(first_index) == 64


@given(rising, st.integers(1, LAST), st.integers(0, 9000), st.integers(0, 40_000))
def test_the_newest_entries_of_so_many_bytes_and_journal_bytes(terms, start, bytes_max, position):
    log = raft_log(1, terms)
    log.compact(start)
    found = log.first_within(bytes_max, position)
    expected = [first for first in range(start, LAST + 2)
                if sum(64 + 8 * at for at in range(first, LAST + 1)) <= bytes_max
                and all(1000 * at >= position for at in range(first, LAST + 1))]
    assert found == min(expected)
    assert GroupIndex(7, 1).first_within(bytes_max, position) == 7
    for last in range(start, LAST + 1):
        positions, sizes = log.columns(start, last)
        assert [*positions] == [1000 * at for at in range(start, last + 1)]
        assert sizes == [64 + 8 * at for at in range(start, last + 1)]


batches = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=12)


@given(batches, st.integers(0, 60), st.integers(0, 40), st.sets(st.integers(1, 40)))
def test_batches_below_an_offset_and_an_index_go(sizes, offset, index, unsure):
    partition, expected, base, at = PartitionIndex(7, 1), [], 0, 0
    for count, step in sizes:
        at += step
        base += step - 1  # sometimes a gap
        partition.append(base, count, at, base)
        expected.append((base, base + count, at))
        base += count
    removed = [*partition.remove_below(offset, index, unsure)]
    partition._check()
    left = [partition.batch(slot) for slot in range(len(partition))]
    assert removed == [at for _, _, at in expected[:len(removed)]]
    assert left == expected[len(removed):]
    following = [first for first, _, _ in expected[1:]] + [1 << 60]
    for (_, end, at), behind in zip(expected, following):
        is_below = (behind if at in unsure else end) <= offset and at < index
        assert (at in removed) == is_below


@given(st.lists(st.tuples(st.integers(1, LAST), st.integers(1, 9)), max_size=6), rising)
def test_runs_take_another_term_for_one_index(changes, terms):
    runs = [*raft_log(1, terms).term_runs()]
    for at, term in changes:
        runs = with_term(runs, at, term, LAST + 1)
        terms = [*terms[:at - 1], term, *terms[at:]]
    assert [term_in(runs, at) for at in range(1, LAST + 1)] == terms
    assert all(a[1] != b[1] for a, b in zip(runs, runs[1:]))


actions = st.lists(st.one_of(
    st.tuples(st.just("raise"), st.integers(1, 9), st.sets(st.integers(1, 3))),
    st.tuples(st.just("lose"), st.integers(1, LAST)),
    st.tuples(st.just("replace"), st.integers(1, LAST)),
    st.tuples(st.just("remove"), st.sets(st.integers(1, LAST))),
), max_size=15)


@given(rising, actions)
def test_a_record_store_is_a_dictionary_of_places(terms, actions):
    log, store = raft_log(1, terms), RecordStore()
    places: dict[int, EntryPlace] = {}
    missing: set[int] = set()
    for what, *how in actions:
        if what == "raise":
            first = min(LAST + 1, log.first_index + how[0])
            kept = [at for at in range(log.first_index, first) if at % 4 not in how[1]]
            holes = {at for at in range(log.first_index, first) if at % 7 == 3} - {*kept}
            store.take_over(log, first, kept, {at: MissingRecord(0, 0) for at in holes},
                            log.term_runs())
            places |= {at: EntryPlace(log.term(at), log.position(at), log.size(at))
                       for at in kept}
            missing |= holes
            log.compact(first)
        elif what == "lose" and how[0] in places:
            assert store.lose(how[0]) == (how[0] not in missing)
            missing.add(how[0])
        elif what == "replace" and how[0] in missing:
            term = terms[how[0] - 1]
            store.replace(how[0], term, 7, 72, log.first_index)
            places[how[0]] = EntryPlace(term, 7, 72)
            missing.discard(how[0])
        elif what == "remove":
            store.remove(how[0], log.first_index)
            places = {at: place for at, place in places.items() if at not in how[0]}
            missing -= how[0]
        store._check(log.first_index)
        assert bool(store) == bool(places or missing) and len(store) == len(places)
        assert {*store.missing} == missing
        assert store.missing_behind(4, 3) == sorted(at for at in missing if at > 4)[:3]
        for at in range(1, LAST + 1):
            assert (at in store) == (at in places)
            if at in places:
                assert store.locate(at) == places[at]
                assert store.holds(at, places[at].term) and store.holds(at, 0)
            else:
                with pytest.raises(Compacted):
                    store.locate(at)
            assert store.first_missing(at, at + 4) == min(
                (each for each in missing if at <= each <= at + 4), default=0)
        assert {*store.indexes_within(0, 5000)} == {
            at for at, place in places.items() if place.position < 5000}
