"""Tasks that wait until this node has applied an entry of a group.

Contract. ``wait`` returns once ``index`` is applied or the time is up, and says which. The round
loop calls ``notify`` after each commit while tasks wait, in O(1) for groups without any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates


class AppliedEntries:
    """Tasks of one node that wait until an entry is applied here, by group."""

    def __init__(self, partition_states: dict[int, PartitionStates]):
        self._partition_states = partition_states  # group -> its partitions
        self.waiting: dict[int, trio.Event] = {}  # empty = ``notify`` has nothing to do

    def notify(self, group: int) -> None:
        """Wake the tasks that wait for ``group``: entries of it were applied."""
        event = self.waiting.pop(group, None)
        if event is not None:
            event.set()

    async def wait(self, group: int, index: int, timeout_s: float) -> bool:
        """Wait until this node has applied ``index`` of ``group``, at most ``timeout_s``. Return
        True if it has; a group without a replica here has applied nothing."""
        with trio.move_on_after(timeout_s):
            while not self._has(group, index):
                event = self.waiting.get(group)
                if event is None:
                    event = self.waiting[group] = trio.Event()
                await event.wait()
        return self._has(group, index)

    def _has(self, group: int, index: int) -> bool:
        tail = self._partition_states.get(group)
        return tail is not None and tail.applied_index >= index
