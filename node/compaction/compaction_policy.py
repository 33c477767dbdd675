"""The decision about one partition: whether its records are compacted by key, and up to where.

Contract.  Pure values and functions.  ``rules_of`` reads the rules of a topic from its settings.  A
``DirtyPart`` takes the batches behind the last COMPACT, in any number of portions, and ends at the
first one that has to wait.  ``decide`` returns the COMPACT that is due, or None.

Invariants.  A COMPACT follows the last one: its generation is the next, and neither of its offsets
is lower.  ``up_to`` is the end of a batch, above no high watermark, and all batches below it are
records in the record store.  ``tombstones_below`` rises only to the ``up_to`` of an earlier
COMPACT.

Theory.  A batch may be compacted once consensus does not need it any longer, and once it is old
enough.  Both are monotone in the log index, so the first batch that has to wait ends the dirty
part.  Compaction reads the whole partition, so it waits until much of it is new (``dirty_ratio``),
until a record has waited for too long, or until tombstones may go.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from multiraft.partitions.retention_records import Compaction
from multiraft.settings.effective import is_internal
from node.retention.retention_policy import CLEANUP_POLICY, Pairs, StoredBatch, value_of

#: Names of the other settings that are read here.
MIN_LAG_MS = "min.compaction.lag.ms"
MAX_LAG_MS = "max.compaction.lag.ms"
TOMBSTONE_MS = "delete.retention.ms"
DIRTY_RATIO = "min.cleanable.dirty.ratio"

#: An index above that of every entry.
INDEX_MAX = (1 << 63) - 1
#: The highest generation that a COMPACT has room for.  One each second reach it in 136 years.
GENERATION_MAX = (1 << 32) - 1

#: Different settings whose rules are remembered; topics share few.
_REMEMBERED = 1024


class Rules(NamedTuple):
    """Rules by which the partitions of a topic are compacted."""

    min_lag_ms: int  # a record stays so long
    max_lag_ms: int  # a record waits at most so long, as far as ``min_lag_ms`` allows it
    tombstone_ms: int  # a record without a value stays so long after its compaction
    dirty_ratio: float


@lru_cache(_REMEMBERED)
def rules_of(topic: str, own: Pairs, shared: Pairs) -> Rules | None:
    """Return the rules of the topic of that name, by its own settings and those of the cluster;
    None = its records are not compacted.  An internal topic has no share in the cluster's
    ``cleanup.policy``.  O(settings)."""
    values = dict(shared)
    if is_internal(topic):
        values.pop(CLEANUP_POLICY, None)
    values.update(own)
    if "compact" not in value_of(values, CLEANUP_POLICY).split(","):
        return None
    return Rules(int(value_of(values, MIN_LAG_MS)), int(value_of(values, MAX_LAG_MS)),
                 int(value_of(values, TOMBSTONE_MS)), float(value_of(values, DIRTY_RATIO)))


class Bounds(NamedTuple):
    """Bounds of the batches that may be compacted, as a leader knows them."""

    end_offset: int  # the high watermark; the batch that ends there is never compacted
    raft_start: int  # index from which on entries belong to the Raft log
    old_index: int  # entries up to it are as old as ``min.compaction.lag.ms`` asks


class DirtyPart:
    """The batches of one partition behind its last COMPACT that may be compacted, as far as they
    were examined.

    ``up_to`` is the end of the last one, ``first_index`` the log index of the first one (0 = there
    is none).  ``waiting`` is the batch that ended the part; None = none did yet."""

    __slots__ = ("up_to", "bytes", "first_index", "waiting")

    def __init__(self, begin: int):
        self.up_to = begin
        self.bytes = 0
        self.first_index = 0
        self.waiting: StoredBatch | None = None

    def take(self, batches: Iterable[StoredBatch], bounds: Bounds) -> bool:
        """Examine the next batches, oldest first.  Return True if all of them may be compacted, so
        that the next ones have to be examined.  O(batches)."""
        self.waiting = None
        for batch in batches:
            if batch.end_offset >= bounds.end_offset:
                return False  # the last one stays, so that a reader reaches the end
            if (batch.index >= bounds.raft_start
                    or batch.index > bounds.old_index):
                self.waiting = batch
                return False
            self.up_to = batch.end_offset
            self.bytes += batch.size
            self.first_index = self.first_index or batch.index
        return True


class Standing(NamedTuple):
    """A partition as its leader has applied it, beside its dirty part."""

    last: Compaction  # generation 0 = none yet
    log_start: int
    clean_bytes: int  # of the batches below the last ``up_to``
    overdue_index: int  # entries up to it are older than ``max.compaction.lag.ms``
    tombstones_below: int  # up to where tombstones may go: the ``up_to`` of an old COMPACT, or 0
    is_last_old: bool  # the last COMPACT is as old as ``delete.retention.ms`` asks


def dirty_share(dirty: DirtyPart, clean_bytes: int) -> float:
    """Return the dirty ratio: bytes that were never compacted, of those that may be; 0 without
    any."""
    return dirty.bytes / (dirty.bytes + clean_bytes) if dirty.bytes else 0.0


def decide(rules: Rules, standing: Standing, dirty: DirtyPart) -> Compaction | None:
    """Return the COMPACT that is due; None = none is.

    One for tombstones alone is due only when the last COMPACT is old.  So there is at most one in
    ``delete.retention.ms``, and none where no COMPACT came since: it would find no tombstone."""
    last = standing.last
    tombstones_below = max(last.tombstones_below, standing.tombstones_below)
    is_dirty = bool(dirty.first_index) and (
        dirty.first_index <= standing.overdue_index
        or dirty_share(dirty, standing.clean_bytes) >= rules.dirty_ratio)
    has_tombstones = standing.is_last_old and tombstones_below > max(
        last.tombstones_below, standing.log_start)
    if (not (is_dirty or has_tombstones) or dirty.up_to <= standing.log_start
            or last.generation >= GENERATION_MAX):
        return None
    return Compaction(last.generation + 1, max(dirty.up_to, last.up_to), tombstones_below)
