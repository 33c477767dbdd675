"""Report of a recovery: figures, damage, logs and progress.

Contract.  Values; made by ``recovery.py``, kept by the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from multiraft.partitions.state import PartitionStates
from multiraft.storage.damage.journal_damage import JournalDamage
from multiraft.storage.indexed_segments import IndexedSegments
from multiraft.storage.journal.journal import Segment
from multiraft.storage.removable_segments import GroupContents, SegmentContents
from multiraft.storage.stored_log import StoredLog
from multiraft.storage.strays import Stray


class Damage(NamedTuple):
    """Finding of recovery that an operator must see."""

    kind: str  # "entry", "payload", "missing", "log", "checkpoint", "cold"
    path: str
    position: int  # of the journal, or the place in a cold segment
    group: int  # -1 = every group of the journal
    index: int  # type: ignore[assignment]
    why: str


@dataclass(slots=True)
class RecoveryProgress:
    """Progress of a recovery, updated while it runs; other threads may read it."""

    segments_done: int = 0
    segments_total: int = 0
    groups_done: int = 0
    groups_total: int = 0


@dataclass(slots=True)
class RecoveryReport:
    """Logs that recovery rebuilt, and what it found and did."""

    logs: dict[int, StoredLog] = field(default_factory=dict)
    partition_states: dict[int, PartitionStates] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)  # files that are not this node's
    quarantine_all_reason: str = ""  # why every group of the journal is quarantined, or empty
    contents: dict[int, SegmentContents] = field(default_factory=dict)  # by start, of sealed ones
    unindexed: list[Segment] = field(default_factory=list)  # sealed, without a good index file
    #: By number: groups in each cold segment, with the first and last index of their records.
    cold_contents: dict[int, Mapping[int, GroupContents]] = field(default_factory=dict)
    #: (group, number) of the parts of cold segments that were not to be read whole.
    cold_answered: set[tuple[int, int]] = field(default_factory=set)
    scanned_bytes: int = 0
    scanned_segments: int = 0
    indexed_segments: int = 0
    journal_damage: JournalDamage = field(default_factory=JournalDamage)
    #: Damaged ranges of the journal, (begin, end), of unknown owner and not explained entirely.
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    indexed: IndexedSegments | None = None  # with index files that answer; set by ``rebuild``
    cut_at: int = -1  # journal position of a torn tail, -1 = none
    cut_bytes: int = 0  # file bytes behind it
