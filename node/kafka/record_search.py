"""The search for the first record at or after a time, inside batches that were read.

Contract. ``RecordSearch.execute`` runs on a thread: it decompresses. A batch that cannot be opened
is answered with its first offset, so that a client that starts there receives its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import decompress
from multiraft.errors import CodecError
from multiraft.wire.frames import Buffer


class Found(NamedTuple):
    """A record that was found, or the offset to continue the search from: then ``time_ms`` is
    -1."""

    offset: int
    time_ms: int


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
        for buffer in self._batches:
            data, at = memoryview(buffer), 0
            while at < len(data):
                header = core.batch_header(data, at)
                found = self._in_batch(header, data[at:at + header.total_bytes])
                if found is not None:
                    return found
                at += header.total_bytes
                following = header.base_offset + header.last_offset_delta + 1
        return Found(following, -1)

    def _in_batch(self, header: core.BatchHeader, batch: memoryview) -> Found | None:
        if header.max_timestamp_ms < self._time_ms:
            return None
        try:
            records = core.decode_records(header, decompress(
                header.attributes & layout.ATTRIBUTE_CODEC_MASK,
                batch[layout.BATCH_HEADER_BYTES:]))
        except CodecError:
            return Found(max(header.base_offset, self._offset), header.max_timestamp_ms)
        return next((Found(record.offset, record.timestamp_ms) for record in records
                     if record.timestamp_ms >= self._time_ms and record.offset >= self._offset),
                    None)
