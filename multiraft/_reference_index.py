"""What a segment adds to the index: the plain twin of the compiled ``SegmentIndexer``.

Contract.  Part of ``_reference``, which finds the entries.  ``add`` takes them one by one in lane
order and says whether each is the plain case; columns are 64-bit numbers in little-endian bytes, as
``storage/index.py`` packs them.
"""

from __future__ import annotations

from array import array

from multiraft._values import ScannedEntry

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1
_U64 = (1 << 64) - 1


class GroupColumns:
    """One group's log: places, sizes added up, terms as runs."""

    def __init__(self, incarnation: int):
        self.incarnation = incarnation
        self.first_index = 0
        self.positions, self.ends = array("Q"), array("Q")
        self.run_starts: list[int] = []
        self.run_terms: list[int] = []
        self.partitions: dict[int, PartitionColumns] = {}
        self.hard_state: tuple[int, int] | None = None

    def add(self, found: ScannedEntry, position: int, size: int) -> bool:
        """The next entry of the log, or its first; False if it is neither."""
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

    def packed(self) -> list | None:
        """Fields of ``GroupIndex.unpack``."""
        if not self.positions:
            return None
        return [self.first_index, self.positions.tobytes(), self.ends.tobytes(), self.run_starts,
                self.run_terms]


class PartitionColumns:
    """One partition's batches."""

    def __init__(self):
        self.end_offset = 0
        self.bases, self.indexes, self.latest = array("q"), array("Q"), array("q")
        self.holes: list[list[int]] = []

    def add(self, base_offset: int, count: int, index: int, max_timestamp_ms: int) -> bool:
        """The next batch; False if its end is beyond all offsets."""
        if self.latest:
            max_timestamp_ms = max(max_timestamp_ms, self.latest[-1])
            if base_offset != self.end_offset:
                self.holes.append([self.bases[-1], self.end_offset])
        if not _I64_MIN <= base_offset + count <= _I64_MAX:
            return False
        self.bases.append(base_offset)
        self.indexes.append(index)
        self.latest.append(max_timestamp_ms)
        self.end_offset = base_offset + count
        return True

    def packed(self, partition: int) -> list:
        """Fields of ``PartitionIndex.unpack``."""
        return [partition, self.end_offset, self.bases.tobytes(), self.indexes.tobytes(),
                self.latest.tobytes(), self.holes]
