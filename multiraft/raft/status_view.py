"""Read-only view of a node's groups, for drivers, metrics and people.

Contract.  ``MultiRaft.status`` is the only instance.  A call changes nothing, may be made between
any two calls of ``MultiRaft``, and is O(1) unless its docstring gives another bound.
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.context import NodeContext
from multiraft.raft.group import Group, replica
from multiraft.raft.status import GroupStatus, Role
from multiraft.types import Configuration


class StatusView:
    """State of the replicas on one node and of the other nodes, as this node knows it."""

    def __init__(self, context: NodeContext, groups: dict[int, Group]):
        self._context = context
        self._groups = groups

    # ---- one group ----------------------------------------------------------------------------

    def of(self, group: int) -> GroupStatus:
        """Return a frozen picture of one replica.  Raises ``UnknownGroup``.  O(members)."""
        return replica(self._groups, group, self._context.node).status()

    def has_group(self, group: int) -> bool:
        """True if this node has a replica of ``group``."""
        return group in self._groups

    def leads(self, group: int, term: int) -> bool:
        """True if this node still leads ``group`` in ``term``: only then may an ``Append`` of that
        term be filled from storage and sent, because a leader never rewrites its own log."""
        found = self._groups.get(group)
        return found is not None and found.role is Role.LEADER and found.term == term

    def is_leader(self, group: int) -> bool:
        """True if this node leads ``group`` now."""
        found = self._groups.get(group)
        return found is not None and found.role is Role.LEADER

    def has_applied_in_term(self, group: int) -> bool:
        """True if this node leads ``group`` and has applied an entry of its own term: only then
        does the applied state include every acknowledged entry."""
        found = self._groups.get(group)
        return (found is not None and found.role is Role.LEADER
                and found.log.applied_index >= found.term_start)

    def leader_hint(self, group: int) -> tuple[int, int]:
        """Return (leader or 0, term) of any group of the pool, as far as this node knows."""
        found = self._groups.get(group)
        hint = self._context.leader_table.leader(group)
        if found is None or (found.leader == 0 and hint[1] > found.term):
            return hint
        return found.leader, found.term

    def durable_index(self, group: int) -> int:
        """Return the highest index of ``group`` that is durable here.  Raises ``UnknownGroup``."""
        return replica(self._groups, group, self._context.node).log.durable_index

    def applied_index(self, group: int) -> int:
        """Return the highest index of ``group`` that the driver has reported as applied.  Raises
        ``UnknownGroup``."""
        return replica(self._groups, group, self._context.node).log.applied_index

    def commit_index(self, group: int) -> int:
        """Return the highest index of ``group`` known committed here.  Raises ``UnknownGroup``."""
        return replica(self._groups, group, self._context.node).log.commit

    def configuration(self, group: int) -> Configuration | None:
        """Return the configuration in force at the replica here; None without a replica, or while
        the replica knows no voters yet."""
        found = self._groups.get(group)
        return found.configuration if found is not None and found.configuration.voters else None

    def caught_up(self, group: int) -> frozenset[int] | None:
        """Return the members of a group led here that have, or are being sent, all committed
        entries and lack no records, the leader included; None if this node does not lead it.  Nodes
        that are down may be among them.  O(members)."""
        found = self._groups.get(group)
        if found is None or found.role is not Role.LEADER:
            return None
        commit = found.log.commit
        return frozenset([self._context.node, *[
            member.node for member in found.progress.values() if member.is_caught_up(commit)]])

    def is_installing(self, group: int) -> bool:
        """True if the replica here is installing a snapshot: storage has the snapshot's log, and
        consensus still has the log before it."""
        found = self._groups.get(group)
        return found is not None and found.is_installing

    def is_applied_term_known(self, group: int) -> bool:
        """True if the term of the last applied entry of the replica here is known, and no guess:
        only then can a snapshot of its state be installed elsewhere."""
        found = self._groups.get(group)
        return found is not None and found.log.applied_index >= found.log.terms_from

    def records_left(self, group: int) -> int:
        """Return at how many indexes the replica here may lack records; 0 also without one."""
        found = self._groups.get(group)
        return found.records_left if found is not None else 0

    def quarantine_reason(self, group: int) -> str:
        """Return the damage of the replica here; empty for an intact replica, or without one."""
        found = self._groups.get(group)
        return found.health.why if found is not None else ""

    # ---- all groups ---------------------------------------------------------------------------

    def groups(self) -> tuple[int, ...]:
        """Return the ids of the groups here, in the order of ``add_group``.  O(groups)."""
        return tuple(self._groups)

    def led_groups(self) -> list[int]:
        """Return the ids of the groups led here.  O(groups)."""
        return [group.id for group in self._groups.values() if group.role is Role.LEADER]

    @property
    def led_count(self) -> int:
        """Number of groups led here."""
        return self._context.leading_changes.led_count

    @property
    def leading_version(self) -> int:
        """Version of the list of groups led here."""
        return self._context.leading_changes.version

    @property
    def view_version(self) -> int:
        """Version of ``leader_hint``, ``configuration`` and ``node_state`` of all groups and nodes:
        grows at least with each change."""
        return self._context.view_version

    @property
    def active_count(self) -> int:
        """Number of armed timers: of active groups, and of unanswered requests to other nodes."""
        return len(self._context.timers)

    @property
    def quarantined_count(self) -> int:
        """Number of damaged replicas.  O(groups)."""
        return sum(1 for group in self._groups.values() if group.health.why)

    # ---- other nodes --------------------------------------------------------------------------

    def node_state(self, node: int) -> str:
        """Return ``up`` if ``node`` is this node, supports it or is supported by it.  Otherwise
        return ``down``, or ``unknown`` if the node was never heard of."""
        support = self._context.support
        if (
            node == self._context.node
            or node in support.support_for
            or node in support.support_from
        ):
            return "up"
        return "down" if node in support.epochs else "unknown"

    def is_up(self, node: int) -> bool:
        """True if ``node`` is this node, supports it or is supported by it."""
        return self.node_state(node) == "up"

    def living_leader(self, group: int, recorded: Configuration) -> int:
        """Return the leader of any group of the pool that can append, as far as this node knows;
        0 = there is none: the leader's node or a majority of the voters is not up.  ``recorded``:
        the members of a group without a replica here.  O(voters).

        ``leader_hint`` names the last leader also when its node is gone."""
        leader = self.leader_hint(group)[0]
        if not leader or not self.is_up(leader):
            return 0
        configuration = self.configuration(group) or recorded
        return leader if joint_quorum.supported(configuration, self.is_up) else 0

    def heard_epoch(self, node: int) -> int:
        """Return the highest boot epoch heard of ``node``; 0 = none."""
        return self._context.support.epochs.get(node, 0)

    def supported_epoch(self, node: int) -> int:
        """Return the boot epoch of ``node`` that this node supports now; 0 = none."""
        return self._context.support.support_for.get(node, 0)

    # ---- digests ------------------------------------------------------------------------------

    def leading_digest(self, node: int) -> int:
        """Return the digest's sum over the groups led here that ``node`` is a member of; 0 =
        none."""
        digest = self._context.leading_digests.get(node)
        return digest.total if digest is not None else 0

    def followed_digest(self, node: int) -> int:
        """Return the digest's sum over the groups here that follow ``node`` as their leader; 0 =
        none."""
        digest = self._context.followed_digests.get(node)
        return digest.total if digest is not None else 0

    @property
    def digests_version(self) -> int:
        """Version of ``digests``: grows with each change."""
        return self._context.digests_version

    def digests(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Return (leading digests by node, followed digests by node, leading version), the
        arguments of ``StoreLiveness.publish``.  O(nodes)."""
        context = self._context
        return ({node: digest.total for node, digest in context.leading_digests.items()},
                {node: digest.total for node, digest in context.followed_digests.items()},
                context.leading_changes.version)
