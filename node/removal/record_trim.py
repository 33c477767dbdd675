"""Removal of records below log starts from this node's record stores, in bounded steps.

Contract. ``note`` is called for each group of which entries were applied, and records in O(1) which
partitions lost records by them. ``steps`` removes these records, as an iterator whose ``next`` is a
bounded portion of work. Records of a Raft log are removed by its compaction.

Invariants. Readers see a log start as soon as it is applied. The removal from memory may follow
later, because a start removes the same records by the same entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from node.loop.steps import ROWS_PER_STEP

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.storage.compaction.compactor import Compactor

#: Batches that one step removes: each takes 1 us, so that a step takes about a millisecond.
BATCHES_PER_STEP = 1024


class Store(Protocol):
    """The store's part in the removal of records."""

    compactor: Compactor

    @property
    def partition_states(self) -> Mapping[int, PartitionStates]: ...

    def trim(self, group: int, partitions: Collection[int], batches_max: int) -> bool: ...


class RecordTrim:
    """The partitions of one node that lost records, and the steps that remove these."""

    def __init__(self, store: Store):
        self._store = store
        self._left: dict[int, dict[int, None]] = {}  # group -> partitions
        self.noted = 0  # partitions, since the start

    def note(self, group: int) -> None:
        """Note the partitions of a group that applied entries have deleted, whose log start rose,
        or that are to be compacted by key. O(1), O(such partitions) if there are any."""
        states = self._store.partition_states[group]
        for partition in states.take_ordered():
            self._store.compactor.ordered(group, partition)
        shortened = states.take_shortened()
        if shortened:
            self._left.setdefault(group, {}).update(dict.fromkeys(shortened))
            self.noted += len(shortened)

    @property
    def is_due(self) -> bool:
        """True if records wait for their removal."""
        return bool(self._left)

    def steps(self) -> Iterator[None]:
        """Remove the records of all noted partitions, in steps of at most ``ROWS_PER_STEP``
        partitions and ``BATCHES_PER_STEP`` batches."""
        while self._left:
            group, partitions = next(iter(self._left.items()))
            some = [*islice(partitions, ROWS_PER_STEP)]
            if not self._store.trim(group, some, BATCHES_PER_STEP):
                for partition in some:
                    del partitions[partition]
            if not partitions:
                del self._left[group]
            yield
