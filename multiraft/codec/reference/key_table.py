"""Compaction by key, as ``_reference`` specifies it: seen keys, marks, and batches without records.

Contract.  Part of ``_reference``.  Marks have two bits for each record, the first record of a byte
in its lowest bits.

Theory.  A record survives if no later record has its key.  Walked from the newest to the oldest, it
is enough to know which keys were seen.  What differs between replicas, memory and seeds, decides
about the number of passes alone: each record has the same mark after the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from multiraft.codec import layout
from multiraft.codec.reference.hashes import contiguous_bytes as _view
from multiraft.codec.reference.hashes import crc32c, mix64
from multiraft.codec.reference.records import records_of, require_records, spans_of
from multiraft.codec.values import BatchHeader, Buffer
from multiraft.errors import BatchTooLarge, CorruptBatch

_SUPERSEDED, _EXPIRED, _PINNED = 1, 2, 3
_SLOT_BYTES, _LENGTH_BYTES = 16, 4
_HASH_STEP = 0x9E3779B97F4A7C15
_U64 = (1 << 64) - 1


def _hash(key: Buffer, seed: int) -> int:
    """Return the 64-bit hash of a key."""
    data = bytes(key)
    found = mix64(seed + _HASH_STEP * (len(data) + 1) & _U64)
    whole = len(data) & ~7
    for word, in struct.iter_unpack("<Q", data[:whole]):
        found = mix64(found ^ word) + _HASH_STEP & _U64
    return mix64(found ^ int.from_bytes(data[whole:], "little"))


def _mark_of(marks: bytearray, at: int) -> int:
    return marks[at >> 2] >> ((at & 3) << 1) & 3


def _set_mark(marks: bytearray, at: int, mark: int) -> None:
    shift = (at & 3) << 1
    marks[at >> 2] = marks[at >> 2] & ~(3 << shift) | mark << shift


def _survives(mark: int) -> bool:
    return mark in (0, _PINNED)


def _records(header: BatchHeader, block: Buffer, marks: bytearray, first: int) -> list[tuple]:
    """Return the records of a batch, checked.  Raises as ``KeyTable.mark``."""
    view = _view(block)
    require_records(header)
    if first < 0 or first + header.count > len(marks) * 4:
        raise ValueError(f"marks {first} .. {first + header.count} are outside those of "
                         f"{len(marks)} bytes")
    if len(view) > 0xFFFFFFFF:
        raise CorruptBatch(f"{len(view)} bytes of records exceed {0xFFFFFFFF}")
    return list(records_of(header, view))


class KeyTable:
    """Whole keys of the records that were seen, as far as their hash is in [low, high).

    A partition is walked in passes, each for a range of hashes.  When ``bytes_max`` bytes are full,
    ``high`` falls to the middle of its range, and the keys that are outside leave: a later pass
    begins with the last ``high`` of this one.  So memory decides about the number of passes, and
    about nothing else.  One key is always taken, however long.

    ``seed``: of the hash, so that no producer knows which keys collide.  ``marks`` have two bits
    per record: 0 = no other record is known to replace it, 1 = superseded by a later record with
    its key, 2 = a tombstone that may go, 3 = a tombstone that has to stay.

    Raises ``ValueError`` for less than 4,096 bytes and for an empty range.
    """

    def __init__(self, bytes_max: int, low: int = 0, high: int = 1 << 64, seed: int = 0):
        if bytes_max < 4096:
            raise ValueError(f"bytes_max={bytes_max} is below 4096")
        if not 0 <= low < high <= 1 << 64:
            raise ValueError(f"hashes {low} .. {high} are no range of 64 bits")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed} is not an unsigned 64-bit number")
        self._slots = 64
        while self._slots * 4 * _SLOT_BYTES <= bytes_max:
            self._slots *= 2
        self._arena_room = bytes_max - self._slots * _SLOT_BYTES
        self._arena_used = 0
        self._low, self._high, self._seed = low, high, seed
        self._known: dict[bytes, int] = {}  # -> hash

    @property
    def low(self) -> int:
        """Lowest hash of the range."""
        return self._low

    @property
    def high(self) -> int:
        """End of the range of hashes, exclusive."""
        return self._high

    @property
    def keys(self) -> int:
        """Number of keys in the table."""
        return len(self._known)

    def mark(self, header: BatchHeader, block: Buffer, tombstones_below: int, marks: bytearray,
             first: int) -> None:
        """Mark the records of a batch, the newest first, by the keys of the table, and add theirs.

        To be called for the batches of a partition from the newest to the oldest.  A record whose
        key is in the table becomes superseded; one without a value whose key is not, and whose
        offset is below ``tombstones_below``, becomes a tombstone that may go.  Records without a
        key are left as they are.  ``block``: the uncompressed records; ``first``: number of the
        batch's first record in ``marks``.  O(bytes), without the interpreter's lock.

        Raises ``CorruptBatch`` before anything is changed, ``ValueError`` if ``marks`` is too
        short.
        """
        for turn, record in reversed([*enumerate(_records(header, block, marks, first))]):
            delta, _, key, value, _ = record
            if key is None or not self._low <= (found := _hash(key, self._seed)) < self._high:
                continue
            if self._put(bytes(key), found):
                _set_mark(marks, first + turn, _SUPERSEDED)
            elif value is None and header.base_offset + delta < tombstones_below:
                _set_mark(marks, first + turn, _EXPIRED)

    def add(self, header: BatchHeader, block: Buffer, marks: bytearray, first: int,
            superseded: bool) -> None:
        """Add the keys of the records of a batch; with ``superseded``, of those alone that are
        superseded.  Otherwise as ``mark``."""
        for turn, record in enumerate(_records(header, block, marks, first)):
            key = record[2]
            if key is None or superseded and _mark_of(marks, first + turn) != _SUPERSEDED:
                continue
            found = _hash(key, self._seed)
            if self._low <= found < self._high:
                self._put(bytes(key), found)

    def pin(self, header: BatchHeader, block: Buffer, marks: bytearray, first: int) -> int:
        """Mark the tombstones of a batch that may go, and whose key is in the table, as those that
        have to stay; return their number.  Otherwise as ``mark``."""
        pinned = 0
        for turn, record in enumerate(_records(header, block, marks, first)):
            key = record[2]
            if (key is not None and _mark_of(marks, first + turn) == _EXPIRED
                    and bytes(key) in self._known):
                _set_mark(marks, first + turn, _PINNED)
                pinned += 1
        return pinned

    def _put(self, key: bytes, found: int) -> bool:
        """Add a key, unless its hash leaves the range for want of memory.  Return True if it was
        there."""
        if key in self._known:
            return True
        size = _LENGTH_BYTES + len(key)
        while (2 * (len(self._known) + 1) > self._slots
               or self._arena_used + size > self._arena_room):
            if not self._known or self._low + 1 == self._high:
                self._arena_room = self._arena_used + size
                break
            self._high = self._low + (self._high - 1 - self._low) // 2 + 1
            self._known = {each: at for each, at in self._known.items() if at < self._high}
            self._arena_used = sum(_LENGTH_BYTES + len(each) for each in self._known)
            if found >= self._high:
                return False
        self._known[key] = found
        self._arena_used += size
        return False


def _surviving(header: BatchHeader, block: Buffer, marks: bytearray,
               first: int) -> Iterator[tuple[int, memoryview]]:
    """Yield (timestamp, bytes) of each record that survives."""
    view = _view(block)
    records = _records(header, view, marks, first)
    for turn, ((_, timestamp_ms, *_), span) in enumerate(zip(records, spans_of(header, view),
                                                             strict=True)):
        if _survives(_mark_of(marks, first + turn)):
            yield timestamp_ms, span


def surviving_records(header: BatchHeader, block: Buffer, marks: bytearray, first: int,
                      ) -> tuple[int, int]:
    """Return how many records of a batch survive, and their bytes.  Arguments as those of
    ``KeyTable.mark``.  O(bytes), without the interpreter's lock.

    Raises ``CorruptBatch``, ``ValueError``.
    """
    sizes = [len(span) for _, span in _surviving(header, block, marks, first)]
    return len(sizes), sum(sizes)


def surviving_marks(marks: bytearray, first: int, count: int) -> int:
    """Return how many of ``count`` records, from number ``first`` on, survive by their marks.
    O(count), without the interpreter's lock.

    Raises ``ValueError`` if ``marks`` is too short.
    """
    if not 0 <= first <= first + count <= len(marks) * 4:
        raise ValueError(f"marks {first} .. {first + count} are outside those of {len(marks)} "
                         f"bytes")
    return sum(_survives(_mark_of(marks, at)) for at in range(first, first + count))


def compacted(header: BatchHeader, head: bytearray, block: Buffer, marks: bytearray,
              first: int) -> bytearray:
    """Return ``compact_batch`` of a batch with the header bytes ``head``, which are changed."""
    found = [*_surviving(header, block, marks, first)]
    size = layout.BATCH_HEADER_BYTES + sum(len(span) for _, span in found)
    if not found:
        raise ValueError("no record of the batch survives")
    if size > layout.BATCH_BYTES_MAX:
        raise BatchTooLarge(f"batch of {size} bytes exceeds BATCH_BYTES_MAX="
                            f"{layout.BATCH_BYTES_MAX}")
    struct.pack_into(">i", head, layout.BATCH_LENGTH_AT, size - layout.BATCH_LENGTH_OVERHEAD)
    struct.pack_into(">h", head, layout.BATCH_ATTRIBUTES_AT,
                     header.attributes & ~layout.ATTRIBUTE_CODEC_MASK)
    if not header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
        latest = max(timestamp_ms for timestamp_ms, _ in found)
        struct.pack_into(">q", head, layout.BATCH_MAX_TIMESTAMP_AT, latest)
    struct.pack_into(">i", head, layout.BATCH_RECORDS_COUNT_AT, len(found))
    made = head + b"".join(span for _, span in found)
    struct.pack_into(">I", made, layout.BATCH_CRC_AT,
                     crc32c(memoryview(made)[layout.BATCH_ATTRIBUTES_AT:]))
    return made
