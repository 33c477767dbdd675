"""Installation of downloaded snapshots of groups with partitions: one checkpoint for several.

Contract. ``install`` replaces state and log of this node's replicas, except those whose core needs
the snapshot no longer or cannot take it now. The thread that writes the checkpoint, and its lock,
are the driver's.

Invariants. Between ``begin_install`` and ``install_snapshot`` the core changes nothing of a group,
so the loop continues while a thread writes. Consensus learns of a snapshot after the checkpoint
that has it is durable, in two files. A replica that was removed meanwhile learns nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from node.replicas.group_snapshot import GroupSnapshot
from node.replicas.record_copies import lacked

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store


class Checkpoints(Protocol):
    """Writer of the node's checkpoints."""

    @property
    def alone(self) -> AbstractAsyncContextManager[Any]:
        """Lock that is held while a checkpoint is written."""

    def write_installed(self) -> Awaitable[None]:
        """Write a durable checkpoint on a thread; the caller holds ``alone``. Raises
        ``DiskFailed``."""


class GroupSnapshotInstaller:
    """Installation of snapshots of groups with partitions on one node."""

    def __init__(self, core: MultiRaft, store: Store, checkpoints: Checkpoints,
                 request_round: Callable[[], None], installed: Callable[[GroupSnapshot], None]):
        """``installed`` is called after each snapshot that took effect."""
        self._core = core
        self._store = store
        self._checkpoints = checkpoints
        self._request_round = request_round
        self._on_installed = installed

    async def install(self, snapshots: Sequence[GroupSnapshot]) -> None:
        """Install snapshots of different groups with one checkpoint. Leave out those that are no
        longer needed, or that the core cannot take now: they are offered again. Raises
        ``DiskFailed`` if the checkpoint cannot be written."""
        async with self._checkpoints.alone:
            begun = [each for each in snapshots if self._begin(each)]
            self._request_round()
            if not begun:
                return
            await self._checkpoints.write_installed()
            for each in begun:
                self._end(each)
        self._request_round()

    def _begin(self, snapshot: GroupSnapshot) -> bool:
        """Replace the replica in the store, if its core can take the snapshot, and no write of an
        earlier replica is in flight."""
        group, bounds = snapshot.group, snapshot.bounds
        # The core knows nothing of the writes of a replica that was removed before this one.
        if not self._store.is_tombstone_durable(group):
            return False
        if not self._core.begin_install(group, bounds.last_index, bounds.prev_term):
            return False
        # Committed entries of its own log may be the only copies besides the leader's.
        committed = self._core.common_index(group, snapshot.terms, bounds.last_index)
        self._store.install(group, bounds, snapshot.configuration_index, snapshot.configuration,
                            snapshot.partition_states, terms=snapshot.terms,
                            first_index=snapshot.first_index, committed=committed)
        return True

    def _end(self, snapshot: GroupSnapshot) -> None:
        """Let consensus continue behind a snapshot that is durable."""
        if self._core.status.is_installing(snapshot.group):
            self._core.install_snapshot(snapshot.group, snapshot.bounds,
                                        snapshot.configuration_index, snapshot.configuration,
                                        snapshot.partition_states)
            # In the same turn, so that the leader learns of both by one reply.
            self._core.set_records_left(snapshot.group, lacked(self._store, snapshot.group))
            self._on_installed(snapshot)
