"""Errors of batches that a reader cannot open, with the place where they are.

Contract.  A node never opens a batch, so one that nobody can open may be acknowledged and stored:
whoever reads it has to know which one it is, and where to go on.
"""

from __future__ import annotations

from multiraft.client._compression import DecompressionTooLarge
from multiraft.errors import CorruptBatch


class UnreadableBatch(CorruptBatch):
    """A batch that cannot be opened, or does not pass its check on any replica: ``topic``,
    ``partition``, ``base_offset`` and ``last_offset`` (-1 = its header cannot be believed) say
    which.  Whoever shall go on behind it begins at ``next_offset``; a consumer that gave the batch
    does so by itself."""

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
        """The first offset behind the batch, as far as its header can be believed."""
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
    """The error of a batch, by what is wrong with it."""
    if isinstance(cause, DecompressionTooLarge):
        return OversizedBatch(topic, partition, base_offset, last_offset, cause)
    return UnreadableBatch(topic, partition, base_offset, last_offset, cause)
