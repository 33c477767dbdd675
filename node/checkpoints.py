"""Checkpoints: captured on the loop, written by a thread, so that recovery has little to scan.

Contract.  One at a time; ``run`` writes one whenever the store says that enough lane has been added
since the last, ``write_last`` one at a clean stop.  A checkpoint that cannot be written stops the
node like any other failed write.
"""

from __future__ import annotations

import trio

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

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(ASK_S)
            if self._store.checkpoint_due:
                plan = self._plan()
                try:
                    await trio.to_thread.run_sync(plan.execute)
                except OSError as error:
                    raise DiskFailed(f"a checkpoint could not be written: {error}") from error
                self._store.checkpointed(plan)
                self.written += 1

    def write_last(self) -> None:
        """At a clean stop, when no task runs any more.  Raises ``DiskFailed``."""
        plan = self._plan()
        try:
            plan.execute()
        except OSError as error:
            raise DiskFailed(f"the last checkpoint could not be written: {error}") from error
        self._store.checkpointed(plan)

    def _plan(self):
        commits = {group: self._core.commit_index(group) for group in self._core.groups()}
        return self._store.checkpoint_plan(commits, self._metadata_log.state.snapshot())
