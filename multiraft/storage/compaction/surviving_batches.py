"""Result of one compaction: which batches of a partition are dropped, and which lose records.

Contract.  ``Marking`` fills it on a thread; afterwards it does not change.  ``is_dropped`` answers
for all batches below ``end_offset`` that were examined; of others it says that they stay.
``compacted`` returns what is stored instead of a batch.

Theory.  A batch has its marks from a byte on, four to a byte, so that those of one are apart from
those of the next.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

from multiraft import core
from multiraft.codec import layout
from multiraft.codec.values import Buffer
from multiraft.errors import CorruptBatch
from multiraft.types import Entry, Payload

#: (codec, records) -> the uncompressed records.  Raises ``CorruptBatch``.
Decompress = Callable[[int, Buffer], Buffer]


class SurvivingBatches:
    """Batches of one partition that a compaction drops or changes."""

    __slots__ = ("group", "partition", "generation", "end_offset", "_decompress", "_indexes",
                 "_firsts", "_dropped", "_marks")

    def __init__(self, group: int, partition: int, generation: int, end_offset: int,
                 decompress: Decompress):
        self.group = group
        self.partition = partition
        self.generation = generation
        self.end_offset = end_offset  # batches that begin here or behind are not examined
        self._decompress = decompress
        self._indexes = array("Q")  # of batches that lose a record or all, ascending
        self._firsts = array("Q")  # number of the first mark of each
        self._dropped = bytearray()  # 1 = all records go
        self._marks = bytearray()

    def __bool__(self) -> bool:
        return bool(self._indexes)

    @property
    def dropped(self) -> list[int]:
        """Indexes of the batches of which no record survives, ascending.  O(batches)."""
        return [index for index, gone in zip(self._indexes, self._dropped, strict=True) if gone]

    def fill(self, indexes: array[int], firsts: array[int], dropped: bytearray,
             marks: bytearray) -> None:
        """Set the batches that lose records, ascending by index.  O(1)."""
        self._indexes, self._firsts = indexes, firsts
        self._dropped, self._marks = dropped, marks

    def is_dropped(self, index: int) -> bool:
        """Return True if no record of the batch with that log index survives.  O(log batches)."""
        slot = bisect_left(self._indexes, index)
        return (slot < len(self._indexes) and self._indexes[slot] == index
                and bool(self._dropped[slot]))

    def is_changed(self, index: int) -> bool:
        """Return True if a record of the batch with that log index goes.  O(log batches)."""
        slot = bisect_left(self._indexes, index)
        return slot < len(self._indexes) and self._indexes[slot] == index

    def compacted(self, entry: Entry) -> Entry | None:
        """Return the entry with the records that survive; None = none does.  A batch that would be
        larger than it was stays whole.  O(bytes of a batch that loses records, log batches else).

        Raises ``CorruptBatch`` if the batch is not the one that was examined."""
        slot = bisect_left(self._indexes, entry.index)
        if slot == len(self._indexes) or self._indexes[slot] != entry.index:
            return entry
        if self._dropped[slot]:
            return None
        payload = rewritten(entry.payload, self._marks, self._firsts[slot], self._decompress)
        if payload is entry.payload:
            return entry
        return Entry(entry.kind, entry.group, entry.incarnation, entry.term, entry.index,
                     entry.partition, entry.base_offset, payload, core.batch_info(payload))


def rewritten(payload: Payload, marks: bytearray, first: int, decompress: Decompress) -> Payload:
    """Return a batch without the records that are marked to go, uncompressed; the same payload if
    that would be larger.  O(bytes).  Raises ``CorruptBatch``, ``ValueError`` if none survives."""
    header = core.batch_header(payload)
    codec = header.attributes & layout.ATTRIBUTE_CODEC_MASK
    block = decompress(codec, memoryview(payload)[layout.BATCH_HEADER_BYTES:])
    count, size = core.surviving_records(header, block, marks, first)
    if count == header.count or (codec and layout.BATCH_HEADER_BYTES + size > len(payload)):
        return payload
    if not count:
        raise CorruptBatch("no record survives of a batch of which some did")
    return core.compact_batch(payload, block, marks, first)
