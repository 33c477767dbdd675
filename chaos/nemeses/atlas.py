"""Where bits have been flipped, so that a good copy of everything remains.

Contract.  ``FaultAtlas.may_hit`` says whether a region of a node may be damaged, ``hit`` that it
has been.  Nothing is ever forgotten: damage that nobody has read is still there at the end of a
run.

Theory.  What the promises say is that damage on a minority of copies is repaired (decision 0009).
An *entry* is a region of its own: every node may be damaged, each in other entries, and all are
repaired from each other (Alagappan's *helix*).  What belongs to no single entry (headers, hard
state, checkpoints, index files) can cost a node all its groups at once: only a minority of nodes is
ever damaged there, the same ones throughout the run.
"""

from __future__ import annotations

from typing import NamedTuple


class EntryRegion(NamedTuple):
    """The payload of one entry of a group's log."""

    group: int
    index: int


class FileRegion(NamedTuple):
    """What is a node's own: a file, or a place in one."""

    path: str  # below the data directory
    position: int


class FaultAtlas:
    """All damage of one run."""

    def __init__(self, replication_factor: int):
        self.minority = (replication_factor - 1) // 2
        self._entries: dict[EntryRegion, set[int]] = {}
        self._files: dict[int, set[FileRegion]] = {}

    def may_hit(self, node: int, region: EntryRegion | FileRegion) -> bool:
        """Whether enough good copies remain after it."""
        if isinstance(region, EntryRegion):
            return len(self._entries.get(region, set()) | {node}) <= self.minority
        if any(other.path == region.path for other in self._files.get(node, ())):
            return False  # two checkpoints are kept so that one may be bad; once each is enough
        return len(self._files.keys() | {node}) <= self.minority

    def hit(self, node: int, region: EntryRegion | FileRegion) -> None:
        """It has been damaged."""
        assert self.may_hit(node, region), (node, region)
        if isinstance(region, EntryRegion):
            self._entries.setdefault(region, set()).add(node)
        else:
            self._files.setdefault(node, set()).add(region)

    @property
    def count(self) -> int:
        """Damaged regions so far."""
        return sum(map(len, self._entries.values())) + sum(map(len, self._files.values()))
