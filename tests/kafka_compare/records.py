"""Record batches for the comparison, also those that no broker may accept.

Contract.  ``make_batch`` builds one batch of format 2 field by field, so that each can be wrong;
its CRC is right unless ``crc`` says otherwise.  ``describe`` returns the batches of a response as
text.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import compress

#: Time of the records, in milliseconds.
TIME_MS = 1_700_000_000_000
#: The fields between the CRC and the records.
_CHECKED = struct.Struct(">hiqqqhii")
_BEFORE = struct.Struct(">qiibI")


def varint(value: int) -> bytes:
    """Return a signed number as Kafka's records have it."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def record(number: int, value: bytes | None, key: bytes | None, time_delta: int = 0) -> bytes:
    """Return one record without headers."""
    def field(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = (b"\0" + varint(time_delta) + varint(number) + field(key) + field(value) + varint(0))
    return varint(len(body)) + body


def make_batch(*values: bytes | None, codec: int = layout.CODEC_NONE,
               keys: Sequence[bytes | None] = (), attributes: int = 0,
               producer: tuple[int, int, int] = (-1, -1, -1), time_ms: int = TIME_MS,
               time_deltas: Sequence[int] = (), count: int | None = None,
               last_delta: int | None = None, base_offset: int = 0, magic: int = layout.BATCH_MAGIC,
               crc: int | None = None, block: bytes | None = None) -> bytes:
    """Return a batch with a record for each value.  ``producer``: id, epoch, first sequence.
    ``block``: the bytes of the records in place of those that the values make."""
    deltas = list(time_deltas) or [0] * len(values)
    if block is None:
        block = b"".join(record(number, value, keys[number] if keys else None, deltas[number])
                         for number, value in enumerate(values))
        if codec in range(1, 5):
            block = compress(codec, block)
    checked = _CHECKED.pack(
        attributes | codec, len(values) - 1 if last_delta is None else last_delta, time_ms,
        time_ms + max(deltas, default=0), *producer,
        len(values) if count is None else count) + block
    return _BEFORE.pack(base_offset, _BEFORE.size - layout.BATCH_LENGTH_OVERHEAD + len(checked),
                        -1, magic, core.crc32c(checked) if crc is None else crc) + checked


def describe(data: bytes) -> list[str]:
    """Return a text for each batch: offsets, attributes, producer, and a digest of the records."""
    found = []
    while len(data) >= layout.BATCH_HEADER_BYTES:
        base, length, _epoch, magic, _crc = _BEFORE.unpack_from(data)
        attributes, last, _first_ms, _last_ms, producer, epoch, sequence, count = \
            _CHECKED.unpack_from(data, _BEFORE.size)
        end = length + layout.BATCH_LENGTH_OVERHEAD
        digest = hashlib.sha256(data[layout.BATCH_HEADER_BYTES:end]).hexdigest()[:8]
        whole = "" if end <= len(data) else " cut off"
        found.append(f"{base}..{base + last} count {count} format {magic} attributes {attributes} "
                     f"producer {'-' if producer < 0 else 'id'} {epoch} {sequence} {digest}{whole}")
        data = data[end:]
    if data:
        found.append(f"{len(data)} bytes more")
    return found
