"""Cold segments and their index files: bytes, exact round trips, and each kind of damage."""

from __future__ import annotations

import hashlib
import random

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.errors import CorruptEntry
from multiraft.storage.block_index.blocks import BLOCK_BYTES, RECORD_ROW
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_segment import (
    COLD_BYTES_LIMIT,
    COLD_NUMBER_MAX,
    ColdHeader,
    cold_index_path,
    cold_path,
    is_cold,
    number_of,
    place_in,
)
from multiraft.storage.cold.contents import FoundContents, read_contents
from multiraft.storage.errors import CorruptFile, CorruptIndex, UnknownFormat, WrongIdentity
from multiraft.storage.strays import JOURNAL_POSITION_MAX
from tests.storage.cold.files import (
    CLUSTER,
    DIRECTORY,
    NODE,
    cold_file,
    header_of,
    some_entries,
)
from tests.storage.world import data_entry

PATH, INDEX = cold_path(DIRECTORY, 7), cold_index_path(DIRECTORY, 7)


def found(filesystem, job, cluster: bytes = CLUSTER, node: int = NODE) -> FoundContents:
    return read_contents(filesystem, DIRECTORY, job.written, cluster, node)


def rows_of(contents) -> list[tuple]:
    """Everything that contents say, as plain values."""
    return [(run.group, run.incarnation, list(run.indexes), list(run.bytes), list(run.sizes),
             run.run_starts, run.run_terms,
             [each.pack() for _, each in sorted(run.partitions.items())])
            for _, run in sorted(contents.runs.items())]


# ---- bytes ---------------------------------------------------------------------------------------


#: Of both files of the test.
GOLDEN_DATA = "250690ead7754d27ba8269e45c9d79fa7791433f1461709a75d02c2d893527a5"
GOLDEN_FIRST_INDEX = "dd3233587b538bedce58d7fb2d80c24a56ac1997927c20d9894b6dac06b15882"
GOLDEN_INDEX = "4555f78a10d261877e88ce4e242e66133656a9bcd6c868442da2d2e3a270739e"
GOLDEN_RANGES = "263e36c2dfe2bfd10cca4d194e3cf2fb31a75855f5080e15989b2707dd52bc2d"


def test_golden_bytes():
    """A changed byte needs a new version and a decision page."""
    filesystem = SimulatedFilesystem()
    cold_file(filesystem, [
        data_entry(2, 9, 3, 5, 4, [b"c"]), data_entry(1, 3, 1, 8, 0, [b"a"]),
        data_entry(1, 5, 2, 8, 1, [b"b", b"bb"])])
    data, index = filesystem.image(PATH), filesystem.image(INDEX)
    assert data[:64].hex() == (
        "4d52434f4c440001" "01000000" "00000000" "0700000000000000"
        "000102030405060708090a0b0c0d0e0f" "03000000" + data[44:48].hex() +
        "0000004000000000" "00000000" + data[60:64].hex())
    assert data[44:48] == core.crc32c(bytes.fromhex(
        "0700000000000000" "4d00000000000000" "0200000000000000")).to_bytes(4, "little")
    assert data[60:64] == core.crc32c(data[:60]).to_bytes(4, "little")
    assert len(data) == 64 + 3 * 64 + 72 + 80 + 72
    assert index[:12] == b"MRCOLDI\x01" b"\x02\0\0\0" and len(index) == 3 * BLOCK_BYTES + 165
    assert index[BLOCK_BYTES + 4:BLOCK_BYTES + 8].hex() == "03000300"
    assert index[BLOCK_BYTES + 8:BLOCK_BYTES + 56] == b"".join([
        RECORD_ROW.pack(3, 64, 136), RECORD_ROW.pack(5, 200, 144), RECORD_ROW.pack(9, 344, 136)])
    assert hashlib.sha256(data).hexdigest() == GOLDEN_DATA
    assert hashlib.sha256(index).hexdigest() == GOLDEN_INDEX
    assert hashlib.sha256(first_version_of(index)).hexdigest() == GOLDEN_FIRST_INDEX


def first_version_of(index: bytes) -> bytes:
    """The same index file in version 1, whose summary has no ranges."""
    header = cold_index.parse_header(INDEX, index)
    runs = [run[:-1] for run in cbor2.loads(index[header.summary_position:])]
    summary, head = cbor2.dumps(runs), bytearray(index[:BLOCK_BYTES])
    head[8] = 1
    head[76:84] = len(summary).to_bytes(8, "little")
    head[84:88] = core.crc32c(summary, header.identity.block_crc(0)).to_bytes(4, "little")
    head[-4:] = core.crc32c(head[:-4]).to_bytes(4, "little")
    return bytes(head) + index[BLOCK_BYTES:header.summary_position] + summary


def test_an_index_of_version_1_is_read():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    first = first_version_of(filesystem.image(INDEX))
    assert rows_of(cold_index.decode(INDEX, first)) == rows_of(job.contents)
    header = cold_index.parse_header(INDEX, first)
    summary = first[header.summary_position:]
    assert [each.ranges for each in cold_index.decode_summary(INDEX, header, summary)] == [(), ()]


def test_golden_summary_with_ranges():
    filesystem = SimulatedFilesystem()
    contents = cold_file(filesystem).contents
    first, last = contents.runs[1].indexes[0], contents.runs[1].indexes[-1]
    bounds = {1: [(first, first + 4), (first + 5, last + 3)], 2: [(first, last - 1)]}
    contents.take_ranges(bounds)
    assert [run.ranges for run in contents.runs.values()] == [tuple(bounds[1]), ()]
    index = b"".join(cold_index.encode(contents))
    assert hashlib.sha256(index).hexdigest() == GOLDEN_RANGES
    again = cold_index.decode(INDEX, index)
    assert [run.ranges for run in again.runs.values()] == [tuple(bounds[1]), ()]
    assert rows_of(again) == rows_of(contents)
    header = cold_index.parse_header(INDEX, index)
    one, other = cold_index.decode_summary(INDEX, header, index[header.summary_position:])
    assert len(one.partition_rows) > len(other.partition_rows), "each row is of one range"
    contents.take_ranges(bounds, {1})
    assert not contents.runs[1].ranges


@pytest.mark.parametrize("ranges", [[[9, 5]], [[1, 9], [9, 30]], [[10, 30], [1, 9]]])
def test_ranges_that_do_not_ascend_are_refused(ranges):
    filesystem = SimulatedFilesystem()
    cold_file(filesystem)
    index = filesystem.image(INDEX)
    header = cold_index.parse_header(INDEX, index)
    runs = cbor2.loads(index[header.summary_position:])
    runs[0][-1] = ranges
    summary = cbor2.dumps(runs)
    header = header._replace(summary_bytes=len(summary),
                             summary_crc=core.crc32c(summary, header.identity.block_crc(0)))
    with pytest.raises(CorruptIndex):
        cold_index.decode_summary(INDEX, header, summary)


def test_places_are_no_journal_offsets():
    place = place_in(5, 77)
    assert is_cold(place) and number_of(place) == 5 and place - place_in(5, 0) == 77
    assert not is_cold(JOURNAL_POSITION_MAX - 1)
    highest = place_in(COLD_NUMBER_MAX - 1, COLD_BYTES_LIMIT - 1)
    assert highest < 1 << 63 and number_of(highest) == COLD_NUMBER_MAX - 1


# ---- round trips ---------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 900), st.integers(1, 4), st.integers(1, 5))
def test_index_and_scan_say_the_same(count, groups, partitions):
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem, some_entries(count, groups, partitions))
    indexed = found(filesystem, job)
    assert indexed.is_indexed and rows_of(indexed.contents) == rows_of(job.contents)
    filesystem.remove(INDEX)
    scanned = found(filesystem, job)
    assert not scanned.is_indexed and scanned == (scanned.contents, [], [], False)
    assert rows_of(scanned.contents) == rows_of(job.contents)
    assert b"".join(cold_index.encode(scanned.contents)) == b"".join(
        cold_index.encode(job.contents))


def test_an_index_of_another_segment_is_not_used():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    other = SimulatedFilesystem()
    cold_file(other, some_entries(25))
    filesystem.open(INDEX).truncate(0)
    filesystem.open(INDEX).write([other.image(INDEX)], 0, True)
    again = found(filesystem, job)
    assert not again.is_indexed and rows_of(again.contents) == rows_of(job.contents)


def test_files_of_another_node_are_refused():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    with pytest.raises(WrongIdentity):
        found(filesystem, job, node=NODE + 1)
    with pytest.raises(WrongIdentity):
        found(filesystem, job, bytes(16))


def test_a_later_version_is_refused():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    head = bytearray(filesystem.image(PATH)[:64])
    head[8] = 2
    head[60:] = core.crc32c(head[:60]).to_bytes(4, "little")
    filesystem.overwrite(PATH, 0, bytes(head))
    with pytest.raises(UnknownFormat):
        found(filesystem, job)


# ---- damage --------------------------------------------------------------------------------------


def test_a_damaged_header_is_no_loss():
    """The checkpoint has each of its fields."""
    for remove_index in (False, True):
        filesystem = SimulatedFilesystem()
        job = cold_file(filesystem)
        filesystem.overwrite(PATH, 0, bytes(64))
        with pytest.raises(CorruptFile):
            ColdHeader.parse(PATH, filesystem.image(PATH)[:64])
        if remove_index:
            filesystem.remove(INDEX)
        again = found(filesystem, job)
        assert again.contents.header == header_of() and not again.lost and not again.unreadable
        assert rows_of(again.contents) == rows_of(job.contents)


def test_missing_bytes_at_the_end_are_damage_and_no_torn_tail():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    size = job.written.length - 8
    filesystem.open(PATH).truncate(size)
    again = found(filesystem, job)
    run = job.contents.runs[2]
    last = max(range(len(run.bytes)), key=run.bytes.__getitem__)
    assert again.unreadable == [(2, run.indexes[last])]
    filesystem.remove(INDEX)
    again = found(filesystem, job)
    assert again.lost == [(run.bytes[last], job.written.length)]
    assert again.contents.records == 23
    filesystem.open(PATH).truncate(run.bytes[last])
    assert found(filesystem, job).lost == [(run.bytes[last], job.written.length)]


def test_a_missing_file_is_known_by_its_index():
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    filesystem.remove(PATH)
    again = found(filesystem, job)
    assert len(again.unreadable) == again.contents.records == 24
    filesystem.remove(INDEX)
    again = found(filesystem, job)
    assert not again.contents.runs and again.lost == [(64, job.written.length)]


def check_against(again: FoundContents, job, data: bytes) -> None:
    """Each record is there as it was, or in a place that counts as damaged; none is wrong."""
    true = {(run.group, index): place for run in job.contents.runs.values()
            for index, *place in zip(run.indexes, run.bytes, run.sizes)}
    known = {(run.group, index): place for run in again.contents.runs.values()
             for index, *place in zip(run.indexes, run.bytes, run.sizes)}
    assert known.items() <= true.items()
    for key, (byte, size) in true.items():
        try:
            entries = core.parse_entries(memoryview(data)[byte:byte + size])
            is_intact = [(each.group, each.index) for each in entries] == [key]
        except CorruptEntry:
            is_intact = False
        if key not in known:
            assert any(begin <= byte < end for begin, end in again.lost), key
        elif not is_intact and not again.is_indexed:
            assert key in again.unreadable


@pytest.mark.parametrize("seed", range(60))
def test_damage_of_a_segment_never_gives_another_record(seed):
    rng = random.Random(seed)
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    if seed % 2:
        filesystem.remove(INDEX)
    size = job.written.length
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(size)
        filesystem.overwrite(PATH, at, rng.randbytes(min(rng.choice([1, 4, 60, 300]), size - at)))
    check_against(found(filesystem, job), job, filesystem.image(PATH))


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_index_is_found_and_the_segment_scanned(seed):
    rng = random.Random(seed)
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem, some_entries(600))
    data = filesystem.image(INDEX)
    at = rng.randrange(len(data))
    damaged = bytearray(data)
    damaged[at:at + 1] = rng.randbytes(rng.choice([0, 1, 2]))
    if bytes(damaged) == data:
        return
    with pytest.raises((CorruptIndex, UnknownFormat)):
        cold_index.decode(INDEX, bytes(damaged))
    filesystem.open(INDEX).truncate(0)
    filesystem.open(INDEX).write([bytes(damaged)], 0, True)
    again = found(filesystem, job)
    assert not again.is_indexed and not again.lost
    assert rows_of(again.contents) == rows_of(job.contents)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 64))
def test_any_bytes_are_an_error_and_no_crash(data, kept):
    filesystem = SimulatedFilesystem()
    cold_file(filesystem, some_entries(3))
    index = filesystem.image(INDEX)
    with pytest.raises((CorruptIndex, UnknownFormat)):
        cold_index.decode(INDEX, index[:kept] + data)


def test_an_entry_of_a_journal_is_no_record_of_a_cold_segment():
    """Bytes that a misdirected write left carry a durable watermark."""
    filesystem = SimulatedFilesystem()
    job = cold_file(filesystem)
    filesystem.remove(INDEX)
    run = job.contents.runs[1]
    byte, size = run.bytes[0], run.sizes[0]
    other = core.frame_entries([data_entry(1, 99, 9, 10, 50, [b"value 0"])], 3, 1000)[0]
    assert sum(map(len, other)) == size
    filesystem.overwrite(PATH, byte, b"".join(other))
    again = found(filesystem, job)
    assert again.lost == [(byte, byte + size)] and 99 not in again.contents.runs[1].indexes
