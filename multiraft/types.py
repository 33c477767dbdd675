"""Types of the log: ids, indexes, entries, hard state, configurations.

Contract.  Values only; nothing here reads a clock, a file or a socket.  ``Index`` belongs to Raft
and is never an offset; ``Offset`` belongs to consumers and is dense per partition; ``Position`` is
a byte of the journal.  ``Entry.payload`` is opaque to consensus, which never copies it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

NodeId = int  # 1 .. 2**31-1
GroupId = int  # 0 .. pool size; 0 is the metadata group
# One existence of a group (u32) or partition (u64); from 1.
Incarnation = int
Term = int
Index = int  # of a log entry, from 1; 0 = before the first entry
Offset = int  # of a record in its partition, dense from 0
Position = int  # byte of the journal
Milliseconds = int

NO_NODE: NodeId = 0
METADATA_GROUP: GroupId = 0


class EntryKind(enum.IntEnum):
    """Kinds of entries.  Those below ``CHECKPOINT_MARK`` have an index in their group's log; the
    others are records of the journal itself."""

    DATA = 1  # one RecordBatch v2
    NOOP = 2  # a new leader's first entry
    MEMBERSHIP = 3  # a configuration; counts from the moment it is in the log
    PARTITION_OPEN = 4  # payload: PARTITION_OPEN struct of partitions/state.py
    PARTITION_SEAL = 5  # no more data for this partition incarnation in this group
    LOG_START = 6  # new log starts of partitions (partitions/retention_records.py)
    METADATA = 7  # a command of the metadata state machine (CBOR)
    CLOCK = 8  # milliseconds since 1970: dates the entries behind it
    PARTITION_DELETE = 9  # partitions that the group has no longer
    COMPACT = 10  # the partition is compacted by key up to an offset
    PRODUCERS_EXPIRE = 11  # producers whose last batch is before an index are forgotten
    CHECKPOINT_MARK = 16  # a checkpoint up to this journal offset exists
    SUFFIX_DROP = 17  # entries of the group with index >= this one's are removed (truncation)
    HARD_STATE = 18  # header: term; payload: u32 node voted for (0 = none)
    GAP = 19  # placeholder of removed entries, keeps (index, term)
    # The replica was removed; term, index = its vote barrier (raft/replica_records.py).
    TOMBSTONE = 20
    REINCARNATION = (
        21  # the group continues from this log in a new incarnation (raft/replica_records.py)
    )
    REPAIR = 24  # the next record is a copy of a damaged entry (term, index)
    LIFT = 25  # damage before this journal offset no longer concerns the group


LAST_INDEXED_KIND = EntryKind.PRODUCERS_EXPIRE


class BatchInfo(NamedTuple):
    """Fields of a batch that a node needs, parsed once from its 61 header bytes."""

    #: Offsets that the batch spans, > 0: its records, and those that compaction removed from it.
    count: int  # type: ignore[assignment]
    producer_id: int  # -1 = not idempotent
    producer_epoch: int
    base_sequence: int
    max_timestamp_ms: int
    codec: int


Payload = bytes | bytearray | memoryview


class Entry:
    """One entry of a group's log, or one record of the journal.  Immutable once appended.

    ``payload`` is a memoryview (or bytes) that stays valid as long as the entry exists; ``batch``
    is set for DATA only."""

    __slots__ = ("kind", "group", "incarnation", "term", "index", "partition", "base_offset",
                 "payload", "batch")

    def __init__(self, kind: int, group: int, incarnation: int, term: int, index: int,
                 partition: int = 0, base_offset: int = -1, payload: Payload = b"",
                 batch: BatchInfo | None = None):
        self.kind = kind
        self.group = group
        self.incarnation = incarnation
        self.term = term
        self.index = index
        self.partition = partition
        self.base_offset = base_offset
        self.payload = payload
        self.batch = batch

    def __repr__(self) -> str:
        return (f"Entry({EntryKind(self.kind).name}, g{self.group}.{self.incarnation}, "
                f"{self.index}@{self.term}, {len(self.payload)} B)")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entry):
            return NotImplemented
        return (self.kind == other.kind and self.group == other.group
                and self.incarnation == other.incarnation and self.term == other.term
                and self.index == other.index and self.partition == other.partition
                and self.base_offset == other.base_offset and self.payload == other.payload
                and self.batch == other.batch)

    __hash__ = None  # type: ignore[assignment]  # entries are compared, never keys


class HardState(NamedTuple):
    """Term and vote, which must survive a crash together: one atomic record (Raft paper, figure
    2)."""

    term: Term
    vote: NodeId  # NO_NODE = none in this term


class Configuration(NamedTuple):
    """Members of a group.  ``outgoing`` is not empty only while a joint change is open (thesis
    4.3)."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    outgoing: tuple[NodeId, ...] = ()

    def members(self) -> tuple[NodeId, ...]:
        """Return every node that receives entries, sorted, without repeats."""
        return tuple(sorted({*self.voters, *self.learners, *self.outgoing}))
