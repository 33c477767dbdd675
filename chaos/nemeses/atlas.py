"""Fault atlas of a run: the regions whose bits were flipped, limited so that good copies remain.

Contract.  ``FaultAtlas.may_hit`` decides whether a region of a node may be damaged, ``hit`` records
that it was.  Nothing is removed from the atlas: damage that no node has read still exists at the
end of a run.

Theory.  The promise is that damage on a minority of copies is repaired (decision 0009).  An *entry*
is a region of its own: every node may be damaged, each in other entries, and all are repaired from
each other (Alagappan's *helix*).  Data that belongs to no single entry (headers, hard state,
checkpoints, index files) can cost a node all its groups at once: only a minority of nodes is ever
damaged there, the same ones throughout the run.
"""

from __future__ import annotations

from typing import NamedTuple


class EntryRegion(NamedTuple):
    """The payload of one entry of a group's log."""

    group: int
    index: int


class FileRegion(NamedTuple):
    """A file of a node, or a position in one, that belongs to no single entry."""

    path: str  # below the data directory
    position: int


class FaultAtlas:
    """All damage of one run."""

    def __init__(self, replication_factor: int):
        self.minority = (replication_factor - 1) // 2
        self._entries: dict[EntryRegion, set[int]] = {}
        self._files: dict[int, set[FileRegion]] = {}

    def may_hit(self, node: int, region: EntryRegion | FileRegion) -> bool:
        """True if damage of this region of a node leaves enough good copies. An entry may be
        damaged on a minority of nodes, files on one minority of nodes in all, and one file of a
        node once only."""
        if isinstance(region, EntryRegion):
            return len(self._entries.get(region, set()) | {node}) <= self.minority
        if any(other.path == region.path for other in self._files.get(node, ())):
            # two checkpoints are kept so that one may be bad; one damage per file is the limit
            return False
        return len(self._files.keys() | {node}) <= self.minority

    def hit(self, node: int, region: EntryRegion | FileRegion) -> None:
        """Record that the region has been damaged; ``may_hit`` must allow it."""
        assert self.may_hit(node, region), (node, region)
        if isinstance(region, EntryRegion):
            self._entries.setdefault(region, set()).add(node)
        else:
            self._files.setdefault(node, set()).add(region)

    @property
    def count(self) -> int:
        """Return the number of damaged regions so far."""
        return sum(map(len, self._entries.values())) + sum(map(len, self._files.values()))
