"""Cold segments as files: names, header, and the places of records in them.

Contract.  Values without effects.  A cold segment has a *number*, which no later one has again.  A
record in it stands at a byte of the file.  ``place_in`` makes one number of both, so that an index
keeps it where it keeps a journal offset; ``is_cold`` tells the two apart.

Invariants.  Places are above every journal offset.  A cold segment is never appended to: the
checkpoint that names it has its length, so bytes that are missing are damage, never a torn tail.

Theory.  Entries are framed as in the journal, each chained to the one before by ``prev_crc``.  The
first continues the file's seed, so that blocks of another file do not join the chain.
``copied_from`` is the journal offset at which the copying began.  A copy that repair wrote behind
it is newer than the one here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.errors import CorruptFile, UnknownFormat, WrongIdentity
from multiraft.storage.filesystem import Buffer
from multiraft.storage.strays import COLD_INDEX_SUFFIX, COLD_SUFFIX, JOURNAL_POSITION_MAX

COLD_MAGIC = b"MRCOLD\x00\x01"
COLD_VERSION = 1

#: magic, version, generation, number, cluster, node, seed, copied from, zero, CRC
_HEADER = struct.Struct("<8sIIQ16sIIQII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size

#: Generation of records as they were appended.
AS_APPENDED = 0

_BYTE_BITS = 32
#: No cold segment is longer: a record's place has so many bits for its byte.
COLD_BYTES_LIMIT = 1 << _BYTE_BITS
#: No cold segment has a number so high: places stay signed numbers of 64 bits.
COLD_NUMBER_MAX = 1 << 30

_SEEDED = struct.Struct("<3Q")


def place_in(number: int, byte: int) -> int:
    """Return the place of a byte of a cold segment."""
    return JOURNAL_POSITION_MAX + (number << _BYTE_BITS) + byte


def is_cold(position: int) -> bool:
    """Return True if a position is a place in a cold segment, not a journal offset."""
    return position >= JOURNAL_POSITION_MAX


def number_of(place: int) -> int:
    """Return the number of the cold segment that a place is in."""
    return (place - JOURNAL_POSITION_MAX) >> _BYTE_BITS


class ColdHeader(NamedTuple):
    """The first 64 bytes of a cold segment."""

    generation: int
    number: int
    cluster: bytes
    node: int
    seed: int  # prev_crc of the first entry
    copied_from: int  # journal offset behind everything that was copied

    def pack(self) -> bytes:
        data = _HEADER.pack(COLD_MAGIC, COLD_VERSION, self.generation, self.number, self.cluster,
                            self.node, self.seed, self.copied_from, 0, 0)
        return data[:-_CRC.size] + _CRC.pack(core.crc32c(data[:-_CRC.size]))

    @classmethod
    def parse(cls, path: str, data: Buffer) -> ColdHeader:
        """Return the header in the first bytes of the file ``path``.  Raise ``CorruptFile`` for
        damaged bytes, ``UnknownFormat`` for a header of another version."""
        if len(data) < HEADER_BYTES:
            raise CorruptFile(path, f"its header has {len(data)} bytes")
        magic, version, generation, number, cluster, node, seed, copied_from, _, crc = (
            _HEADER.unpack_from(data))
        if (magic != COLD_MAGIC
                or core.crc32c(memoryview(data)[:HEADER_BYTES - _CRC.size]) != crc):
            raise CorruptFile(path, "its header is damaged")
        if version != COLD_VERSION:
            raise UnknownFormat(path, version, COLD_VERSION)
        return cls(generation, number, cluster, node, seed, copied_from)

    def require(self, path: str, cluster: bytes, node: int) -> None:
        """Raise ``WrongIdentity`` if the file is of another cluster or node."""
        if self.cluster != cluster:
            raise WrongIdentity(path, "cluster", self.cluster.hex(), cluster.hex())
        if self.node != node:
            raise WrongIdentity(path, "node", self.node, node)

    @property
    def index_identity(self) -> FileIdentity:
        """Identity that the checksums of the index file begin with."""
        return FileIdentity(self.cluster, self.node, self.number, self.seed)


class ColdName(NamedTuple):
    """A cold segment as a checkpoint names it: all that its header says, and its length."""

    number: int
    length: int  # bytes of the file
    seed: int
    copied_from: int
    generation: int = AS_APPENDED

    def header(self, cluster: bytes, node: int) -> ColdHeader:
        """Return the header of the file, which may be damaged there."""
        return ColdHeader(self.generation, self.number, cluster, node, self.seed,
                          self.copied_from)


class ColdSegment:
    """One cold segment.  Has the attributes of a journal's ``Segment`` that reads use."""

    __slots__ = ("path", "index_path", "start", "name", "is_removed")

    def __init__(self, directory: str, name: ColdName):
        self.path = cold_path(directory, name.number)
        self.index_path = cold_index_path(directory, name.number)
        self.start = place_in(name.number, 0)
        self.name = name
        self.is_removed = False  # nothing needs it, and its file may go at any time

    @property
    def capacity(self) -> int:
        """Bytes between the first place in the file and the last."""
        return self.name.length

    @property
    def end(self) -> int:
        """Place behind the last entry."""
        return self.start + self.name.length


def seed_of(seeds: Sequence[int], number: int) -> int:
    """Return the seed of a cold segment.  ``seeds``: directory incarnation and boot epoch."""
    # A checksum that the bytes before it end with is cancelled by them, so the number is first.
    return core.crc32c(_SEEDED.pack(number, *seeds))


def cold_path(directory: str, number: int) -> str:
    """Return the path of a cold segment."""
    return f"{directory}/{number:020d}{COLD_SUFFIX}"


def cold_index_path(directory: str, number: int) -> str:
    """Return the path of a cold segment's index file."""
    return f"{directory}/{number:020d}{COLD_INDEX_SUFFIX}"


assert HEADER_BYTES == 64 and HEADER_BYTES % layout.ENTRY_ALIGNMENT == 0
