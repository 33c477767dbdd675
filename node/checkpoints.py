"""Checkpoints: captured on the loop, written by a thread, so that recovery has little to scan.

Contract.  One at a time; ``run`` writes one whenever the store says that enough lane has been added
since the last, ``write_last`` one at a clean stop, ``write_now`` one whose holder of ``alone`` must
have it before the loop goes on.  A checkpoint that cannot be written stops the node like any other
failed write.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed

#: How often the store is asked whether a checkpoint is due, in seconds; asking is O(1).
ASK_S = 1.0


class Checkpoints:
    """Task on the loop."""

    def __init__(self, store, core, metadata_log):
        self._store = store
        self._core = core
        self._metadata_log = metadata_log
        self.written = 0
        #: Held while one is being written.
        self.alone = trio.Lock()
        #: Applied index of the metadata group in the last one.
        self.metadata_applied = _applied(store)
        #: Called when ``run`` has written one.
        self.after_one: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(ASK_S)
            async with self.alone:
                if self._store.checkpoint_due:
                    plan, applied = self._plan()
                    try:
                        await trio.to_thread.run_sync(plan.execute)
                    except OSError as error:
                        raise DiskFailed(f"a checkpoint could not be written: {error}") from error
                    self._written(plan, applied)
                    self.after_one()

    def write_now(self) -> None:
        """Before the loop goes on.  Raises ``DiskFailed``."""
        plan, applied = self._plan()
        try:
            plan.execute()
        except OSError as error:
            raise DiskFailed(f"a checkpoint could not be written: {error}") from error
        self._written(plan, applied)

    def write_last(self) -> None:
        """At a clean stop, when no task runs any more.  Raises ``DiskFailed``."""
        self.write_now()

    def _written(self, plan, applied: int) -> None:
        self._store.checkpointed(plan)
        self.written += 1
        self.metadata_applied = applied

    def _plan(self):
        """(plan, applied index of the metadata group in it)"""
        commits = {group: self._core.commit_index(group) for group in self._core.groups()}
        plan = self._store.checkpoint_plan(commits, self._metadata_log.state.snapshot())
        return plan, _applied(self._store)


def _applied(store) -> int:
    """Index up to which the metadata group is applied here; 0 = this node has no copy yet."""
    tail = store.tails.get(METADATA_GROUP)
    return tail.applied_index if tail is not None else 0
