"""Snapshots of groups that a node serves, and the compaction of the metadata group's log.

Contract. ``answer`` returns the requested chunk of the snapshot that is served, and takes another
one where need be. ``compact`` removes old entries once a checkpoint holds their effect. Time, and
the thread that encodes, are the driver's.

Invariants. A snapshot never changes. It is named by the (index, term) of its state, and no snapshot
of an earlier incarnation of the group is served. One snapshot is taken at a time, and at most
``groups_max`` are kept.

Theory. Raft paper, section 7. The log of the metadata group is a history that every node has
applied. Its newest ``entries_kept`` entries are enough for a node that was absent briefly; a node
that was absent longer, or joins, receives the state. If commands arrive faster than a snapshot is
downloaded, the log must not begin behind that snapshot: otherwise the next snapshot would be due as
soon as this one is installed, without end. The log start is therefore held back, by up to
``catch_up_entries_max`` entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multiraft import core as codec
from multiraft.raft import snapshot
from multiraft.raft.log_reader import LogBounds
from multiraft.types import METADATA_GROUP
from node.replicas.snapshot_messages import Chunk, ChunkRequest
from node.replicas.snapshot_state import CapturedState, encode

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft


#: ``held_from`` of a group of which no snapshot is served.
NOTHING_HELD = 1 << 63


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of what is served, and of what stays in the log for it."""

    chunk_bytes: int
    #: Least time for which a snapshot is served unchanged after its last request, in seconds.
    life_s: float
    entries_kept: int
    catch_up_entries_max: int
    #: Groups of which a snapshot is kept in memory at a time.
    groups_max: int


@dataclass(slots=True)
class ServedSnapshot:
    """Encoded state of the group at one index."""

    bounds: LogBounds
    data: bytes
    crc: int
    used_s: float  # time of the last request
    incarnation: int  # of the group


class SnapshotSource:
    """The snapshots that one node serves."""

    def __init__(self, core: MultiRaft, capture: Callable[[int], CapturedState],
                 limits: ServingLimits, on_thread: Callable[..., Awaitable[Any]],
                 taking: AbstractAsyncContextManager, now_s: Callable[[], float]):
        """``capture(group)`` returns the applied state of a group with a replica here.
        ``on_thread(call, *arguments)`` returns the result of a call that takes long; ``taking`` is
        a lock that no other part uses."""
        self.served: dict[int, ServedSnapshot] = {}  # by group, the last used one last
        self._core = core
        self._capture = capture
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
        return min(self._core.needed_from(METADATA_GROUP), self.held_from(METADATA_GROUP))

    # ---- serving -------------------------------------------------------------------------------

    async def answer(self, request: ChunkRequest) -> Chunk | None:
        """Return the requested chunk of the snapshot that is served, or the first chunk of another
        one; None = there is none here, or other groups' snapshots have taken all places."""
        group = request.group
        async with self._taking:
            # An earlier request may have held the lock for long: the replica is checked now.
            incarnation = self._incarnation(group)
            if incarnation and self._needs_another(request, incarnation):
                self.served.pop(group, None)
                if not self._has_place():
                    return None
                self.served[group] = await self._take(group, incarnation)
        served = self.served.pop(group, None)
        if served is None or served.incarnation != self._incarnation(group):
            return None  # while a thread encoded, the replica was removed or recovered by force
        served.used_s = self._now_s()
        self.served[group] = served
        return self._chunk(served, request)

    def held_from(self, group: int) -> int:
        """Return the index behind a snapshot of a group that was requested within ``life_s``: the
        log must not begin behind it; ``NOTHING_HELD`` if there is none."""
        served = self.served.get(group)
        if served is None or self._is_unused(served):
            return NOTHING_HELD
        return served.bounds.last_index + 1

    def forget_unused(self) -> None:
        """Drop the snapshots that were not requested for ``life_s``. O(``groups_max``)."""
        for group in [group for group, served in self.served.items() if self._is_unused(served)]:
            del self.served[group]

    def _is_unused(self, served: ServedSnapshot) -> bool:
        return self._now_s() - served.used_s > self._limits.life_s

    def _has_place(self) -> bool:
        """Return True if another snapshot may be kept, after dropping unused ones if need be."""
        if len(self.served) >= self._limits.groups_max:
            self.forget_unused()
        return len(self.served) < self._limits.groups_max

    def _incarnation(self, group: int) -> int:
        """Return the incarnation of this node's replica; 0 = it has none, or one that is damaged,
        is installing a snapshot or does not know the term of what it has applied."""
        core = self._core.status
        if (not core.has_group(group) or core.is_installing(group)
                or not core.is_applied_term_known(group)):
            return 0
        # A leader may serve what it has applied even before it has committed in its term: it may
        # need the requester's vote for that commit.
        status = core.of(group)
        return 0 if status.quarantined else status.incarnation

    def _needs_another(self, request: ChunkRequest, incarnation: int) -> bool:
        """Return True if the snapshot that is served cannot answer a request for the one of its
        index, or is too old to begin a download with it."""
        served = self.served.get(request.group)
        if served is None or served.incarnation != incarnation:
            return True
        return (served.bounds.last_index != request.index
                and (self._is_unused(served) or self._is_outdated(request.group, served)))

    def _is_outdated(self, group: int, served: ServedSnapshot) -> bool:
        """Return True if the log begins behind the snapshot: a node that installs it would be
        offered the next one at once, and may have installed it already."""
        return served.bounds.last_index < self._core.status.of(group).first_index - 1

    async def _take(self, group: int, incarnation: int) -> ServedSnapshot:
        captured = self._capture(group)
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
