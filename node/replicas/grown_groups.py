"""Groups of a grown pool that cannot have had a replica on this node before it started.

Contract. ``found`` receives, at the start, what recovery has of the metadata group. ``replaced``
reports that a new replica of the metadata group takes its place. ``check`` is called after metadata
were applied or the replica changed.

Theory. A replica of such a group is created only after the growth of the pool was applied here
(``lifecycle``). The replica of the metadata group that recovery found has everything in its log
that was ever applied here, provided that it is undamaged or its leader has cleared it. Once it has
applied the log that it had then, groups beyond the pool that the metadata know have never been
here. Entries that damage took from the journal were then not theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from multiraft.raft.log_reader import GroupRestored
    from multiraft.raft.multi_raft import MultiRaft


class NewGroups:
    """Groups that the pool has grown by and that cannot have had a replica on this node before its
    start."""

    def __init__(self, core: MultiRaft, last_group: Callable[[], int]):
        """``last_group()`` is the last group of the pool by the metadata applied here."""
        self._core = core
        self._last_group = last_group
        self._is_first = False  # the replica of the metadata group is the one that recovery found
        self._end = 0  # last index of its log once it was undamaged; 0 = it has not been yet
        self._last_known = -1  # groups above this one are new; -1 = not known yet

    def found(self, restored: GroupRestored | None) -> None:
        """Record if the replica of the metadata group that recovery found (None = none) covers all
        that was applied here. A replica below a vote barrier does not."""
        self._is_first = restored is not None and not restored.vote_barrier_index

    def replaced(self) -> None:
        """Record that the metadata group has a new, empty replica: its log does not cover the
        earlier one's."""
        self._is_first = False

    def check(self) -> None:
        """Record the last group of the pool as known, once the metadata applied here reach the end
        of the recovered log. Does nothing while that replica is absent or quarantined. O(nodes)
        until then, later O(1)."""
        if (self._last_known >= 0 or not self._is_first
                or METADATA_GROUP not in self._core.status.groups()):
            return
        status = self._core.status.of(METADATA_GROUP)
        if status.quarantined:
            return
        self._end = self._end or status.last_index
        if status.applied_index >= self._end:
            self._last_known = self._last_group()

    def has(self, group: int) -> bool:
        """Return True if the group cannot have had a replica here before the start; False also
        while that is not known."""
        return 0 <= self._last_known < group
