"""Reader of a partition's batches for passes, which waits for blocks of index files.

Contract.  ``batches`` is a generator within a pass: it yields when a block is missing, and the
driver of the pass reads ``wanted_block`` before it continues, and sets it to None.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Protocol

from multiraft.storage.errors import BlockNotCached
from node.retention.retention_policy import StoredBatch

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates


class Batches(Protocol):
    """The part of ``multiraft.storage.store.Store`` that is used here."""

    @property
    def partition_states(self) -> Mapping[int, PartitionStates]: ...

    def batches(self, group: int, partition: int, offset: int,
                count: int) -> list[tuple[int, int, int, int]]: ...


class BatchReader:
    """The look-ups of batches of one kind of passes."""

    def __init__(self, store: Batches, block_cost: int):
        """``block_cost``: what ``batches`` yields as the cost of a block that has to be read."""
        self._store = store
        self._block_cost = block_cost
        #: Block of an index file that the last step lacks, to be read before the next one; the
        #: driver sets it to None once it is read.
        self.wanted_block: BlockNotCached | None = None
        self.walked = 0  # batches

    def batches(self, group: int, partition: int, offset: int,
                count: int) -> Generator[int, None, list[StoredBatch]]:
        """Return batches as ``Store.batches``; none if a block of an index file that tells of them
        cannot be read."""
        while True:
            try:
                batches = self._store.batches(group, partition, offset, count)
            except BlockNotCached as error:
                self.wanted_block = error
                yield self._block_cost
                if self.wanted_block is error:
                    self.wanted_block = None
                    return []
                if group not in self._store.partition_states:
                    return []  # the replica was removed meanwhile
            else:
                self.walked += len(batches)
                return [StoredBatch(*batch) for batch in batches]
