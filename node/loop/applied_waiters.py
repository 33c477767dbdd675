"""Tasks that wait until a group has applied an entry here.

Contract.  ``wait`` returns once ``index`` is applied, or when time is up, and says which.  ``told``
is called by the round loop after each commit while somebody waits: O(1) for other groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates


class AppliedEntries:
    """See the module's docstring."""

    def __init__(self, tails: dict[int, PartitionStates]):
        self._tails = tails  # group -> PartitionTail
        self.waiting: dict[int, trio.Event] = {}  # empty = ``told`` has nothing to do

    def told(self, group: int) -> None:
        """Something of ``group`` was applied."""
        event = self.waiting.pop(group, None)
        if event is not None:
            event.set()

    async def wait(self, group: int, index: int, timeout_s: float) -> bool:
        """Whether ``index`` is applied within ``timeout_s``."""
        with trio.move_on_after(timeout_s):
            while not self._has(group, index):
                event = self.waiting.get(group)
                if event is None:
                    event = self.waiting[group] = trio.Event()
                await event.wait()
        return self._has(group, index)

    def _has(self, group: int, index: int) -> bool:
        tail = self._tails.get(group)
        return tail is not None and tail.applied_index >= index
