"""Records as columns: what the columns say is what the records are, in both twins."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft import _core
from multiraft.codec import layout, reference
from multiraft.errors import CorruptBatch
from tests.codec import test_twins as twins

I64_MAX = (1 << 63) - 1
#: Later milliseconds have no microseconds of 64 bits.
TIMED_MS_MAX = I64_MAX // 1000


def batch_of(*records) -> tuple[_core.BatchHeader, bytes]:
    """Header and block of a batch with these (timestamp, key, value, headers)."""
    batch = twins.builder_of(_core, records).build()
    return _core.verify_batch(batch), bytes(batch[layout.BATCH_HEADER_BYTES:])


def numbers(column, kind: str) -> list[int]:
    size = struct.calcsize(kind)
    return [struct.unpack_from(kind, column, at)[0] for at in range(0, len(column), size)]


def fields(column) -> list[bytes | None]:
    """A column of bytes read by the rules of Arrow."""
    ends = numbers(column.ends, "=i")
    rows = [bytes(column.content[first:last]) for first, last in zip(ends, ends[1:])]
    if column.valid is None:
        assert column.nulls == 0
        return rows
    bits = [column.valid[at // 8] >> at % 8 & 1 for at in range(len(rows))]
    assert column.nulls == bits.count(0) > 0
    return [row if bit else None for row, bit in zip(rows, bits)]


def taken(builder) -> list[tuple]:
    """All columns of a builder, as rows (offset, microseconds, key, value, headers)."""
    columns = builder.take()
    times = numbers(columns.timestamps_us, "=q")
    if columns.timestamps_valid is not None:
        times = [time if columns.timestamps_valid[at // 8] >> at % 8 & 1 else None
                 for at, time in enumerate(times)]
    ends = numbers(columns.headers.ends, "=i")
    pairs = list(zip(fields(columns.headers.names), fields(columns.headers.values), strict=True))
    headers = [pairs[first:last] for first, last in zip(ends, ends[1:])]
    return list(zip(numbers(columns.offsets, "=q"), times, fields(columns.keys),
                    fields(columns.values), headers, strict=True))


def expected(header, block, first: int = 0, end: int = I64_MAX) -> list[tuple]:
    """The same from the records themselves."""
    return [(record.offset,
             1000 * record.timestamp_ms if 0 <= record.timestamp_ms <= TIMED_MS_MAX else None,
             record.key, record.value, [(name.encode(), field) for name, field in record.headers])
            for record in _core.decode_records(header, block) if first <= record.offset < end]


@twins.bounded
@given(st.lists(st.tuples(st.lists(twins.records, min_size=1, max_size=12), st.integers(0, 50),
                          st.integers(0, 60)), max_size=4))
def test_columns_say_what_the_records_are(batches):
    for twin in (reference, _core):
        builder, rows = twin.ColumnBuilder(True, True, True), []
        for records, first, end in batches:
            header, block = batch_of(*records)
            header = header._replace(base_offset=10)
            wanted = expected(header, block, first, end)
            assert builder.extend(header, block, first, end) == len(wanted)
            rows += wanted
        assert builder.count == len(rows)
        assert taken(builder) == rows
        assert taken(builder) == [], "a builder that was taken from is empty"


@pytest.mark.parametrize("time_ms", [0, 1_700_000_123_456, TIMED_MS_MAX + 1])
def test_each_row_of_a_batch_with_the_append_time_has_it(twin, time_ms):
    batch = twins.builder_of(_core, [(5, b"k", b"v", []), (-1, None, b"w", [])]).build()
    _core.stamp_append_time(batch, time_ms)
    header, block = _core.verify_batch(batch), bytes(batch[layout.BATCH_HEADER_BYTES:])
    builder = twin.ColumnBuilder(True, True, True)
    assert builder.extend(header, block, 0, I64_MAX) == 2
    rows = taken(builder)
    assert [row[1] for row in rows] == [1000 * time_ms if time_ms <= TIMED_MS_MAX else None] * 2
    assert rows == expected(header, block)


@twins.bounded
@given(st.lists(twins.records, min_size=1, max_size=40), st.booleans(), st.booleans(),
       st.booleans())
def test_both_twins_give_the_same_bytes(records, keys, values, headers):
    header, block = batch_of(*records)
    made = []
    for twin in (reference, _core):
        builder = twin.ColumnBuilder(keys, values, headers)
        builder.extend(header, block, 0, I64_MAX)
        size = builder.size
        made.append((size, builder.take()))
    assert made[0] == made[1]
    assert (made[0][1].keys is None, made[0][1].values is None, made[0][1].headers is None) == (
        not keys, not values, not headers)


@twins.thorough
@given(st.one_of(twins.almost_records(), twins.flipped(twins.almost_records())),
       st.integers(-1, 4), st.integers(-2, 6),
       st.sampled_from([0, 5, -(1 << 63), I64_MAX]), st.sampled_from([0, I64_MAX, 1 << 62]))
def test_any_block_gets_the_same_answer_and_a_refusal_changes_nothing(
        block, count, last_delta, base_offset, base_ms):
    good_header, good = batch_of((5, b"k", None, [("a", b"b")]), (-1, None, b"v", []))
    header = good_header._replace(count=count, last_offset_delta=last_delta,
                                  base_offset=base_offset, base_timestamp_ms=base_ms)
    outcomes = []
    for twin in (reference, _core):
        builder = twin.ColumnBuilder(True, True, True)
        builder.extend(good_header, good, 0, I64_MAX)
        before = twins.outcome(builder.extend, header, block, 0, 1 << 40)
        if not isinstance(before, int):
            assert builder.count == 2
        builder.extend(good_header, good, 0, I64_MAX)
        outcomes.append((before, builder.size, builder.take()))
    assert outcomes[0] == outcomes[1]
    decoded = twins.outcome(_core.decode_records, header, block)
    assert isinstance(decoded, list) == isinstance(outcomes[0][0], int)


def test_a_refusal_in_the_middle_leaves_no_bits_behind(twin):
    header, block = batch_of(*[(5, None, b"value", [])] * 11)
    broken_header, broken = batch_of(*[(5, b"key", None, [])] * 20)
    builder = twin.ColumnBuilder(True, True, False)
    builder.extend(header, block, 0, I64_MAX)
    with pytest.raises(CorruptBatch):
        builder.extend(broken_header, broken[:-1], 0, I64_MAX)
    builder.extend(header, block, 0, 2)
    columns = builder.take()
    assert fields(columns.keys) == [None] * 13
    assert fields(columns.values) == [b"value"] * 13


def test_a_name_that_is_no_text_is_made_readable(twin):
    header, block = batch_of((5, None, None, [("caf\udce9", b"1"), ("ü", None)]))
    builder = twin.ColumnBuilder(False, False, True)
    builder.extend(header, block, 0, I64_MAX)
    columns = builder.take()
    assert fields(columns.headers.names) == ["caf\N{REPLACEMENT CHARACTER}".encode(), "ü".encode()]
    assert fields(columns.headers.values) == [b"1", None]


def test_times_that_a_table_cannot_say_are_null(twin):
    header, block = batch_of((0, None, b"", []), (-1, None, b"", []),
                             (TIMED_MS_MAX, None, b"", []), (TIMED_MS_MAX + 1, None, b"", []))
    builder = twin.ColumnBuilder(True, True, True)
    builder.extend(header, block, 0, I64_MAX)
    assert [row[1] for row in taken(builder)] == [0, None, 1000 * TIMED_MS_MAX, None]
