"""Packed indexes against the obvious lists; parts joined again are the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.errors import Compacted
from multiraft.storage.index import GroupIndex, PartitionIndex

steps = st.lists(st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(8, 900).map(lambda n: n * 8)),
    st.tuples(st.just("cut"), st.integers(0, 40), st.just(0))), max_size=60)


def build(script) -> tuple[GroupIndex, list[tuple[int, int, int]]]:
    """An index and the list of (term, position, size) it stands for."""
    index, model, position = GroupIndex(), [], 64
    for what, number, size in script:
        if what == "cut":
            index.cut(number)
            del model[max(0, number - 1):]
        else:
            term = (model[-1][0] if model else 1) + number
            index.append(len(model) + 1, term, position, size)
            model.append((term, position, size))
            position += size + 64
    return index, model


@given(steps)
def test_a_group_index_is_the_list_of_its_entries(script):
    index, model = build(script)
    index._check()
    assert index.last_index == len(model)
    assert [index.term(at + 1) for at in range(len(model))] == [each[0] for each in model]
    assert [index.position(at + 1) for at in range(len(model))] == [each[1] for each in model]
    assert [index.size(at + 1) for at in range(len(model))] == [each[2] for each in model]


@given(steps, st.integers(1, 40), st.integers(0, 60000))
def test_last_within_is_the_longest_range_that_fits(script, first, bytes_max):
    index, model = build(script)
    if first > len(model):
        return
    last = index.last_within(first, bytes_max)
    assert first <= last <= len(model)
    assert last == first or index.bytes_between(first, last) <= bytes_max
    assert last == len(model) or index.bytes_between(first, last + 1) > bytes_max


@given(steps, st.integers(0, 60))
def test_a_group_index_joined_from_two_parts_is_the_whole(script, at):
    whole, model = build(script)
    at = min(at, len(model))
    parts = [GroupIndex(), GroupIndex(at + 1)]
    for number, (term, position, size) in enumerate(model, 1):
        parts[number > at].append(number, term, position, size)
    parts[0].extend(GroupIndex.unpack(parts[1].pack()))
    assert parts[0].pack() == whole.pack()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=20))
def test_terms_of_lost_entries_ascend_while_they_become_known_one_by_one(script):
    index, terms, lost, term = GroupIndex(), [], [], 1
    for number, (more, is_lost) in enumerate(script, 1):
        term += more
        terms.append(term)
        if is_lost:
            lost.append(number)
        index.append(number, index.last_term if is_lost else term, 64 * number, 64)
    while lost:
        number = until = lost.pop(0)
        while (until := until + 1) in lost:
            pass
        index.retag(number, terms[number - 1], until)
        index._check()
        known = [at for at in range(1, len(terms) + 1) if at not in lost]
        assert [index.term(at) for at in known] == [terms[at - 1] for at in known]


def test_below_the_first_index_is_compacted():
    index = GroupIndex(first_index=10, prev_term=3)
    index.append(10, 4, 64, 64)
    assert index.term(9) == 3
    with pytest.raises(Compacted, match="index 9 is below the log's first, 10"):
        index.position(9)


batches = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), max_size=30)


def partition_of(script) -> PartitionIndex:
    index, offset = PartitionIndex(9, 1), 0
    for number, (count, timestamp) in enumerate(script):
        index.append(offset, count, 2 * number + 1, timestamp)
        offset += count
    return index


@given(batches, st.integers(0, 150))
def test_every_offset_is_found_in_its_batch(script, offset):
    index = partition_of(script)
    index._check()
    slot = index.find(offset)
    if offset < index.end_offset:
        base, end, _ = index.batch(slot)
        assert base <= offset < end
    elif script:
        assert slot == len(script) - 1


@given(batches, st.integers(0, 60))
def test_a_timestamp_finds_the_first_batch_that_reaches_it(script, timestamp):
    index = partition_of(script)
    expected = [at for at, (_, latest) in enumerate(script) if latest >= timestamp]
    assert index.find_timestamp(timestamp) == (expected[0] if expected else len(script))


@given(batches, st.integers(0, 30))
def test_a_partition_joined_from_two_parts_is_the_whole(script, at):
    whole, first, second = partition_of(script), PartitionIndex(9, 1), PartitionIndex(9, 1)
    offset = 0
    for number, (count, timestamp) in enumerate(script):
        part = first if number < at else second
        part.append(offset, count, 2 * number + 1, timestamp)
        offset += count
    first.extend(PartitionIndex.unpack(second.pack(), 1))
    assert first.pack() == whole.pack()


@given(batches, st.integers(0, 70))
def test_a_cut_partition_ends_where_its_first_lost_batch_began(script, first_gone):
    index = partition_of(script)
    index.cut(first_gone)
    index._check()
    kept = [count for number, (count, _) in enumerate(script) if 2 * number + 1 < first_gone]
    assert (len(index), index.end_offset) == (len(kept), sum(kept))
