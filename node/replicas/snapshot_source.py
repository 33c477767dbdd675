"""Snapshots of the metadata group that a node serves, and the compaction of its log.

Contract. ``answer`` returns the requested chunk of the snapshot that is served, and takes another
one where need be. ``compact`` removes old entries once a checkpoint holds their effect. Time, and
the thread that encodes, are the driver's.

Invariants. A snapshot never changes. It is named by the (index, term) of its state, and no snapshot
of an earlier incarnation of the group is served. One snapshot is taken at a time.

Theory. Raft paper, section 7. Groups with partitions are never compacted without retention, because
their log is the data. The log of the metadata group is a history that every node has applied. Its
newest ``entries_kept`` entries are enough for a node that was absent briefly; a node that was
absent longer, or joins, receives the state. If commands arrive faster than a snapshot is
downloaded, the log must not begin behind that snapshot: otherwise the next snapshot would be due as
soon as this one is installed, without end. The log start is therefore held back, by up to
``catch_up_entries_max`` entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from multiraft import core as codec
from multiraft.raft import snapshot
from multiraft.raft.log_reader import LogBounds
from multiraft.types import METADATA_GROUP
from node.replicas.snapshot_messages import Chunk, ChunkRequest
from node.replicas.snapshot_state import Snapshottable, capture, encode

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of what is served, and of what stays in the log for it."""

    chunk_bytes: int
    #: Least time for which a snapshot is served unchanged after its last request, in seconds.
    life_s: float
    entries_kept: int
    catch_up_entries_max: int


class MetadataSource(Protocol):
    """Owner of the metadata that are applied here."""

    @property
    def state(self) -> Snapshottable: ...


@dataclass(slots=True)
class ServedSnapshot:
    """Encoded state of the group at one index."""

    bounds: LogBounds
    data: bytes
    crc: int
    used_s: float  # time of the last request
    incarnation: int  # of the group


class SnapshotSource:
    """The snapshot that one node serves."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 metadata: MetadataSource, limits: ServingLimits,
                 on_thread: Callable[..., Awaitable[Any]],
                 taking: AbstractAsyncContextManager, now_s: Callable[[], float]):
        """``on_thread(call, *arguments)`` returns the result of a call that takes long; ``taking``
        is a lock that no other part uses."""
        self.served: ServedSnapshot | None = None
        self._core = core
        self._partition_states = partition_states
        self._metadata = metadata
        self._limits = limits
        self._on_thread = on_thread
        self._taking = taking
        self._now_s = now_s

    # ---- compaction ----------------------------------------------------------------------------

    def compact(self, applied: int) -> None:
        """Remove the entries of the metadata group up to ``applied``, whose effects the last
        checkpoint holds, except the newest ones and those that a node that is catching up needs."""
        # The replica may have been removed and created again since the checkpoint was captured.
        if (METADATA_GROUP not in self._core.status.groups()
                or applied > self._core.status.applied_index(METADATA_GROUP)):
            return
        limits = self._limits
        first_index = snapshot.log_start(applied, limits.entries_kept, limits.catch_up_entries_max,
                                         self._needed_from())
        if first_index > 1:
            self._core.compacted(METADATA_GROUP, first_index)

    def _needed_from(self) -> int:
        """Return the lowest index of a learner's next entry, or of the entry after a snapshot that
        was requested within ``life_s``."""
        needed = self._core.needed_from(METADATA_GROUP)
        served = self.served
        if served is not None and self._now_s() - served.used_s <= self._limits.life_s:
            needed = min(needed, served.bounds.last_index + 1)
        return needed

    # ---- serving -------------------------------------------------------------------------------

    async def answer(self, request: ChunkRequest) -> Chunk | None:
        """Return the requested chunk of the snapshot that is served, or the first chunk of another
        one; None = there is none here."""
        if request.group != METADATA_GROUP:
            return None
        async with self._taking:
            # An earlier request may have held the lock for long: the replica is checked now.
            incarnation = self._incarnation()
            if incarnation and self._needs_another(request.index, incarnation):
                self.served = await self._take(incarnation)
        served = self.served
        if served is None or served.incarnation != self._incarnation():
            return None  # while a thread encoded, the replica was removed or recovered by force
        served.used_s = self._now_s()
        return self._chunk(served, request)

    def _incarnation(self) -> int:
        """Return the incarnation of this node's replica; 0 = it has none, or a damaged one."""
        if METADATA_GROUP not in self._core.status.groups():
            return 0
        # A leader may serve what it has applied even before it has committed in its term: it may
        # need the requester's vote for that commit.
        status = self._core.status.of(METADATA_GROUP)
        return 0 if status.quarantined else status.incarnation

    def _needs_another(self, index: int, incarnation: int) -> bool:
        """Return True if the snapshot that is served cannot answer a request for the one of
        ``index``, or is too old to begin a download with it."""
        served = self.served
        if served is None or served.incarnation != incarnation:
            return True
        return (served.bounds.last_index != index
                and (self._now_s() - served.used_s > self._limits.life_s
                     or self._is_outdated(served)))

    def _is_outdated(self, served: ServedSnapshot) -> bool:
        """Return True if the log begins behind the snapshot: a node that installs it would be
        offered the next one at once, and may have installed it already."""
        first_index = self._core.status.of(METADATA_GROUP).first_index
        return served.bounds.last_index < first_index - 1

    async def _take(self, incarnation: int) -> ServedSnapshot:
        captured = capture(self._core, self._partition_states[METADATA_GROUP],
                           self._metadata.state)
        data = await self._on_thread(encode, captured)
        return ServedSnapshot(captured.bounds, data, codec.crc32c(data), self._now_s(),
                              incarnation)

    def _chunk(self, served: ServedSnapshot, request: ChunkRequest) -> Chunk:
        """Return the requested chunk, or the first one if another snapshot or a place behind its
        end was requested."""
        offset = request.offset
        if served.bounds.last_index != request.index or offset > len(served.data):
            offset = 0
        return Chunk(served.bounds.last_index, served.bounds.prev_term, len(served.data),
                     served.crc, offset,
                     memoryview(served.data)[offset:offset + self._limits.chunk_bytes])
