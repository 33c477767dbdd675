"""Index file of a cold segment: a header, blocks of records and batches, a summary.

Contract.  ``encode`` and ``decode`` are exact inverses.  An index file is a cache: each error of
reading one means that its cold segment is scanned instead.

Theory.  The blocks are those of other index files (``block_index``), and so are the rows of
batches, which answer by partition and offset.  Records of a group are not dense, so that blocks of
records have their indexes, and answer by group and index.  Bytes: docs/storage-format.md.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import cbor2

from multiraft import core
from multiraft.codec import shapes
from multiraft.storage.block_index.blocks import (
    BATCHES,
    BLOCK_BYTES,
    RECORD_ROW,
    RECORDS,
    ROWS_PER_BLOCK,
    FileIdentity,
    open_block,
)
from multiraft.storage.block_index.columns import RowWriter
from multiraft.storage.block_index.rows import ROW_BYTES, Row, SparseIndex
from multiraft.storage.cold.cold_segment import ColdHeader
from multiraft.storage.config import ENVELOPE_BYTES_LIMIT
from multiraft.storage.errors import CorruptIndex, ForeignIndex, IndexTooLarge, UnknownFormat
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import PartitionIndex
from multiraft.storage.removable_segments import GroupContents, PackedGroups

COLD_INDEX_MAGIC = b"MRCOLDI\x01"
COLD_INDEX_VERSION = 2
#: Without ranges of indexes in its summary.
FIRST_VERSION = 1

#: magic, version; cluster, node, number, seed, generation, copied from; length, last CRC; records,
#: bytes and CRC of the summary
_HEAD = struct.Struct("<8sI16sIQIIQQIQQI")
_VERSION = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_CRC_AT = BLOCK_BYTES - _CRC.size

#: A partition in a summary: its incarnation, the offset after its last record, its rows.
_PARTITION = struct.Struct("<QqI")
_FIRST_RUN_SHAPE = (shapes.UINT, shapes.UINT, shapes.BYTES, [shapes.UINT], [shapes.UINT],
                    shapes.BYTES, shapes.BYTES)
_RUN_SHAPE = (*_FIRST_RUN_SHAPE, [(shapes.UINT, shapes.UINT)])

#: First and last index of ranges, ascending and apart.
IndexRanges = Sequence[tuple[int, int]]


@dataclass(slots=True)
class ColdRun:
    """Records of one group in a cold segment, as columns ascending by index."""

    group: int
    incarnation: int
    indexes: array[int] = field(default_factory=lambda: array("Q"))
    bytes: array[int] = field(default_factory=lambda: array("I"))  # of the file
    sizes: array[int] = field(default_factory=lambda: array("I"))  # framed
    #: Terms as runs: the first record of each, and its term.
    run_starts: list[int] = field(default_factory=list)
    run_terms: list[int] = field(default_factory=list)
    partitions: dict[int, PartitionIndex] = field(default_factory=dict)
    #: Ranges of indexes for which the index file answers at a start; none if a record is in none.
    ranges: IndexRanges = ()

    def add(self, index: int, term: int, byte: int, size: int) -> None:
        """Add the group's next record by index."""
        if not self.run_terms or self.run_terms[-1] != term:
            self.run_starts.append(index)
            self.run_terms.append(term)
        self.indexes.append(index)
        self.bytes.append(byte)
        self.sizes.append(size)


class ColdIndexHeader(NamedTuple):
    """The first block of an index file.  Has the attributes of ``FileHeader`` that look-ups use."""

    header: ColdHeader
    length: int  # bytes of the cold segment
    last_crc: int
    records: int
    summary_bytes: int
    summary_crc: int
    version: int = COLD_INDEX_VERSION

    @property
    def identity(self) -> FileIdentity:
        """Identity that the checksums of the file begin with."""
        return self.header.index_identity

    @property
    def entries(self) -> int:
        """Number of records."""
        return self.records

    def kind_of(self, block: int) -> int:
        """Return the kind of the rows in a block."""
        return RECORDS if block < self.first_batch_block else BATCHES

    def require(self, path: str, expected: FileIdentity) -> None:
        """Raise ``ForeignIndex`` if the file describes another cold segment than ``expected``."""
        for name, found, known in zip(FileIdentity._fields, self.identity, expected, strict=True):
            if found != known:
                raise ForeignIndex(path, name, found, known)

    @property
    def first_batch_block(self) -> int:
        return 1 - (-self.records // ROWS_PER_BLOCK[RECORDS])

    @property
    def summary_position(self) -> int:
        batch_blocks = -(-self.records // ROWS_PER_BLOCK[BATCHES])
        return (self.first_batch_block + batch_blocks) * BLOCK_BYTES

    @property
    def file_bytes(self) -> int:
        return self.summary_position + self.summary_bytes


@dataclass(slots=True)
class ColdContents:
    """Records of a cold segment by group, and the bounds of the file."""

    header: ColdHeader
    length: int  # bytes of the file
    last_crc: int  # of the last entry
    runs: dict[int, ColdRun] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(len(run.indexes) for run in self.runs.values())

    @property
    def index_header(self) -> ColdIndexHeader:
        """Header of the index file, without its summary.  O(groups)."""
        return ColdIndexHeader(self.header, self.length, self.last_crc, self.records, 0, 0)

    def take_ranges(self, ranges: Mapping[int, IndexRanges], unsure: Container[int] = ()) -> None:
        """Set the ranges of indexes for which the index file is to answer at a start, by group.
        Leave out the ``unsure`` groups, and those with a record that is in no range.
        O(records)."""
        for group, run in self.runs.items():
            known = sorted(ranges.get(group, ())) if group not in unsure else []
            held = sum(bisect_right(run.indexes, last) - bisect_left(run.indexes, first)
                       for first, last in known)
            run.ranges = tuple(known) if held == len(run.indexes) else ()

    def batches_before(self, group: int) -> int:
        """Return the number of batches before those of a group in the blocks.  O(groups)."""
        return sum(len(run.indexes) for each, run in self.runs.items() if each < group)

    def groups(self) -> PackedGroups:
        """Return the groups with the first and last index of their records.  O(groups)."""
        return PackedGroups({group: GroupContents(run.incarnation, run.indexes[-1], run.indexes[0])
                             for group, run in self.runs.items()})


def batch_rows(batches: PartitionIndex, at: int, header: ColdIndexHeader, file: int,
               ranges: Sequence[tuple[int, int]]) -> list[Row]:
    """Return rows of the batches of a partition with indexes in ``ranges``, ascending, as rows of
    file number ``file``.  A row is of one range, because batches of other files may lie between
    two.

    ``at``: number of batches in the blocks before those of the partition.  O(rows + ranges log
    n)."""
    per_block, rows = ROWS_PER_BLOCK[BATCHES], []
    for first, last in ranges:
        slots = batches.slots_within(first, last + 1)
        begin = slots.start
        while begin < slots.stop:
            block, slot = divmod(at + begin, per_block)
            count = min(slots.stop - begin, per_block - slot)
            rows.append(Row(batches.batch(begin)[0], file, header.first_batch_block + block, slot,
                            count, batches.latest(begin + count - 1)))
            begin += count
    return rows


def encode(contents: ColdContents) -> list[bytes]:
    """Return the buffers of the index file of a cold segment, with groups and partitions in
    ascending order.  O(records).  Raise ``IndexTooLarge`` if a number does not fit into its row."""
    identity = contents.header.index_identity
    runs = [contents.runs[group] for group in sorted(contents.runs)]
    records = RowWriter(identity, RECORDS, 1)
    record_rows = [records.add_records(run.indexes, run.bytes, run.sizes) for run in runs]
    record_blocks = records.finish()
    batches = RowWriter(identity, BATCHES, 1 + len(record_blocks))
    packed = [_pack_run(run, rows, batches, contents.index_header)
              for run, rows in zip(runs, record_rows, strict=True)]
    batch_blocks = batches.finish()
    assert records.count == batches.count, "each record is a batch"
    summary = cbor2.dumps(packed)
    if len(summary) > ENVELOPE_BYTES_LIMIT:
        raise IndexTooLarge("the size of the summary", ENVELOPE_BYTES_LIMIT, len(summary))
    head, header = bytearray(BLOCK_BYTES), contents.header
    _HEAD.pack_into(head, 0, COLD_INDEX_MAGIC, COLD_INDEX_VERSION, header.cluster, header.node,
                    header.number, header.seed, header.generation, header.copied_from,
                    contents.length, contents.last_crc, records.count, len(summary),
                    core.crc32c(summary, identity.block_crc(0)))
    _CRC.pack_into(head, _CRC_AT, core.crc32c(memoryview(head)[:_CRC_AT]))
    return [bytes(head), *record_blocks, *batch_blocks, summary]


def _pack_run(run: ColdRun, rows: SparseIndex, batches: RowWriter,
              header: ColdIndexHeader) -> list:
    slot_of = {index: slot for slot, index in enumerate(run.indexes)}
    heads, partition_rows = [], []
    for _, partition in sorted(run.partitions.items()):
        slots = [slot_of[index] for index in partition.indexes_below(1 << 64)]
        before = batches.count
        found = batches.add_batches_at(partition, [run.bytes[slot] for slot in slots],
                                       [run.sizes[slot] for slot in slots])
        if run.ranges:
            found = SparseIndex.of(batch_rows(partition, before, header, 0, run.ranges))
        heads.append(_PARTITION.pack(partition.partition, partition.end_offset, len(found)))
        partition_rows.append(found.data)
    return [run.group, run.incarnation, rows.data, run.run_starts, run.run_terms, b"".join(heads),
            b"".join(partition_rows), [*map(list, run.ranges)]]


class ColdRunSummary(NamedTuple):
    """A group's part of a cold segment, without the places of records."""

    group: int
    incarnation: int
    rows: SparseIndex  # of records
    run_starts: Sequence[int]
    run_terms: Sequence[int]
    packed_partitions: bytes
    partition_rows: bytes  # of all partitions
    ranges: IndexRanges = ()

    @property
    def records(self) -> int:
        """Number of records.  O(rows)."""
        return sum(row.count for row in self.rows)

    def ends(self) -> Iterator[tuple[int, int]]:
        """Yield each partition with the offset after its last record."""
        return ((partition, end) for partition, end, _ in _PARTITION.iter_unpack(
            self.packed_partitions))


def parse_header(path: str, data: Buffer) -> ColdIndexHeader:
    """Return the header in the first block of an index file.  Raise as ``decode``."""
    return _parse_header(path, memoryview(data))


def decode_summary(path: str, header: ColdIndexHeader, data: Buffer) -> list[ColdRunSummary]:
    """Return the groups in the summary of an index file.  O(groups).  Raises ``CorruptIndex``."""
    if len(data) != header.summary_bytes:
        raise CorruptIndex(path, f"its summary has {len(data)} bytes of {header.summary_bytes}")
    if core.crc32c(data, header.identity.block_crc(0)) != header.summary_crc:
        raise CorruptIndex(path, "the checksum of its summary does not match")
    try:
        packed = cbor2.loads(bytes(data))
        shapes.check(packed, [_FIRST_RUN_SHAPE if header.version == FIRST_VERSION else _RUN_SHAPE],
                     "the summary")
        return [_unpack_run(*fields) for fields in packed]
    except (cbor2.CBORDecodeError, ValueError, TypeError, struct.error) as error:
        raise CorruptIndex(path, f"malformed ({error})") from error


def _unpack_run(group: int, incarnation: int, rows: bytes, starts: list[int], terms: list[int],
                heads: bytes, partition_rows: bytes,
                ranges: Sequence[Sequence[int]] = ()) -> ColdRunSummary:
    if len(rows) % ROW_BYTES or len(partition_rows) % ROW_BYTES or len(heads) % _PARTITION.size:
        raise ValueError(f"{len(rows)} and {len(partition_rows)} bytes of rows, {len(heads)} of "
                         f"partitions")
    if len(starts) != len(terms) or not starts:
        raise ValueError(f"the terms of group {group} are not those of its records")
    bounds = tuple((first, last) for first, last in ranges)
    if any(first > last for first, last in bounds) or any(
            a[1] >= b[0] for a, b in zip(bounds, bounds[1:])):
        raise ValueError(f"the ranges of group {group} do not ascend")
    return ColdRunSummary(group, incarnation, SparseIndex(rows), starts, terms, heads,
                          partition_rows, bounds)


def decode(path: str, data: Buffer) -> ColdContents:
    """Return the contents of a cold segment from the bytes of its index file.  O(records).

    Raise ``CorruptIndex`` if the bytes are damaged, ``UnknownFormat`` for those of another
    version."""
    view = memoryview(data)
    known = _parse_header(path, view)
    if len(view) != known.summary_position + known.summary_bytes:
        raise CorruptIndex(path, f"it has {len(view)} bytes")
    summaries = decode_summary(path, known, view[known.summary_position:])
    try:
        return _decode_blocks(path, known, view, summaries)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise CorruptIndex(path, f"malformed ({error})") from error


def _parse_header(path: str, data: memoryview) -> ColdIndexHeader:
    if len(data) < _VERSION.size:
        raise CorruptIndex(path, f"it has {len(data)} bytes")
    magic, version = _VERSION.unpack_from(data)
    if magic != COLD_INDEX_MAGIC:
        raise CorruptIndex(path, f"its magic is {magic!r}")
    if version not in (FIRST_VERSION, COLD_INDEX_VERSION):
        raise UnknownFormat(path, version, COLD_INDEX_VERSION)
    if len(data) < BLOCK_BYTES:
        raise CorruptIndex(path, f"its header has {len(data)} bytes")
    if core.crc32c(data[:_CRC_AT]) != _CRC.unpack_from(data, _CRC_AT)[0]:
        raise CorruptIndex(path, "the checksum of its header does not match")
    _, _, cluster, node, number, seed, generation, copied_from, *bounds = _HEAD.unpack_from(data)
    header = ColdHeader(generation, number, cluster, node, seed, copied_from)
    return ColdIndexHeader(header, *bounds)._replace(version=version)


def _decode_blocks(path: str, known: ColdIndexHeader, view: memoryview,
                   summaries: Sequence[ColdRunSummary]) -> ColdContents:
    identity, batches_at = known.header.index_identity, known.first_batch_block
    batches = core.IndexRowReader(view[batches_at * BLOCK_BYTES:known.summary_position],
                                  batches_at, BATCHES, known.records, identity.crc())
    found = ColdContents(known.header, known.length, known.last_crc)
    blocks: dict[int, memoryview] = {}

    def rows_of(row: Row) -> memoryview:
        if row.block not in blocks:
            at = row.block * BLOCK_BYTES
            blocks.clear()  # groups ascend, and so do blocks
            blocks[row.block] = memoryview(open_block(path, identity, row.block, RECORDS,
                                                      view[at:at + BLOCK_BYTES]))
        end = (row.slot + row.count) * RECORD_ROW.size
        if end > len(blocks[row.block]):
            raise ValueError(f"block {row.block} has too few rows")
        return blocks[row.block][row.slot * RECORD_ROW.size:end]

    for each in summaries:
        group, data = each.group, b"".join(map(rows_of, each.rows))
        run = ColdRun(group, each.incarnation, array("Q", data)[0::2], array("I", data)[2::4],
                      array("I", data)[3::4], [*each.run_starts], [*each.run_terms],
                      ranges=each.ranges)
        _check_run(run)
        columns = batches.batches(each.packed_partitions, each.partition_rows, run.indexes[0],
                                  run.indexes[-1])
        run.partitions = {fields[0]: PartitionIndex.unpack(fields, group) for fields in columns}
        of_partitions = sorted(index for known_batches in run.partitions.values()
                               for index in known_batches.indexes_below(1 << 64))
        if of_partitions != list(run.indexes):
            raise ValueError(f"the batches of group {group} are not its records")
        found.runs[group] = run
    if batches.count != known.records or found.records != known.records:
        raise ValueError("its header and its summary disagree about the number of records")
    return found


def _check_run(run: ColdRun) -> None:
    """Raise ``ValueError`` if the columns of a run contradict each other.  O(records)."""
    if not run.indexes or any(a >= b for a, b in zip(run.indexes, run.indexes[1:])):
        raise ValueError(f"the records of group {run.group} do not ascend")
    starts = run.run_starts
    if (len(starts) != len(run.run_terms) or starts[:1] != [run.indexes[0]]
            or any(a >= b for a, b in zip(starts, starts[1:]))):
        raise ValueError(f"the terms of group {run.group} are not those of its records")
