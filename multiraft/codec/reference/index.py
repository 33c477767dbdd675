"""Index columns of one segment: a part of the reference's ``SegmentIndexer``.

Contract.  Part of ``_reference``, which finds the entries.  ``add`` takes them one by one in the
order of the segment and returns whether each is the plain case; ``index_rows.py`` packs the
columns.
"""

from __future__ import annotations

from array import array

from multiraft.codec.values import ScannedEntry

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1
_U64 = (1 << 64) - 1


class GroupColumns:
    """Log of one group: positions, cumulative sizes, runs of equal terms."""

    def __init__(self, incarnation: int):
        self.incarnation = incarnation
        self.first_index = 0
        self.positions, self.ends = array("Q"), array("Q")
        self.run_starts: list[int] = []
        self.run_terms: list[int] = []
        self.partitions: dict[int, PartitionColumns] = {}
        self.hard_state: tuple[int, int] | None = None

    def add(self, found: ScannedEntry, position: int, size: int) -> bool:
        """Add the first or the next entry of the log; return False for any other entry."""
        if not self.positions:
            self.first_index = found.index
        elif (found.index != self.first_index + len(self.positions)
              or found.term < self.run_terms[-1]):
            return False
        if not self.run_terms or found.term != self.run_terms[-1]:
            self.run_starts.append(found.index)
            self.run_terms.append(found.term)
        self.ends.append((self.ends[-1] if self.ends else 0) + size)
        self.positions.append(position & _U64)
        return True


class PartitionColumns:
    """Batches of one partition."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.bases, self.indexes, self.latest = array("q"), array("Q"), array("q")
        self.counts: list[int] = []

    def add(self, base_offset: int, count: int, index: int, max_timestamp_ms: int) -> bool:
        """Add the next batch; return False if its end offset exceeds 64 bits."""
        if self.latest:
            max_timestamp_ms = max(max_timestamp_ms, self.latest[-1])
        if not _I64_MIN <= base_offset + count <= _I64_MAX:
            return False
        self.bases.append(base_offset)
        self.indexes.append(index)
        self.latest.append(max_timestamp_ms)
        self.counts.append(count)
        self.end_offset = base_offset + count
        return True
