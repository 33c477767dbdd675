"""The placement while a plan is made: who holds what, and what that costs each node.

Contract.  ``State`` is the only mutable thing of the planner.  It begins as the snapshot; each
change keeps all sums up to date in O(replicas of the group).  ``check`` recomputes them.

Invariants.  The sum of a resource over all nodes changes only when a group's number of voters does
(conservation).  Every number is an integer, so no sum depends on the order of addition; everything
that is iterated is a list, or a map sorted first.

Nodes are dense indices here (``ids`` leads back), in order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from placement.cluster import ALIVE, DEAD, DRAINING, MAINTENANCE, GroupRow, Snapshot
from placement.policy import NODE_RESOURCES, PERMILLE, REPLICAS, Policy

if TYPE_CHECKING:
    from placement.cluster import NodeRow

#: Loads of a node: those of its resources, then the number of its replicas.
NODE_LOADS = (*NODE_RESOURCES, REPLICAS)
#: Positions in a node's loads.
R_DISK, R_INGRESS, R_EGRESS, R_LEADERS, R_REPLICAS = range(len(NODE_LOADS))
#: Loads that move with a replica, whichever node leads the group.
REPLICA_LOADS = (R_DISK, R_INGRESS, R_REPLICAS)

#: No capacity is known: nothing is too much.
UNLIMITED = 1 << 80

NO_NODE = -1


class Node(NamedTuple):
    """A node as the planner sees it: ``state`` with the drains that were asked for, ``cap`` what it
    may carry of each resource, the policy's share of a disk already taken off."""

    id: int
    rack: int
    weight: int
    state: str
    cap: tuple[int, ...]

    @property
    def accepts_replicas(self) -> bool:
        """True if the node may get replicas."""
        return self.state == ALIVE and self.weight > 0

    @property
    def has_share(self) -> bool:
        """True if the node has a share of the cluster's load."""
        return self.state in (ALIVE, MAINTENANCE) and self.weight > 0

    @property
    def may_lead(self) -> bool:
        """True if the node's replicas may be leaders."""
        return self.state == ALIVE

    @property
    def is_evacuated(self) -> bool:
        """True if the node's replicas have to move to other nodes."""
        return self.state in (DEAD, DRAINING)


class State:
    """The placement while a plan is made, with the loads of all nodes and groups."""

    __slots__ = ("snapshot", "nodes", "ids", "index", "racks", "groups", "voters", "leader",
                 "ingress", "read", "load", "held", "where", "rack_limit", "_initial",
                 "_initial_leader")

    def __init__(self, snapshot: Snapshot, policy: Policy, drain: Iterable[int] = ()):
        self.snapshot = snapshot
        self.racks = sorted({node.rack: None for node in snapshot.nodes})
        rack_index = {name: place for place, name in enumerate(self.racks)}
        drained = {node: None for node in drain}
        self.nodes = [_node(row, rack_index[row.rack], row.id in drained, policy)
                      for row in snapshot.nodes]
        self.ids = [node.id for node in self.nodes]
        self.index = {node: place for place, node in enumerate(self.ids)}
        self.groups: dict[int, GroupRow] = {group.id: group for group in snapshot.groups}
        self.ingress = {group.id: group.ingress for group in snapshot.groups}
        self.read = {group.id: group.read for group in snapshot.groups}
        self.where = {row.incarnation: row.group for row in snapshot.partitions}
        self.load = [[0] * len(NODE_LOADS) for _ in self.nodes]
        self.held: list[dict[int, None]] = [{} for _ in self.nodes]
        self.voters: dict[int, list[int]] = {}
        self.leader: dict[int, int] = {}
        for group in snapshot.groups:
            self.voters[group.id] = [self.index[node] for node in group.voters]
            leader = self.index.get(group.leader, NO_NODE)
            self.leader[group.id] = leader if leader in self.voters[group.id] else NO_NODE
            self._add(group.id, 1)
        self._initial = {group: tuple(voters) for group, voters in self.voters.items()}
        self._initial_leader = dict(self.leader)
        self.rack_limit = self._rack_limits()

    # ---- changes --------------------------------------------------------------------------------

    def _add(self, group: int, sign: int) -> None:
        """Add all that the group costs its nodes to their loads (``sign`` 1), or subtract it (-1).
        """
        row, voters, leader = self.groups[group], self.voters[group], self.leader[group]
        ingress = self.ingress[group]
        for node in voters:
            load = self.load[node]
            load[R_DISK] += sign * row.bytes
            load[R_INGRESS] += sign * ingress
            load[R_REPLICAS] += sign
            if sign > 0:
                self.held[node][group] = None
            else:
                del self.held[node][group]
        if leader != NO_NODE:
            self.load[leader][R_EGRESS] += sign * self.leader_egress(group)
            self.load[leader][R_LEADERS] += sign

    def set_members(self, group: int, voters: Iterable[int], leader: int) -> None:
        """Give the group these voters and this leader, and update the loads."""
        self._add(group, -1)
        self.voters[group] = sorted(voters)
        self.leader[group] = leader
        self._add(group, 1)

    def switch(self, incarnation: int, ingress: int, read: int, to_group: int) -> None:
        """Let a partition append to another group: its rates of appends and reads move there, its
        bytes stay."""
        from_group = self.where[incarnation]
        for group, sign in ((from_group, -1), (to_group, 1)):
            self._add(group, -1)
            self.ingress[group] += sign * ingress
            self.read[group] += sign * read
            self._add(group, 1)
        self.where[incarnation] = to_group

    # ---- questions ------------------------------------------------------------------------------

    def leader_egress(self, group: int) -> int:
        """Return the bytes per second that the group's leader sends to readers and other voters."""
        return self.read[group] + (len(self.voters[group]) - 1) * self.ingress[group]

    def replica_load(self, group: int, resource: int) -> int:
        """Return the cost of a replica in any role: disk, ingress, or 1 as their number."""
        if resource == R_REPLICAS:
            return 1
        return self.groups[group].bytes if resource == R_DISK else self.ingress[group]

    def has_quorum(self, group: int) -> bool:
        """True if the living nodes are a majority of the voters."""
        voters = self.voters[group]
        living = sum(self.nodes[node].state != DEAD for node in voters)
        return 2 * living > len(voters)

    def in_rack(self, group: int, rack: int, without: int = NO_NODE) -> int:
        """Return the number of voters in a rack, ``without`` and nodes that are being emptied not
        counted."""
        return sum(self.nodes[node].rack == rack and node != without
                   and not self.nodes[node].is_evacuated for node in self.voters[group])

    def sender(self, group: int) -> int:
        """Return the node that copies to a new replica: the leader, else the first living voter;
        ``NO_NODE`` when all are dead."""
        leader = self.leader[group]
        if leader != NO_NODE and self.nodes[leader].state != DEAD:
            return leader
        return next((node for node in self.voters[group] if self.nodes[node].state != DEAD),
                    NO_NODE)

    def is_emptier(self, node: int, load: int, other: int, resource: int) -> bool:
        """True if ``node`` with this load would be less full for its weight than ``other`` is
        now."""
        return load * self.nodes[other].weight < (self.load[other][resource]
                                                  * self.nodes[node].weight)

    def initial(self, group: int) -> tuple[int, ...]:
        """Return the voters that the group had in the snapshot."""
        return self._initial[group]

    def is_unmoved(self, group: int) -> bool:
        """True if no plan has changed the group's voters, nor has the plan that is being made."""
        return not self.groups[group].moved_ms and [*self._initial[group]] == self.voters[group]

    def initial_leader(self, group: int) -> int:
        """Return the group's leader in the snapshot."""
        return self._initial_leader[group]

    def _rack_limits(self) -> list[int]:
        """Return, for each number of voters, how many of them one rack may have: as few as the
        racks' sizes allow."""
        sizes: dict[int, int] = {}
        for node in self.nodes:
            if node.has_share:
                sizes[node.rack] = sizes.get(node.rack, 0) + 1
        most = max((len(voters) for voters in self.voters.values()), default=1)
        most = max(most, self.snapshot.replication_factor)
        return [rack_limit(list(sizes.values()), voters) for voters in range(most + 1)]

    def rack_fits(self, group: int, target: int, leaving: int, voters_after: int) -> bool:
        """Return True if the group may have a voter on ``target`` in place of the one on
        ``leaving``, so that it has ``voters_after`` voters."""
        limit = self.rack_limit[min(voters_after, len(self.rack_limit) - 1)]
        return self.in_rack(group, self.nodes[target].rack, leaving) < limit

    def check(self) -> None:
        """Recompute and compare every sum. O(replicas); for tests."""
        load = [[0] * len(NODE_LOADS) for _ in self.nodes]
        for group, voters in self.voters.items():
            assert len({*voters}) == len(voters), f"group {group} has a node twice"
            for node in voters:
                load[node][R_DISK] += self.groups[group].bytes
                load[node][R_INGRESS] += self.ingress[group]
                load[node][R_REPLICAS] += 1
                assert group in self.held[node]
            if self.leader[group] != NO_NODE:
                assert self.leader[group] in voters, f"group {group} is led by a stranger"
                load[self.leader[group]][R_EGRESS] += self.leader_egress(group)
                load[self.leader[group]][R_LEADERS] += 1
        assert load == self.load, "a sum is wrong"


def _node(row: NodeRow, rack: int, drained: bool, policy: Policy) -> Node:
    state = DRAINING if drained and row.state != DEAD else row.state
    disk = row.disk_capacity * policy.disk_cap_permille // PERMILLE
    return Node(row.id, rack, row.weight, state,
                (disk or UNLIMITED, row.ingress_capacity or UNLIMITED,
                 row.egress_capacity or UNLIMITED, UNLIMITED))


def rack_limit(sizes: list[int], voters: int) -> int:
    """Return the least number of voters per rack with which ``voters`` fit into racks of these
    sizes; ``voters`` when they do not fit at all."""
    for limit in range(1, voters + 1):
        if sum(min(size, limit) for size in sizes) >= voters:
            return limit
    return max(voters, 1)
