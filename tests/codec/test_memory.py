"""Nothing is kept: memory and references are what they were after many calls of every function."""

import gc
import sys
import tracemalloc

import pytest

from multiraft import _core
from multiraft.errors import CodecError
from multiraft.types import Entry, EntryKind

ROUNDS = 10_000
SLACK_BYTES = 20_000


def work(lane: bytes, broken: bytes) -> None:
    """Every function of the compiled twin once, also where it raises."""
    builder = _core.BatchBuilder(4096)
    builder.append(1, b"key", b"value", [("name", b"x"), ("other", None)])
    builder.extend(2, [b"one", b"two"])
    batch = builder.build(5, 6, 7)
    builder.build(codec=1, block=builder.records_block())
    info = _core.check_batch(batch)
    _core.stamp_batch(batch, 9, 9)
    header = _core.verify_batch(batch)
    _core.decode_records(header, memoryview(batch)[61:])
    columns = _core.ColumnBuilder(True, True, True)
    columns.extend(header, memoryview(batch)[61:], 0, 1 << 40)
    with pytest.raises(CodecError):
        columns.extend(header, memoryview(batch)[61:-1], 0, 1 << 40)
    columns.take()
    _core.split_batches(batch)
    entry = Entry(EntryKind.DATA, 1, 1, 1, 1, 9, 9, batch, info)
    buffers, *_ = _core.frame_entries([entry], 0, 0)
    _core.parse_entries(b"".join(buffers))
    _core.scan_entries(lane, 0, 0)
    _core.check_entries(lane, 0, 0)
    indexer = _core.SegmentIndexer()
    indexer.take(lane, 0, 0, 0)
    indexer.take(b"".join(buffers), 0, 0, 0)
    packed = indexer.pack(0, 0)
    for _, _, known, *_ in packed.runs:
        reader = _core.IndexRowReader(packed.blocks[:4096], 1, 1, packed.entries, 0)
        reader.entries(known[2], known[0], 0)
        with pytest.raises(ValueError, match="rows of a group"):
            reader.entries(known[2], known[0], 0)
    known = [(*run[3:5], number) for number, run in enumerate([*packed.runs, *packed.runs])]
    _core.join_index_rows(known)
    with pytest.raises(ValueError, match="is not below"):
        _core.join_index_rows([*known, (*known[0][:2], 1 << 20)])
    _core.find_entry(lane, 1)
    _core.unset_memory(1 << 20)
    for function in (_core.check_batch, _core.parse_entries, _core.split_batches):
        with pytest.raises(CodecError):
            function(broken)


def growth(function, rounds: int) -> int:
    """Bytes that stay allocated over ``rounds`` calls, after a warm-up."""
    for _ in range(rounds // 10):
        function()
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(rounds):
            function()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def lane() -> bytes:
    return b"".join(_core.frame_entries([Entry(EntryKind.NOOP, 1, 1, 1, 1, payload=b"x")], 0, 0)[0])


def test_ten_thousand_rounds_leave_nothing_behind():
    data, broken = lane(), bytes(100)
    assert growth(lambda: work(data, broken), ROUNDS // 10) < SLACK_BYTES


def test_ten_thousand_encodes_leave_nothing_behind():
    def encode():
        builder = _core.BatchBuilder(1 << 16)
        builder.extend(1, values)
        builder.build()

    values = [b"x" * 100] * 20
    assert growth(encode, ROUNDS) < SLACK_BYTES


def test_the_growth_test_sees_a_leak():
    kept = []
    assert growth(lambda: kept.append(bytes(100)), 1000) > SLACK_BYTES


def test_no_view_of_an_input_is_kept():
    """A bytearray with a forgotten view could not be resized."""
    data = bytearray(lane())
    entries, damaged = _core.parse_entries(data), bytearray(100)
    del entries
    _core.scan_entries(data, 0, 0)
    _core.check_entries(data, 0, 0)
    _core.SegmentIndexer().take(data, 0, 0, 0)
    _core.find_entry(data, 0)
    for function in (_core.check_batch, _core.verify_batch, _core.split_batches,
                     _core.parse_entries, _core.batch_header):
        with pytest.raises(CodecError):
            function(damaged)
        damaged.append(0)
    data.append(0)


def test_shared_objects_keep_their_reference_counts():
    key, value, shared = b"a key of its own", b"a value of its own", []
    entry = Entry(EntryKind.NOOP, 1, 1, 1, 1, payload=value)

    def counts():
        return [sys.getrefcount(thing) for thing in (key, value, entry, shared, None.__class__)]

    before = counts()
    for _ in range(100):
        builder = _core.BatchBuilder(1000)
        builder.append(1, key, value)
        builder.extend(1, [value])
        _core.frame_entries([entry], 0, 0)
        with pytest.raises(TypeError):
            builder.append(1, key, shared)
    del builder
    assert counts() == before
