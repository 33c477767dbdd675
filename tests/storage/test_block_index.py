"""Index files in blocks against the packed indexes in memory, and each kind of damage to them."""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.block_index import lookup
from multiraft.storage.block_index.block_cache import BLOCK_OVERHEAD_BYTES, BlockCache
from multiraft.storage.block_index.blocks import (
    BATCHES,
    BLOCK_BYTES,
    ENTRIES,
    RECORDS,
    ROWS_PER_BLOCK,
    FileIdentity,
    open_block,
    pack_block,
)
from multiraft.storage.block_index.file_codec import (
    FileHeader,
    decode,
    decode_summary,
    encode,
    parse_header,
)
from multiraft.storage.block_index.rows import (
    FILES_MAX,
    FIRST_MAX,
    Row,
    SparseIndex,
    join_rows,
    pack_row,
)
from multiraft.storage.config import StorageConfig
from multiraft.storage.errors import (
    BlockNotCached,
    CorruptIndex,
    ForeignIndex,
    IndexTooLarge,
    UnknownFormat,
)
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Journal, SegmentHeader
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.types import Configuration, HardState
from tests.storage import index_version_5

CLUSTER, NODE = bytes(range(16)), 3
PATH = "lane-0/x.index"
SPAN = 1 << 24  # journal positions of one segment


class Written(NamedTuple):
    """An append: group, partition of the group, records, timestamp, framed size."""

    group: int
    partition: int  # 0 = an entry without a batch
    count: int  # type: ignore[assignment]
    timestamp_ms: int
    size: int


entries = st.builds(Written, st.integers(1, 3), st.integers(0, 3), st.integers(1, 9),
                    st.integers(-1, 50), st.integers(8, 200).map(lambda n: n * 8))
segments = st.lists(st.lists(entries, max_size=30), min_size=1, max_size=5)


class Node:
    """Segments of a node, each with its index; and the indexes of the whole in memory."""

    def __init__(self, written: list[list[Written]]):
        self.groups: dict[int, GroupIndex] = {}
        self.partitions: dict[tuple[int, int], PartitionIndex] = {}
        self.segments = [self._segment(number * SPAN + 64, each)
                         for number, each in enumerate(written)]
        self.files = [b"".join(encode(each, CLUSTER, NODE)) for each in self.segments]
        self.group_rows: dict[int, SparseIndex] = {}
        self._bytes: dict[int, int] = {}
        parts: dict[int, list[tuple[bytes, bytes, int]]] = {}
        for number, file in enumerate(self.files):
            self._join(number, file, parts)
        self.partition_rows = {(group, partition): known.rows for group, each in parts.items()
                               for partition, known in join_rows(each).items()}
        self.read: list[tuple[int, int]] = []

    def _segment(self, start: int, written: list[Written]) -> SegmentIndex:
        index = SegmentIndex(start, start + 7, start + SPAN, 5, start, start)
        position = start + 64
        for group, partition, count, timestamp_ms, size in written:
            whole = self.groups.setdefault(group, GroupIndex())
            run = index.runs.setdefault(group, SegmentRun(group, 1))
            at = whole.last_index + 1
            if run.index is None:
                run.index = GroupIndex(at)
            for each in (whole, run.index):
                each.append(at, 1 + at // 7, position, size)
            if partition:
                batches = self.partitions.setdefault((group, partition),
                                                     PartitionIndex(partition, group))
                base = batches.end_offset + (timestamp_ms % 5 == 0)  # now and then a gap
                own = run.partitions.setdefault(partition, PartitionIndex(partition, group))
                for known in (batches, own):
                    known.append(base, count, at, timestamp_ms)
            position += size
        return index

    def _join(self, number: int, file: bytes,
              parts: dict[int, list[tuple[bytes, bytes, int]]]) -> None:
        header = parse_header(PATH, file)
        for each in decode_summary(PATH, header, file[header.summary_position:]):
            group = each.run.group
            assert each.entries is not None
            before = self._bytes.get(group, 0)
            self.group_rows[group] = self.group_rows.get(group, SparseIndex()).extended(
                each.entries.rows.added(before), number)
            self._bytes[group] = before + each.entries.bytes
            parts.setdefault(group, []).append((each.packed_partitions, each.partition_rows,
                                                number))

    def blocks(self, file: int, block: int) -> bytes:
        self.read.append((file, block))
        data = self.files[file]
        header = parse_header(PATH, data)
        return open_block(PATH, header.identity, block, header.kind_of(block),
                          data[block * BLOCK_BYTES:(block + 1) * BLOCK_BYTES])


def many(count: int, groups: int = 1, partitions: int = 1) -> list[Written]:
    return [Written(1 + at % groups, 1 + at // groups % partitions, 1 + at % 3, at,
                    8 * (8 + at % 9)) for at in range(count)]


def written_node() -> Node:
    return Node([many(1200, 2, 3), many(700, 2, 3), many(5)])


# ---- look-ups ------------------------------------------------------------------------------------


def check_look_ups(node: Node) -> None:
    for group, whole in node.groups.items():
        rows = node.group_rows[group]
        rows._check()
        for index in range(1, whole.last_index + 1):
            node.read.clear()
            place = lookup.find_entry(rows, index, node.blocks)
            assert place is not None and len(node.read) == 1
            segment = node.segments[place.file]
            assert (segment.start + place.position, place.size) == (whole.position(index),
                                                                    whole.size(index))
            assert lookup.bytes_up_to(rows, index, node.blocks) == whole.bytes_between(1, index)
        assert lookup.find_entry(rows, whole.last_index + 1, node.blocks) is None
        assert lookup.find_entry(rows, 0, node.blocks) is None
    for key, known in node.partitions.items():
        rows = node.partition_rows[key]
        rows._check()
        whole = node.groups[key[0]]
        for offset in range(known.first_offset - 1, known.end_offset + 2):
            slot = known.find(offset)
            node.read.clear()
            found = lookup.find_batch(rows, offset, node.blocks)
            assert len(node.read) == (slot >= 0)
            if slot < 0:
                assert found is None
                continue
            assert found is not None and found[:3] == known.batch(slot)
            place = found.place
            assert (node.segments[place.file].start + place.position, place.size) == (
                whole.position(found.index), whole.size(found.index))
        batches = lookup.batches_from(rows, known.first_offset, node.blocks)
        assert [each[:3] for each in batches] == [known.batch(slot) for slot in range(len(known))]


@given(segments)
@settings(deadline=None)
def test_look_ups_say_the_same_as_the_index_in_memory(written):
    check_look_ups(Node(written))


def test_look_ups_across_blocks_and_files_read_one_block_each():
    node = written_node()
    assert len(node.group_rows[1]) > 3
    assert max(row.block for row in node.group_rows[1]) > 1
    check_look_ups(node)


@given(segments, st.integers(-2, 60))
@settings(deadline=None)
def test_the_first_batch_of_a_timestamp_is_found_with_one_block(written, timestamp_ms):
    node = Node(written)
    for key, known in node.partitions.items():
        node.read.clear()
        found = lookup.find_timestamp(node.partition_rows[key], timestamp_ms, node.blocks)
        slot = known.find_timestamp(timestamp_ms)
        assert len(node.read) == (slot < len(known))
        if slot == len(known):
            assert found is None
        else:
            assert found is not None and found[:3] == known.batch(slot)


@given(segments)
@settings(deadline=None)
def test_the_highest_timestamp_below_an_offset_is_found_with_one_block(written):
    node = Node(written)
    for key, known in node.partitions.items():
        rows = node.partition_rows[key]
        for offset in range(known.first_offset - 1, known.end_offset + 2):
            node.read.clear()
            found = lookup.latest_below(rows, offset, known.end_offset, node.blocks)
            assert len(node.read) <= 1
            slot = known.find(offset - 1)
            assert found == (known.latest(slot) if slot >= 0 else None)


@given(segments, st.integers(0, 60_000))
@settings(deadline=None)
def test_the_longest_range_within_a_size_is_found_with_one_block(written, bytes_max):
    node = Node(written)
    for group, whole in node.groups.items():
        node.read.clear()
        found = lookup.last_within(node.group_rows[group], bytes_max, node.blocks)
        assert len(node.read) == 1
        assert whole.bytes_between(1, found) <= bytes_max
        assert found == whole.last_index or whole.bytes_between(1, found + 1) > bytes_max


def test_a_run_that_its_block_does_not_have_is_damage():
    row = Row(1, 4, 9, 500, 4, 0)
    with pytest.raises(CorruptIndex, match="block 9"):
        lookup.find_entry(SparseIndex.of([row]), 1, lambda file, block: bytes(500 * 8))


# ---- rows ----------------------------------------------------------------------------------------


def test_rows_keep_every_number_up_to_its_limit():
    largest = Row(FIRST_MAX, FILES_MAX - 1, (1 << 24) - 1, 1023, 1023, (1 << 63) - 1)
    lowest = Row(-1, 0, 0, 0, 1, -(1 << 63))
    assert [*SparseIndex.of([lowest, largest])] == [lowest, largest]


@pytest.mark.parametrize("row,what", [
    (Row(FIRST_MAX + 1, 0, 1, 0, 1, 0), "entry index or offset"),
    (Row(0, FILES_MAX, 1, 0, 1, 0), "number of files"),
    (Row(0, 0, 1 << 24, 0, 1, 0), "number of blocks"),
])
def test_a_number_over_its_limit_is_refused_with_the_limit(row, what):
    with pytest.raises(IndexTooLarge, match=what) as refused:
        pack_row(row)
    assert refused.value.value > refused.value.limit or refused.value.value == FILES_MAX + 1


def test_a_running_value_never_falls_along_the_rows():
    rows = SparseIndex.of([Row(at, 0, 1, at, 1, value) for at, value in enumerate((5, 3, 8, 7))])
    assert [row.value for row in rows.raised()] == [5, 5, 8, 8]
    assert [row._replace(value=0) for row in rows.raised()] == [
        row._replace(value=0) for row in rows]
    rising = rows.raised()
    assert rising.raised() is rising


def test_files_have_numbers_below_their_limit():
    with pytest.raises(IndexTooLarge):
        SparseIndex().extended(SparseIndex.of([Row(1, 0, 1, 0, 1, 0)]), FILES_MAX)


# ---- whole files ---------------------------------------------------------------------------------


@given(segments)
@settings(deadline=None)
def test_a_file_is_decoded_to_the_index_that_was_encoded(written):
    node = Node(written)
    for segment, file in zip(node.segments, node.files):
        assert index_version_5.body(decode(PATH, file)) == index_version_5.body(segment)


def run_with_records() -> SegmentRun:
    run = SegmentRun(9, 2, truncated_from=4, hard_state=HardState(5, 1))
    run.copies = [Copy(4, 2, 640, 128, 64, 128), Copy(0, 1, 70, 80, 64, 72, 7, 0, 2, 33)]
    run.cleared_position, run.cleared_ranges = 300, ((64, 128), (256, 300))
    run.head_recovery_truncate_position = 200
    run.tombstone = Tombstone(HardState(3, 0), 8, 1, 2)
    run.tombstone_position, run.removed = 100, True
    run.forced_recovery = ForcedRecovery(6, Configuration((1, 2)))
    run.forced_recovery_at, run.forced_recovery_term = (500, 8), 4
    return run


def test_records_of_groups_are_in_the_summary():
    empty = SegmentRun(10, 1, partitions={7: PartitionIndex(7, 10)})
    empty.partitions[7].end_offset = 12
    index = SegmentIndex(64, 5, 4096, 3, 64, 64, {9: run_with_records(), 10: empty})
    file = b"".join(encode(index, CLUSTER, NODE))
    assert index_version_5.body(decode(PATH, file)) == index_version_5.body(index)
    header = parse_header(PATH, file)
    summary = decode_summary(PATH, header, file[header.summary_position:])
    assert summary[0].run == run_with_records()
    assert [(each.partition, each.end_offset) for each in summary[1].partitions()] == [(7, 12)]


def test_an_entry_of_unknown_position_stays_unknown():
    run = SegmentRun(1, 1, index=GroupIndex())
    run.index.append(1, 1, 128, 80)
    run.index.append_placeholders(3)
    run.index.append(3, 1, 208, 80)
    file = b"".join(encode(SegmentIndex(64, 1, 400, 0, 64, 64, {1: run}), CLUSTER, NODE))
    found = decode(PATH, file).runs[1].index
    assert [found.position(each) for each in (1, 2, 3)] == [128, UNKNOWN_POSITION, 208]


def test_a_position_that_no_row_can_hold_is_refused():
    run = SegmentRun(1, 1, index=GroupIndex())
    run.index.append(1, 1, 64 + (1 << 32), 80)
    with pytest.raises(IndexTooLarge, match="position"):
        encode(SegmentIndex(64, 1, 1 << 33, 0, 64, 64, {1: run}), CLUSTER, NODE)


def test_the_bytes_of_a_small_file_are_these():
    segment = Node([[Written(1, 2, 3, 51, 96), Written(1, 0, 1, 0, 64)]]).segments[0]
    head, entry_block, batch_block, summary = encode(segment, CLUSTER, NODE)
    assert head[:100].hex() == (
        "4d52494e44455801" "06000000" "000102030405060708090a0b0c0d0e0f" "03000000"
        "4000000000000000" "47000000" "4000000100000000" "05000000" "4000000000000000"
        "4000000000000000" "0200000000000000" "0100000000000000" "6500000000000000" "7ec33493")
    assert head[100:].hex() == bytes(BLOCK_BYTES - 104).hex() + "208657fa"
    assert entry_block.hex() == (
        "7b185cf7" "0100" "0200" "40000000" "60000000" "a0000000" "a0000000"
        + bytes(BLOCK_BYTES - 24).hex())
    assert batch_block.hex() == (
        "b36726da" "0200" "0100" "0000000000000000" "3300000000000000" "0100000000000000"
        "40000000" "60000000" "03000000" + bytes(BLOCK_BYTES - 44).hex())
    assert summary.hex() == (
        "81" "91" "010100" "85" "0118a0" "5818" "0100000000000000" "0200100000000000"
        "0000000000000000" "8101" "8101" "54" "0200000000000000" "0300000000000000" "01000000"
        "5818" "0000000000000000" "0100200000000000" "3300000000000000"
        "f6" "80" "00" "80" "00" "f6" "00" "f4" "f6" "820000" "820000")


# ---- damage --------------------------------------------------------------------------------------


def test_each_flipped_byte_of_a_file_is_noticed():
    file = Node([many(20)]).files[0]
    for at in [*range(140), *range(BLOCK_BYTES - 8, BLOCK_BYTES + 40), *range(2 * BLOCK_BYTES - 4,
               2 * BLOCK_BYTES + 40), *range(3 * BLOCK_BYTES - 4, len(file))]:
        data = bytearray(file)
        data[at] ^= 0x10
        with pytest.raises((CorruptIndex, UnknownFormat)):
            decode(PATH, bytes(data))


def test_a_file_that_is_cut_off_is_noticed():
    file = Node([many(20)]).files[0]
    for length in (0, 5, 12, 100, BLOCK_BYTES, 2 * BLOCK_BYTES, len(file) - 1):
        with pytest.raises(CorruptIndex):
            decode(PATH, file[:length])
    with pytest.raises(CorruptIndex):
        decode(PATH, file + b"\0")


def test_a_file_of_another_version_is_unknown():
    file = Node([many(20)]).files[0]
    for version in (4, 5, 7):
        with pytest.raises(UnknownFormat):
            parse_header(PATH, file[:8] + struct.pack("<I", version) + file[12:])


@pytest.mark.parametrize("field,value", [("cluster", bytes(16)), ("node", 4), ("start", 65),
                                         ("seed", 1)])
def test_a_file_of_another_segment_is_foreign(field, value):
    header = parse_header(PATH, Node([many(20)]).files[0])
    header.require(PATH, header.identity)
    with pytest.raises(ForeignIndex, match=field) as refused:
        header.require(PATH, header.identity._replace(**{field: value}))
    assert refused.value.field == field


def test_blocks_of_the_segments_of_one_boot_have_checksums_of_their_own():
    """The seed of a segment is a checksum of its start."""
    journal = Journal(SimulatedFilesystem(), "/lane-0", SegmentHeader(1, 0, 0, bytes(16), 1, 0),
                      (3, 7), StorageConfig())
    journal.resume([], 0, 0, 0, None)
    seen = set()
    for _ in range(100):
        journal.start_segment()
        journal.position += 64
        segment = journal.segments[-1]
        seen.add(FileIdentity(bytes(16), 1, segment.start, segment.seed).crc())
    assert len(seen) == len(journal.segments) == 100


def test_a_block_in_the_place_of_another_is_damage():
    identity = FileIdentity(CLUSTER, NODE, 64, 1)
    data = pack_block(identity, 3, ENTRIES, bytes(16))
    assert open_block(PATH, identity, 3, ENTRIES, data) == bytes(16)
    for other, number, kind in [(identity, 4, ENTRIES), (identity, 3, BATCHES),
                                (identity._replace(seed=2), 3, ENTRIES),
                                (identity._replace(start=0), 3, ENTRIES)]:
        with pytest.raises(CorruptIndex):
            open_block(PATH, other, number, kind, data)


def with_checksums(file: bytes, change) -> bytes:
    """Return a file whose header fields are changed, with right checksums."""
    header = change(parse_header(PATH, file))
    head = bytearray(file[:BLOCK_BYTES])
    struct.pack_into("<16sIQIQIqQQQQI", head, 12, *header.identity, *header[1:])
    struct.pack_into("<I", head, BLOCK_BYTES - 4, core.crc32c(head[:BLOCK_BYTES - 4]))
    return bytes(head) + file[BLOCK_BYTES:]


@pytest.mark.parametrize("field,value", [("entries", 19), ("entries", 21), ("batches", 19),
                                         ("entries", 1 << 40), ("summary_bytes", 1 << 40)])
def test_a_header_that_contradicts_the_file_is_damage(field, value):
    def change(header: FileHeader) -> FileHeader:
        return header._replace(**{field: value})

    file = with_checksums(Node([many(20)]).files[0], change)
    with pytest.raises(CorruptIndex):
        decode(PATH, file)


# ---- cache ---------------------------------------------------------------------------------------


def test_a_block_that_is_not_in_memory_is_named():
    cache = BlockCache(1 << 20)
    with pytest.raises(BlockNotCached) as missing:
        cache.rows(2, 7)
    assert (missing.value.file, missing.value.block) == (2, 7)
    cache.add(2, 7, b"rows")
    assert cache.rows(2, 7) == b"rows"
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_cache_keeps_its_bound_and_the_blocks_of_the_last_use():
    size = BLOCK_BYTES + BLOCK_OVERHEAD_BYTES
    cache = BlockCache(3 * size)
    for block in (1, 2, 3):
        cache.add(0, block, bytes(BLOCK_BYTES))
    cache.rows(0, 1)
    cache.add(0, 4, bytes(BLOCK_BYTES))
    assert cache.bytes == 3 * size and len(cache) == 3
    assert all(cache.rows(0, block) for block in (1, 3, 4))
    with pytest.raises(BlockNotCached):
        cache.rows(0, 2)


def test_a_block_is_kept_however_low_the_bound_is():
    cache = BlockCache(0)
    cache.add(0, 1, b"one")
    cache.add(0, 2, b"two")
    assert cache.rows(0, 2) == b"two" and len(cache) == 1


def test_the_blocks_of_a_file_that_no_longer_exists_are_forgotten():
    cache = BlockCache(1 << 20)
    for file in (1, 2):
        for block in (1, 2):
            cache.add(file, block, b"rows")
    cache.add(1, 1, b"other rows")
    cache.forget(1)
    assert len(cache) == 2 and cache.bytes == 2 * (4 + BLOCK_OVERHEAD_BYTES)


def test_rows_of_a_block_fill_it():
    assert ROWS_PER_BLOCK == {ENTRIES: 511, BATCHES: 113, RECORDS: 255}
    assert partial(lookup.find_batch, SparseIndex(), 5)(lambda file, block: b"") is None
