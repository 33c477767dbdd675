"""Entries that one segment adds to the index of each group.

Contract.  Filled by a scan (``segment_scan.py``) or read from the file that ``index_file.py`` keeps
beside a sealed segment; ``recovery/rebuild.py`` joins the segments in journal order.

Theory.  A segment's entries of one group end as *one* contiguous run: a truncation inside the
segment shortens the run, or, when it reaches below it, empties the run and is remembered as
``truncated_from`` for the segments before.  So joining segments is, per group: truncate at
``truncated_from``, then extend.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Protocol, final

from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.packed_batches import PackedBatches
from multiraft.types import BatchInfo, Entry, EntryKind, HardState

#: (group, incarnation) -> index up to which its applied state is known.
Applied = dict[tuple[int, int], int]

#: Payload of a SUFFIX_DROP by a replica in head recovery.  The replica may have acknowledged the
#: removed entries, so it needs head recovery at every start until a LIFT.  Other truncations have
#: an empty payload.
TRUNCATED_IN_HEAD_RECOVERY = b"\x01"

#: Payload of a REPAIR entry: place and framed size of the damaged entry.
REPAIR_STRUCT = struct.Struct("<QQ")

#: Payload of a LIFT entry, once for each damaged range of the journal that it clears: begin and
#: end.
RANGE_STRUCT = struct.Struct("<QQ")


def void_copies(copies: list[Copy], first_removed: int = 0) -> list[Copy]:
    """Return the copies with index 0 from ``first_removed`` on, because their entries were
    truncated.  They still tell the contents of their damaged ranges."""
    return [copy._replace(index=0) if copy.index >= first_removed else copy for copy in copies]


class IndexedEntries(Protocol):
    """Entries whose places are in an index file."""

    @property
    def first_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...


class EntriesInFile(Protocol):
    """A run's entries that were left in an index file: a ``RunSummary``."""

    @property
    def entries(self) -> IndexedEntries | None: ...


@final
@dataclass(slots=True)
class SegmentRun:
    """One group's part of a segment."""

    group: int
    incarnation: int
    truncated_from: int = 0  # first index that is gone from the segments before; 0 = none
    index: GroupIndex | None = None  # the run; None = no entries
    partitions: dict[int, PartitionIndex] = field(default_factory=dict)
    hard_state: HardState | None = None
    broken_reason: str = ""  # why the run ends before the segment does
    unapplied_entries: list[Entry] = field(default_factory=list)  # above the applied index
    missing: dict[int, int] = field(default_factory=dict)  # index -> where it is damaged; not kept
    term_unknown: set[int] = field(default_factory=set)  # subset of ``missing``; not kept
    #: In journal order, of entries of this segment or of earlier ones.  Copies of entries that the
    #: log does not contain, or no longer contains, are useless and harmless.
    copies: list[Copy] = field(default_factory=list)
    copy_entries: dict[int, Entry] = field(default_factory=dict)  # the copies' entries; not kept
    cleared_position: int = 0  # journal position of the last LIFT
    cleared_ranges: tuple[tuple[int, int], ...] = ()  # damage that it cleared
    #: Journal position of the last SUFFIX_DROP by a replica in head recovery.
    head_recovery_truncate_position: int = 0
    tombstone: Tombstone | None = None  # the last one
    tombstone_position: int = 0  # its journal position
    removed: bool = False  # nothing of the group follows it
    forced_recovery: ForcedRecovery | None = None  # the last one
    forced_recovery_at: tuple[int, int] = (0, 0)  # its journal position, the log's last index there
    forced_recovery_term: int = 0  # of the vote barrier, if that index is one

    #: Entries and batches, if they were left in the index file; ``index`` is None then.
    in_file: EntriesInFile | None = None
    #: Batches while a start waits to join the run; ``partitions`` is empty then.
    packed: PackedBatches | None = None

    @property
    def first_index(self) -> int:
        """Return the index of the run's first entry; 0 = it has none."""
        if self.in_file is not None and self.in_file.entries is not None:
            return self.in_file.entries.first_index
        return self.index.first_index if self.index is not None else 0

    @property
    def last_index(self) -> int:
        """Return the index of the run's last entry; 0 = it has none."""
        if self.in_file is not None and self.in_file.entries is not None:
            return self.in_file.entries.last_index
        return self.index.last_index if self.index is not None else 0

    def add(self, entry: Entry, position: int, size: int, applied: int) -> None:
        """Add the group's next entry in journal order; do nothing once the run is broken.

        Entries that contradict it were truncated, and the record of that is lost
        (``recovery/lost_truncations.py``).  Missing entries between two of the same term were of
        that term: the leader of the term sent both, and its log has nothing else between (Log
        Matching, paper 5.3).  Between different terms theirs is unknown for now."""
        if self.broken_reason:
            return
        self._truncate_before(entry)
        index = self.index
        if index is None:
            index = self.index = GroupIndex(entry.index)
        elif entry.index > index.last_index + 1:
            lost = range(index.last_index + 1, entry.index)
            self.missing.update(dict.fromkeys(lost, UNKNOWN_POSITION))
            if entry.term != index.last_term:
                self.term_unknown.update(lost)
            index.append_placeholders(entry.index)
        index.append(entry.index, entry.term, position, size)
        if entry.kind == EntryKind.DATA:
            assert entry.batch is not None
            self.note_batch(entry.partition, entry.base_offset, entry.index, entry.batch)
        if entry.index > applied:
            self.unapplied_entries.append(entry)

    def _truncate_before(self, entry: Entry) -> None:
        if self.index is None:
            return
        first_removed = self.index.first_conflict(entry.index, entry.term)
        if first_removed <= self.index.last_index:
            self.truncate(first_removed)

    def note_batch(self, partition: int, base_offset: int, index: int, batch: BatchInfo) -> None:
        """Add a batch of the run to its partition's index."""
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionIndex(partition, self.group)
        known.append(base_offset, batch.count, index, batch.max_timestamp_ms)

    def pack(self) -> None:
        """Pack the batches, until ``unpack``: a start keeps the runs of several segments.
        O(batches)."""
        if self.partitions:
            self.packed = PackedBatches(self.group, self.partitions.values())
            self.partitions = {}

    def unpack(self) -> None:
        """Unpack the batches, if they are packed.  O(batches)."""
        if self.packed is not None:
            self.partitions = {each.partition: each for each in self.packed.unpack()}
            self.packed = None

    def truncate(self, first_removed: int) -> None:
        """Remove the run's entries from ``first_removed`` on and void their copies.

        If none remains, remember the truncation as ``truncated_from``, for the segments before; the
        run continues at their end."""
        assert self.packed is None, f"the batches of group {self.group} are packed"
        if self.index is None or first_removed <= self.index.first_index:
            self.truncated_from = min(self.truncated_from or first_removed, first_removed)
            self.index = None
        else:
            self.index.truncate(first_removed)
        for gone in [index for index in self.missing if index >= first_removed]:
            del self.missing[gone]
            self.term_unknown.discard(gone)
        for partition in self.partitions.values():
            partition.truncate(first_removed)
        while self.unapplied_entries and self.unapplied_entries[-1].index >= first_removed:
            self.unapplied_entries.pop()
        self.copies = void_copies(self.copies, first_removed)

    def apply_tombstone(self, left: Tombstone, position: int) -> None:
        """Empty the run at a tombstone, which is at journal position ``position``: entries before
        it belong to a removed replica.  Keep the hard state of the tombstone, and copies as void
        ones."""
        self.__init__(self.group, self.incarnation, hard_state=left.hard_state,
                      cleared_position=position, cleared_ranges=((0, position),), tombstone=left,
                      tombstone_position=position, removed=True, copies=void_copies(self.copies))


@dataclass(slots=True)
class SegmentIndex:
    """Index of a whole segment: its bounds and checksums, and the run of each group in it."""

    start: int
    seed: int
    end: int  # journal position after the last entry
    last_crc: int  # prev_crc of what would follow
    first_durable: int = -1  # durable watermark of the first entry; -1 = no entries
    highest_durable: int = 0
    runs: dict[int, SegmentRun] = field(default_factory=dict)

    def pack(self) -> None:
        """Pack the batches of each run.  O(batches)."""
        for run in self.runs.values():
            run.pack()


def without_removed_replicas(applied: Applied, known_to: int,
                             indexes: list[SegmentIndex]) -> Applied:
    """Return the applied indexes of a checkpoint at journal position ``known_to``, without those of
    replicas that a tombstone behind it, in one of the segments, has removed."""
    ended = {(run.group, run.incarnation) for index in indexes for run in index.runs.values()
             if run.tombstone is not None and run.tombstone_position >= known_to}
    return {key: upto for key, upto in applied.items() if key not in ended}
