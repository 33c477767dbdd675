"""Batches that Spark's writers staged in a transaction, as Kafka's clients may read them.

Contract. ``StagedRecords.visible`` takes the buffers of a partition in a fetch, and returns those
that may be read: up to the first batch of a transaction that is not decided, without those of void
transactions and of attempts that do not count. A batch without records stands for skipped ones if
nothing else in the answer moves a reader behind them.

Theory. Clients of this project judge staged batches by the transaction in their producer identity;
Kafka's do not know it, at either isolation level. A decision never changes, so metadata that are
behind only delay records: the transaction that they do not know counts as open. Kafka's own list of
aborted transactions does not fit: clients would skip every batch of a listed producer, and attempts
of later transactions have the same producer id. Clients take gaps in the offsets, and a batch
without records (count 0), as compaction leaves them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.wire import sinks
from multiraft.wire.frames import Buffer
from node.kafka.topic_view import UNKNOWN

if TYPE_CHECKING:
    from node.clients.router import MetadataCopy

#: Base offset, length, leader epoch, format, CRC; then attributes, last offset delta, first and
#: last time, producer id, producer epoch, first sequence, number of records.
_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
assert _HEAD.size == layout.BATCH_ATTRIBUTES_AT
assert _HEAD.size + _REST.size == layout.BATCH_HEADER_BYTES


class Visible(NamedTuple):
    """Batches of a partition that may be read."""

    buffers: list[Buffer]
    open_offset: int = UNKNOWN  # of the first batch of an open transaction


class StagedRecords:
    """Staged batches in fetches, judged by the metadata that this node has applied."""

    def __init__(self, metadata_log: MetadataCopy):
        self._metadata_log = metadata_log

    def begins(self) -> dict[int, int]:
        """Return for partitions that may have batches of open transactions the offset from which
        on, by their incarnations.  O(partitions of the topics that open transactions name)."""
        state, found = self._metadata_log.state, {}
        for incarnation, offsets in state.sinks.staged():
            topic = state.topic_at(incarnation)
            if topic is None:
                continue
            for number in range(topic.partitions):
                found[topic.incarnation_of(number)] = (
                    offsets[number] if number < len(offsets) else 0)
        return found

    def open_offset(self, buffers: Sequence[Buffer]) -> int:
        """Return the offset of the first batch whose transaction is not decided, -1 = none.
        O(batches)."""
        return self.visible(buffers, core.staged_batches(buffers)).open_offset

    def visible(self, buffers: Sequence[Buffer], staged: Sequence[tuple[int, int]]) -> Visible:
        """Return what may be read of ``buffers``, whose batches at ``staged``, as
        ``core.staged_batches`` returns them, are not empty.  O(buffers + staged batches)."""
        kept: list[Buffer] = []
        number, at = 0, 0  # everything before this place is judged
        skipped: list[core.BatchHeader] = []
        for there, position in staged:
            header = core.batch_header(buffers[there], position)
            verdict = self._verdict(header)
            if verdict:
                continue
            kept += _between(buffers, (number, at), (there, position))
            if verdict is None:
                return Visible(kept or _standing_for(skipped), header.base_offset)
            skipped.append(header)
            number, at = there, position + header.total_bytes
        kept += _between(buffers, (number, at), (len(buffers), 0))
        return Visible(kept or _standing_for(skipped))

    def _verdict(self, header: core.BatchHeader) -> bool | None:
        """Return True if a staged batch may be read, False if it is void; None = its transaction is
        not decided, as far as this node knows.  O(log void ranges)."""
        transaction = sinks.transaction_ref(header.producer_id, header.producer_epoch)
        found = self._metadata_log.state.sinks.state_of(transaction)
        if found.state == sinks.OPEN:
            return None
        task, attempt = sinks.task_attempt(header.producer_id)
        return found.state == sinks.COMMITTED and dict(found.winners).get(task, 0) == attempt


def _between(buffers: Sequence[Buffer], begin: tuple[int, int], end: tuple[int, int]
             ) -> list[Buffer]:
    """Return the bytes from one place, a buffer's number and a position in it, up to another.
    O(buffers)."""
    (first, at), (last, until) = begin, end
    if first == last:
        return [memoryview(buffers[first])[at:until]] if until > at else []
    found: list[Buffer] = list(buffers[first:last])
    if found and at:
        found[0] = memoryview(found[0])[at:]
    if until:
        found.append(memoryview(buffers[last])[:until])
    return [each for each in found if len(each)]


def _standing_for(skipped: Sequence[core.BatchHeader]) -> list[Buffer]:
    """Return a batch without records with the offsets of skipped ones; nothing for none."""
    if not skipped:
        return []
    first, last = skipped[0], skipped[-1]
    end = last.base_offset + last.last_offset_delta
    rest = _REST.pack(0, end - first.base_offset, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 0)
    return [_HEAD.pack(first.base_offset, layout.BATCH_HEADER_BYTES - layout.BATCH_LENGTH_OVERHEAD,
                       first.leader_epoch, layout.BATCH_MAGIC, core.crc32c(rest)) + rest]
