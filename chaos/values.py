"""Tagged records: each names its run, key, producer and number, with a CRC over all of it.

Contract.  ``encode`` makes the bytes of a record from a value.  ``decode`` returns the value;
``CORRUPT`` when the bytes are no intact record; or ``FOREIGN`` when they are intact and were made
for another run or key: another topic, or an earlier incarnation of the same name.  ``parse``
returns the tag of a record, without knowing where it was read.  A value is unique within a run:
``value_of(producer, number)``.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from chaos.history import CORRUPT, FOREIGN

_HEAD = struct.Struct(">QIqI")  # run, CRC-32 of the key, value, CRC-32 of all but itself
HEAD_BYTES = _HEAD.size
#: Records of one producer.
NUMBERS_MAX = 1 << 32


def value_of(producer: int, number: int) -> int:
    """Return the value of a producer's ``number``-th record."""
    assert 0 <= number < NUMBERS_MAX, number
    return producer << 32 | number


def producer_of(value: int) -> int:
    """Return the producer that appended a value."""
    return value >> 32


def encode(run: int, key: str, value: int, padding: int = 0) -> bytes:
    """Return the record of a value that is appended to ``key``, with ``padding`` further bytes that
    follow from the value."""
    key_crc = crc_of_key(key)
    pad = bytes((value + place) & 0xFF for place in range(min(padding, 64)))
    pad = (pad * (padding // 64 + 1))[:padding]
    head = _HEAD.pack(run, key_crc, value, 0)[:-4]
    return head + struct.pack(">I", zlib.crc32(pad, zlib.crc32(head))) + pad


class TaggedRecord(NamedTuple):
    """Tag of an intact record."""

    run: int
    key_crc: int  # ``crc_of_key``
    value: int


def crc_of_key(key: str) -> int:
    """Return the CRC by which a record names its key."""
    return zlib.crc32(key.encode())


def parse(record: bytes) -> TaggedRecord | None:
    """Return the tag of a record; None = its bytes are no intact record."""
    if len(record) < HEAD_BYTES:
        return None
    run, key_crc, value, crc = _HEAD.unpack_from(record)
    if crc != zlib.crc32(record[HEAD_BYTES:], zlib.crc32(record[:HEAD_BYTES - 4])):
        return None
    return TaggedRecord(run, key_crc, value)


def decode(run: int, key: str, record: bytes) -> int:
    """Return the value of a record that was read at ``key``. ``CORRUPT`` = it is not intact;
    ``FOREIGN`` = it is not of this run and key."""
    found = parse(record)
    if found is None:
        return CORRUPT
    return found.value if found[:2] == (run, crc_of_key(key)) else FOREIGN
