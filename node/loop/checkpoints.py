"""Checkpoints: captured on the loop, written by a thread, so that recovery has little to scan.

Contract.  One at a time; ``run`` writes one whenever the store says that enough journal has been
added since the last, ``write_last`` one at a clean stop, ``write_now`` one whose holder of
``alone`` must have it before the loop goes on.  A checkpoint that cannot be written stops the node
like any other failed write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.storage.pieces import Encoded
from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.loop.disk_space import Space, is_full
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.checkpoint import CheckpointPlan
    from multiraft.storage.store import Store

#: How often the store is asked whether a checkpoint is due, in seconds; asking is O(1).
ASK_S = 1.0
#: After one for which there was no room, in seconds.
NO_ROOM_S = 10.0


class Snapshottable(Protocol):
    """State that a checkpoint takes along."""

    def snapshot(self) -> object: ...


class MetadataSource(Protocol):
    """The log of the metadata group."""

    @property
    def state(self) -> Snapshottable: ...


class Checkpoints:
    """Task on the loop."""

    def __init__(self, store: Store, core: MultiRaft, metadata_log: MetadataSource,
                 space: Space | None = None):
        self._space = space
        self._store = store
        self._core = core
        self._metadata_log = metadata_log
        self.written = 0
        #: Held while one is being written.
        self.alone = trio.Lock()
        #: Applied index of the metadata group in the last one.
        self.metadata_applied = _applied(store)
        #: Notified when ``run`` has written one.
        self.completed = Subscribers()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(ASK_S)
            async with self.alone:
                if self._store.checkpoint_due and not await self._write():
                    await trio.sleep(NO_ROOM_S)

    def write_now(self, metadata: Encoded | None = None) -> None:
        """Before the loop goes on, on the reserve if there is no other room.  ``metadata``: the
        state as a checkpoint has it, if that is encoded already.  Raises ``DiskFailed``."""
        plan, applied = self._plan(metadata)
        try:
            try:
                plan.execute()
            except OSError as error:
                if self._space is None or not is_full(error) or not self._space.exhausted():
                    raise
                plan.execute()
        except OSError as error:
            raise DiskFailed(f"a checkpoint could not be written: {error}") from error
        self._written(plan, applied)

    async def _write(self) -> bool:
        """One in passing; False = there was no room for it."""
        plan, applied = self._plan()
        try:
            await trio.to_thread.run_sync(plan.execute)
        except OSError as error:
            if not self._finds_no_room(error):
                raise DiskFailed(f"a checkpoint could not be written: {error}") from error
            return False
        self._written(plan, applied)
        self.completed.notify()
        return True

    def write_last(self) -> None:
        """At a clean stop, when no task runs any more.  Raises ``DiskFailed``."""
        plan, applied = self._plan()
        try:
            plan.execute()
        except OSError as error:
            if not self._finds_no_room(error):
                raise DiskFailed(f"the last checkpoint could not be written: {error}") from error
            return  # the next start replays more
        self._written(plan, applied)

    def _written(self, plan: CheckpointPlan, applied: int) -> None:
        self._store.checkpointed(plan)
        self.written += 1
        self.metadata_applied = applied

    def _finds_no_room(self, error: OSError) -> bool:
        """A checkpoint shortens recovery and nothing else: without room it waits."""
        if self._space is None or not is_full(error):
            return False
        self._store.checkpoint_failed()
        self._space.fill()
        return True

    def _plan(self, metadata: Encoded | None = None) -> tuple[CheckpointPlan, int]:
        """(plan, applied index of the metadata group in it)"""
        status = self._core.status
        commits = {group: status.commit_index(group) for group in status.groups()}
        plan = self._store.checkpoint_plan(
            commits, self._metadata_log.state.snapshot() if metadata is None else metadata)
        return plan, _applied(self._store)


def _applied(store: Store) -> int:
    """Index up to which the metadata group is applied here; 0 = this node has no copy yet."""
    tail = store.tails.get(METADATA_GROUP)
    return tail.applied_index if tail is not None else 0
