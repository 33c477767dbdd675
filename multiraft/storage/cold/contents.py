"""Records of a cold segment, from its index file or by a scan of the segment itself.

Contract.  ``read_contents`` returns what can be read of a cold segment that a checkpoint names, and
the places that cannot.  It never raises for damage.  ``scan`` is the part that reads no index file.

Theory.  A cold segment was whole, synced and verified before a checkpoint named it.  So each place
without an intact entry is corruption, at the end of the file as well.  Behind it the scan continues
with the next intact entry of a cold segment.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from contextlib import closing
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.atomic_file import read_whole
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import ColdContents, ColdRun
from multiraft.storage.cold.cold_segment import (
    HEADER_BYTES,
    ColdHeader,
    ColdName,
    cold_index_path,
    cold_path,
    place_in,
)
from multiraft.storage.config import SEGMENT_BYTES_LIMIT
from multiraft.storage.errors import CorruptFile, UnknownFormat
from multiraft.storage.filesystem import Buffer, Filesystem
from multiraft.storage.index import PartitionIndex
from multiraft.types import BatchInfo, EntryKind

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ALIGN = layout.ENTRY_ALIGNMENT - 1
#: Fields of a batch whose bytes are damaged: only its place is kept, until repair has a copy.
_UNREADABLE = BatchInfo(1, -1, -1, -1, -1, 0)


class ContentsBuilder:
    """Contents of a cold segment, from its entries in the order of the file."""

    def __init__(self) -> None:
        self._incarnations: dict[int, int] = {}
        self._records: dict[int, list[tuple[int, int, int, int]]] = {}
        self._partitions: dict[int, dict[int, PartitionIndex]] = {}

    def add(self, group: int, incarnation: int, term: int, index: int, byte: int, size: int,
            partition: int, base_offset: int, batch: BatchInfo) -> bool:
        """Add the entry at a byte of the file.  Return False, and add nothing, if it does not
        follow the entries before: they ascend by group, partition and index."""
        if self._incarnations.setdefault(group, incarnation) != incarnation:
            return False
        known = self._partitions.setdefault(group, {})
        batches = known.get(partition)
        if batches is None:
            batches = known[partition] = PartitionIndex(partition, group)
        elif base_offset < batches.end_offset or index <= batches.batch(len(batches) - 1)[2]:
            return False
        batches.append(base_offset, batch.count, index, batch.max_timestamp_ms)
        self._records.setdefault(group, []).append((index, term, byte, size))
        return True

    def finish(self, header: ColdHeader, length: int, last_crc: int) -> ColdContents:
        """Return the contents.  O(records log records)."""
        found = ColdContents(header, length, last_crc)
        for group, records in sorted(self._records.items()):
            run = found.runs[group] = ColdRun(group, self._incarnations[group],
                                              partitions=self._partitions[group])
            for record in sorted(records):
                run.add(*record)
        return found


class FoundContents(NamedTuple):
    """Readable part of a cold segment."""

    contents: ColdContents
    #: (group, index) of records that stand there and cannot be read.
    unreadable: list[tuple[int, int]]
    #: Ranges of bytes whose records are not known; without an index file only.
    lost: list[tuple[int, int]]
    is_indexed: bool  # the index file is intact

    def unreadable_records(self) -> tuple[UnreadableRecord, ...]:
        """Return the unreadable records.  O(unreadable * partitions log n)."""
        found = []
        for group, index in self.unreadable:
            run = self.contents.runs[group]
            slot = bisect_left(run.indexes, index)
            place = place_in(self.contents.header.number, run.bytes[slot])
            found += [UnreadableRecord(group, run.incarnation, partition, batches.batch(at)[0],
                                       index, place, run.sizes[slot])
                      for partition, batches in run.partitions.items()
                      for at in batches.slots_within(index, index + 1)]
        return tuple(found)


class UnreadableRecord(NamedTuple):
    """Record of a cold segment whose payload is damaged.  Without an index file the offset behind
    its batch is not known."""

    group: int
    incarnation: int
    partition: int
    base_offset: int
    index: int  # type: ignore[assignment]
    position: int  # its place
    size: int  # framed


def read_contents(filesystem: Filesystem, directory: str, name: ColdName, cluster: bytes,
                  node: int) -> FoundContents:
    """Return the contents of a cold segment of this cluster and node, which a checkpoint names so.

    Block.  Raise ``WrongIdentity`` for a file of another cluster or node, ``UnknownFormat`` for one
    of another version, ``OSError`` if the disk fails."""
    path = cold_path(directory, name.number)
    size = filesystem.size(path) if filesystem.exists(path) else 0
    if size:
        _check_header(filesystem, path, name, cluster, node)
    expected = name.header(cluster, node)
    index = _indexed(filesystem, cold_index_path(directory, name.number))
    if index is not None and (index.header, index.length) == (expected, name.length):
        beyond = [(run.group, run.indexes[slot]) for run in index.runs.values()
                  for slot, byte in enumerate(run.bytes) if byte + run.sizes[slot] > size]
        return FoundContents(index, beyond, [], True)
    data = b""
    if size:
        with closing(filesystem.open(path)) as file:
            data = file.read(min(size, name.length, SEGMENT_BYTES_LIMIT), 0)
    return scan(data, expected, name.length)


def _check_header(filesystem: Filesystem, path: str, name: ColdName, cluster: bytes,
                  node: int) -> None:
    """Raise ``WrongIdentity`` or ``UnknownFormat`` if an intact header is not this node's.  A
    damaged one is no error: the checkpoint has its fields."""
    with closing(filesystem.open(path)) as file:
        head = file.read(HEADER_BYTES, 0)
    try:
        header = ColdHeader.parse(path, head)
    except CorruptFile:
        return
    if header.number == name.number:
        header.require(path, cluster, node)


def _indexed(filesystem: Filesystem, path: str) -> ColdContents | None:
    if not filesystem.exists(path):
        return None
    try:
        return cold_index.decode(path, read_whole(filesystem, path))
    except (CorruptFile, UnknownFormat):
        return None  # a cache: scanned and written anew


def scan(data: Buffer, header: ColdHeader, length: int) -> FoundContents:
    """Return the contents of a cold segment with the bytes ``data``, of ``length`` bytes once it
    was written.  O(bytes)."""
    builder, view = ContentsBuilder(), memoryview(data)
    unreadable: list[tuple[int, int]] = []
    lost: list[tuple[int, int]] = []
    at, prev_crc = HEADER_BYTES, header.seed
    while at < length:
        found = core.scan_entries(view, at, prev_crc) if at < len(view) else None
        for entry in found.entries if found is not None else ():
            size = entry.length + _ALIGN & ~_ALIGN
            payload = view[entry.at + layout.ENTRY_HEADER_BYTES:entry.at + entry.length]
            batch = _UNREADABLE
            if entry.payload_intact and entry.kind == EntryKind.DATA:
                batch = core.batch_info(payload)
            if entry.kind != EntryKind.DATA or not builder.add(
                    entry.group, entry.incarnation, entry.term, entry.index, entry.at, size,
                    entry.partition, entry.base_offset, batch):
                lost.append((entry.at, entry.at + size))
            elif not entry.payload_intact:
                unreadable.append((entry.group, entry.index))
        if found is not None:
            at, prev_crc = found.stopped_at, found.last_crc
        if at >= length:
            break
        resumed = _next_entry(view, at + layout.ENTRY_ALIGNMENT)
        lost.append((at, resumed if resumed >= 0 else length))
        if resumed < 0:
            break
        at, prev_crc = resumed, _U32.unpack_from(view, resumed + layout.ENTRY_PREV_CRC_AT)[0]
    return FoundContents(builder.finish(header, length, prev_crc), unreadable, lost, False)


def _next_entry(data: memoryview, at: int) -> int:
    """Return the byte of the next whole entry of a cold segment, from ``at`` on; -1 = none.  An
    entry of a journal has a durable watermark, so it was not written there."""
    while (at := core.find_entry(data, at)) >= 0:
        length = _U32.unpack_from(data, at + layout.ENTRY_LENGTH_AT)[0]
        if not _U64.unpack_from(data, at + layout.ENTRY_DURABLE_AT)[0] and at + length <= len(data):
            return at
        at += layout.ENTRY_ALIGNMENT
    return -1

