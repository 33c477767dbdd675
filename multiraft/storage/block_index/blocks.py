"""One block of an index file: fixed-size rows of one kind below a checksum.

Contract.  ``pack_block`` and ``open_block`` are exact inverses.  ``open_block`` returns rows only
of the block that was asked for: the checksum covers the identity of the file and the block's
number.

Theory.  A disk that returns an older block, or the block of another file, returns bytes whose own
checksum matches.  What the reader expects is therefore part of the checksum, and not of the block.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.errors import CorruptIndex
from multiraft.storage.filesystem import Buffer

#: The unit of page caches and of nearly all disks: a look-up reads this much.
BLOCK_BYTES = layout.INDEX_BLOCK_BYTES

#: checksum, kind, rows
_HEAD = struct.Struct("<IHH")
_CRC = struct.Struct("<I")
_IDENTITY = struct.Struct("<16sIIQ")
_NUMBER = struct.Struct("<I")
_BODY_BYTES = BLOCK_BYTES - _HEAD.size

#: Row of a log's entry: its position in the segment, and the framed bytes of its key's entries in
#: this block up to and including it.
ENTRY_ROW = struct.Struct("<II")
#: Row of a partition's batch: base offset, highest timestamp of the partition in this segment so
#: far, index in its group, position in the segment, framed size, records.
BATCH_ROW = struct.Struct("<qqQIII")
#: Row of a record of a group in a cold segment: index, byte of the file, framed size.
RECORD_ROW = struct.Struct("<QII")

#: Kinds of blocks.
ENTRIES, BATCHES, RECORDS = layout.INDEX_ENTRIES, layout.INDEX_BATCHES, layout.INDEX_RECORDS
ROW_BYTES = {ENTRIES: ENTRY_ROW.size, BATCHES: BATCH_ROW.size, RECORDS: RECORD_ROW.size}
ROWS_PER_BLOCK = {kind: _BODY_BYTES // size for kind, size in ROW_BYTES.items()}


class FileIdentity(NamedTuple):
    """The segment that an index file describes: what every checksum of the file begins with."""

    cluster: bytes
    node: int
    start: int  # journal position of the segment
    seed: int  # of its chain of checksums

    def crc(self) -> int:
        """Return the checksum that those of all blocks begin with."""
        # The seed is a checksum of bytes that end with the start.  Behind the start, it would
        # cancel it: all segments of one boot would have the same checksum.
        return core.crc32c(_IDENTITY.pack(self.cluster, self.node, self.seed, self.start))

    def block_crc(self, block: int) -> int:
        """Return the checksum that the bytes of a block continue."""
        return core.crc32c(_NUMBER.pack(block), self.crc())


def pack_block(identity: FileIdentity, block: int, kind: int, rows: Buffer) -> bytes:
    """Return block number ``block`` of a file, with whole rows of one ``kind``."""
    count, rest = divmod(len(rows), ROW_BYTES[kind])
    assert not rest and count <= ROWS_PER_BLOCK[kind], f"{len(rows)} bytes of rows"
    data = bytearray(BLOCK_BYTES)
    _HEAD.pack_into(data, 0, 0, kind, count)
    data[_HEAD.size:_HEAD.size + len(rows)] = rows
    _CRC.pack_into(data, 0, core.crc32c(memoryview(data)[_CRC.size:], identity.block_crc(block)))
    return bytes(data)


def open_block(path: str, identity: FileIdentity, block: int, kind: int, data: Buffer) -> bytes:
    """Return the rows of block number ``block`` of the file ``path``, all of one ``kind``.

    Raise ``CorruptIndex`` if the bytes are damaged, or are another block than this one."""
    if len(data) != BLOCK_BYTES:
        raise CorruptIndex(path, f"block {block} has {len(data)} bytes")
    view = memoryview(data)
    crc, found, count = _HEAD.unpack_from(view)
    if core.crc32c(view[_CRC.size:], identity.block_crc(block)) != crc:
        raise CorruptIndex(path, f"the checksum of block {block} does not match")
    if found != kind or count > ROWS_PER_BLOCK[kind]:
        raise CorruptIndex(path, f"block {block} has {count} rows of kind {found}")
    return bytes(view[_HEAD.size:_HEAD.size + count * ROW_BYTES[kind]])
