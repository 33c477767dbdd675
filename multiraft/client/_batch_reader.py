"""Fetched bytes into batches: what is intact, and where the record of a time is.

Contract.  Pure functions.  Nothing that fails its check is ever returned.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft import core
from multiraft.client._records import FetchedBatch
from multiraft.client._unreadable import UnreadableBatch
from multiraft.errors import CodecError, MultiRaftError


class Search(NamedTuple):
    """The first record at or after ``timestamp_ms`` is looked for, in what lies below ``end``: the
    node said that it is there.  Behind it there is nothing to look for: whatever comes is new."""

    timestamp_ms: int
    end: int


def intact_batches(data: memoryview) -> tuple[list[tuple[memoryview, core.BatchHeader]],
                                              MultiRaftError | None]:
    """(batch, header) of the intact batches that ``data`` begins with, and what is wrong with the
    next one, if anything is."""
    try:
        return [(part, core.batch_header(part)) for part in core.split_batches(data)], None
    except CodecError:
        pass  # found out below which one it is
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
    """The batch from the first record on that is wanted; None = none of it is.  A batch that
    cannot be opened and whose header says that it has such a record is wanted whole: whoever opens
    it is told what is wrong with it."""
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
