"""What a recovery says of itself: figures, damage, and how far it is.

Contract.  Values; made by ``recovery.py``, kept by the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from multiraft.storage.group_log import GroupLog
from multiraft.storage.lane import Segment
from multiraft.storage.places import Place, unknown
from multiraft.storage.strays import Stray
from multiraft.tail import PartitionTail


class Damage(NamedTuple):
    """Something that recovery found and that an operator must see."""

    kind: str  # "entry", "payload", "missing", "log", "checkpoint"
    path: str
    position: int  # lane position
    group: int  # -1 = every group of the lane
    index: int
    why: str


@dataclass(slots=True)
class Progress:
    """How far a recovery is; written while it runs, for whoever looks from another thread."""

    segments_done: int = 0
    segments_total: int = 0
    groups_done: int = 0
    groups_total: int = 0


@dataclass(slots=True)
class Recovered:
    """What recovery found and did."""

    logs: dict[int, GroupLog] = field(default_factory=dict)
    tails: dict[int, PartitionTail] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)  # files that are not this node's
    lane_damage: str = ""  # why every group of the lane is quarantined, or empty
    unindexed: list[Segment] = field(default_factory=list)  # sealed, without a good index file
    scanned_bytes: int = 0
    scanned_segments: int = 0
    indexed_segments: int = 0
    copied: dict[int, int] = field(default_factory=dict)  # position -> size of what has a copy
    holes: list[tuple[int, int]] = field(default_factory=list)  # damage of unknown ownership
    cut_at: int = -1  # lane position of a torn tail, -1 = none
    cut_bytes: int = 0  # file bytes behind it

    def without_copy(self, begin: int, end: int) -> list[Place]:
        """The parts of a damaged place of the lane of which no copy says what stood there."""
        return unknown(begin, end, [(at, at + size) for at, size in self.copied.items() if size])

    def without_copies(self, found: Iterable[Place]) -> list[tuple[int, list[Place]]]:
        """Where each damaged place begins of which no copy says all that stood there, in lane
        order, and those parts.  O(n²)."""
        return [(begin, parts) for begin, end in sorted(set(found))
                if (parts := self.without_copy(begin, end))]
