"""A condition for tasks that wait until the leader of a group changes.

Contract. The applier calls ``notify`` for each change of a role, in O(waiting tasks).
"""

from __future__ import annotations

import trio


class LeadershipNotifier:
    """A condition for tasks that wait until the known leader of some group changes."""

    def __init__(self) -> None:
        self._changed = trio.Event()

    def notify(self) -> None:
        """Wake the waiting tasks: the known leader of a group has changed. O(waiting tasks)."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait for the next change after this call, ``timeout_s`` at most; return without a result
        in both cases."""
        with trio.move_on_after(timeout_s):
            await self._changed.wait()
