"""Errors of batches that a reader cannot open, with their topic, partition and offsets.

Contract.  A node never decompresses a batch, so a batch that no client can open may be acknowledged
and stored.  The error of a reader names the batch and the offset at which reading can continue.
"""

from __future__ import annotations

from multiraft.compression import DecompressionTooLarge
from multiraft.errors import CorruptBatch


class UnreadableBatch(CorruptBatch):
    """A batch that cannot be opened, or fails its CRC on each replica.  ``topic``, ``partition``,
    ``base_offset`` and ``last_offset`` (-1 = its header is damaged) name it.  A new consumer that
    starts at ``next_offset`` skips it; a consumer that has delivered the batch skips it anyway."""

    def __init__(self, topic: str, partition: int, base_offset: int, last_offset: int,
                 cause: Exception):
        upto = f" to {last_offset}" if last_offset > base_offset else ""
        CorruptBatch.__init__(self, f"{topic}/{partition}: the batch at offset {base_offset}{upto} "
                                    f"cannot be read: {cause}")
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.cause = cause

    def __reduce__(self) -> tuple:
        return type(self), (self.topic, self.partition, self.base_offset, self.last_offset,
                            self.cause)

    @property
    def next_offset(self) -> int:
        """First offset after the batch; if its header is damaged, the offset after its first."""
        return max(self.base_offset, self.last_offset) + 1


class OversizedBatch(UnreadableBatch, DecompressionTooLarge):
    """A batch that would exceed the limit when decompressed; ``limit`` and ``value`` as of
    ``DecompressionTooLarge``."""

    def __init__(self, topic: str, partition: int, base_offset: int, last_offset: int,
                 cause: DecompressionTooLarge):
        UnreadableBatch.__init__(self, topic, partition, base_offset, last_offset, cause)
        self.limit = cause.limit
        self.value = cause.value


def unreadable(topic: str, partition: int, base_offset: int, last_offset: int,
               cause: Exception) -> UnreadableBatch:
    """Return the error of a batch that cannot be read: an ``OversizedBatch`` if ``cause`` is a
    ``DecompressionTooLarge``."""
    if isinstance(cause, DecompressionTooLarge):
        return OversizedBatch(topic, partition, base_offset, last_offset, cause)
    return UnreadableBatch(topic, partition, base_offset, last_offset, cause)
