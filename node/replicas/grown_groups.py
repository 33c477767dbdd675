"""Which groups of a grown pool this node cannot have had a replica of before it started.

Contract.  ``found`` says at the start what recovery has of the metadata group, ``replaced`` that
another replica of it takes that one's place, ``look`` that metadata or the replica moved on.

Theory.  A replica of such a group is created only once the growth was applied here, by whoever
(``replicas.py``).  A replica of the metadata group that recovery found has in its log whatever was
ever applied here, as soon as it is whole, sound or cleared by its leader.  So when it has applied
what was its log then, groups that metadata do not name yet have never been here, and what damage
took of the journal was none of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from multiraft.raft.log_reader import GroupRestored
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog


class NewGroups:
    """See the module's docstring."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog):
        self._core = core
        self._metadata_log = metadata_log
        self._is_first = False  # the replica of the metadata group is the one that recovery found
        self._end = 0  # of its log, when it was whole; 0 = it was not yet
        self._last_known = -1  # groups behind this one are new; -1 = not known yet

    def found(self, restored: GroupRestored | None) -> None:
        """What recovery has of the metadata group, or None."""
        self._is_first = restored is not None and not restored.vote_barrier_index

    def replaced(self) -> None:
        """An empty replica knows nothing of what the one before it had."""
        self._is_first = False

    def look(self) -> None:
        """O(nodes) until it is known, then O(1)."""
        if (self._last_known >= 0 or not self._is_first
                or METADATA_GROUP not in self._core.status.groups()):
            return
        status = self._core.status.of(METADATA_GROUP)
        if status.quarantined:
            return
        self._end = self._end or status.last_index
        if status.applied_index >= self._end:
            self._last_known = self._metadata_log.state.last_group

    def has(self, group: int) -> bool:
        """Whether nothing of the group can have been here before."""
        return 0 <= self._last_known < group
