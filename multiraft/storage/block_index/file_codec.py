"""Index file of a sealed segment, version 6: a header, blocks of entries and batches, a summary.

Contract.  ``encode`` and ``decode`` are exact inverses.  ``parse_header`` and ``decode_summary``
read what a start needs: the records of each group and the rows that stay in memory, and no block.
An index file is a cache: each error of reading one means that its segment is scanned instead.

Bytes: docs/storage-format.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cbor2

from multiraft import core
from multiraft.codec import shapes
from multiraft.errors import CorruptEntry
from multiraft.storage.block_index.blocks import (
    BATCHES,
    BLOCK_BYTES,
    ENTRIES,
    ROWS_PER_BLOCK,
    FileIdentity,
)
from multiraft.storage.block_index.columns import GroupColumns, RowWriter
from multiraft.storage.block_index.rows import ROW_BYTES, SparseIndex
from multiraft.storage.block_index.run_records import (
    INDEX_MAGIC,
    RECORDS,
    pack_records,
    unpack_run,
)
from multiraft.storage.config import ENVELOPE_BYTES_LIMIT
from multiraft.storage.errors import CorruptIndex, ForeignIndex, IndexTooLarge, UnknownFormat
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import GroupIndex, PartitionIndex
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.types import HardState

BLOCK_INDEX_VERSION = 6

#: magic, version; cluster, node, start, seed; end, last CRC, first durable, highest durable;
#: entries, batches, bytes and CRC of the summary
_HEAD = struct.Struct("<8sI16sIQIQIqQQQQI")
_VERSION = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_CRC_AT = BLOCK_BYTES - _CRC.size

#: A partition in a summary: its incarnation, the offset after its last record, its rows.
_PARTITION = struct.Struct("<QqI")
_PARTITION_NUMBERS = _PARTITION.size // array("I").itemsize
_ROWS_AT = _PARTITION_NUMBERS - 1
_ENTRIES_SHAPE = (shapes.UINT, shapes.UINT, shapes.BYTES, [shapes.UINT], [shapes.UINT])
_RUN_SHAPE = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.Optional(_ENTRIES_SHAPE), shapes.BYTES,
              shapes.BYTES, *RECORDS)


class FileHeader(NamedTuple):
    """The first block of an index file."""

    identity: FileIdentity
    end: int  # journal position after the segment's last entry
    last_crc: int
    first_durable: int  # -1 = no entries
    highest_durable: int
    entries: int
    batches: int
    summary_bytes: int
    summary_crc: int

    @property
    def entry_blocks(self) -> int:
        return -(-self.entries // ROWS_PER_BLOCK[ENTRIES])

    @property
    def batch_blocks(self) -> int:
        return -(-self.batches // ROWS_PER_BLOCK[BATCHES])

    @property
    def first_batch_block(self) -> int:
        return 1 + self.entry_blocks

    @property
    def summary_position(self) -> int:
        """Byte of the file at which the summary begins; it ends with the file."""
        return (1 + self.entry_blocks + self.batch_blocks) * BLOCK_BYTES

    @property
    def file_bytes(self) -> int:
        return self.summary_position + self.summary_bytes

    def kind_of(self, block: int) -> int:
        """Return the kind of the rows in a block."""
        return ENTRIES if block < self.first_batch_block else BATCHES

    def require(self, path: str, expected: FileIdentity) -> None:
        """Raise ``ForeignIndex`` if the file describes another segment than ``expected``."""
        for name, found, known in zip(FileIdentity._fields, self.identity, expected, strict=True):
            if found != known:
                raise ForeignIndex(path, name, _printable(found), _printable(known))


def _printable(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


class EntriesSummary(NamedTuple):
    """A group's entries in a segment, without their places."""

    first_index: int
    count: int  # type: ignore[assignment]
    bytes: int  # framed, of all of them
    rows: SparseIndex
    run_starts: list[int]
    run_terms: list[int]

    @property
    def last_index(self) -> int:
        return self.first_index + self.count - 1


class PartitionSummary(NamedTuple):
    """A partition's batches in a segment, without their places."""

    partition: int
    end_offset: int
    rows: int  # of the partition, behind those of the partitions before


@dataclass(slots=True)
class RunSummary:
    """A group's part of a segment: all of its records, and the rows of its entries and batches.

    The partitions stay packed, because a start reads as many of them as the node has segments times
    partitions."""

    run: SegmentRun  # without entries and batches
    entries: EntriesSummary | None
    packed_partitions: bytes
    partition_rows: bytes  # of all partitions

    def partitions(self) -> Iterator[PartitionSummary]:
        """Yield the partitions in ascending order."""
        return map(PartitionSummary._make, _PARTITION.iter_unpack(self.packed_partitions))

    def rows_of(self) -> Iterator[tuple[PartitionSummary, SparseIndex]]:
        """Yield each partition with its rows."""
        at = 0
        for known in self.partitions():
            end = at + known.rows * ROW_BYTES
            yield known, SparseIndex(self.partition_rows[at:end])
            at = end

    def drop_partitions(self) -> None:
        """Free the memory of the partitions and their rows, after their last use."""
        self.packed_partitions = self.partition_rows = b""


def encode(index: SegmentIndex, cluster: bytes, node: int,
           pause: Callable[[], None] | None = None) -> list[bytes]:
    """Return the buffers of a segment's index file, with groups and partitions in ascending order.

    ``pause`` is called about every 0.2 ms of work, None = never. O(entries). Raise
    ``IndexTooLarge`` if a number of the index does not fit into its row, or the summary is larger
    than any file may be."""
    identity = FileIdentity(cluster, node, index.start, index.seed)
    entries = RowWriter(identity, ENTRIES, 1, pause)
    runs = [index.runs[group] for group in sorted(index.runs)]
    groups = [GroupColumns(run.index or GroupIndex(), index.start) for run in runs]
    group_rows = [*map(entries.add_entries, groups)]
    entry_blocks = entries.finish()
    batches = RowWriter(identity, BATCHES, 1 + len(entry_blocks), pause)
    packed = [_pack_run(run, rows, group, batches)
              for run, rows, group in zip(runs, group_rows, groups, strict=True)]
    blocks = [*entry_blocks, *batches.finish()]
    return _file(index, identity, entries.count, batches.count, blocks, packed)


def encode_packed(packed: core.PackedIndex, bounds: SegmentIndex,
                  identity: FileIdentity) -> list[bytes]:
    """Return the buffers of the index file of a plain segment, whose blocks ``SegmentIndexer.pack``
    packed; ``bounds`` is its index without runs.  O(partitions) of copying.  Raises
    ``IndexTooLarge``."""
    runs = []
    for group, incarnation, entries, partitions, rows, hard_state in packed.runs:
        known = SegmentRun(group, incarnation,
                           hard_state=HardState(*hard_state) if hard_state is not None else None)
        runs.append([group, incarnation, known.truncated_from, entries, partitions, rows,
                     *pack_records(known)])
    return _file(bounds, identity, packed.entries, packed.batches, [packed.blocks], runs)


def packed_indexes(packed: core.PackedIndex) -> dict[int, tuple[int, int, int]]:
    """Return group -> (incarnation, first index, last index) of a packed segment; 0, 0 for a group
    without entries there.  O(groups)."""
    found = {}
    for group, incarnation, entries, *_ in packed.runs:
        first, count = _unpack_entries(*entries)[:2] if entries is not None else (0, 0)
        found[group] = (incarnation, first, first + count - 1) if count else (incarnation, 0, 0)
    return found


def _file(index: SegmentIndex, identity: FileIdentity, entries: int, batches: int,
          blocks: list[bytes], runs: list[list]) -> list[bytes]:
    """Return the buffers of a file with these blocks and runs."""
    summary = cbor2.dumps(runs)
    if len(summary) > ENVELOPE_BYTES_LIMIT:
        raise IndexTooLarge("the size of the summary", ENVELOPE_BYTES_LIMIT, len(summary))
    head = bytearray(BLOCK_BYTES)
    _HEAD.pack_into(head, 0, INDEX_MAGIC, BLOCK_INDEX_VERSION, *identity, index.end, index.last_crc,
                    index.first_durable, index.highest_durable, entries, batches,
                    len(summary), core.crc32c(summary, identity.block_crc(0)))
    _CRC.pack_into(head, _CRC_AT, core.crc32c(memoryview(head)[:_CRC_AT]))
    return [bytes(head), *blocks, summary]


def _pack_run(run: SegmentRun, rows: SparseIndex, group: GroupColumns,
              writer: RowWriter) -> list:
    entries = None
    if run.index is not None:
        _, _, _, starts, terms = run.index.pack()
        entries = [group.first, group.ends[-1] if group.ends else 0, rows.data, starts, terms]
    heads, partition_rows = [], []
    for _, partition in sorted(run.partitions.items()):
        found = writer.add_batches(partition, group)
        heads.append(_PARTITION.pack(partition.partition, partition.end_offset, len(found)))
        partition_rows.append(found.data)
    return [run.group, run.incarnation, run.truncated_from, entries, b"".join(heads),
            b"".join(partition_rows), *pack_records(run)]


def parse_header(path: str, data: Buffer) -> FileHeader:
    """Return the header in the first block of an index file.

    Raise ``UnknownFormat`` for a file of another version and ``CorruptIndex`` for a damaged
    one."""
    if len(data) < _VERSION.size:
        raise CorruptIndex(path, f"it has {len(data)} bytes")
    magic, version = _VERSION.unpack_from(data)
    if magic != INDEX_MAGIC:
        raise CorruptIndex(path, f"its magic is {magic!r}")
    if version != BLOCK_INDEX_VERSION:
        raise UnknownFormat(path, version, BLOCK_INDEX_VERSION)
    if len(data) < BLOCK_BYTES:
        raise CorruptIndex(path, f"its header has {len(data)} bytes")
    view = memoryview(data)[:BLOCK_BYTES]
    if core.crc32c(view[:_CRC_AT]) != _CRC.unpack_from(view, _CRC_AT)[0]:
        raise CorruptIndex(path, "the checksum of its header does not match")
    _, _, cluster, node, start, seed, *fields = _HEAD.unpack_from(view)
    header = FileHeader(FileIdentity(cluster, node, start, seed), *fields)
    if header.summary_bytes > ENVELOPE_BYTES_LIMIT:
        raise CorruptIndex(path, f"its summary has {header.summary_bytes} bytes")
    return header


def decode_summary(path: str, header: FileHeader, data: Buffer) -> list[RunSummary]:
    """Return the run of each group in the summary of an index file.  O(groups + partitions).
    Raises ``CorruptIndex``."""
    if len(data) != header.summary_bytes:
        raise CorruptIndex(path, f"its summary has {len(data)} bytes of {header.summary_bytes}")
    if core.crc32c(data, header.identity.block_crc(0)) != header.summary_crc:
        raise CorruptIndex(path, "the checksum of its summary does not match")
    try:
        fields = cbor2.loads(bytes(data))
        shapes.check(fields, [_RUN_SHAPE], "the summary")
        return [_unpack_run(*run) for run in fields]
    except (cbor2.CBORDecodeError, CorruptEntry, ValueError, TypeError, struct.error) as error:
        raise CorruptIndex(path, f"malformed ({error})") from error


def _unpack_run(group: int, incarnation: int, truncated_from: int, entries: list | None,
                heads: bytes, partition_rows: bytes, *records: object) -> RunSummary:
    run = unpack_run(group, incarnation, truncated_from, None, {}, [*records])
    found = RunSummary(run, _unpack_entries(*entries) if entries is not None else None, heads,
                       partition_rows)
    if len(heads) % _PARTITION.size:
        raise ValueError(f"{len(heads)} bytes of partitions")
    # Of each partition the last of its numbers of 32 bits.
    row_bytes = sum(array("I", heads)[_ROWS_AT::_PARTITION_NUMBERS]) * ROW_BYTES
    if row_bytes != len(partition_rows):
        raise ValueError(f"{len(partition_rows)} bytes of rows, partitions have {row_bytes}")
    if row_bytes and entries is None:
        raise ValueError("batches without entries")
    return found


def _unpack_entries(first: int, total: int, rows: bytes, starts: list[int],
                    terms: list[int]) -> EntriesSummary:
    if len(rows) % ROW_BYTES:
        raise ValueError(f"{len(rows)} bytes of rows")
    known = SparseIndex(rows)
    last = known[-1] if known else None
    count = last.first + last.count - first if last is not None else 0
    if len(starts) != len(terms) or bool(starts) != bool(known) or count < 0:
        raise ValueError("the terms are not those of the entries")
    return EntriesSummary(first, count, total, known, starts, terms)


def decode(path: str, data: Buffer) -> SegmentIndex:
    """Return the whole index in the bytes of an index file, each entry and batch in it.
    O(entries).  Raise as ``parse_header`` and ``decode_summary``."""
    view = memoryview(data)
    header = parse_header(path, view)
    if len(view) != header.file_bytes:
        raise CorruptIndex(path, f"it has {len(view)} bytes of {header.file_bytes}")
    summaries = decode_summary(path, header, view[header.summary_position:])
    try:
        return _decode_blocks(path, header, view, summaries)
    except (ValueError, OverflowError) as error:
        raise CorruptIndex(path, str(error)) from error


def _decode_blocks(path: str, header: FileHeader, view: memoryview,
                   summaries: list[RunSummary]) -> SegmentIndex:
    """Return the index of a file with these summaries.  Raises ``CorruptIndex``, ``ValueError``,
    ``OverflowError``."""
    identity, batches_at = header.identity, header.first_batch_block
    entries = core.IndexRowReader(view[BLOCK_BYTES:batches_at * BLOCK_BYTES], 1, ENTRIES,
                                  header.entries, identity.crc())
    batches = core.IndexRowReader(view[batches_at * BLOCK_BYTES:header.summary_position],
                                  batches_at, BATCHES, header.batches, identity.crc())
    found = SegmentIndex(identity.start, identity.seed, header.end, header.last_crc,
                         header.first_durable, header.highest_durable)
    for each in summaries:
        run = each.run
        if each.entries is not None:
            run.index = _entries_of(path, each.entries, entries, identity.start)
        index = run.index or GroupIndex()
        columns = batches.batches(each.packed_partitions, each.partition_rows, index.first_index,
                                  index.last_index)
        run.partitions = {fields[0]: PartitionIndex.unpack(fields, run.group)
                          for fields in columns}
        found.runs[run.group] = run
    if (entries.count, batches.count) != (header.entries, header.batches):
        raise CorruptIndex(path, "its header and its summary disagree about the number of rows")
    return found


def _entries_of(path: str, known: EntriesSummary, reader: core.IndexRowReader,
                start: int) -> GroupIndex:
    positions, ends = reader.entries(known.rows.data, known.first_index, start)
    index = GroupIndex.unpack([known.first_index, positions, ends, known.run_starts,
                               known.run_terms])
    if index and index.bytes_between(index.first_index, index.last_index) != known.bytes:
        raise CorruptIndex(path, "its summary and its blocks disagree about a group's bytes")
    return index
