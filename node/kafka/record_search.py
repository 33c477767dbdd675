"""Searches inside batches that were read: for the first record at or after a time, and for the
first one with the largest time.

Contract. ``execute`` runs on a thread: it decompresses. A batch that cannot be opened is answered
with its first offset, so that a client that starts there receives its error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import decompress
from multiraft.errors import CodecError
from multiraft.wire.frames import Buffer

#: In place of a time or an offset: there is none.
UNKNOWN = -1


class Found(NamedTuple):
    """A record that was found, or the offset to continue the search from: then ``time_ms`` is
    -1."""

    offset: int
    time_ms: int


class Largest(NamedTuple):
    """The first record with the largest time of some batches (time -1 = they have no record), and
    the offset behind the batches."""

    record: Found
    following: int


class RecordSearch:
    """A job that searches whole batches of one partition, from ``offset`` on, for the first record
    of ``time_ms`` or later."""

    def __init__(self, batches: Sequence[Buffer], offset: int, time_ms: int):
        self.bytes = sum(map(len, batches))
        self._batches = batches
        self._offset = offset
        self._time_ms = time_ms

    def execute(self) -> Found:
        """Return the record, or the offset behind the batches.  O(bytes, decompressed)."""
        following = self._offset
        for header, data in _batches(self._batches):
            found = self._in_batch(header, data)
            if found is not None:
                return found
            following = header.base_offset + header.last_offset_delta + 1
        return Found(following, -1)

    def _in_batch(self, header: core.BatchHeader, batch: memoryview) -> Found | None:
        if header.max_timestamp_ms < self._time_ms:
            return None
        found = _found(header, batch, self._offset, self._time_ms)
        return found if found.time_ms >= self._time_ms else None


class LargestTimeSearch:
    """A job that searches whole batches of one partition, from ``offset`` on, for the first record
    with the largest time."""

    def __init__(self, batches: Sequence[Buffer], offset: int):
        self.bytes = sum(map(len, batches))
        self._batches = batches
        self._offset = offset

    def execute(self) -> Largest:
        """Return the record.  O(bytes), and the decompressed bytes of the batches that may have it:
        of one, unless records of it are below ``offset``."""
        batches = [*_batches(self._batches)]
        following = self._offset
        if batches:
            last = batches[-1][0]
            following = last.base_offset + last.last_offset_delta + 1
        batches.sort(key=_latest, reverse=True)  # of equal ones, the first stays first
        best = Found(UNKNOWN, UNKNOWN)
        for header, data in batches:
            if header.max_timestamp_ms < best.time_ms or header.max_timestamp_ms == UNKNOWN:
                break
            found = self._in_batch(header, data)
            if (found.time_ms, -found.offset) > (best.time_ms, -best.offset):
                best = found
            if best.time_ms == header.max_timestamp_ms:
                break
        return Largest(best, following)

    def _in_batch(self, header: core.BatchHeader, batch: memoryview) -> Found:
        return _found(header, batch, self._offset, header.max_timestamp_ms)


def _batches(buffers: Sequence[Buffer]) -> Iterator[tuple[core.BatchHeader, memoryview]]:
    """Yield the header and the bytes of each batch."""
    for buffer in buffers:
        data, at = memoryview(buffer), 0
        while at < len(data):
            header = core.batch_header(data, at)
            yield header, data[at:at + header.total_bytes]
            at += header.total_bytes


def _found(header: core.BatchHeader, batch: memoryview, offset: int, time_ms: int) -> Found:
    """Return the first record of a batch at or behind ``offset`` that has ``time_ms`` or a later
    time, else the first one with the largest time.  O(bytes, decompressed), without the
    interpreter's lock."""
    try:
        return Found(*core.find_record(header, decompress(
            header.attributes & layout.ATTRIBUTE_CODEC_MASK, batch[layout.BATCH_HEADER_BYTES:]),
            offset, time_ms))
    except CodecError:
        return Found(max(header.base_offset, offset), header.max_timestamp_ms)


def _latest(batch: tuple[core.BatchHeader, memoryview]) -> int:
    return batch[0].max_timestamp_ms
