"""Parsing of fetched batches, and searches for a time, with any timestamps, log start and
damage."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from multiraft import core
from multiraft.client._batch_reader import Search, first_records, intact_batches
from multiraft.client._records import FetchedBatch
from multiraft.compression import codec_number, compress
from multiraft.errors import CorruptBatch
from multiraft.storage.index import PartitionIndex
from multiraft.storage.partition_reads import PartitionReads
from multiraft.storage.stored_log import StoredLog

PARTITION = 7
STAMPS = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=6)


def batch(base_offset: int, stamps: list[int]) -> bytearray:
    builder = core.BatchBuilder(1 << 16)
    for stamp in stamps:
        assert builder.append(stamp, None, b"at %d" % stamp)
    data = builder.build()
    core.stamp_batch(data, base_offset, 1)
    return data


def log(batches: list[list[int]]) -> list[bytearray]:
    found, offset = [], 0
    for stamps in batches:
        found.append(batch(offset, stamps))
        offset += len(stamps)
    return found


def named(batches: list[list[int]], timestamp_ms: int, log_start: int, end: int) -> int | None:
    """Return the offset that a node names as the start of a search."""
    index, offset = PartitionIndex(PARTITION, 1), 0
    for number, stamps in enumerate(batches):
        index.append(offset, len(stamps), number + 1, max(stamps))
        offset += len(stamps)
    log = StoredLog(1, 1)
    log.partitions[PARTITION] = index
    table = SimpleNamespace(log=lambda _group: log, indexed=SimpleNamespace(blocks=None))
    return PartitionReads(table).first_at(1, PARTITION, timestamp_ms, log_start, end)


@given(STAMPS, st.integers(0, 22), st.data())
def test_node_and_client_find_the_first_record_that_is_late_enough(batches, timestamp_ms, data):
    ends = [sum(map(len, batches[:count])) for count in range(len(batches) + 1)]
    end = data.draw(st.sampled_from(ends), "end")
    log_start = data.draw(st.integers(0, end), "log start")
    stamps = [stamp for batch_stamps in batches for stamp in batch_stamps]
    expected = next((offset for offset in range(log_start, end)
                     if stamps[offset] >= timestamp_ms), None)
    position = named(batches, timestamp_ms, log_start, end)
    if position is None:
        assert expected is None
        return
    assert log_start <= position and (expected is None or position <= expected)
    found = None
    for part in log(batches):
        header = core.batch_header(part)
        if not position <= header.base_offset + header.last_offset_delta < end:
            continue
        fetched = FetchedBatch("t", 0, memoryview(part), header, position, end)
        wanted = first_records(fetched, Search(timestamp_ms, end))
        if wanted is not None:
            found = wanted.base_offset
            assert [record.offset for record in wanted.records()] == list(
                range(found, wanted.next_offset))
            break
    assert found == expected


def test_a_time_is_found_in_batches_with_the_append_time():
    """The records have times of their own, which are later and do not count."""
    batches, times = [[90, 91], [95, 96, 97], [99]], [10, 20, 20]
    parts = log(batches)
    for part, time in zip(parts, times, strict=True):
        core.stamp_append_time(part, time)
    for timestamp_ms, expected in ((0, 0), (10, 0), (11, 2), (20, 2), (21, None), (90, None)):
        # A node indexes the largest timestamp of the header.
        position = named([[core.batch_info(part).max_timestamp_ms] * len(stamps)
                          for part, stamps in zip(parts, batches, strict=True)],
                         timestamp_ms, 0, 6)
        found = None
        for part in parts:
            header = core.batch_header(part)
            if position is not None and position <= header.base_offset + header.last_offset_delta:
                found = FetchedBatch("t", 0, memoryview(part), header, position,
                                     6).first_at(timestamp_ms)
                break
        assert found == expected, timestamp_ms


@given(STAMPS, st.data())
def test_what_precedes_damage_is_intact_and_nothing_after_it_comes(batches, data):
    parts = log(batches)
    bad = data.draw(st.integers(0, len(parts) - 1), "damaged batch")
    at = data.draw(st.integers(21, len(parts[bad]) - 1), "byte behind the CRC")
    parts[bad][at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    found, damage = intact_batches(memoryview(b"".join(parts)))
    assert [bytes(part) for part, _header in found] == [bytes(part) for part in parts[:bad]]
    assert isinstance(damage, CorruptBatch)


@given(STAMPS)
def test_intact_bytes_are_all_their_batches(batches):
    parts = log(batches)
    found, damage = intact_batches(memoryview(b"".join(parts)))
    assert damage is None
    assert [bytes(part) for part, _header in found] == [bytes(part) for part in parts]


def test_a_compressed_batch_is_opened_by_its_reader():
    builder = core.BatchBuilder(1 << 16)
    for stamp in (5, 7, 9):
        builder.append(stamp, None, b"x")
    codec = codec_number("gzip")
    block = compress(codec, builder.records_block())
    data = builder.build(codec=codec, block=block)
    header = core.batch_header(data)
    fetched = FetchedBatch("t", 0, memoryview(data), header, 0, 3)
    assert [fetched.first_at(stamp) for stamp in (0, 5, 6, 9, 10)] == [0, 0, 1, 2, None]
