"""Packed indexes against the obvious lists; parts joined again are the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.errors import Compacted
from multiraft.storage.index import Copy, GroupIndex, PartitionIndex
from multiraft.storage.index_file import decode_body
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from tests.storage import index_version_5

steps = st.lists(st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(8, 900).map(lambda n: n * 8)),
    st.tuples(st.just("cut"), st.integers(0, 40), st.just(0))), max_size=60)


def build(script) -> tuple[GroupIndex, list[tuple[int, int, int]]]:
    """An index and the list of (term, position, size) it stands for."""
    index, model, position = GroupIndex(), [], 64
    for what, number, size in script:
        if what == "cut":
            index.truncate(number)
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


batches = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 9)), max_size=8)


@given(st.dictionaries(st.integers(0, (1 << 64) - 1), batches, max_size=5))
def test_packed_batches_are_those_that_were_packed(script):
    known, number = {}, 0
    for partition, steps_of in script.items():
        index = known[partition] = PartitionIndex(partition, 7)
        for gap, count, timestamp_ms in steps_of:
            number += 1
            index.append(index.end_offset + gap, count, number, timestamp_ms)
    run = SegmentRun(7, 1, partitions={**known})
    run.pack()
    assert not run.partitions
    run.unpack()
    assert run.packed is None and [*run.partitions] == [*known]
    for partition, index in run.partitions.items():
        assert (index.pack(), index.group) == (known[partition].pack(), 7)


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
        index.set_term(number, terms[number - 1], until)
        index._check()
        known = [at for at in range(1, len(terms) + 1) if at not in lost]
        assert [index.term(at) for at in known] == [terms[at - 1] for at in known]


def test_below_the_first_index_is_compacted():
    index = GroupIndex(first_index=10, prev_term=3)
    index.append(10, 4, 64, 64)
    assert index.term(9) == 3
    with pytest.raises(Compacted, match="index 9 is below the log's first, 10"):
        index.position(9)


#: (records, highest timestamp, offsets in another group before it)
batches = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50),
                             st.sampled_from((0, 0, 0, 2))), max_size=30)


def spans(script) -> list[tuple[int, int, int]]:
    """(base offset, end, timestamp) of each batch."""
    found, offset = [], 0
    for count, timestamp, elsewhere in script:
        offset += elsewhere
        found.append((offset, offset + count, timestamp))
        offset += count
    return found


def put(index: PartitionIndex, number: int, base: int, end: int, timestamp: int) -> None:
    index.append(base, end - base, 2 * number + 1, timestamp)


def partition_of(script) -> PartitionIndex:
    index = PartitionIndex(9, 1)
    for number, span in enumerate(spans(script)):
        put(index, number, *span)
    return index


@given(batches, st.integers(0, 150))
def test_every_offset_is_found_in_its_batch(script, offset):
    index = partition_of(script)
    index._check()
    slot = index.find(offset)
    found = index.batch(slot)[:2] if slot >= 0 else (0, 0)
    holding = [(base, end) for base, end, _ in spans(script) if base <= offset < end]
    assert ([found] if found[0] <= offset < found[1] else []) == holding


@given(batches, st.integers(0, 60))
def test_a_timestamp_finds_the_first_batch_that_reaches_it(script, timestamp):
    index = partition_of(script)
    expected = [at for at, (_, latest, _) in enumerate(script) if latest >= timestamp]
    assert index.find_timestamp(timestamp) == (expected[0] if expected else len(script))


def no_blocks(file: int, block: int) -> bytes:
    raise AssertionError(f"block {block} of file {file} is asked for")


@given(batches, st.integers(0, 150))
def test_the_highest_timestamp_is_that_of_the_batches_that_begin_below_an_offset(script, offset):
    index = partition_of(script)
    before = [latest for base, _, latest in spans(script) if base < offset]
    assert index.latest_below(offset, no_blocks) == max(before, default=None)


@given(batches, st.integers(0, 30))
def test_a_partition_joined_from_two_parts_is_the_whole(script, at):
    whole, first, second = partition_of(script), PartitionIndex(9, 1), PartitionIndex(9, 1)
    for number, span in enumerate(spans(script)):
        put(first if number < at else second, number, *span)
    first.extend(PartitionIndex.unpack(second.pack(), 1))
    first._check()
    assert first.pack() == whole.pack()


@given(batches, st.integers(0, 70))
def test_a_cut_partition_ends_where_its_first_lost_batch_began(script, first_gone):
    index = partition_of(script)
    index.truncate(first_gone)
    index._check()
    kept = [end for number, (_, end, _) in enumerate(spans(script)) if 2 * number + 1 < first_gone]
    begin = spans(script)[0][0] if script else 0
    assert (len(index), index.end_offset) == (len(kept), kept[-1] if kept else begin)
    for number, span in enumerate(spans(script)):
        if number >= len(kept):
            put(index, number, *span)
    index._check()
    assert index.pack() == partition_of(script).pack()


@given(batches, st.data())
def test_a_lost_batch_that_is_repaired_leaves_the_index_as_if_it_had_never_been_lost(script, data):
    lost = data.draw(st.sets(st.integers(0, max(0, len(script) - 1)), max_size=4), "lost")
    index = PartitionIndex(9, 1)
    for number, span in enumerate(spans(script)):
        if number not in lost:
            put(index, number, *span)
    index._check()
    for number in data.draw(st.permutations(sorted(lost & set(range(len(script))))), "order"):
        base, end, timestamp = spans(script)[number]
        index.repair(base, end - base, 2 * number + 1, timestamp)
        index._check()
    if len(lost) < len(script):
        assert index.pack() == partition_of(script).pack()


def test_a_removed_last_batch_leaves_no_gap_before_it():
    index = PartitionIndex(7, 1)
    index.append(0, 2, 2, 1)
    index.append(7, 2, 7, 1)  # what lies between is lost
    index.remove_batch(7)
    index._check()
    assert (len(index), index.end_offset) == (1, 2)
    index.append(2, 1, 8, 1)
    assert [index.batch(slot)[:2] for slot in range(2)] == [(0, 2), (2, 3)]


def test_an_index_file_with_a_copy_is_read_back():
    copy = Copy(5, 2, 640, 128, 320, 128, partition=7, base_offset=3, count=2, max_timestamp_ms=9)
    of_no_batch = Copy(6, 2, 768, 88, 0, 0)
    index = SegmentIndex(0, 1, 1024, 2, -1, 0, {1: SegmentRun(1, 1, copies=[copy, of_no_batch])})
    found = decode_body("f", index_version_5.body(index))
    assert found.runs[1].copies == [copy, of_no_batch]
