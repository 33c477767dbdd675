"""What a driver may ask of a node's groups at any time: ``MultiRaft`` for whoever only looks.

Contract.  As ``MultiRaft``.  Nothing changes by a question; each is O(1) unless it says otherwise.
"""

from __future__ import annotations

from multiraft.repairing import Repairing
from multiraft.status import GroupStatus, Role
from multiraft.types import Configuration


class Questions(Repairing):
    """Base of ``MultiRaft``, which has the groups."""

    def led_digest(self, node: int) -> int:
        """Sum over the groups led here that ``node`` is a member of."""
        led = self._host.led.get(node)
        return led.total if led is not None else 0

    def believed_digest(self, node: int) -> int:
        """Sum over the groups here that ``node`` is believed to lead."""
        believed = self._host.believed.get(node)
        return believed.total if believed is not None else 0

    @property
    def digests_version(self) -> int:
        """Grows whenever ``digests`` changes."""
        return self._host.digests_version

    def digests(self) -> tuple[dict[int, int], dict[int, int], int]:
        """(led digests by node, believed digests by node, led version): what ``Liveness.publish``
        takes.  O(nodes)."""
        host = self._host
        return ({node: led.total for node, led in host.led.items()},
                {node: believed.total for node, believed in host.believed.items()},
                host.led_changes.version)

    @property
    def led_count(self) -> int:
        """Groups led here."""
        return self._host.led_changes.led_count

    def led_groups(self) -> list[int]:
        """Groups led here.  O(groups)."""
        return [group.id for group in self._groups.values() if group.role is Role.LEADER]

    @property
    def awake_count(self) -> int:
        """Timers that are armed: groups that are not asleep, and open questions to nodes."""
        return len(self._host.timers)

    def has_group(self, group: int) -> bool:
        """Whether this node has a replica of ``group``."""
        return group in self._groups

    def quarantine_reason(self, group: int) -> str:
        """Why the replica is damaged; empty when it is not, or not here."""
        found = self._groups.get(group)
        return found.quarantined if found is not None else ""

    @property
    def quarantined_count(self) -> int:
        """Replicas that are damaged.  O(groups)."""
        return sum(1 for group in self._groups.values() if group.quarantined)

    def node_state(self, node: int) -> str:
        """``up``, ``down`` or ``unknown``, as the leases say."""
        support = self._host.support
        if node == self.node or node in support.granted or node in support.held:
            return "up"
        return "down" if node in support.epochs else "unknown"

    def heard_epoch(self, node: int) -> int:
        """Boot epoch of the life of ``node`` that was heard of last; 0 = of none."""
        return self._host.support.epochs.get(node, 0)

    def supported_epoch(self, node: int) -> int:
        """Boot epoch of the life of ``node`` that this node supports now; 0 = of none."""
        return self._host.support.granted.get(node, 0)

    @property
    def led_version(self) -> int:
        """Version of the list of groups led here."""
        return self._host.led_changes.version

    def leads(self, group: int, term: int) -> bool:
        """Whether this node still leads ``group`` in ``term``: only then may an ``Append`` of that
        term be filled from storage and sent, because a leader never rewrites its own log."""
        found = self._groups.get(group)
        return found is not None and found.role is Role.LEADER and found.term == term

    def is_leader(self, group: int) -> bool:
        """Whether this node leads ``group`` now."""
        found = self._groups.get(group)
        return found is not None and found.role is Role.LEADER

    def is_settled(self, group: int) -> bool:
        """Whether this node leads ``group`` and has applied an entry of its own term: only then
        does what it serves include all that ever was acknowledged."""
        found = self._groups.get(group)
        return (found is not None and found.role is Role.LEADER
                and found.log.applied_index >= found.term_start)

    def durable_index(self, group: int) -> int:
        """Highest index of ``group`` that is durable here."""
        return self._group(group).log.durable_index

    def applied_index(self, group: int) -> int:
        """Highest index of ``group`` that the driver has reported as applied."""
        return self._group(group).log.applied_index

    def commit_index(self, group: int) -> int:
        """Highest index of ``group`` known committed here."""
        return self._group(group).log.commit

    def leader_hint(self, group: int) -> tuple[int, int]:
        """(leader or 0, term) as far as this node knows, of any group of the pool."""
        found = self._groups.get(group)
        hint = self._neighbours.hints.leader(group)
        if found is None or (found.leader == 0 and hint[1] > found.term):
            return hint
        return found.leader, found.term

    def configuration(self, group: int) -> Configuration | None:
        """Who counts in a group, as its replica here knows; None without one, or one that was told
        nothing yet."""
        found = self._groups.get(group)
        return found.configuration if found is not None and found.configuration.voters else None

    def groups(self) -> tuple[int, ...]:
        """Ids of the groups here, in the order they were added."""
        return tuple(self._groups)

    def status(self, group: int) -> GroupStatus:
        """A frozen picture of one replica.  Raises ``UnknownGroup``."""
        return self._group(group).status()
