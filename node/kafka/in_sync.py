"""In-sync replicas of groups, as Kafka's clients see them.

Contract. ``of`` returns the voters whose nodes are up, and of a group that this node leads only
those that were caught up at the last examination: they had all committed entries, or the last of
them were on their way, and lacked no records. A node that does not lead the group does not know how
far its members are. ``refresh`` examines the groups led here, at most once per ``CHECK_MS``;
``version`` grows when that changes an answer.

Theory. Progress changes with each append, and nothing reports it. Answers that are kept need to
know when it changes, so all answers come from the last examination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.clock import monotonic_ms
from node.loop.steps import parts
from node.loop.turns import Turns

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.types import Configuration

#: Milliseconds between two examinations of the groups led here: an answer says at most so long that
#: a replica is in sync that has fallen behind. Kafka's own bound is 30 seconds.
CHECK_MS = 1_000


class InSyncReplicas:
    """The in-sync replicas of all groups of the pool, as far as this node knows them."""

    def __init__(self, core: MultiRaft, turns: Turns, now_ms: Callable[[], int] = monotonic_ms):
        self._core = core
        self._turns = turns
        self._now_ms = now_ms
        self._examined_ms = 0  # when the groups were examined last
        self._behind: dict[int, tuple[int, ...]] = {}  # voters that are not caught up, by group
        self.version = 0

    def of(self, group: int, configuration: Configuration) -> list[int]:
        """Return the in-sync replicas of a group with these members, by the last examination.
        O(members)."""
        status = self._core.status
        behind = self._behind.get(group, ()) if status.is_leader(group) else ()
        return [node for node in configuration.voters
                if status.is_up(node) and node not in behind]

    @property
    def is_due(self) -> bool:
        """True if ``refresh`` has to be called before ``version`` is used."""
        return self._now_ms() - self._examined_ms >= CHECK_MS

    async def refresh(self) -> None:
        """Examine the groups led here if that is due.  O(groups led here), in turns."""
        if not self.is_due:
            return
        self._examined_ms = self._now_ms()
        status = self._core.status
        led = status.led_groups()
        behind: dict[int, tuple[int, ...]] = {}
        for part in parts(len(led)):
            await self._turns.take(len(part))
            for group in led[part.start:part.stop]:
                caught_up, configuration = status.caught_up(group), status.configuration(group)
                if caught_up is None or configuration is None:
                    continue
                late = tuple([node for node in configuration.voters if node not in caught_up])
                if late:
                    behind[group] = late
        if behind != self._behind:
            self._behind = behind
            self.version += 1
