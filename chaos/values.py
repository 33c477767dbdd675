"""Records that say who they are: run, key, producer and number, with a CRC over all of it.

Contract.  ``encode`` makes the bytes of a record of a value, ``decode`` gives the value back, or
``CORRUPT`` when the bytes are not those that were made for this run and this key: a record of
another topic, of an earlier life of the same name, or of another run that reaches a reader is as
wrong as a flipped bit.  A value is unique within a run: ``value_of(producer, number)``.
"""

from __future__ import annotations

import struct
import zlib

from chaos.history import CORRUPT

_HEAD = struct.Struct(">QIqI")  # run, CRC-32 of the key, value, CRC-32 of all but itself
HEAD_BYTES = _HEAD.size
#: Records of one producer.
NUMBERS_MAX = 1 << 32


def value_of(producer: int, number: int) -> int:
    """The value of a producer's ``number``-th record."""
    assert 0 <= number < NUMBERS_MAX, number
    return producer << 32 | number


def producer_of(value: int) -> int:
    """Who appended it."""
    return value >> 32


def encode(run: int, key: str, value: int, padding: int = 0) -> bytes:
    """The record of a value, with ``padding`` further bytes that follow from it."""
    key_crc = zlib.crc32(key.encode())
    pad = bytes((value + place) & 0xFF for place in range(min(padding, 64)))
    pad = (pad * (padding // 64 + 1))[:padding]
    crc = zlib.crc32(pad, zlib.crc32(struct.pack(">QIq", run, key_crc, value)))
    return _HEAD.pack(run, key_crc, value, crc) + pad


def decode(run: int, key: str, record: bytes) -> int:
    """The value of a record that was read at ``key``; ``CORRUPT`` when it is none of that key."""
    if len(record) < HEAD_BYTES:
        return CORRUPT
    found_run, key_crc, value, crc = _HEAD.unpack_from(record)
    expected = zlib.crc32(record[HEAD_BYTES:], zlib.crc32(record[:HEAD_BYTES - 4]))
    if found_run != run or key_crc != zlib.crc32(key.encode()) or crc != expected:
        return CORRUPT
    return value
