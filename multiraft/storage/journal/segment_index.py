"""Entries that one segment adds to the index of each group.

Contract.  Filled by a scan (``segment_scan.py``) or read from the file that ``index_file.py`` keeps
beside a sealed segment; ``recovery/rebuild.py`` joins the segments in journal order.

Theory.  A segment's entries of one group end as *one* contiguous run: a suffix drop inside the
segment cuts the run, or, when it reaches below it, empties it and is remembered as ``cut_from`` for
the segments before.  So joining segments is, per group: cut at ``cut_from``, then extend.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import final

from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.index import NOWHERE, Copy, GroupIndex, PartitionIndex
from multiraft.types import BatchInfo, Entry, EntryKind, HardState

#: (group, incarnation) -> index up to which its applied state is known.
Applied = dict[tuple[int, int], int]

#: Payload of a SUFFIX_DROP by a replica in head recovery.  The replica may have acknowledged the
#: removed entries, so it needs head recovery at every start until a LIFT.  Other truncations have
#: an empty payload.
GIVEN_UP = b"\x01"

#: Payload of a REPAIR entry: place and framed size of the damaged entry.
REPAIR_STRUCT = struct.Struct("<QQ")

#: Payload of a LIFT entry: as often as there are places of the journal whose damage it settles,
#: begin and end.
HOLE_STRUCT = struct.Struct("<QQ")


def void(copies: list[Copy], first_gone: int = 0) -> list[Copy]:
    """Return the copies with index 0 from ``first_gone`` on, because their entries are dropped.
    They still tell what their damaged ranges held."""
    return [copy._replace(index=0) if copy.index >= first_gone else copy for copy in copies]


@final
@dataclass(slots=True)
class SegmentRun:
    """One group's part of a segment."""

    group: int
    incarnation: int
    cut_from: int = 0  # first index that is gone from the segments before; 0 = none
    index: GroupIndex | None = None  # the run; None = no entries
    partitions: dict[int, PartitionIndex] = field(default_factory=dict)
    hard_state: HardState | None = None
    broken: str = ""  # why the run ends before the segment does
    tail_entries: list[Entry] = field(default_factory=list)  # above the applied index; not kept
    missing: dict[int, int] = field(default_factory=dict)  # index -> where it is damaged; not kept
    unsure: set[int] = field(default_factory=set)  # of the missing: those of unknown term; not kept
    #: In journal order, of entries of this segment or of earlier ones.  Copies of entries that the
    #: log does not contain, or no longer contains, are useless and harmless.
    copies: list[Copy] = field(default_factory=list)
    copied: dict[int, Entry] = field(default_factory=dict)  # the copies' entries; not kept
    lifted: int = 0  # journal position of the last LIFT
    settled: tuple[tuple[int, int], ...] = ()  # what it settled
    given_up: int = 0  # journal position of the last SUFFIX_DROP by a replica in head recovery
    buried: Tombstone | None = None  # the last one
    buried_at: int = 0  # its journal position
    removed: bool = False  # nothing of the group follows it
    reborn: ForcedRecovery | None = None  # the last one
    reborn_at: tuple[int, int] = (0, 0)  # its journal position, the log's last index there
    reborn_term: int = 0  # of the vote barrier, if that index is one

    @property
    def last_index(self) -> int:
        return self.index.last_index if self.index is not None else 0

    def add(self, entry: Entry, position: int, size: int, applied: int) -> None:
        """Add the group's next entry in journal order.

        Entries that contradict it were truncated, and the record of that is lost
        (``recovery/lost_truncations.py``).  Missing entries between two of the same term were of
        that term: the leader of the term sent both, and its log has nothing else between (Log
        Matching, paper 5.3).  Between different terms theirs is unknown for now."""
        if self.broken:
            return
        self._drop_before(entry)
        index = self.index
        if index is None:
            index = self.index = GroupIndex(entry.index)
        elif entry.index > index.last_index + 1:
            lost = range(index.last_index + 1, entry.index)
            self.missing.update(dict.fromkeys(lost, NOWHERE))
            if entry.term != index.last_term:
                self.unsure.update(lost)
            index.fill(entry.index)
        index.append(entry.index, entry.term, position, size)
        if entry.kind == EntryKind.DATA:
            assert entry.batch is not None
            self.note_batch(entry.partition, entry.base_offset, entry.index, entry.batch)
        if entry.index > applied:
            self.tail_entries.append(entry)

    def _drop_before(self, entry: Entry) -> None:
        if self.index is None:
            return
        first_gone = self.index.contradicted_by(entry.index, entry.term)
        if first_gone <= self.index.last_index:
            self.drop(first_gone)

    def note_batch(self, partition: int, base_offset: int, index: int, batch: BatchInfo) -> None:
        """Add a batch of the run to its partition's index."""
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionIndex(partition, self.group)
        known.append(base_offset, batch.count, index, batch.max_timestamp_ms)

    def drop(self, first_gone: int) -> None:
        """Apply a suffix drop in journal order.  A run without entries continues wherever the
        segments before it end."""
        if self.index is None or first_gone <= self.index.first_index:
            self.cut_from = min(self.cut_from or first_gone, first_gone)
            self.index = None
        else:
            self.index.cut(first_gone)
        for gone in [index for index in self.missing if index >= first_gone]:
            del self.missing[gone]
            self.unsure.discard(gone)
        for partition in self.partitions.values():
            partition.cut(first_gone)
        while self.tail_entries and self.tail_entries[-1].index >= first_gone:
            self.tail_entries.pop()
        self.copies = void(self.copies, first_gone)

    def apply_tombstone(self, left: Tombstone, position: int) -> None:
        """Empty the run at a tombstone: entries before it belong to a removed replica."""
        self.__init__(self.group, self.incarnation, hard_state=left.hard_state, lifted=position,
                      settled=((0, position),), buried=left, buried_at=position, removed=True,
                      copies=void(self.copies))


@dataclass(slots=True)
class SegmentIndex:
    """The whole segment."""

    start: int
    seed: int
    end: int  # journal position after the last entry
    last_crc: int  # prev_crc of what would follow
    first_durable: int = -1  # durable watermark of the first entry; -1 = no entries
    highest_durable: int = 0
    runs: dict[int, SegmentRun] = field(default_factory=dict)


def living(applied: Applied, known_to: int, indexes: list[SegmentIndex]) -> Applied:
    """Return the applied indexes of a checkpoint at journal position ``known_to``, without those of
    replicas that a tombstone behind it, in one of the segments, has removed."""
    ended = {(run.group, run.incarnation) for index in indexes for run in index.runs.values()
             if run.buried is not None and run.buried_at >= known_to}
    return {key: upto for key, upto in applied.items() if key not in ended}
