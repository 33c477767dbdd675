"""Rows of index files in blocks: a part of the reference's ``SegmentIndexer``, and their reader.

Contract.  Part of ``_reference``.  ``pack_rows`` takes the columns that ``index.py`` gathered;
``IndexRowReader`` accepts any bytes, and returns rows only where they are exactly those that the
summary of their file says.  Bytes: docs/storage-format.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence

from multiraft.codec import layout
from multiraft.codec.reference.hashes import contiguous_bytes as _view
from multiraft.codec.reference.hashes import crc32c
from multiraft.codec.reference.index import GroupColumns, PartitionColumns
from multiraft.codec.values import Buffer, PackedIndex

_HEAD = struct.Struct("<IHH")
_U32 = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
_BATCH = struct.Struct("<qqQIII")
_PART = struct.Struct("<qQq")
_PARTITION = struct.Struct("<QqI")

assert _HEAD.size == layout.INDEX_BLOCK_HEAD_BYTES
assert _ENTRY.size == layout.INDEX_ENTRY_ROW_BYTES
assert _BATCH.size == layout.INDEX_BATCH_ROW_BYTES
assert _PART.size == layout.INDEX_PART_BYTES
assert _PARTITION.size == layout.INDEX_PARTITION_BYTES

_BLOCK_BYTES = layout.INDEX_BLOCK_BYTES
_ROWS = {layout.INDEX_ENTRIES: _ENTRY, layout.INDEX_BATCHES: _BATCH}
_BLOCKS_MAX = 1 << 24
_SLOT_BITS = 10
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_FILE_AT, _FILES_MAX = 44, 1 << 20
_I64_MAX, _U64_MAX = (1 << 63) - 1, (1 << 64) - 1


def _block_crc(identity_crc: int, number: int, block: Buffer) -> int:
    return crc32c(memoryview(block)[_U32.size:], crc32c(_U32.pack(number), identity_crc))


def _require_crc(identity_crc: int) -> None:
    crc32c(b"", identity_crc)  # raises OverflowError


def _place(number: int, slot: int, count: int) -> int:
    return number << 2 * _SLOT_BITS | slot << _SLOT_BITS | count


# ---- packing -----------------------------------------------------------------------------------

class _Writer:
    """Blocks of one kind, filled in the order of the keys."""

    def __init__(self, kind: int, first_block: int):
        self.rows: list[bytes] = []
        self._kind = kind
        self._first_block = first_block
        self._per_block = (_BLOCK_BYTES - _HEAD.size) // _ROWS[kind].size

    def place(self, wanted: int) -> tuple[int, int]:
        """Return how many of the next rows go into one block, and their place."""
        number, slot = divmod(len(self.rows), self._per_block)
        count = min(wanted, self._per_block - slot)
        return count, _place(self._first_block + number, slot, count)

    def blocks(self, identity_crc: int) -> list[bytes]:
        found: list[bytes] = []
        for at in range(0, len(self.rows), self._per_block):
            rows = self.rows[at:at + self._per_block]
            number = self._first_block + len(found)
            block = bytearray(_HEAD.pack(0, self._kind, len(rows)) + b"".join(rows))
            block += bytes(_BLOCK_BYTES - len(block))
            _U32.pack_into(block, 0, _block_crc(identity_crc, number, block))
            found.append(bytes(block))
        return found


def pack_rows(groups: Mapping[int, GroupColumns], identity_crc: int, start: int) -> PackedIndex:
    """Return what ``SegmentIndexer.pack`` returns of these groups."""
    _require_crc(identity_crc)
    try:
        return _packed(groups, identity_crc, start)
    except struct.error as error:
        raise OverflowError("a number of the index does not fit into its row") from error


def _packed(groups: Mapping[int, GroupColumns], identity_crc: int, start: int) -> PackedIndex:
    entries = _Writer(layout.INDEX_ENTRIES, 1)
    rows = {group: _pack_entries(entries, groups[group], start) for group in sorted(groups)}
    entry_blocks = entries.blocks(identity_crc)
    batches = _Writer(layout.INDEX_BATCHES, 1 + len(entry_blocks))
    runs = []
    for group, group_rows in rows.items():
        known = groups[group]
        heads, parts = [], []
        for partition, each in sorted(known.partitions.items()):
            own = _pack_batches(batches, each, known, start)
            heads.append(_PARTITION.pack(partition, each.end_offset, len(own) // _PART.size))
            parts.append(own)
        packed = None
        if known.positions:
            packed = [known.first_index, known.ends[-1], group_rows, known.run_starts,
                      known.run_terms]
        runs.append((group, known.incarnation, packed, b"".join(heads), b"".join(parts),
                     known.hard_state))
    blocks = [*entry_blocks, *batches.blocks(identity_crc)]
    if 1 + len(blocks) > _BLOCKS_MAX:
        raise OverflowError("a number of the index does not fit into its row")
    return PackedIndex(len(entries.rows), len(batches.rows), b"".join(blocks), runs)


def _pack_entries(writer: _Writer, group: GroupColumns, start: int) -> bytes:
    """Add a group's entries and return their rows of the summary."""
    parts, at, before = [], 0, 0
    while at < len(group.positions):
        count, place = writer.place(len(group.positions) - at)
        parts.append(_PART.pack(group.first_index + at, place, before))
        writer.rows += [_ENTRY.pack(position - start, end - before) for position, end in
                        zip(group.positions[at:at + count], group.ends[at:at + count])]
        at += count
        before = group.ends[at - 1]
    return b"".join(parts)


def _pack_batches(writer: _Writer, partition: PartitionColumns, group: GroupColumns,
                  start: int) -> bytes:
    """As ``_pack_entries``, for the batches of a partition."""
    parts, at = [], 0
    while at < len(partition.bases):
        count, place = writer.place(len(partition.bases) - at)
        parts.append(_PART.pack(partition.bases[at], place, partition.latest[at + count - 1]))
        for slot in range(at, at + count):
            index = partition.indexes[slot]
            entry = index - group.first_index
            size = group.ends[entry] - (group.ends[entry - 1] if entry else 0)
            writer.rows.append(_BATCH.pack(
                partition.bases[slot], partition.latest[slot], index,
                group.positions[entry] - start, size, partition.counts[slot]))
        at += count
    return b"".join(parts)


# ---- reading -----------------------------------------------------------------------------------

class IndexRowReader:
    """Reader of the blocks of one kind of an index file, whose rows it returns as columns.

    ``blocks``: all blocks of the kind, one after the other, with ``rows`` rows; the first of them
    is block ``first_block`` of its file.  ``identity_crc``: as of ``SegmentIndexer.pack``.  Keys
    are read in the order of their rows.  O(bytes).

    Raises ``ValueError`` if a block is damaged, or not the one of its place.
    """

    def __init__(self, blocks: Buffer, first_block: int, kind: int, rows: int,
                 identity_crc: int) -> None:
        _require_crc(identity_crc)
        view = _view(blocks)
        if kind not in _ROWS:
            raise ValueError(f"there are no blocks of kind {kind}")
        self._row = _ROWS[kind]
        self._per_block = (_BLOCK_BYTES - _HEAD.size) // self._row.size
        if len(view) != -(-rows // self._per_block) * _BLOCK_BYTES:
            raise ValueError(f"{len(view)} bytes of blocks for {rows} rows of kind {kind}")
        self._first_block = first_block
        self._count = 0
        self._rows: list[tuple] = []
        for at in range(0, len(view), _BLOCK_BYTES):
            block, number = view[at:at + _BLOCK_BYTES], first_block + at // _BLOCK_BYTES
            count = min(self._per_block, rows - len(self._rows))
            if _HEAD.unpack_from(block) != (_block_crc(identity_crc, number, block), kind, count):
                raise ValueError(f"block {number} is damaged, or not the one of its place")
            self._rows += self._row.iter_unpack(
                block[_HEAD.size:_HEAD.size + count * self._row.size])

    @property
    def count(self) -> int:
        """Number of rows that were read."""
        return self._count

    def entries(self, parts: bytes, first_index: int, start: int) -> tuple[bytes, bytes]:
        """Return the positions and ends of the next group, as ``GroupIndex.unpack`` takes them.

        ``parts``: the group's rows of the summary; ``start``: position of the segment in the log on
        disk.  O(entries).

        Raises ``ValueError`` if the blocks do not hold exactly what ``parts`` says.
        """
        positions, ends, before = array("Q"), array("Q"), 0
        for first, value, rows in self._parts(parts, "a group"):
            _require(first == first_index + len(positions) and value == before, "a group")
            last = 0
            for position, total in rows:
                _require(total > last and position + start <= _U64_MAX, "a group")
                positions.append(position + start if position else 0)
                ends.append(before + total)
                last = total
            before += last
        return positions.tobytes(), ends.tobytes()

    def batches(self, partitions: bytes, parts: bytes, first_index: int,
                last_index: int) -> list[list]:
        """Return the fields of ``PartitionIndex.unpack`` of each partition of the next group.

        ``partitions``, ``parts``: the group's partitions in the summary, and their rows;
        ``first_index``, ``last_index``: the group's entries.  O(batches).

        Raises ``ValueError`` if the blocks do not hold exactly what ``parts`` says.
        """
        _require_whole(parts)
        if len(partitions) % _PARTITION.size:
            raise ValueError(f"{len(partitions)} bytes of partitions")
        found, at = [], 0
        for partition, end_offset, count in _PARTITION.iter_unpack(partitions):
            stop = at + count * _PART.size
            if stop > len(parts):
                raise ValueError("partitions have more rows than the summary")
            columns = self._columns(parts[at:stop], range(first_index, last_index + 1), end_offset)
            found.append([partition, end_offset, *columns])
            at = stop
        if at < len(parts):
            raise ValueError("partitions have fewer rows than the summary")
        return found

    def _columns(self, parts: bytes, of_group: range, end_offset: int) -> list:
        bases, indexes, latest = array("q"), array("Q"), array("q")
        gaps, end = [], 0
        for first, value, rows in self._parts(parts, "a partition"):
            _require(rows[0][0] == first and rows[-1][1] == value, "a partition")
            for base, highest, index, _, _, count in rows:
                _require(count > 0 and index in of_group and base + count <= _I64_MAX,
                         "a partition")
                if bases:
                    _require(base >= end and index > indexes[-1] and highest >= latest[-1],
                             "a partition")
                    if base != end:
                        gaps.append([bases[-1], end])
                bases.append(base)
                indexes.append(index)
                latest.append(highest)
                end = base + count
        _require(not bases or end == end_offset, "a partition")
        return [bases.tobytes(), indexes.tobytes(), latest.tobytes(), gaps]

    def _parts(self, parts: bytes, what: str) -> Iterator[tuple[int, int, list[tuple]]]:
        """Yield (first, running value, rows) of each part of the next key."""
        _require_whole(parts)
        for first, place, value in _PART.iter_unpack(parts):
            number, slot = divmod(self._count, self._per_block)
            count = place & _SLOT_MASK
            fits = 0 < count <= min(self._per_block - slot, len(self._rows) - self._count)
            _require(fits and place == _place(self._first_block + number, slot, count), what)
            self._count += count
            yield first, value, self._rows[self._count - count:self._count]


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"the rows of {what} are not those of the summary")


def _require_whole(parts: bytes) -> None:
    if len(parts) % _PART.size:
        raise ValueError(f"{len(parts)} bytes of rows of the summary")


# ---- joining -----------------------------------------------------------------------------------

def join_index_rows(
        files: Sequence[tuple[bytes, bytes, int]]) -> dict[int, tuple[bytes, int]]:
    """Return the rows of each partition in several index files, and the offset after its last
    record there.

    ``files``: for each, in journal order, the partitions of a group in its summary, their rows, of
    which the places are those of file 0, and the number of the file, below 2**20.  Partitions
    without rows are left out, and no running value is below one before.  O(rows).

    Raises ``ValueError`` if partitions and rows of a file contradict each other, or for another
    number; ``OverflowError`` if that is negative.
    """
    joined: dict[int, bytearray] = {}
    ends: dict[int, int] = {}
    highest: dict[int, int] = {}
    for partitions, rows, file in files:
        _require_file(partitions, rows, file)
        parts = _PART.iter_unpack(rows)
        for partition, end_offset, count in _PARTITION.iter_unpack(partitions):
            if not count:
                continue
            known = joined.setdefault(partition, bytearray())
            ends[partition] = end_offset
            for _, (first, place, value) in zip(range(count), parts):
                value = highest[partition] = max(value, highest.get(partition, value))
                known += _PART.pack(first, place | file << _FILE_AT, value)
    return {partition: (bytes(rows), ends[partition]) for partition, rows in joined.items()}


def _require_file(partitions: bytes, rows: bytes, file: int) -> None:
    """Raise as ``join_index_rows`` does."""
    if file < 0:
        raise OverflowError("can't convert negative value to size_t")
    if file >= _FILES_MAX:
        raise ValueError(f"file {file} is not below {_FILES_MAX}")
    if len(partitions) % _PARTITION.size:
        raise ValueError(f"{len(partitions)} bytes of partitions")
    found = sum(count for _, _, count in _PARTITION.iter_unpack(partitions))
    if found * _PART.size != len(rows):
        raise ValueError(f"{len(rows)} bytes of rows, partitions have {found * _PART.size}")
