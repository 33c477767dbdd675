"""Compaction of Raft logs: up to where a replica's log may go, and the passes that compact.

Contract. ``note`` is called for each group of which entries were applied, and ``checkpointed``
after each checkpoint, in O(1). ``steps`` is one pass over the groups with entries to compact, as an
iterator whose ``next`` is a bounded portion of work. Consensus and storage are compacted in one
step. A replica that is quarantined, in head recovery or installing a snapshot is left alone.
``raised`` tells of each start that rose: (group, partitions that may have batches below it).

``first_index`` is the rule. An entry of the Raft log is kept while

- the applied state behind it is not in all kept checkpoints,
- a member whose node is up needs it, or a snapshot is served that it follows, but at most the
  newest ``kept_bytes`` of the group,
- it is one of the group's newest ``newest_bytes``, and in the newest ``node_newest_bytes`` of the
  journal.

Invariants. Records stay: below the Raft start they are in the record store. Groups with partitions
are compacted only while every node of the cluster can receive their snapshots.

Theory. A member that is down holds nothing, or one that never returns would hold the log for good.
The newest entries let a node that restarts continue where it was. The last limit counts bytes of
the journal, which all groups share: one idle group with a few old entries would keep a segment of
everything else. A checkpoint is what moves the rule, so there is one pass for each. A group of
which everything is compacted is not visited again before it applies another entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.types import METADATA_GROUP
from node.replicas.snapshot_source import NOTHING_HELD
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Entries that one step compacts: some milliseconds with a thousand partitions.
ENTRIES_PER_STEP = 2048
#: Groups that one step examines: as long.
GROUPS_PER_STEP = 64


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """Limits of what stays in Raft logs, in bytes."""

    kept_bytes: int  # of a group, for members that are up
    newest_bytes: int  # of a group, for members that are down
    node_newest_bytes: int  # of the journal, for the same


class LogPlaces(NamedTuple):
    """Indexes of one log that decide where it may begin."""

    start_max: int  # behind what all kept checkpoints have applied
    held_from: int  # first one that a member that is up, or a snapshot, needs
    newest_from: int  # first of the newest entries, which stay for members that are down
    kept_from: int  # first one of the newest bytes beyond which nothing is held


def first_index(log: LogPlaces) -> int:
    """Return the index with which a Raft log is to begin; an index that is not above its present
    start means no compaction."""
    return min(log.start_max, max(log.kept_from, min(log.held_from, log.newest_from)))


class Space(Protocol):
    """The guard of the disk's space (``multiraft.storage.disk_space``)."""

    @property
    def full(self) -> bool: ...


class Gate(Protocol):
    """The answer to whether all nodes can receive snapshots of groups with partitions."""

    @property
    def fault(self) -> str: ...


class LogCompaction:
    """The compaction of one node's Raft logs."""

    def __init__(self, core: MultiRaft, store: Store, limits: CompactionLimits, gate: Gate,
                 held_from: Callable[[int], int] = lambda _group: NOTHING_HELD,
                 space: Space | None = None):
        """``held_from(group)``: first index that follows a snapshot which is served, or
        ``NOTHING_HELD``."""
        self._core = core
        self._store = store
        self._limits = limits
        self._gate = gate
        self._held_from = held_from
        self._space = space
        #: Groups with applied entries in their Raft logs, since the start or the last whole
        #: compaction.
        self._open: dict[int, None] = dict.fromkeys(store.groups)
        self._is_due = True
        self._was_full = False
        self._raised = False  # a start rose since the last checkpoint
        self.entries_compacted = 0  # since the start
        self.raised = Subscribers()

    def note(self, group: int) -> None:
        """Note that entries of a group were applied."""
        self._open[group] = None

    def checkpointed(self) -> None:
        """Note that a checkpoint was written: Raft starts may rise."""
        self._is_due, self._raised = True, False

    @property
    def is_due(self) -> bool:
        """True if a pass would find other limits than the last one."""
        return self._is_due or self._is_full and not self._was_full

    @property
    def has_raised(self) -> bool:
        """True if a Raft start rose since the last checkpoint: no segment goes by it before."""
        return self._raised

    def waits_for_checkpoint(self) -> bool:
        """Return True if further entries could be compacted once checkpoints have applied them.
        O(groups with entries to compact)."""
        status = self._core.status
        return any(self._store.raft_start_max(group) <= status.applied_index(group)
                   for group in self._open if status.has_group(group))

    def steps(self) -> Iterator[None]:
        """Compact the logs of the groups that had entries applied, in steps of
        ``GROUPS_PER_STEP`` groups or ``ENTRIES_PER_STEP`` entries."""
        self._is_due, self._was_full = False, self._is_full
        for number, group in enumerate([*self._open], 1):
            if self._may_compact(group):
                yield from self._compact(group)
            if not number % GROUPS_PER_STEP:
                yield

    def _may_compact(self, group: int) -> bool:
        status = self._core.status
        if not status.has_group(group):
            if group not in self._store.groups:  # removed; else it is not admitted yet
                self._open.pop(group, None)
            return False
        return (not status.quarantine_reason(group) and not status.is_installing(group)
                and (group == METADATA_GROUP or not self._gate.fault))

    def _compact(self, group: int) -> Iterator[None]:
        start, target = self._store.raft_start(group), self._target(group)
        if start < target:
            partitions = self._store.partitions_below(group, target)
            while start < target:
                yield
                if not self._may_compact(group) or self._store.raft_start(group) != start:
                    return  # another log, or another start, since the last step
                first = min(target, start + ENTRIES_PER_STEP, self._store.raft_start_max(group))
                risen = self._store.compact(group, first, partitions)
                if risen <= start:
                    return  # the term before is not sure
                self._core.compacted(group, risen)
                self.entries_compacted += risen - start
                self._raised = True
                self.raised.notify(group, partitions)
                start = risen
        if start > self._core.status.applied_index(group):
            self._open.pop(group, None)

    def _target(self, group: int) -> int:
        store, limits = self._store, self._limits
        newest_bytes = limits.newest_bytes if not self._is_full else 0
        return first_index(LogPlaces(
            store.raft_start_max(group),
            min(self._core.held_from(group), self._held_from(group)),
            store.newest_from(group, newest_bytes, limits.node_newest_bytes),
            store.newest_from(group, limits.kept_bytes, NOTHING_HELD)))

    @property
    def _is_full(self) -> bool:
        return self._space is not None and self._space.full
