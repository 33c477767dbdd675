"""Parser of fetched bytes: intact batches, and the first record at or after a time.

Contract.  Pure functions.  A batch that fails its CRC is never returned.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft import core
from multiraft.client._records import FetchedBatch
from multiraft.client._unreadable import UnreadableBatch
from multiraft.errors import CodecError, MultiRaftError


class Search(NamedTuple):
    """Search for the first record at or after ``timestamp_ms`` among offsets below ``end``, which
    is the end that the node named.  Records from ``end`` on are newer and need no search."""

    timestamp_ms: int
    end: int


def intact_batches(data: memoryview) -> tuple[list[tuple[memoryview, core.BatchHeader]],
                                              MultiRaftError | None]:
    """Return (batch, header) of the intact batches at the start of ``data``, and the error of the
    batch after them; None = there is no damaged one.  O(bytes)."""
    try:
        return [(part, core.batch_header(part)) for part in core.split_batches(data)], None
    except CodecError:
        pass  # the loop below finds the damaged one
    parts, at = [], 0
    while at < len(data):
        try:
            part = data[at:at + core.batch_header(data, at).total_bytes]
            parts.append((part, core.verify_batch(part)))
        except CodecError as error:
            return parts, error
        at += len(part)
    return parts, None


def first_records(batch: FetchedBatch, search: Search) -> FetchedBatch | None:
    """Return the batch from the first record on that the search wants; None = no record of it.  A
    batch that cannot be opened, but has such a record by its header, is returned whole, so that
    the caller that opens it receives its error.  O(records)."""
    if batch.base_offset >= search.end:
        return batch
    try:
        offset = batch.first_at(search.timestamp_ms)
    except UnreadableBatch:
        return batch
    if offset is None and batch.next_offset > search.end:
        offset = search.end
    if offset is None:
        return None
    return FetchedBatch(batch.topic, batch.partition, batch.data, batch.header, offset,
                        batch.high_watermark)
