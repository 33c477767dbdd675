"""Marks of compaction by key: both twins agree, whatever memory and seeds, with the definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft import _core
from multiraft.codec import layout
from multiraft.codec import reference as _reference
from multiraft.codec.values import BatchHeader
from multiraft.errors import BatchTooLarge, CorruptBatch

bounded = settings(max_examples=150, deadline=None, derandomize=True)
TWINS = (_core, _reference)
WHOLE = 1 << 64
SURVIVES, SUPERSEDED, EXPIRED, PINNED = range(4)

keys = st.one_of(st.none(), st.integers(0, 6).map(lambda number: b"k%d" % number),
                 st.binary(max_size=20))
record_values = st.one_of(st.none(), st.binary(max_size=12))
some_batches = st.lists(st.lists(st.tuples(keys, record_values), min_size=1, max_size=6),
                        min_size=1, max_size=8)


def batch_of(records, base_offset=0, times=None):
    """Return a batch of (key, value) records as a leader stores it."""
    builder = _core.BatchBuilder(1 << 22)
    for at, (key, value) in enumerate(records):
        builder.append(times[at] if times else 1000 + at, key, value, [])
    data = bytearray(builder.build())
    _core.stamp_batch(data, base_offset, 3)
    return data


def parts(data):
    """Return header and records of an uncompressed batch."""
    return _core.batch_header(data), memoryview(data)[layout.BATCH_HEADER_BYTES:]


def log_of(batches):
    """Return the batches of a partition from offset 0 on, and their numbers of records."""
    made, offset = [], 0
    for records in batches:
        made.append(batch_of(records, offset))
        offset += len(records)
    return made


def marks_for(twin, log, tombstones_below, bytes_max=1 << 20, seed=0):
    """Mark a log in as many passes as memory needs; return a mark per record, and the passes."""
    count = sum(parts(data)[0].count for data in log)
    marks, low, passes = bytearray(-(-count // 4) + 1), 0, 0
    while low < WHOLE:
        table, first = twin.KeyTable(bytes_max, low, WHOLE, seed), count
        for data in reversed(log):
            header, block = parts(data)
            first -= header.count
            table.mark(header, block, tombstones_below, marks, first)
        assert table.low == low < table.high
        low, passes = table.high, passes + 1
    return [marks[at >> 2] >> (at & 3) * 2 & 3 for at in range(count)], passes


def expected(batches, tombstones_below):
    """Return the marks by the definition."""
    records = [record for batch in batches for record in batch]
    found = []
    for at, (key, value) in enumerate(records):
        if key is None:
            found.append(SURVIVES)
        elif any(later == key for later, _ in records[at + 1:]):
            found.append(SUPERSEDED)
        else:
            found.append(EXPIRED if value is None and at < tombstones_below else SURVIVES)
    return found


@bounded
@given(some_batches, st.integers(0, 40), st.integers(0, WHOLE - 1))
def test_marks_are_those_of_the_definition(batches, tombstones_below, seed):
    log = log_of(batches)
    for twin in TWINS:
        assert marks_for(twin, log, tombstones_below, seed=seed)[0] == expected(
            batches, tombstones_below)


@bounded
@given(st.lists(st.lists(st.tuples(st.binary(min_size=1, max_size=60), record_values),
                         min_size=10, max_size=60), min_size=2, max_size=6), st.integers(0, 400))
def test_memory_decides_about_passes_alone(batches, tombstones_below):
    log = log_of(batches)
    ample, passes = marks_for(_core, log, tombstones_below)
    assert passes == 1
    scarce = {twin: marks_for(twin, log, tombstones_below, 4096, 7) for twin in TWINS}
    assert scarce[_core] == scarce[_reference]
    assert scarce[_core][0] == ample


def test_a_table_with_little_memory_needs_several_passes():
    batches = [[(b"%d" % (number % 3000), b"v") for number in range(at, at + 500)]
               for at in range(0, 6000, 500)]
    found = {twin: marks_for(twin, log_of(batches), 0, 4096) for twin in TWINS}
    assert found[_core] == found[_reference]
    marks, passes = found[_core]
    assert passes > 20
    assert marks == [SUPERSEDED] * 3000 + [SURVIVES] * 3000


@pytest.mark.parametrize("twin", TWINS)
def test_a_key_longer_than_the_memory_is_compared_whole(twin):
    long, other = b"a" * 9000 + b"1", b"a" * 9000 + b"2"
    batches = [[(long, b"1"), (other, b"2"), (b"s", b"3")], [(b"s", None), (long, b"5")]]
    assert marks_for(twin, log_of(batches), 0, 4096)[0] == [
        SUPERSEDED, SURVIVES, SUPERSEDED, SURVIVES, SURVIVES]


@pytest.mark.parametrize("twin", TWINS)
def test_keys_outside_the_range_are_left_to_another_pass(twin):
    table = twin.KeyTable(4096, 5, 6)
    header, block = parts(batch_of([(b"k%d" % number, b"") for number in range(500)]))
    marks = bytearray(200)
    table.mark(header, block, 0, marks, 0)
    assert table.keys == 0 and not any(marks)


@bounded
@given(some_batches, st.integers(0, 40), st.sampled_from([True, False]))
def test_tombstones_stay_whose_key_was_added(batches, tombstones_below, superseded):
    log = log_of(batches)
    results = []
    for twin in TWINS:
        marks = bytearray(64)
        table, first = twin.KeyTable(1 << 16), sum(map(len, batches))
        for data in reversed(log):
            first -= parts(data)[0].count
            table.mark(*parts(data), tombstones_below, marks, first)
        before, pins = bytes(marks), twin.KeyTable(1 << 16)
        header, block = parts(log[0])
        pins.add(header, block, marks, 0, superseded)
        pinned, at = 0, 0
        for data in log:
            pinned += pins.pin(*parts(data), marks, at)
            at += parts(data)[0].count
        results.append((before, bytes(marks), pinned, pins.keys))
        added = {key for key, _ in batches[0]} - {None}
        if superseded:
            added = {key for turn, (key, _) in enumerate(batches[0])
                     if before[turn >> 2] >> (turn & 3) * 2 & 3 == SUPERSEDED}
        records = [record for batch in batches for record in batch]
        for turn, (key, _) in enumerate(records):
            was, now = (each[turn >> 2] >> (turn & 3) * 2 & 3 for each in (before, marks))
            assert now == (PINNED if was == EXPIRED and key in added else was)
    assert results[0] == results[1]


@bounded
@given(st.lists(st.tuples(keys, record_values, st.integers(0, 3)), min_size=1, max_size=9),
       st.integers(0, 5), st.booleans())
def test_a_compacted_batch_has_the_surviving_records_unchanged(rows, first, appended):
    records = [(key, value) for key, value, _ in rows]
    data = batch_of(records, 70, [1000 + mark for *_, mark in rows])
    if appended:
        _core.stamp_append_time(data, 5555)
    header, block = parts(data)
    marks = bytearray(8)
    for at, (*_, mark) in enumerate(rows, first):
        marks[at >> 2] |= mark << (at & 3) * 2
    kept = [record for record, (*_, mark) in zip(_core.decode_records(header, block), rows,
                                                 strict=True) if mark in (SURVIVES, PINNED)]
    for twin in TWINS:
        count, size = twin.surviving_records(header, block, marks, first)
        assert count == len(kept)
        if not kept:
            with pytest.raises(ValueError, match="no record of the batch survives"):
                twin.compact_batch(data, block, marks, first)
            continue
        made = twin.compact_batch(data, block, marks, first)
        found = _core.verify_batch(made)
        assert len(made) == layout.BATCH_HEADER_BYTES + size
        assert _core.decode_records(found, memoryview(made)[layout.BATCH_HEADER_BYTES:]) == kept
        latest = 5555 if appended else max(record.timestamp_ms for record in kept)
        changed = {"total_bytes": len(made), "crc": found.crc, "count": count,
                   "max_timestamp_ms": latest}
        assert found == header._replace(**changed)
    if kept:
        assert _core.compact_batch(data, block, marks, first) == _reference.compact_batch(
            data, block, marks, first)


def test_compaction_in_two_steps_gives_the_bytes_of_one():
    data = batch_of([(b"%d" % at, b"v" * at) for at in range(8)], 20)
    both, one, two = (bytearray(2) for _ in range(3))
    both[0], one[0] = 0b00010001, 0b00000001  # records 0 and 2; record 0
    middle = _core.compact_batch(data, parts(data)[1], one, 0)
    two[0] = 0b00000100  # record 1 of the others, which is 2
    assert _core.compact_batch(middle, parts(middle)[1], two, 0) == _core.compact_batch(
        data, parts(data)[1], both, 0)


@pytest.mark.parametrize("twin", TWINS)
def test_a_codec_leaves_with_the_compressed_block(twin):
    data = batch_of([(b"a", b"1"), (b"a", b"2")])
    data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.CODEC_ZSTD
    marks = bytearray([1])
    made = twin.compact_batch(data, parts(data)[1], marks, 0)
    assert _core.verify_batch(made).attributes == 0


@bounded
@given(st.binary(max_size=60), st.integers(-2, 12), st.integers(-1, 9), st.integers(0, 3))
def test_twins_agree_on_any_records(block, count, first, length):
    header = BatchHeader(5, 61 + len(block), 0, 2, 0, 0, 9, 0, 0, -1, -1, -1, count)
    found = []
    for twin in TWINS:
        marks, outcomes = bytearray(b"\x92" * length), []
        for call in (lambda twin, marks: twin.KeyTable(4096).mark(header, block, 9, marks, first),
                     lambda twin, marks: twin.KeyTable(4096).pin(header, block, marks, first),
                     lambda twin, marks: twin.KeyTable(4096).add(header, block, marks, first, True),
                     lambda twin, marks: twin.surviving_records(header, block, marks, first)):
            try:
                outcomes.append(call(twin, marks))
            except (CorruptBatch, ValueError) as error:
                outcomes.append((type(error), str(error)))
        found.append((outcomes, bytes(marks)))
    assert found[0] == found[1]


@pytest.mark.parametrize("twin", TWINS)
def test_impossible_arguments_are_refused(twin):
    for arguments, why in (((4095,), "below 4096"), ((4096, 7, 7), "no range"),
                           ((4096, 0, WHOLE + 1), "no range"), ((4096, -1), "no range"),
                           ((4096, 0, 1, WHOLE), "seed")):
        with pytest.raises(ValueError, match=why):
            twin.KeyTable(*arguments)
    table = twin.KeyTable(4096, 3, 9)
    assert (table.low, table.high, table.keys) == (3, 9, 0)


def test_a_batch_that_grows_beyond_the_limit_is_refused():
    varint, size = _reference._varint, layout.BATCH_BYTES_MAX // 2

    def record(delta):
        body = b"\0" + varint(0) + varint(delta) + varint(1) + b"k" + varint(size) + bytes(size)
        return varint(len(body) + 1) + body + varint(0)

    data = batch_of([(b"k", None), (b"k", None)])[:layout.BATCH_HEADER_BYTES]
    for twin in TWINS:
        with pytest.raises(BatchTooLarge):
            twin.compact_batch(data, record(0) + record(1), bytearray(1), 0)
